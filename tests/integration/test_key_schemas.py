"""The id of a schema in front of a key: what a new one does to the keys of a topic, the warning, the ways around."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.kafka.io.warn_once import WARNED
from kafka_sink.producer.pool import POOL
from kafka_sink.spark.planning import PlannedWrite, plan_export
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.testing import EmbeddedBroker, EmbeddedRegistry
from tools.foreign_reader import read_topic

SCHEMA = StructType([
    StructField("key", StructType([StructField("id", LongType(), False)]), False),
    StructField("value", StringType()),
])  # fmt: skip
ROWS = pa.record_batch(
    {"key": pa.array([{"id": n} for n in range(20)]), "value": pa.array([f"{n}" for n in range(20)])}
)


def schema_text(doc: str) -> str:
    """What a team changes and no reader notices."""
    return json.dumps({"type": "record", "name": "Key", "doc": doc, "fields": [{"name": "id", "type": "long"}]})


class Topic:
    def __init__(self, broker: EmbeddedBroker, registry: EmbeddedRegistry, caplog: pytest.LogCaptureFixture) -> None:
        self._broker = broker
        self._settings = {
            "kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "orders", "key.format": "avro",
            "delivery.guarantee": "at-least-once", "schema.registry.url": registry.url, "auto.register.schemas": "true",
        }  # fmt: skip
        self._caplog = caplog

    def plan(self, **more: str) -> list[str]:
        """The warnings of a new process."""
        WARNED.renew()
        self._caplog.clear()
        self._plan(more)
        return [record.getMessage() for record in self._caplog.records if "keys" in record.getMessage()]

    def write(self, **more: str) -> Mapping[bytes, int]:
        """The partition of each key that this write adds."""
        before = len(read_topic(self._broker.bootstrap_servers, "orders"))
        options, columns, *_ = self._plan(more)
        write_task(options, columns, iter([ROWS]), TaskPlace(BatchKey("", "b"), "run", 0, 0))
        records = sorted(read_topic(self._broker.bootstrap_servers, "orders"), key=lambda each: each.timestamp_ms)
        assert len(records) == before + 20
        return {each.key: each.partition for each in records[before:] if each.key is not None}

    def _plan(self, more: Mapping[str, str]) -> PlannedWrite:
        named = {name.replace("_", "."): value for name, value in more.items()}
        return plan_export({**self._settings, **named}, SCHEMA)


@pytest.fixture
def topic(caplog: pytest.LogCaptureFixture) -> Iterator[Topic]:
    with EmbeddedBroker(1, topics={"orders": 4}) as broker, EmbeddedRegistry() as registry:
        yield Topic(broker, registry, caplog)
    POOL.close()


def test_a_new_id_in_front_of_keys_moves_them_and_the_log_says_so_once(topic: Topic) -> None:
    assert topic.plan(key_schema=schema_text("one")) == []  # the first version
    assert topic.plan(key_schema=schema_text("two")) == []  # the topic is empty
    old = topic.write(key_schema=schema_text("two"))
    (said,) = topic.plan(key_schema=schema_text("three"))
    assert "'orders-key' had 2 version(s), and now has another one, with the id 3" in said
    assert "topic orders" in said and "key.schema.id" in said and "key.schema.framing=header" in said
    assert topic.plan(key_schema=schema_text("three")) == []  # it is known
    new = topic.write(key_schema=schema_text("three"))
    assert not set(old) & set(new)
    assert {key[5:]: place for key, place in old.items()} != {key[5:]: place for key, place in new.items()}


def test_a_pinned_id_keeps_keys_where_they_are(topic: Topic) -> None:
    old = topic.write(key_schema=schema_text("one"))
    assert topic.plan(key_schema=schema_text("two"))  # another job registers it
    assert topic.plan(key_schema_id="1") == []
    assert topic.write(key_schema_id="1") == old


def test_with_the_id_in_a_header_no_version_moves_a_key(topic: Topic) -> None:
    topic.write(key_schema=schema_text("zero"))
    old = topic.write(key_schema=schema_text("one"), key_schema_framing="header")
    assert topic.plan(key_schema=schema_text("two"), key_schema_framing="header") == []
    assert topic.write(key_schema=schema_text("two"), key_schema_framing="header") == old
