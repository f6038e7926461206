"""Writes streams and batches with secrets in their options, and prints what Spark and the sink show of them.

The argument is a JSON file: what is read, and a list of writes, each with its name, options and whether it must fail.
"""

import json
import logging
import pickle
import sys
import urllib.request
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_sink import Producer
from kafka_sink.options.parse_sink import parse_sink_options

logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
# At DEBUG py4j prints each argument of each call into the JVM, including the options of the job.
logging.getLogger("py4j").setLevel(logging.INFO)
order = json.loads(Path(sys.argv[1]).read_text())
spark = SparkSession.builder.getOrCreate()


def shown(error: Exception) -> None:
    print("error", error, repr(error), pickle.dumps(str(error)))
    cause = getattr(error, "getStackTrace", None)
    print("stack", cause() if cause else "")


def batch(name: str, options: dict[str, str]) -> None:
    frame = spark.range(4).selectExpr("cast(id as string) as value")
    frame.write.format("pykafka-sink").options(**options).mode("append").save()


def stream(name: str, options: dict[str, str]) -> None:
    source = spark.readStream.schema("value string").text(order["folder"])
    writer = source.writeStream.format("pykafka-sink").options(**options).queryName(name)
    query = writer.option("checkpointLocation", order["checkpoints"] + "/" + name).trigger(availableNow=True).start()
    try:
        query.awaitTermination(120)
    finally:
        query.explain(True)
        for progress in query.recentProgress:
            print("progress", progress.json)
        print("status", query.status)


def engine(name: str, options: dict[str, str]) -> None:
    """The producer in this process: its representations, its metrics, its errors and their pickles."""
    parsed = parse_sink_options(options)
    print(repr(parsed), str(parsed.producer))
    named = {key.removeprefix("kafka."): value for key, value in options.items() if key.startswith("kafka.")}
    try:
        with Producer(named) as producer:
            print(repr(producer), producer.send(options["topic"], value=b"engine").result(60))
            print("metrics", producer.metrics())
    except Exception as error:
        print(error, repr(error), pickle.dumps(error), getattr(error, "__dict__", ""))
        raise


WAYS = {"batch": batch, "stream": stream, "engine": engine}
for write in order["writes"]:
    for how in (WAYS[way] for way in write["ways"]):
        has_failed = False
        try:
            how(write["name"], write["options"])
        except Exception as error:
            has_failed = True
            shown(error)
        assert has_failed is write["fails"], (write["name"], how.__name__)
        print("done", write["name"], how.__name__)

base = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
for path in ("sql?details=true&planDescription=true&length=1000", "jobs", "stages?details=true", "environment"):
    with urllib.request.urlopen(f"{base}/{path}") as answer:
        Path(order["rest"], path.partition("?")[0] + ".json").write_bytes(answer.read())
spark.stop()
print("end")
