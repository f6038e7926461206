"""Option names and values as users write them -> a checked, frozen `ProducerOptions`.

`parse.parse_producer_options` is the way in, `parse_sink.parse_sink_options` for the options of the Spark sink. The
tables say what each option means and what becomes of it; nothing here knows a socket, a clock or a thread, so that a
Spark driver can check options before any task runs. A task, which gets them checked, does not load the tables.
"""

from kafka_sink.options.producer_options import ProducerOptions as ProducerOptions
