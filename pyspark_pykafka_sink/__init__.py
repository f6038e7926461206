"""Makes `format("pykafka-sink")` known to Spark without a `register` call.

Spark imports every installed package whose name begins with `pyspark_` and takes its `DefaultSource`. The import must
never fail: one failing package would hide the sources of all others.
"""

from kafka_sink.spark.datasource import KafkaSinkDataSource as DefaultSource

__all__ = ["DefaultSource"]
