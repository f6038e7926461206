"""A frozen leader that wakes up: the behaviour that the commit protocol relies on when it claims the ledger.

The nodes that have replaced it are stopped before it continues, so it cannot learn that it no longer leads, as if it
were cut off from them while clients still reach it. It answers with its old end of the log, and acknowledges nothing.
That is why a driver reads the ledger up to a record of its own (commit/takeover.py).
"""

from __future__ import annotations

import pytest

from kafka_sink.kafka.wire import apis
from tests.chaos.outages import create_topic, leader_as_told_by, pause_leader, wait_until_moved
from tests.conftest import FIRST_GENERATION, or_without_kafka
from tests.support.broker_requests import batch
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster
from tools.kafka_views import ask
from tools.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.kafka, pytest.mark.timeout(300)]

ALL, LATEST = -1, -1
NOT_LEADER, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND = 6, 7, 19, 20


def test_an_outdated_leader_tells_the_end_that_it_knew_and_acknowledges_nothing(
    kafka_three_nodes: KafkaCluster, topic_name: str
) -> None:
    check_outdated_leader(kafka_three_nodes, topic_name)


@pytest.mark.slow
def test_an_outdated_leader_of_the_first_generation_does_the_same(topic_name: str) -> None:
    with or_without_kafka(KafkaCluster(FIRST_GENERATION, 3)) as kafka:
        check_outdated_leader(kafka, topic_name)


def check_outdated_leader(kafka: KafkaCluster, topic_name: str) -> None:
    topic = create_topic(kafka, topic_name, 1, {"min.insync.replicas": 2})
    first = kafka.leader_of(topic, 0)
    assert produced_by_leader(kafka, first, topic, b"before", b"before") == (0, 0)
    kafka.pause(first)
    second = wait_until_moved(kafka, topic, 0, first)
    assert produced_by_leader(kafka, second, topic, b"decision") == (0, 2)
    others = [node_id for node_id in kafka.node_ids if node_id != first]
    for node_id in others:
        kafka.pause(node_id)
    kafka.resume(first)

    assert leader_as_told_by(kafka, first, topic, 0) == first
    assert end_as_told_by(kafka, first, topic) == 2
    error_code, _ = produced(kafka, first, topic, b"claim")
    assert error_code in (REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert end_as_told_by(kafka, first, topic) == 2

    for node_id in others:
        kafka.resume(node_id)
    kafka.wait_in_sync(topic)
    values = [record.value for record in read_topic(kafka.bootstrap_servers, topic, "read_uncommitted")]
    assert values == [b"before", b"before", b"decision"]


def test_a_frozen_leader_is_not_taken_at_its_word_about_the_end_of_its_outage(
    kafka_three_nodes: KafkaCluster, topic_name: str
) -> None:
    """It reports "in sync" as soon as it wakes up; the tests of outages ask every node. Of the harness, so one
    version."""
    kafka = kafka_three_nodes
    topic = create_topic(kafka, topic_name, 1, {"min.insync.replicas": 2})
    victim = pause_leader(kafka, topic, 0, 0)
    kafka.wait_in_sync(topic)
    assert leader_as_told_by(kafka, victim, topic, 0) == kafka.leader_of(topic, 0)


def produced_by_leader(kafka: KafkaCluster, node_id: int, topic: str, *values: bytes) -> tuple[int, int]:
    """A broker names itself the leader a moment before it accepts records as leader."""
    found: list[tuple[int, int]] = []

    def is_leader() -> bool:
        found[:] = [produced(kafka, node_id, topic, *values)]
        return found[0][0] != NOT_LEADER

    wait_until(is_leader, f"node {node_id} leads {topic}")
    return found[0]


def produced(kafka: KafkaCluster, node_id: int, topic: str, *values: bytes) -> tuple[int, int]:
    """Returns error code and offset."""
    sent = {"index": 0, "records": batch(*values, timestamp_ms=-1)}
    topic_data = [{"name": topic, "partition_data": [sent]}]
    body = {"transactional_id": None, "acks": ALL, "timeout_ms": 3000, "topic_data": topic_data}
    found = ask(kafka.address_of(node_id), apis.PRODUCE, 9, body)["responses"][0]["partition_responses"][0]
    return found["error_code"], found["base_offset"]


def end_as_told_by(kafka: KafkaCluster, node_id: int, topic: str) -> int:
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
    body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [asked]}]}
    found = ask(kafka.address_of(node_id), apis.LIST_OFFSETS, 5, body)["topics"][0]["partitions"][0]
    assert found["error_code"] == 0
    return int(found["offset"])
