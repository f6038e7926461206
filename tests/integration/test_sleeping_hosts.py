"""A host that sleeps while a transaction is open: brokers do not, and end it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.errors import CommitAborted
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.producer.pool import POOL
from kafka_sink.producer.producer import Producer
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.driver import FinishedBatch, commit_batch
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.testing import EmbeddedBroker
from tests.support.sleeping_host import SleepingHost

SCHEMA = StructType().add("value", StringType())
PLACE = TaskPlace(BatchKey("", "day-1"), "r" * 16, 0, 0, "sink")
# Of the 15 minutes that a transaction may be open.
SLEEP_MINUTES = 14
MINUTE_MS = 60_000


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1, topics={"rows": 1}) as broker:
        yield broker
    POOL.close()


def options(broker: EmbeddedBroker) -> SinkOptions:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "rows", "sink.id": "sink"}
    return parse_sink_options({**given, "batch.id": "day-1"})


def write_over_sleep(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> TaskReceipt:
    host, flush = SleepingHost(monkeypatch), Producer.flush

    def flush_over_sleep(producer: Producer) -> None:
        host.sleep_for(SLEEP_MINUTES)
        flush(producer)

    monkeypatch.setattr(Producer, "flush", flush_over_sleep)
    rows = pa.RecordBatch.from_arrays([pa.array(["a"])], ["value"])
    return write_task(options(broker), choose_columns(SCHEMA, "rows"), iter([rows]), PLACE)


def test_a_receipt_counts_the_time_that_its_host_slept_and_its_batch_is_not_decided(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = write_over_sleep(broker, monkeypatch)
    assert receipt.remaining_ms <= receipt.timeout_ms - SLEEP_MINUTES * MINUTE_MS
    with pytest.raises(CommitAborted, match=r"too little time is left|has \d+ ms left"):
        commit_batch(FinishedBatch(options(broker), "sink", PLACE.key, PLACE.run, [receipt]))


def test_a_driver_counts_the_time_that_its_host_slept(monkeypatch: pytest.MonkeyPatch) -> None:
    host = SleepingHost(monkeypatch)
    client = Client(parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "rows"}).producer)
    before_ms = client.now_ms()
    host.sleep_for(SLEEP_MINUTES)
    assert client.now_ms() - before_ms >= SLEEP_MINUTES * MINUTE_MS
