"""Command-line job: writes any streaming source of Spark to Kafka."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from job_arguments import (
    FORMAT,
    add_sink_arguments,
    add_source_arguments,
    register_format,
    select_columns,
    sink_options,
    source_options,
)
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kafka_sink import KafkaSinkError, foreach_batch

PROGRESS_S = 5

EXAMPLES = """\
examples:
  new files of JSON lines, as they appear:
    spark-submit --conf spark.python.unix.domain.socket.enabled=true \\
        --py-files dist/pykafka_sink-0.3.0.dev0.zip spark_jobs/stream_to_kafka.py \\
        --format json --schema 'id BIGINT, name STRING' --path /data/in \\
        --select 'CAST(id AS STRING) AS key' --select 'to_json(struct(*)) AS value' \\
        --to kafka.bootstrap.servers=localhost:9092 --to topic=people --checkpoint /data/checkpoint

  all available rows, then end (for cron):
    ... --once

  the columns as Avro, with their schema in a registry:
    ... --value-format avro --schema-registry http://localhost:8081 --to use.latest.version=true

  ten rows a second, to try it out:
    ... --format rate --option rowsPerSecond=10 --select 'CAST(value AS STRING) AS value'

The checkpoint stores the progress of the query. A job that is started again with the same checkpoint continues where it
stopped, however it ended. Two jobs must not share one.

exit codes: 0 the query completed (--once), 1 it failed, 2 the arguments are wrong
"""


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Read a stream from any source of Spark and write it to Kafka.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_argument_group("the source")
    source.add_argument("--format", required=True, help="format of the source: json, parquet, delta, rate, kafka, ...")
    add_source_arguments(source)
    add_sink_arguments(parser)
    query = parser.add_argument_group("the query")
    query.add_argument("--checkpoint", required=True, metavar="DIR", help="folder for the progress of the query")
    query.add_argument("--name", help="name of the query, for logs and the Spark UI")
    pace = query.add_mutually_exclusive_group()
    pace.add_argument(
        "--trigger", metavar="INTERVAL", help="a micro-batch every '10 seconds'; by default without pause"
    )
    pace.add_argument(
        "--once", action="store_true", help="write all available rows, in as many batches as needed, and end"
    )
    return parser.parse_args(given)


def start(spark: SparkSession, given: argparse.Namespace, *, has_format: bool) -> StreamingQuery:
    reader = spark.readStream.format(given.format).options(**source_options(given))
    if given.schema:
        reader = reader.schema(given.schema)
    writer = select_columns(reader.load(), given.select).writeStream.option("checkpointLocation", given.checkpoint)
    if has_format:
        writer = writer.format(FORMAT).options(**sink_options(given))
    else:
        # With the location the sink has the name that the format would give it.
        writer = writer.foreachBatch(foreach_batch({"checkpointLocation": given.checkpoint, **sink_options(given)}))
    if given.name:
        writer = writer.queryName(given.name)
    if given.once:
        writer = writer.trigger(availableNow=True)
    elif given.trigger:
        writer = writer.trigger(processingTime=given.trigger)
    return writer.start()


def follow(query: StreamingQuery) -> None:
    """Waits until the query ends, and prints a line for each interval of a few seconds in which rows were written."""
    is_over, told = False, -1
    while not is_over:
        is_over = bool(query.awaitTermination(PROGRESS_S))
        # Before PySpark 4.0 they are plain dictionaries.
        batches: list[Mapping[str, Any]] = [each for each in query.recentProgress if each["batchId"] > told]
        counts = {each["batchId"]: rows_of(each) for each in batches if rows_of(each) > 0}
        if counts:
            told = max(counts)
            print(f"micro-batches {min(counts)} to {told}: {sum(counts.values()):,} rows", flush=True)


def rows_of(progress: Mapping[str, Any]) -> int:
    """What foreachBatch has written Spark does not know: -1. This job writes each row that it reads."""
    written: int = progress["sink"]["numOutputRows"]
    return written if written >= 0 else int(progress["numInputRows"])


def main() -> int:
    given = arguments()
    spark = SparkSession.builder.getOrCreate()
    has_format = register_format(spark)
    try:
        follow(start(spark, given, has_format=has_format))
    except (PySparkException, KafkaSinkError) as error:
        print(f"stream_to_kafka: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
