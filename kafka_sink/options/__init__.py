"""Option names and values as users write them -> checked, frozen `ProducerOptions` and `SinkOptions`.

A producer's option: `parse.py` looks the name up in `table.py` (or `foreign_table.py`, under another client's name),
has the row's rule from `values.py` or `hooks.py` read the value, lets `rules.py` (and `sasl_rules.py`, where somebody
logs in) look at all of them together, and makes `producer_options.py` of them, where the defaults stand.

An option of the sink: `parse_sink.py` puts what `presets.py` knows under it, and tells by the name whose it is: with
`kafka.` the producer's, as above; the sink's own by `sink_table.py`; `parse_formats.py` with `format_table.py` and
`parse_envelope.py` for the rest. `sink_options.py` is what comes of all that.

docs/options.md is printed from the tables. Nothing here knows a socket, a clock or a thread, so that a Spark driver can
check options before any task runs. A task, which gets them checked, loads neither tables nor parsers.
"""

from kafka_sink.options.producer_options import ProducerOptions as ProducerOptions
