"""Makes `format("pykafka-sink")` known to Spark without a `register` call.

Spark looks through the folders on `sys.path`, imports every package whose name begins with `pyspark_` and takes its
`DefaultSource`. An editable install with an import hook, and a zip passed with --py-files, are not found. The import
must never fail there: one failing package would hide the sources of all others. A Spark that does not look for data
sources never imports it, and whoever does is told what works.
"""

from kafka_sink.spark.datasource import KafkaSinkDataSource as DefaultSource

__all__ = ["DefaultSource"]
