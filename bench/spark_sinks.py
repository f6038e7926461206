"""Spark sinks beside each other: `python -m bench.spark_sinks [--quick] [--case NAME ...] [--only NAME ...]`.

One Spark session (local[2]), one Apache Kafka node, one source: JSON rows in Spark's own cache, so that fetching them
costs little. Rounds alternate: each round runs every sink once in every case. One round that does not count warms the
JVM, the Python workers and the broker up. After each write the topic's offsets are compared with the rows written.

The null sink is a Python sink that takes the same Arrow batches and throws them away: what it reaches is the ceiling
for every sink that is written in Python.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.contest import BROKER_JVM, BROKER_PROPERTIES, log_length
from bench.payload import write_payload
from bench.process_tree import cpu_seconds, peak_bytes
from bench.report import machine
from bench.spark_peers import NullSink, write_with_confluent, write_with_kafka_python
from tools.foreign_reader import end_offsets
from tools.kafka_cluster import KafkaCluster
from tools.spark_jars import java_sink_jars

_ROOT = Path(__file__).parent.parent
JAVA, NULL = "java", "null"
TUNED = {"kafka.batch.size": "131072", "kafka.linger.ms": "5"}


@dataclass(frozen=True)
class Case:
    name: str
    value_bytes: int
    is_keyed: bool
    codec: str
    rows: int
    partitions: int = 4


CASES = (
    Case("100B-keyed-lz4", 100, True, "lz4", 1_500_000),
    Case("100B-keyed-none", 100, True, "none", 1_500_000),
    Case("100B-nokey-none", 100, False, "none", 1_500_000),
    Case("1000B-keyed-lz4", 1000, True, "lz4", 300_000),
    Case("1000B-keyed-none", 1000, True, "none", 300_000),
)

CONDITIONS = (
    "Written by `python -m bench.spark_sinks`. Ratios are of medians within one run; CPU is that of Spark's JVM and "
    "all its Python workers together, per row."
)

Options = Mapping[str, str]
Write = Callable[[DataFrame, Options, int], int]


@dataclass(frozen=True)
class Sink:
    """`write` returns how many rows it wrote: the slow ones take only a share of them."""

    name: str
    title: str
    write: Write
    is_in_quick: bool = True


def _through(source: str, **options: str) -> Write:
    def write(frame: DataFrame, kafka: Options, rows: int) -> int:
        frame.write.format(source).options(**kafka, **options).mode("append").save()
        return rows

    return write


def _tenth(write: Callable[[DataFrame, Options], None]) -> Write:
    def write_tenth(frame: DataFrame, kafka: Options, rows: int) -> int:
        write(frame.limit(rows // 20), kafka)
        return rows // 20

    return write_tenth


SINKS = (
    Sink("exactly-once", "**ours**, exactly once", _through("pykafka-sink", **TUNED)),
    Sink(
        "at-least-once",
        "**ours**, at least once",
        _through("pykafka-sink", **TUNED, **{"delivery.guarantee": "at-least-once"}),
    ),
    Sink(JAVA, "Spark's own sink, tuned alike", _through("kafka", **TUNED)),
    Sink("java-defaults", "Spark's own sink, defaults", _through("kafka")),
    Sink(NULL, "null sink in Python (the ceiling)", _through("null-sink")),
    Sink("confluent", "confluent-kafka in foreachPartition", _tenth(write_with_confluent), is_in_quick=False),
    Sink("kafka-python", "kafka-python in foreachPartition", _tenth(write_with_kafka_python), is_in_quick=False),
)


@dataclass(frozen=True)
class Result:
    sink: str
    case: str
    rows: int
    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


class Arena:
    def __init__(self, spark: SparkSession, kafka: KafkaCluster, folder: Path) -> None:
        self.spark = spark
        self.kafka = kafka
        self._folder = folder
        self._topic_count = 0
        self._cached: tuple[tuple[int, int], DataFrame] | None = None

    def run(self, sink: Sink, case: Case) -> Result:
        self._topic_count += 1
        topic = self.kafka.create_topic(
            f"{self._topic_count}-{sink.name}-{case.name}",
            partitions=case.partitions,
            config={"file.delete.delay.ms": 0},
        )
        # A leader that is not in office yet would cost the Java client two minutes (tests/spark/parity.py).
        end_offsets(self.kafka.bootstrap_servers, topic)
        frame = self._rows(case).select("key", "value") if case.is_keyed else self._rows(case).select("value")
        options = {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "topic": topic,
            "kafka.compression.type": case.codec,
        }
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        pid = int(jvm.java.lang.ProcessHandle.current().pid())
        try:
            cpu_before, started = cpu_seconds(pid), time.monotonic()
            rows = sink.write(frame, options, case.rows)
            seconds = time.monotonic() - started
            result = Result(sink.name, case.name, rows, seconds, cpu_seconds(pid) - cpu_before, peak_bytes(pid))
            logged = log_length(self.kafka.bootstrap_servers, topic, case.partitions)
            # Markers of transactions take an offset each: one per task and partition it wrote to.
            expected = 0 if sink.name == NULL else rows
            if not expected <= logged <= expected + 16 * case.partitions:
                raise SystemExit(
                    f"{sink.name} should have written {expected} rows in {case.name}; the log has {logged}"
                )
            return result
        finally:
            self.kafka.delete_topic(topic)

    def _rows(self, case: Case) -> DataFrame:
        """Of one size and count at a time; materialised before the clock runs."""
        wanted = (case.value_bytes, case.rows)
        if self._cached is not None and self._cached[0] == wanted:
            return self._cached[1]
        if self._cached is not None:
            self._cached[1].unpersist(blocking=True)
        payload = self._folder / f"payload-{case.value_bytes}"
        if not payload.exists():
            write_payload(payload, case.value_bytes)
        lines = payload.read_text().split("\n")
        texts = self.spark.createDataFrame(list(enumerate(lines)), "number INT, value STRING")
        numbers = self.spark.range(0, case.rows, 1, 2).selectExpr("id", f"CAST(id % {len(lines)} AS INT) AS number")
        frame = numbers.join(texts.hint("broadcast"), "number").selectExpr(
            "concat('user-', pmod(hash(id), 10000000)) AS key", "value"
        )
        frame = frame.persist()
        assert frame.count() == case.rows
        self._cached = (wanted, frame)
        return frame


@contextmanager
def open_arena() -> Iterator[Arena]:
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    with (
        tempfile.TemporaryDirectory(prefix="pykafka-sink-bench-") as folder,
        KafkaCluster(properties=BROKER_PROPERTIES, jvm_options=BROKER_JVM) as kafka,
    ):
        settings = {
            "spark.jars": ",".join(str(jar) for jar in java_sink_jars()),
            "spark.driver.memory": "6g",
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.sql.inMemoryColumnarStorage.compressed": "false",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        builder = SparkSession.builder.master("local[2]").appName("bench")
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(NullSink)
        try:
            yield Arena(spark, kafka, Path(folder))
        finally:
            spark.stop()


def run(arena: Arena, sinks: Sequence[Sink], cases: Sequence[Case], repetitions: int) -> list[Result]:
    results = []
    for case in cases:
        # Round 0 warms up. Rounds of one case follow each other, so that its rows are cached once.
        for repetition in range(repetitions + 1):
            for sink in sinks:
                result = arena.run(sink, case)
                if repetition:
                    results.append(result)
                    print(
                        f"{time.strftime('%H:%M:%S')} {repetition}/{repetitions} {case.name:17} {sink.name:14}"
                        f"{result.rate:12,.0f} rows/s {result.cpu_seconds / result.rows * 1e6:8.2f} us CPU",
                        flush=True,
                    )
    return results


def markdown(sinks: Sequence[Sink], cases: Sequence[Case], results: Sequence[Result], about: Mapping[str, str]) -> str:
    lines = [
        "# Spark sinks compared",
        "",
        CONDITIONS,
        "",
        ", ".join(f"{name} {text}" for name, text in about.items()) + ".",
    ]
    for case in cases:
        medians = _medians(sinks, case, results)
        if JAVA not in medians:
            continue
        lines += ["", f"## {case.name}: {case.rows:,} rows, {case.partitions} partitions", ""]
        lines += [
            "| sink | rows/s | min..max | to Spark's own | share of the ceiling | CPU us/row | CPU to Spark's own |"
        ]
        lines += ["| --- | --: | --: | --: | --: | --: | --: |"]
        for sink in sinks:
            own = medians[sink.name]
            java, ceiling = medians[JAVA], medians.get(NULL)
            share = f"{own['rate'] / ceiling['rate']:.2f}" if ceiling else ""
            lines.append(
                f"| {sink.title} | {own['rate'] / 1e3:,.0f} k | {own['min'] / 1e3:,.0f}..{own['max'] / 1e3:,.0f} k "
                f"| {own['rate'] / java['rate']:.2f} | {share} | {own['cpu']:.2f} | {own['cpu'] / java['cpu']:.2f} |"
            )
    return "\n".join(lines) + "\n"


def _medians(sinks: Sequence[Sink], case: Case, results: Sequence[Result]) -> dict[str, dict[str, float]]:
    found = {}
    for sink in sinks:
        own = [each for each in results if (each.sink, each.case) == (sink.name, case.name)]
        if own:
            rates = [each.rate for each in own]
            cpu_us = median(each.cpu_seconds / each.rows * 1e6 for each in own)
            found[sink.name] = {"rate": median(rates), "min": min(rates), "max": max(rates), "cpu": cpu_us}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_sinks", description="Compare Spark's Kafka sinks.")
    parser.add_argument("--quick", action="store_true", help="two rounds, without the slowest sinks")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--case", nargs="+", choices=[case.name for case in CASES])
    parser.add_argument("--only", nargs="+", choices=[sink.name for sink in SINKS])
    options = parser.parse_args()
    cases = [case for case in CASES if not options.case or case.name in options.case]
    sinks = [sink for sink in SINKS if sink.name in (options.only or [each.name for each in SINKS])]
    if options.quick and not options.only:
        sinks = [sink for sink in sinks if sink.is_in_quick]
    repetitions = options.repetitions or (2 if options.quick else 5)
    with open_arena() as arena:
        results = run(arena, sinks, cases, repetitions)
    about: dict[str, Any] = {"runs": f"{repetitions} each, alternating", **machine()}
    text = markdown(sinks, cases, results, about)
    print("\n" + text)
    folder = _ROOT / ("build/bench" if options.case or options.only else "docs/benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spark-sinks.md").write_text(text)
    (folder / "spark-sinks.json").write_text(
        json.dumps({"about": about, "runs": [asdict(each) for each in results]}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
