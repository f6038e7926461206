"""Option names and values as users write them -> a checked, frozen `ProducerOptions`.

`parse_producer_options` is the way in. The tables say what each option means and what becomes of it; nothing here
knows a socket, a clock or a thread, so that a Spark driver can check options before any task runs.
"""

from kafka_sink.options.parse import parse_producer_options as parse_producer_options
from kafka_sink.options.producer_options import ProducerOptions as ProducerOptions
