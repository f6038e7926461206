"""One Spark session (local[2]) and one Apache Kafka node, for benchmarks that measure streams in one application."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeVar

from pyspark.sql import SparkSession

from bench.contest import BROKER_JVM, BROKER_PROPERTIES
from bench.process_tree import compiler_seconds_since, compiler_ticks, cpu_seconds
from bench.spark_peers import FrozenNullSink, NullSink
from tools.foreign_reader import end_offsets
from tools.kafka_cluster import KafkaCluster
from tools.spark_jars import java_sink_jars

# Rows go between JVM and Python over Unix sockets, as conf/ sets it, also for the null sink.
SOCKETS = "spark.python.unix.domain.socket.enabled"
# The defaults of our sink. A task flushes at its end, so a longer linger makes fuller batches and delays nothing.
TUNED = {"kafka.batch.size": "131072", "kafka.linger.ms": "1000"}


# The JVMs are warm if their compilers take less than this share of a core. In the first rounds they take 0.8.
QUIET, WARM_ROUNDS_MAX = 0.1, 6

T = TypeVar("T")


class Timed(NamedTuple):
    """`cpu_seconds` are those of Spark's JVM and all its Python processes."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Arena:
    spark: SparkSession
    kafka: KafkaCluster
    _topic_numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def jvm_pid(self) -> int:
        return jvm_pid(self.spark)

    def measure(self, work: Callable[[], T]) -> tuple[T, Timed]:
        pid = self.jvm_pid()
        cpu_before, started = cpu_seconds(pid), time.monotonic()
        result = work()
        return result, Timed(time.monotonic() - started, cpu_seconds(pid) - cpu_before)

    def warm_up(self, work: Callable[[], object]) -> str:
        """Repeats `work` until the compilers of Spark's JVM and of the broker are quiet. Returns what was done."""
        for number in range(1, WARM_ROUNDS_MAX + 1):
            before, started = self._compiler_ticks(), time.monotonic()
            work()
            now, took_s = self._compiler_ticks(), time.monotonic() - started
            share = sum(map(compiler_seconds_since, before, now)) / took_s
            print(f"warm-up {number}: compilers of the JVMs took {share:.2f} of a core", flush=True)
            if share < QUIET:
                break
        return f"{number} rounds; then the JVMs' compilers took {share:.2f} of a core"

    def _compiler_ticks(self) -> list[dict[str, int]]:
        return [compiler_ticks(pid) for pid in (self.jvm_pid(), *map(self.kafka.process_id, self.kafka.node_ids))]

    def new_topic(self, name: str, partitions: int) -> str:
        return new_topic(self.kafka, f"{next(self._topic_numbers)}-{name}", partitions)


def new_topic(kafka: KafkaCluster, name: str, partitions: int) -> str:
    """Creates a topic whose data is deleted at once. Waits for its leaders: else Java's client waits two minutes."""
    kafka.create_topic(name, partitions=partitions, config={"file.delete.delay.ms": 0})
    end_offsets(kafka.bootstrap_servers, name)
    return name


def jvm_pid(spark: SparkSession) -> int:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return int(jvm.java.lang.ProcessHandle.current().pid())


@contextmanager
def open_arena(jars: Sequence[Path] = ()) -> Iterator[Arena]:
    """`jars` are added to those of Spark's own Kafka sink."""
    with KafkaCluster(properties=BROKER_PROPERTIES, jvm_options=BROKER_JVM) as kafka, open_session(jars) as spark:
        yield Arena(spark, kafka)


@contextmanager
def open_session(jars: Sequence[Path] = ()) -> Iterator[SparkSession]:
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="pykafka-sink-bench-") as folder:
        settings = {
            "spark.jars": ",".join(str(jar) for jar in (*java_sink_jars(), *jars)),
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
            yield spark
        finally:
            spark.stop()
