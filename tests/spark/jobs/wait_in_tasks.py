"""Two tasks that wait until a file appears, so that a test can inspect the processes and break some of them.

Prints where the driver and each task import the package from, and on which host each of the tasks runs."""

import os
import sys
import time
from collections.abc import Iterator

from pyspark.sql import SparkSession

import kafka_sink


def wait_for(gate: str, _: Iterator[int]) -> Iterator[tuple[str, str]]:
    import kafka_sink

    while not os.path.exists(gate):
        time.sleep(0.05)
    yield str(kafka_sink.__file__), os.environ["SPARK_LOCAL_IP"]


spark = SparkSession.builder.getOrCreate()
gate = sys.argv[1]
print(kafka_sink.__file__)
for path, host in (
    spark.sparkContext.parallelize(range(2), 2).mapPartitions(lambda rows: wait_for(gate, rows)).collect()
):
    print(path, host)
spark.stop()
