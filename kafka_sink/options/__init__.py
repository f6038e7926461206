"""Option names and values as users write them -> a checked, frozen `ProducerOptions`."""

from kafka_sink.options.producer_options import ProducerOptions as ProducerOptions
