"""A Spark application that writes with one sink, for `bench.spark_sinks`, which starts one of these for each sink.

In one application the JVM recompiles its loops for each sink, and later sinks become slower. With one application per
sink, each stays as warm as in real use. The application reads commands as lines of JSON from standard input and writes
answers as lines to standard output: `{"case": {...}, "topic": ...}` and `{"rows": ..., "seconds": ...}`.

The source is JSON rows in Spark's own cache, so that reading them costs little.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

import kafka_sink
from bench.payload import write_payload
from bench.process_tree import cpu_by_kind, peak_bytes
from bench.spark_arena import TUNED, jvm_pid, open_session
from bench.spark_cases import MIXED, Case
from bench.spark_peers import write_with_confluent, write_with_kafka_python

# Limits of an Arrow batch, in rows (10,000 by default) and in bytes (none by default: a batch of long rows does not fit
# into a processor's cache).
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
EXACTLY, AT_LEAST, JAVA, NULL = "exactly-once", "at-least-once", "java", "null"
HEADERS = "array(struct('trace' AS key, encode(key, 'utf-8') AS value), struct('v' AS key, X'01' AS value))"

Options = Mapping[str, str]
Write = Callable[[DataFrame, Options, int], int]


@dataclass(frozen=True)
class Sink:
    """`write` returns the number of rows that it wrote: slow sinks write only a part of them."""

    name: str
    title: str
    write: Write
    is_in_quick: bool = True
    conf: Mapping[str, str] = field(default_factory=dict)


def _through(source: str, **options: str) -> Write:
    def write(frame: DataFrame, kafka: Options, rows: int) -> int:
        frame.write.format(source).options(**kafka, **options).mode("append").save()
        return rows

    return write


def _through_second_door(frame: DataFrame, kafka: Options, rows: int) -> int:
    return kafka_sink.write(frame, {**kafka, **TUNED}).rows


def _twentieth(write: Callable[[DataFrame, Options], None]) -> Write:
    def write_twentieth(frame: DataFrame, kafka: Options, rows: int) -> int:
        write(frame.limit(rows // 20), kafka)
        return rows // 20

    return write_twentieth


SINKS = (
    Sink(EXACTLY, "**ours**, exactly once", _through("pykafka-sink", **TUNED)),
    Sink(
        AT_LEAST,
        "**ours**, at least once",
        _through("pykafka-sink", **TUNED, **{"delivery.guarantee": "at-least-once"}),
    ),
    Sink("second-door", "**ours**, exactly once, second door", _through_second_door),
    Sink(
        "small-arrow",
        "**ours**, exactly once, Arrow batches of 1000 rows",
        _through("pykafka-sink", **TUNED),
        is_in_quick=False,
        conf={ARROW_ROWS: "1000"},
    ),
    Sink(JAVA, "Spark's own sink, tuned alike", _through("kafka", **TUNED)),
    Sink("java-defaults", "Spark's own sink, defaults", _through("kafka")),
    Sink(NULL, "null sink in Python (the ceiling)", _through("null-sink")),
    Sink("confluent", "confluent-kafka in foreachPartition", _twentieth(write_with_confluent), is_in_quick=False),
    Sink("kafka-python", "kafka-python in foreachPartition", _twentieth(write_with_kafka_python), is_in_quick=False),
)


@dataclass(frozen=True)
class Written:
    """CPU seconds by kind of process (process_tree.py)."""

    rows: int
    seconds: float
    cpu: Mapping[str, float]
    peak_rss_bytes: int


class Application:
    def __init__(self, spark: SparkSession, sink: Sink, servers: str, folder: Path) -> None:
        self._spark = spark
        self._sink = sink
        self._servers = servers
        self._folder = folder
        self._cached: tuple[tuple[int, int, int], DataFrame] | None = None
        # For every sink, as docs/performance.md advises: ten thousand long rows do not fit into a processor's cache.
        for name, value in {ARROW_BYTES: "4m", **sink.conf}.items():
            spark.conf.set(name, value)

    def write(self, case: Case, topic: str) -> Written:
        frame = self._frame(case)
        options = {
            "kafka.bootstrap.servers": self._servers,
            "topic": topic,
            "kafka.compression.type": case.codec,
            **({"includeHeaders": "true"} if case.has_headers and self._sink.name.startswith(JAVA) else {}),
        }
        pid = jvm_pid(self._spark)
        before, started = cpu_by_kind(pid), time.monotonic()
        rows = self._sink.write(frame, options, case.rows)
        seconds = time.monotonic() - started
        cpu = {kind: used - before[kind] for kind, used in cpu_by_kind(pid).items()}
        return Written(rows, seconds, cpu, peak_bytes(pid))

    def _frame(self, case: Case) -> DataFrame:
        columns = [*(["key"] if case.is_keyed else []), "value", *(["headers"] if case.has_headers else [])]
        cached = self._rows(case)
        rows = reduce(DataFrame.union, [cached] * case.times).coalesce(case.tasks)
        return rows.withColumn("headers", expr(HEADERS)).select(columns) if case.has_headers else rows.select(columns)

    def _rows(self, case: Case) -> DataFrame:
        """The cached rows of one size, count and number of tasks, materialised before the clock starts."""
        wanted = (case.value_bytes, case.cached_rows, case.tasks)
        if self._cached is not None and self._cached[0] == wanted:
            return self._cached[1]
        if self._cached is not None:
            self._cached[1].unpersist(blocking=True)
        payload = self._folder / f"payload-{case.value_bytes}"
        if not payload.exists():
            write_payload(payload, None if case.value_bytes == MIXED else case.value_bytes)
        lines = payload.read_text().split("\n")
        texts = self._spark.createDataFrame(list(enumerate(lines)), "number INT, value STRING")
        numbers = self._spark.range(0, case.cached_rows, 1, case.tasks)
        numbers = numbers.selectExpr("id", f"CAST(id % {len(lines)} AS INT) AS number")
        frame = numbers.join(texts.hint("broadcast"), "number").selectExpr(
            "concat('user-', pmod(hash(id), 10000000)) AS key", "value"
        )
        frame = frame.persist()
        assert frame.count() == case.cached_rows
        self._cached = (wanted, frame)
        return frame


def main() -> None:
    name, servers = sys.argv[1:]
    sink = next(sink for sink in SINKS if sink.name == name)
    with open_session() as spark, tempfile.TemporaryDirectory(prefix="pykafka-sink-bench-") as folder:
        application = Application(spark, sink, servers, Path(folder))
        print("ready", flush=True)
        for line in sys.stdin:
            command = json.loads(line)
            written = application.write(Case(**command["case"]), command["topic"])
            print(json.dumps(written.__dict__), flush=True)


if __name__ == "__main__":
    main()
