"""The rows of bench.schemas in Spark: to_json in the JVM, and writes with Avro by our sink and Spark's own sink."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from bench.contest import log_length
from bench.spark_arena import TUNED, Arena, open_arena
from kafka_sink.formats.schemas.derive import derive_avro_schema
from tools.spark_jars import avro_jars

ROWS = 300_000
PARTITIONS = 4
WARM_UP, REPEAT = 4, 7


class Rounds(NamedTuple):
    """Medians, and the spread of the rate."""

    rows_per_second: float
    cpu_us: float
    spread: float


def report(rows: pa.StructArray, json_rate: float) -> str:
    with open_arena(avro_jars()) as arena:
        table = pa.Table.from_arrays(rows.flatten(), schema=pa.schema(list(rows.type)))
        frame = arena.spark.createDataFrame(table).repartition(2).persist()
        assert frame.count() == len(rows)
        json_us, avro = _json_us(arena, frame), _sinks(arena, frame, derive_avro_schema(rows.type, "Row").text)
    ours, spark = avro
    return f"""\

## In Spark

{len(rows)} of the same rows in Spark's cache, medians of {REPEAT} alternating rounds after {WARM_UP} warm-up rounds.

| JSON of ten columns | processor time per row | million rows per second and core |
| --- | --- | --- |
| `CAST(to_json(struct(*)) AS BINARY)` in the JVM, less a hash of all columns | {json_us:.2f} us | {1 / json_us:.2f} |
| ours, from Arrow columns (as above) | {1e6 / json_rate:.2f} us | {json_rate / 1e6:.2f} |

Whole writes to Apache Kafka on the same machine, {PARTITIONS} partitions, two tasks, the same `batch.size`,
`linger.ms`, schema and bytes per value. Ours delivers exactly once, Spark's own sink at least once.
Rates that differ by less than their spread count as equal.

| sink | rows per second | spread | processor time per row, Spark and Python |
| --- | --- | --- | --- |
| ours, `value.format=avro` | {ours.rows_per_second:,.0f} | {ours.spread:.0%} | {ours.cpu_us:.2f} us |
| `format("kafka")`, `to_avro` | {spark.rows_per_second:,.0f} | {spark.spread:.0%} | {spark.cpu_us:.2f} us |
"""


def _json_us(arena: Arena, frame: DataFrame) -> float:
    """The cost of to_json without that of reading the cached rows. It is a little too low: the hash costs something."""
    text = frame.select(F.to_json(F.struct("*")).cast("binary").alias("value"))
    columns = frame.select(F.hash("*").alias("value"))  # reads all columns and does little with them
    found: dict[str, list[float]] = {"text": [], "columns": []}
    for _ in range(WARM_UP + REPEAT):
        for name, selected in (("text", text), ("columns", columns)):
            _, spent = arena.measure(selected.write.format("noop").mode("overwrite").save)
            found[name].append(spent.cpu_seconds / ROWS * 1e6)
    return median(found["text"][WARM_UP:]) - median(found["columns"][WARM_UP:])


def _sinks(arena: Arena, frame: DataFrame, schema: str) -> tuple[Rounds, Rounds]:
    encoded = frame.select(to_avro(F.struct("*"), schema).alias("value"))
    formats = {"value.format": "avro", "value.schema": schema}
    ours: list[tuple[float, float]] = []
    spark: list[tuple[float, float]] = []
    for _ in range(WARM_UP + REPEAT):
        ours.append(
            _write(arena, lambda to: frame.write.format("pykafka-sink").options(**to, **formats).mode("append").save())
        )
        spark.append(_write(arena, lambda to: encoded.write.format("kafka").options(**to).save()))
    return _rounds(ours), _rounds(spark)


def _write(arena: Arena, write: Callable[[dict[str, str]], None]) -> tuple[float, float]:
    """Returns rows per second and processor time per row. Checks how many records the log has."""
    topic = arena.new_topic("avro", PARTITIONS)
    servers = arena.kafka.bootstrap_servers
    _, spent = arena.measure(lambda: write({"kafka.bootstrap.servers": servers, "topic": topic, **TUNED}))
    logged = log_length(servers, topic, PARTITIONS)
    assert ROWS <= logged <= ROWS + 16 * PARTITIONS, f"{ROWS} rows should be in the log, which has {logged}"
    arena.kafka.delete_topic(topic)
    return ROWS / spent.seconds, spent.cpu_seconds / ROWS * 1e6


def _rounds(every: list[tuple[float, float]]) -> Rounds:
    rates, cpu = zip(*every[WARM_UP:], strict=True)
    return Rounds(median(rates), median(cpu), (max(rates) - min(rates)) / max(rates))
