"""Command-line job: writes a table, the result of a query, or files to Kafka in one batch."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
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

from kafka_sink import ChunkSummary, ExportSummary, KafkaSinkError, write, write_in_chunks

EXAMPLES = """\
examples:
  files:
    spark-submit --conf spark.python.unix.domain.socket.enabled=true \\
        --py-files dist/pykafka_sink-0.3.0.dev0.zip spark_jobs/export_to_kafka.py \\
        --format parquet --path /data/people \\
        --select 'CAST(id AS STRING) AS key' --select 'to_json(struct(*)) AS value' \\
        --to kafka.bootstrap.servers=localhost:9092 --to topic=people

  a table of the catalog:
    ... --table shop.orders --select 'to_json(struct(*)) AS value'

  every column of a table as one Avro record, with its schema in a registry:
    ... --table shop.orders --value-format avro --schema-registry http://localhost:8081 --to auto.register.schemas=true

  a query, which can name the columns itself:
    ... --sql "SELECT CAST(id AS STRING) AS key, to_json(struct(*)) AS value FROM shop.orders WHERE day = '2026-01-31'"

  longer than brokers keep a transaction open (15 minutes): in chunks. After a crash the same command writes the rest
  (docs/guides/exports.md):
    ... --format parquet --path /data/orders --select 'CAST(id AS STRING) AS key' \\
        --select 'to_json(struct(*)) AS value' --chunks 20 --chunk-by key \\
        --to sink.id=orders-export --to batch.id=export-2026-11-21

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
    chunks = parser.add_argument_group("an export in chunks, which needs --to sink.id=... and --to batch.id=...")
    chunks.add_argument(
        "--chunks", type=int, metavar="N", help="write the rows in N writes; those that are delivered are skipped"
    )
    chunks.add_argument(
        "--chunk-by", metavar="COLUMN", help="the column (after --select) whose value decides in which chunk a row is"
    )
    chunks.add_argument("--chunks-at-once", type=int, metavar="N", help="chunks that are written at a time; default: 1")
    found = parser.parse_args(given)
    if (found.chunks is None) != (found.chunk_by is None):
        parser.error("--chunks and --chunk-by belong together")
    if found.chunks_at_once is not None and found.chunks is None:
        parser.error("--chunks-at-once belongs to --chunks")
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


def export_in_chunks(frame: DataFrame, options: Mapping[str, str], given: argparse.Namespace) -> ExportSummary:
    done: list[ChunkSummary] = []

    def tell(chunk: ChunkSummary) -> None:
        done.append(chunk)
        was = "was delivered before" if chunk.is_skipped else "delivered"
        print(
            f"chunk {chunk.number} of {given.chunks} {was}, {chunk.rows} rows: {len(done)} of {given.chunks} done",
            flush=True,
        )

    try:
        return write_in_chunks(
            frame, options, chunks=given.chunks, by=given.chunk_by, parallel=given.chunks_at_once or 1, on_chunk=tell
        )
    except BaseException:
        print(f"{len(done)} of {given.chunks} chunks are known to be delivered", file=sys.stderr, flush=True)
        raise


def result_text(rows: int, options: Mapping[str, str]) -> str:
    """`rows` were passed to the sink. How many of them record.errors left out is known to the driver's log alone."""
    named = {name.lower(): value.strip().lower() for name, value in options.items()}
    choice = named.get("record.errors", "fail")
    return f"exported {rows} rows" + ("" if choice == "fail" else f", less those left out by record.errors={choice}")


def chunks_text(done: ExportSummary) -> str:
    left_out: Counter[str] = Counter()
    for chunk in done.chunks:
        left_out.update(chunk.write.left_out if chunk.write is not None else {})
    parts = [f"exported {done.rows} rows in {len(done.chunks)} chunks"]
    parts += [f"{done.skipped} of them were delivered by earlier runs"] if done.skipped else []
    return ", ".join([*parts, *(f"{count} rows left out: {reason}" for reason, count in left_out.items())])


def main() -> int:
    given = arguments()
    spark = SparkSession.builder.getOrCreate()
    has_format = register_format(spark)
    try:
        frame = select_columns(source(spark, given), given.select)
        options = sink_options(given)
        if given.chunks is None:
            text = result_text(export(frame, options, has_format=has_format), options)
        else:
            text = chunks_text(export_in_chunks(frame, options, given))
    except (PySparkException, KafkaSinkError) as error:
        print(f"export_to_kafka: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    print(text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
