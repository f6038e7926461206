"""The streaming job of `make demo`: files of JSON lines to Kafka, until the file named by --end appears.

Otherwise it is an ordinary job. `tools/demo.py` runs the demonstration: it creates the input, kills the job, starts it
again and counts rows.
"""

from __future__ import annotations

import argparse
import os
import sys

from job_arguments import FORMAT, parse_pair
from pyspark.sql import SparkSession

from kafka_sink.spark import register

SCHEMA = "file INT, row INT, text STRING, crc BIGINT"
STARTED = "the query has started"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, metavar="DIR", help="folder in which the files appear")
    parser.add_argument("--end", required=True, metavar="FILE", help="when it exists, write the rest and end")
    parser.add_argument("--checkpoint", required=True, metavar="DIR")
    parser.add_argument("--partitions", required=True, type=int, help="number of partitions of the topic")
    parser.add_argument("--format", choices=("json", "avro"), default="json", help="format of the values")
    parser.add_argument(
        "--to", type=parse_pair, action="append", default=[], metavar="NAME=VALUE", help="options of the sink"
    )
    return parser.parse_args()


def main() -> int:
    given = arguments()
    spark = SparkSession.builder.appName("pykafka-sink demo").getOrCreate()
    register(spark)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 16).json(given.input)
    # Without a column value the sink writes all columns but key and partition, with the option value.format.
    value = "to_json(struct(*)) AS value" if given.format == "json" else "*"
    columns = rows.selectExpr(
        "concat(file, '-', row) AS key", value, f"CAST(row % {given.partitions} AS INT) AS partition"
    )
    query = (
        columns.writeStream.format(FORMAT)
        .options(**dict(given.to))
        .option("checkpointLocation", given.checkpoint)
        .queryName("demo")
        .start()
    )
    print(STARTED, flush=True)
    while not os.path.exists(given.end):
        query.awaitTermination(1)
    query.processAllAvailable()
    query.stop()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
