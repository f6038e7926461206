"""Parses option names and values into checked, frozen `ProducerOptions` and `SinkOptions`.

A producer's option: `parse.py` looks the name up in `table.py` (or `foreign_table.py`, under another client's name),
parses the value with the row's rule from `values.py` or `hooks.py`, checks all of them together with `rules.py` (and
`sasl_rules.py`, if SASL is used), and makes a `ProducerOptions` (producer_options.py), which has the defaults.

An option of the sink: `parse_sink.py` applies the defaults of `presets.py`, and goes by the name: with `kafka.` it is
the producer's, as above; the sink's own are in `sink_table.py`; `parse_formats.py` with `format_table.py` and
`parse_envelope.py` handle the rest. The result is in `sink_options.py`.

docs/options.md is generated from the tables. Nothing here uses a socket, a clock or a thread, so that a Spark driver
can check options before any task runs. A task gets checked options, and imports neither tables nor parsers.
"""

from kafka_sink.options.producer_options import ProducerOptions as ProducerOptions
from kafka_sink.options.security_options import SecurityOptions as SecurityOptions
