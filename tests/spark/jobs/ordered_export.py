"""Versions of a few keys, shuffled by key and sorted by version, whose tasks are disturbed in the middle of their rows:
the first attempt of one stalls until its copy has passed, the first attempt of another fails. Each leaves a file in the
folder that is the first argument. The others are options of the sink, NAME=VALUE."""

import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf, xxhash64

import kafka_sink

FOLDER = Path(sys.argv[1])
OPTIONS = dict(text.split("=", 1) for text in sys.argv[2:])
KEYS, VERSIONS, DISTURBED = 7, 60, 40


def disturb(folder: Path, value: str) -> str:
    context = TaskContext.get()
    assert context is not None
    if int(value) == DISTURBED and context.attemptNumber() == 0:
        if context.partitionId() == 0:
            (folder / "stalled-0").touch()
            while not (folder / "passed").exists():
                time.sleep(0.05)
        elif context.partitionId() == 1 and not (folder / "failed-0").exists():
            (folder / "failed-0").touch()
            raise ValueError("the first attempt fails after it has written some rows")
    elif int(value) == VERSIONS - 1 and context.partitionId() == 0:
        (folder / "passed").touch()
    return value


spark = (
    SparkSession.builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", 5)
    .config("spark.sql.execution.python.udf.maxRecordsPerBatch", 5)
    .getOrCreate()
)
rows = spark.range(0, KEYS * VERSIONS, 1, 4).selectExpr(
    f"concat('key-', id % {KEYS}) AS key", f"CAST(id DIV {KEYS} AS INT) AS version"
)
mixed = rows.orderBy(xxhash64("key", "version"))
ordered = mixed.repartition(3, "key").sortWithinPartitions("version")
slow = udf(lambda value: disturb(FOLDER, value), "string")
summary = kafka_sink.write(
    ordered.selectExpr("key", "CAST(version AS STRING) AS value").select("key", slow("value").alias("value")), OPTIONS
)
print(f"{summary.tasks} tasks", flush=True)
spark.stop()
