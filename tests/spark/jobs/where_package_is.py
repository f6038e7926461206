"""Prints where the driver and the tasks have the package from, as paths."""

from collections.abc import Iterator

from pyspark.sql import SparkSession

import kafka_sink


def origin(_: Iterator[int]) -> Iterator[str]:
    import kafka_sink

    yield str(kafka_sink.__file__)


spark = SparkSession.builder.getOrCreate()
print(kafka_sink.__file__)
for path in spark.sparkContext.parallelize(range(2), 2).mapPartitions(origin).collect():
    print(path)
spark.stop()
