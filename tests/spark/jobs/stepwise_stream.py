"""A stream that takes a step when it is told to, in an application of its own.

Each line on the standard input is a step: the query starts, takes the files that are there and ends. What came of it is
printed: "delivered", or "stopped" with the reason in one line. Arguments: the folder of the source, the checkpoint
location as the writer gets it, and options of the sink, NAME=VALUE.
"""

import sys

from pyspark.sql import SparkSession

from kafka_sink.spark import register

source, checkpoint = sys.argv[1:3]
options = dict(text.split("=", 1) for text in sys.argv[3:])
spark = SparkSession.builder.master("local[2,2]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
print("ready", flush=True)
for _ in sys.stdin:
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(source).repartition(2)
    writer = rows.writeStream.format("pykafka-sink").options(**options).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
        print("delivered", flush=True)
    except Exception as error:
        print("stopped", " ".join(str(error).split()), flush=True)
spark.stop()
