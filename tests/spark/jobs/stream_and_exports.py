"""A stream, and labelled exports beside it, in one driver that may be killed.

In the folder that is the first argument `input` has files of numbers, one for each micro-batch, and `orders` one for
each export, which is named like its file. Delivered ones leave a file in `done`. With a file `end` the application
delivers what is there, and ends. The second argument is the door, `format` or `foreach_batch` (exports: `write`); the
others are options of both, NAME=VALUE.
"""

import os
import sys
import threading
import time
import traceback
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import kafka_sink

folder, door = Path(sys.argv[1]), sys.argv[2]
options = dict(text.split("=", 1) for text in sys.argv[3:])
spark = SparkSession.builder.master("local[2,2]").config("spark.ui.enabled", "false").getOrCreate()


def export_what_is_ordered() -> bool:
    """Whether there was anything to do."""
    done = {path.name for path in (folder / "done").iterdir()}
    orders = sorted(path for path in (folder / "orders").iterdir() if path.name not in done)
    for order in orders:
        named = {**options, "topic": f"{options['topic']}-exports", "sink.id": f"{options['sink.id']}-exports"}
        write(spark.read.text(str(order)).repartition(2), {**named, "batch.id": f"export-{order.name}"})
        print("exported", order.name, flush=True)
        (folder / "done" / order.name).touch()
    return bool(orders)


def write(rows: DataFrame, named: dict[str, str]) -> None:
    if door == "foreach_batch":
        kafka_sink.write(rows, named)
    else:
        kafka_sink.register(spark)  # in this thread
        rows.write.format("pykafka-sink").mode("append").options(**named).save()


def export() -> None:
    try:
        while export_what_is_ordered() or not (folder / "end").exists():
            time.sleep(0.1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


source = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "input")).repartition(2)
if door == "foreach_batch":
    writer = source.writeStream.foreachBatch(kafka_sink.foreach_batch(options))
else:
    kafka_sink.register(spark)
    writer = source.writeStream.format("pykafka-sink").options(**options)
query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
exports = threading.Thread(target=export)
exports.start()
print("started", flush=True)
while not (folder / "end").exists():
    query.awaitTermination(0.2)
query.processAllAvailable()
exports.join()
query.stop()
spark.stop()
