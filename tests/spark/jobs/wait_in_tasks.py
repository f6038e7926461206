"""Two tasks that wait until a file appears, so that a test can inspect the processes and break some of them."""

import os
import sys
import time
from collections.abc import Iterator

from pyspark.sql import SparkSession


def wait_for(gate: str, numbers: Iterator[int]) -> Iterator[int]:
    while not os.path.exists(gate):
        time.sleep(0.05)
    yield sum(numbers)


spark = SparkSession.builder.getOrCreate()
path = sys.argv[1]
print(spark.sparkContext.parallelize(range(100), 2).mapPartitions(lambda numbers: wait_for(path, numbers)).sum())
spark.stop()
