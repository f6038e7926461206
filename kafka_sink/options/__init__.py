"""Parses option names and values into checked, frozen `ProducerOptions` and `SinkOptions`.

An option is a row (option.py) of a table, and `engine.py` reads a user's mapping by a table: it looks the name up,
parses the value with the row's rule from `values.py` or `hooks.py`, fills in defaults, and fills a frozen dataclass.

`parse.py` does so with `table.py` and `security_table.py` (and `foreign_table.py`, which has other clients' names),
checks all values together (with `sasl_rules.py`, if SASL is used), and makes a `ProducerOptions`, or only its
`SecurityOptions`, for what is no broker.

`parse_sink.py` applies the defaults of `presets.py`, and goes by the name: with `kafka.` it is the producer's, as
above; the sink's own are in `sink_table.py`; `parse_formats.py` and `parse_envelope.py` read the rest, each by its
table. The result is in `sink_options.py`.

docs/options.md is generated from the tables. Nothing here uses a socket, a clock or a thread, so that a Spark driver
can check options before any task runs. A task gets checked options, and imports neither tables nor parsers.
"""

from kafka_sink.options.producer_options import ProducerOptions as ProducerOptions
from kafka_sink.options.security_options import SecurityOptions as SecurityOptions
