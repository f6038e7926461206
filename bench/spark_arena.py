"""One Spark session (local[2]), one Apache Kafka node, and one run of one sink in it, of which nothing is believed.

The source are JSON rows in Spark's own cache, so that fetching them costs little. After each write the topic's offsets
are compared with the rows written.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from bench.contest import BROKER_JVM, BROKER_PROPERTIES, log_length
from bench.payload import write_payload
from bench.process_tree import cpu_seconds, peak_bytes
from bench.spark_cases import MIXED, Case
from bench.spark_peers import FrozenNullSink, NullSink, write_with_confluent, write_with_kafka_python
from kafka_sink import Producer
from tools.foreign_reader import end_offsets
from tools.kafka_cluster import KafkaCluster
from tools.spark_jars import java_sink_jars

# Rows between JVM and Python over Unix sockets, as conf/ has it: the null sink is measured with it as well.
SOCKETS = "spark.python.unix.domain.socket.enabled"
# Rows that Spark puts into one Arrow batch: 10,000 by default, and long ones then do not fit into a cache.
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
# From here on a topic is made once for all runs of a case: the first record of a partition takes a broker some 30 ms.
WIDE_PARTITIONS, OPENING_MS = 500, 600_000
EXACTLY, AT_LEAST, JAVA, NULL = "exactly-once", "at-least-once", "java", "null"
TUNED = {"kafka.batch.size": "131072", "kafka.linger.ms": "5"}
HEADERS = "array(struct('trace' AS key, encode(key, 'utf-8') AS value), struct('v' AS key, X'01' AS value))"

Options = Mapping[str, str]
Write = Callable[[DataFrame, Options, int], int]


@dataclass(frozen=True)
class Sink:
    """`write` returns how many rows it wrote: the slow ones take only a share of them."""

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


def _tenth(write: Callable[[DataFrame, Options], None]) -> Write:
    def write_tenth(frame: DataFrame, kafka: Options, rows: int) -> int:
        write(frame.limit(rows // 20), kafka)
        return rows // 20

    return write_tenth


SINKS = (
    Sink(EXACTLY, "**ours**, exactly once", _through("pykafka-sink", **TUNED)),
    Sink(
        AT_LEAST,
        "**ours**, at least once",
        _through("pykafka-sink", **TUNED, **{"delivery.guarantee": "at-least-once"}),
    ),
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


@dataclass(frozen=True)
class Figures:
    """Of all rounds of one sink in one case."""

    rate: float
    rate_min: float
    rate_max: float
    cpu_us: float
    peak_rss_bytes: int


def figures(sink: str, case: Case, results: Sequence[Result]) -> Figures | None:
    own = [each for each in results if (each.sink, each.case) == (sink, case.name)]
    if not own:
        return None
    rates = [each.rate for each in own]
    cpu_us = median(each.cpu_seconds / each.rows * 1e6 for each in own)
    return Figures(median(rates), min(rates), max(rates), cpu_us, max(each.peak_rss_bytes for each in own))


class Arena:
    def __init__(self, spark: SparkSession, kafka: KafkaCluster, folder: Path) -> None:
        self.spark = spark
        self.kafka = kafka
        self._folder = folder
        self._topic_count = 0
        self._wide_topics: dict[int, str] = {}
        self._cached: tuple[tuple[int, int, int], DataFrame] | None = None

    def jvm_pid(self) -> int:
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        return int(jvm.java.lang.ProcessHandle.current().pid())

    def run(self, sink: Sink, case: Case) -> Result:
        is_wide = case.partitions >= WIDE_PARTITIONS
        topic = self._wide_topic(case.partitions) if is_wide else self._new_topic(sink.name, case.partitions)
        log_before = log_length(self.kafka.bootstrap_servers, topic, case.partitions) if is_wide else 0
        frame = self._frame(case)
        options = {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "topic": topic,
            "kafka.compression.type": case.codec,
            **({"includeHeaders": "true"} if case.has_headers and sink.name.startswith(JAVA) else {}),
        }
        pid = self.jvm_pid()
        for name, value in sink.conf.items():
            self.spark.conf.set(name, value)
        try:
            cpu_before, started = cpu_seconds(pid), time.monotonic()
            rows = sink.write(frame, options, case.rows)
            seconds = time.monotonic() - started
            result = Result(sink.name, case.name, rows, seconds, cpu_seconds(pid) - cpu_before, peak_bytes(pid))
            logged = log_length(self.kafka.bootstrap_servers, topic, case.partitions) - log_before
            # Markers of transactions take an offset each: one per task and partition it wrote to.
            expected = 0 if sink.name == NULL else rows
            if not expected <= logged <= expected + 16 * case.partitions:
                raise SystemExit(
                    f"{sink.name} should have written {expected} rows in {case.name}; the log has {logged}"
                )
            return result
        finally:
            for name in sink.conf:
                self.spark.conf.unset(name)
            if not is_wide:
                self.kafka.delete_topic(topic)

    def _new_topic(self, name: str, partitions: int) -> str:
        self._topic_count += 1
        topic = self.kafka.create_topic(
            f"{self._topic_count}-{name}", partitions=partitions, config={"file.delete.delay.ms": 0}
        )
        # A leader that is not in office yet would cost the Java client two minutes (tests/spark/parity.py).
        end_offsets(self.kafka.bootstrap_servers, topic)
        return topic

    def _wide_topic(self, partitions: int) -> str:
        """With a record in each partition."""
        if partitions not in self._wide_topics:
            topic = self._wide_topics[partitions] = self._new_topic("wide", partitions)
            times = {"request.timeout.ms": OPENING_MS, "delivery.timeout.ms": 2 * OPENING_MS}
            with Producer({"bootstrap.servers": self.kafka.bootstrap_servers, **times}) as producer:
                futures = [producer.send(topic, b"first", partition=number) for number in range(partitions)]
                for future in futures:
                    future.result()
        return self._wide_topics[partitions]

    def _frame(self, case: Case) -> DataFrame:
        columns = [*(["key"] if case.is_keyed else []), "value", *(["headers"] if case.has_headers else [])]
        rows = self._rows(case)
        return rows.withColumn("headers", expr(HEADERS)).select(columns) if case.has_headers else rows.select(columns)

    def _rows(self, case: Case) -> DataFrame:
        """Of one size, count and number of tasks at a time; materialised before the clock runs."""
        wanted = (case.value_bytes, case.rows, case.tasks)
        if self._cached is not None and self._cached[0] == wanted:
            return self._cached[1]
        if self._cached is not None:
            self._cached[1].unpersist(blocking=True)
        payload = self._folder / f"payload-{case.value_bytes}"
        if not payload.exists():
            write_payload(payload, None if case.value_bytes == MIXED else case.value_bytes)
        lines = payload.read_text().split("\n")
        texts = self.spark.createDataFrame(list(enumerate(lines)), "number INT, value STRING")
        numbers = self.spark.range(0, case.rows, 1, case.tasks)
        numbers = numbers.selectExpr("id", f"CAST(id % {len(lines)} AS INT) AS number")
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
            SOCKETS: "true",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        builder = SparkSession.builder.master("local[2]").appName("bench")
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        for null_sink in (NullSink, FrozenNullSink):
            spark.dataSource.register(null_sink)
        try:
            yield Arena(spark, kafka, Path(folder))
        finally:
            spark.stop()
