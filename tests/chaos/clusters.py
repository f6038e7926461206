"""A cluster of a test's own, and what tests ask it or do to all of its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka_sink.testing.topics import internal_partition
from tests.chaos.outages import TRANSACTION_TOPIC
from tests.conftest import or_without_kafka
from tools.kafka_cluster import KafkaCluster

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


@contextmanager
def cluster_of(version: str, **more: object) -> Iterator[KafkaCluster]:
    with or_without_kafka(KafkaCluster(version, **more)) as cluster:  # type: ignore[arg-type]
        yield cluster


def restarts_all(kafka: KafkaCluster, topic: str) -> None:
    before = {node_id: kafka.process_id(node_id) for node_id in kafka.node_ids}
    for node_id in kafka.node_ids:
        kafka.restart(node_id)
        kafka.wait_in_sync(topic)
    assert all(kafka.process_id(node_id) != process_id for node_id, process_id in before.items())


def coordinator_of(kafka: KafkaCluster, transactional_id: str) -> int:
    count = len(kafka.partitions_of(TRANSACTION_TOPIC))
    return kafka.leader_of(TRANSACTION_TOPIC, internal_partition(transactional_id, count))
