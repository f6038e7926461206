"""A stream whose tasks wait in the middle of their rows until the test releases them.

Files of JSON lines {"batch": B, "id": N} come from `input`, one for each micro-batch. In its tenth row the task of
Spark partition 0 writes its process id to a file `B-ATTEMPT` in `reached`, and waits for a file `B` or `B-ATTEMPT` in
`gates`. The query ends when there is a file `end`. All of these are in the folder that is the first argument. The
second is the door, `format` or `foreach_batch`; the others are options of the sink, NAME=VALUE.
"""

import os
import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr, udf

import kafka_sink

FOLDER, DOOR = Path(sys.argv[1]), sys.argv[2]
OPTIONS = dict(text.split("=", 1) for text in sys.argv[3:])
WAITS_IN_ROW = 10
# Rows are passed on in small batches, each larger than the buffers between two processes.
BATCH_ROWS, VALUE_BYTES = 3, 30_000
SETTINGS = ("spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.python.udf.maxRecordsPerBatch")


def gated(folder: Path, seen: dict[int, int], batch: int, number: int) -> str:
    context = TaskContext.get()
    assert context is not None
    attempt = context.taskAttemptId()
    seen[attempt] = seen.get(attempt, 0) + 1
    if context.partitionId() == 0 and seen[attempt] == WAITS_IN_ROW:
        name = f"{batch}-{context.attemptNumber()}"
        (folder / "reached" / name).write_text(str(os.getpid()))
        while not any((folder / "gates" / gate).exists() for gate in (str(batch), name)):
            time.sleep(0.05)
    return str(number).ljust(VALUE_BYTES, ".")


builder = SparkSession.builder
for setting in SETTINGS:
    builder = builder.config(setting, BATCH_ROWS)
spark = builder.getOrCreate()
seen_by_attempt: dict[int, int] = {}
value = udf(lambda batch, number: gated(FOLDER, seen_by_attempt, batch, number), "string", useArrow=False)
source = spark.readStream.schema("batch INT, id INT").option("maxFilesPerTrigger", 1).json(str(FOLDER / "input"))
rows = source.repartition(2).select(expr("CAST(id AS STRING) AS key"), value("batch", "id").alias("value"))
if DOOR == "format":
    kafka_sink.register(spark)
    writer = rows.writeStream.format("pykafka-sink").options(**OPTIONS)
else:
    writer = rows.writeStream.foreachBatch(kafka_sink.foreach_batch(OPTIONS))
query = writer.option("checkpointLocation", str(FOLDER / "checkpoint")).start()
while not (FOLDER / "end").exists():
    query.awaitTermination(0.2)
query.processAllAvailable()
query.stop()
spark.stop()
