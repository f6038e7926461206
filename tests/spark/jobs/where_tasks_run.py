"""Prints the host of every task and the sum of its numbers, two tasks at the same time."""

import os
import time
from collections.abc import Iterator

from pyspark.sql import SparkSession


def host_and_sum(numbers: Iterator[int]) -> Iterator[tuple[str, int]]:
    # Long enough that one executor cannot take both tasks before the other one is there.
    time.sleep(2)
    yield os.environ["SPARK_LOCAL_IP"], sum(numbers)


spark = SparkSession.builder.getOrCreate()
for host, total in spark.sparkContext.parallelize(range(100), 2).mapPartitions(host_and_sum).collect():
    print(f"{host} {total}")
spark.stop()
