"""Command-line job: writes a table, the result of a query, or files to Kafka in one batch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

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
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import count, lit

from kafka_sink import KafkaSinkError, write

EXAMPLES = """\
examples:
  files:
    spark-submit --conf spark.python.unix.domain.socket.enabled=true \\
        --py-files dist/pykafka_sink-0.2.0.zip spark_jobs/export_to_kafka.py \\
        --format parquet --path /data/people \\
        --select 'CAST(id AS STRING) AS key' --select 'to_json(struct(*)) AS value' \\
        --to kafka.bootstrap.servers=localhost:9092 --to topic=people

  a table of the catalog:
    ... --table shop.orders --select 'to_json(struct(*)) AS value'

  every column of a table as one Avro record, with its schema in a registry:
    ... --table shop.orders --value-format avro --schema-registry http://localhost:8081 --to auto.register.schemas=true

  a query, which can name the columns itself:
    ... --sql "SELECT CAST(id AS STRING) AS key, to_json(struct(*)) AS value FROM shop.orders WHERE day = '2026-01-31'"

exit codes: 0 all rows are in Kafka (without those that record.errors leaves out), 1 the export failed, 2 the arguments
are wrong
"""


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Write a table, the result of a query, or files to Kafka.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_argument_group("the source")
    kind = source.add_mutually_exclusive_group(required=True)
    kind.add_argument("--table", help="a table of the catalog")
    kind.add_argument("--sql", metavar="QUERY", help="the result of a query")
    kind.add_argument("--format", help="files or another source: parquet, json, csv, jdbc, ...")
    add_source_arguments(source)
    add_sink_arguments(parser)
    found = parser.parse_args(given)
    if not found.format and (found.option or found.schema or found.path):
        parser.error("--option, --schema and --path belong to --format")
    return found


def source(spark: SparkSession, given: argparse.Namespace) -> DataFrame:
    if given.table:
        return spark.table(given.table)
    if given.sql:
        return spark.sql(given.sql)
    reader = spark.read.format(given.format).options(**source_options(given))
    if given.schema:
        reader = reader.schema(given.schema)
    return reader.load()


def export(frame: DataFrame, options: Mapping[str, str], *, has_format: bool) -> int:
    """The rows that were passed to the sink."""
    counted = Observation()
    frame = frame.observe(counted, count(lit(1)).alias("rows"))
    if has_format:
        frame.write.format(FORMAT).mode("append").options(**options).save()
    else:
        write(frame, options)
    rows: int = counted.get["rows"]
    return rows


def result_text(rows: int, options: Mapping[str, str]) -> str:
    """`rows` were passed to the sink. How many of them record.errors left out is known to the driver's log alone."""
    named = {name.lower(): value.strip().lower() for name, value in options.items()}
    choice = named.get("record.errors", "fail")
    return f"exported {rows} rows" + ("" if choice == "fail" else f", less those left out by record.errors={choice}")


def main() -> int:
    given = arguments()
    spark = SparkSession.builder.getOrCreate()
    has_format = register_format(spark)
    try:
        frame = select_columns(source(spark, given), given.select)
        rows = export(frame, sink_options(given), has_format=has_format)
    except (PySparkException, KafkaSinkError) as error:
        print(f"export_to_kafka: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    print(result_text(rows, sink_options(given)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
