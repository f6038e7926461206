"""A batch write of many small tasks is cancelled while brokers stall: no transaction that a killed task's Python worker
begins later holds back readers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kafka_sink.spark import register
from kafka_sink.spark.datasource import FORMAT
from tests.conftest import NEWEST, or_without_kafka
from tools.foreign_reader import end_offsets
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STALL_S = 1.5
# After the write has ended; the sink's own time-out of a transaction is 15 minutes.
PATIENCE_S = 10


@pytest.fixture(scope="module")
def stalling() -> Iterator[KafkaCluster]:
    """A node of its own: other tests must not be stopped with it."""
    with or_without_kafka(KafkaCluster(NEWEST)) as kafka:
        yield kafka


class Write:
    """A batch write in a thread of its own, as in a notebook whose kernel stays."""

    def __init__(self, spark: SparkSession, kafka: KafkaCluster, topic: str, tasks: int, *, interrupts: bool) -> None:
        kafka.create_topic(topic)
        self.error: BaseException | None = None
        self._kafka, self._topic, self._tasks = kafka, topic, tasks
        self._spark, self._interrupts = spark, interrupts
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        wait_until(self._has_begun, "the first task has written", 240)

    def _run(self) -> None:
        register(self._spark)
        self._spark.sparkContext.setJobGroup(self._topic, self._topic, interruptOnCancel=self._interrupts)
        rows = self._spark.range(0, self._tasks * 3, 1, self._tasks).selectExpr("CAST(id AS STRING) AS value")
        try:
            rows.write.format(FORMAT).mode("append").options(
                **{"kafka.bootstrap.servers": self._kafka.bootstrap_servers, "topic": self._topic}
            ).save()
        except Exception as error:
            self.error = error

    def _has_begun(self) -> bool:
        if self.error is not None:
            raise self.error
        return self._ends("read_uncommitted") > 0

    def cancel_while_brokers_stall(self) -> None:
        (node,) = self._kafka.node_ids
        self._kafka.pause(node)
        try:
            # Tasks wait for the broker by now.
            time.sleep(STALL_S / 3)
            self._spark.sparkContext.cancelJobGroup(self._topic)
            time.sleep(STALL_S * 2 / 3)
        finally:
            self._kafka.resume(node)
        began = time.monotonic()
        self._thread.join(120)
        print("ended after", time.monotonic() - began)
        assert self.error is not None and "cancelled" in str(self.error)

    def _ends(self, isolation: str) -> int:
        return sum(end_offsets(self._kafka.bootstrap_servers, self._topic, isolation).values())

    def is_held_back(self) -> bool:
        return self._ends("read_committed") != self._ends("read_uncommitted")
