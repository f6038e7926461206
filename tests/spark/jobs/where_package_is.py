"""Prints where the driver and two tasks import the package from, and on which host each of the tasks runs."""

import os
from collections.abc import Iterator

from pyspark.sql import SparkSession

import kafka_sink


def origin(_: Iterator[int]) -> Iterator[tuple[str, str]]:
    import kafka_sink

    yield str(kafka_sink.__file__), os.environ["SPARK_LOCAL_IP"]


# Both tasks start at the same time, when there are two executors; until then Spark checks again every second.
again = "spark.scheduler.barrier.maxConcurrentTasksCheck"
spark = SparkSession.builder.config(f"{again}.interval", "1s").config(f"{again}.maxFailures", "400").getOrCreate()
print(kafka_sink.__file__)
for path, host in spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(origin).collect():
    print(path, host)
spark.stop()
