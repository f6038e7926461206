"""Manifests of tasks and commits without Spark, with the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

import kafka_sink
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.identity import run_of_query, sink_id_of_query
from kafka_sink.commit.receipt import BatchKey, TaskReceipt, WrittenPartition
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.producer.pool import POOL
from kafka_sink.spark import driver as driver_module
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.driver import Driver
from kafka_sink.spark.planning import plan_query
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.testing import EmbeddedBroker

SCHEMA = StructType().add("value", StringType()).add("topic", StringType())
QUERY = "query"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1, topics={"a": 1, "dead": 1, "manifests": 1}) as broker:
        yield broker
    POOL.close()


def options_of(broker: EmbeddedBroker, **more: str) -> dict[str, Any]:
    named = {"kafka.bootstrap.servers": broker.bootstrap_servers, "sink.id": "s", "manifest.topic": "manifests"}
    return named | {name.replace("_", "."): value for name, value in more.items()}


def write(options: SinkOptions, rows: list[tuple[str, str]], batch: int = 0) -> tuple[BatchKey, list[TaskReceipt]]:
    key = BatchKey(QUERY, batch)
    values, topics = (pa.array(column, pa.string()) for column in zip(*rows, strict=True))
    given = pa.RecordBatch.from_arrays([values, topics], ["value", "topic"])
    place = TaskPlace(key, run_of_query("run"), 0, 0, sink_id_of_query("s", QUERY))
    return key, [write_task(options, choose_columns(SCHEMA, None), iter([given]), place)]


def test_a_driver_that_closes_a_decision_of_another_one_tells_its_dead_letters_apart(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row may name the topic of the letters itself, too."""
    named = options_of(broker, record_errors="dead-letter", dead_letter_topic="dead", kafka_max_request_size="2000")
    options = plan_query(named, SCHEMA).options
    rows = [("x", "a"), ("y" * 3000, "a"), ("z", "dead"), ("y" * 3000, "dead"), ("x", "a")]
    key, receipts = write(options, rows)
    assert receipts[0].dead_letters == (WrittenPartition("dead", 0, 2, 1, 2),)
    monkeypatch.setattr(driver_module, "lives_on", lambda: True)
    with Client(options.producer) as client:
        result = Driver(options, "s", run_of_query("run"), key).commit(client, key, receipts)
        # Its process ends before it writes the record.
        assert result.closing is not None and kafka_sink.read_manifests(named) == []
        Driver(options, "s", run_of_query("another"), key).finish(client)
    (manifest,) = kafka_sink.read_manifests(named)
    assert manifest.row_count == sum(each.row_count for each in manifest.partitions) == 3
    assert manifest.partitions == (WrittenPartition("a", 0, 2, 0, 1), WrittenPartition("dead", 0, 1, 0, 2))
    assert manifest.dead_letters == receipts[0].dead_letters
