"""A stream in a separate application that takes one step for each line on standard input.

In each step the query starts, takes the existing files and ends. The job prints the result: "delivered", or "stopped"
with the reason in one line. Arguments: the folder of the source, the checkpoint location as given to the writer, and
options of the sink, NAME=VALUE.
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
