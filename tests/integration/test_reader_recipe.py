"""docs/readers.md: its tests for consumers pass with a consumer that does it right and fail with those that do not, and
what its table says of the clients that are installed here."""

from __future__ import annotations

import importlib.metadata
import inspect
import re
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest

from kafka_sink.testing import EmbeddedBroker
from tests.support.page_blocks import code_blocks

PAGE = "docs/readers.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")
(RECIPE,) = [block.code for block in code_blocks(PAGE) if block.language == "python"]

KAFKA_PYTHON = """
def read_all(servers):
    from kafka import KafkaConsumer, TopicPartition
    consumer, values = KafkaConsumer(bootstrap_servers=servers, isolation_level={level!r}), []
    where = TopicPartition("orders", 0)
    consumer.assign([where])
    consumer.seek_to_beginning(where)
    while consumer.position(where) < consumer.end_offsets([where])[where]:
        for records in consumer.poll(1_000).values():
            values += [record.value for record in records]
    consumer.close()
    return values
"""
# Takes the last offset for that of a record, as readers did that are in the table.
WAITING = """
def read_all(servers):
    values, offset = [], -1
    with closing(Consumer({"bootstrap.servers": servers, "group.id": "mine"})) as consumer:
        where = TopicPartition("orders", 0, OFFSET_BEGINNING)
        _, end = consumer.get_watermark_offsets(where, timeout=20)
        consumer.assign([where])
        while offset < end - 1:
            message = consumer.poll(5)
            assert message is not None, "the consumer waits for something that does not come"
            values.append(message.value())
            offset = message.offset()
    return values
"""


def run(test: str, own: str = "") -> None:
    """A test of the recipe, as pytest runs it, with another consumer."""
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(RECIPE, PAGE, "exec"), names)
    exec(compile(own, "own consumer", "exec"), names)
    mark = names["pytestmark"]
    assert mark.name == "embedded_kafka"
    with EmbeddedBroker(*mark.args, **mark.kwargs) as broker:
        names[test](broker)


MARKER, ABORTED, OPEN = (name for name in re.findall(r"^def (test_\w+)", RECIPE, re.MULTILINE))


@pytest.mark.parametrize("test", [MARKER, ABORTED, OPEN])
@pytest.mark.parametrize(
    "own", ["", KAFKA_PYTHON.format(level="read_committed")], ids=["that of the page", "kafka-python"]
)
def test_a_consumer_that_does_it_right_passes(own: str, test: str) -> None:
    run(test, own)


@pytest.mark.parametrize(
    ("own", "test"),
    [(WAITING, MARKER), (KAFKA_PYTHON.format(level="read_uncommitted"), ABORTED)],
    ids=["waits for the last offset", "shows what was aborted"],
)
def test_a_consumer_that_does_it_wrong_fails(own: str, test: str) -> None:
    with pytest.raises(AssertionError):
        run(test, own)


def row_of(reader: str) -> list[str]:
    (row,) = [line for line in TEXT.splitlines() if line.startswith("| ") and reader in line.split("|")[1]]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_the_table_knows_versions_and_defaults_of_the_clients_that_are_here() -> None:
    for reader, package in (
        ("kafka-python", "kafka-python"), ("aiokafka", "aiokafka"), ("confluent-kafka", "confluent-kafka"),
        ('format("kafka")', "pyspark"),
    ):  # fmt: skip
        release = ".".join(importlib.metadata.version(package).split(".")[:2])
        assert f" {release}" in row_of(reader)[0], (reader, release)
    default = inspect.signature(aiokafka.AIOKafkaConsumer.__init__).parameters["isolation_level"].default
    assert row_of("aiokafka")[2] == f"`{default}`"
    assert row_of("kafka-python")[2] == f"`{kafka.KafkaConsumer.DEFAULT_CONFIG['isolation_level']}`"


def test_the_page_says_when_the_clients_were_looked_at() -> None:
    rows = [row for row in TEXT.splitlines() if row.startswith("| ")][2:]
    assert len(rows) >= 15
    assert re.search(r"^Looked at in [A-Z][a-z]+ 20\d\d\.", TEXT, re.MULTILINE)
