"""A broker stands still between two batches of a query. The tasks write to its successor; the driver's process, which
has known it since the last batch, asks it, and it answers as of before when it goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.bare_spark import PARTITIONS
from tests.chaos.bare_stream import BareStream
from tests.chaos.clusters import coordinator_of
from tests.chaos.outages import TRANSACTION_TOPIC, wait_until_moved
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.kafka, pytest.mark.timeout(300)]

TWO_OF_THREE = {"min.insync.replicas": 2}
# Tasks give up the broker that stands still soon; the driver's question waits in its socket for longer than that.
OPTIONS = {"ledger__replication__factor": 3, "kafka__request__timeout__ms": 6000}
# After the beginning of the commit.
GOES_ON_AFTER_S = 2.0


def leader_of_rows(kafka: KafkaCluster, stream: BareStream, messages: list[Any]) -> int:
    return kafka.leader_of(stream.topic, 0)


def coordinator_of_task(kafka: KafkaCluster, stream: BareStream, messages: list[Any]) -> int:
    """The ids of tasks are used again in the next batch."""
    return coordinator_of(kafka, messages[0].receipt.transaction.transactional_id)


def wait_until_replaced(kafka: KafkaCluster, node_id: int, *topics: str) -> None:
    for topic in topics:
        for one in kafka.partitions_of(topic):
            wait_until_moved(kafka, topic, one.index, node_id)


@pytest.mark.parametrize("node_of", [leader_of_rows, coordinator_of_task])
def test_a_batch_is_not_refused_because_of_a_broker_that_stood_still_while_it_was_written(
    stream_on: Callable[..., BareStream],
    kafka_three_nodes: KafkaCluster,
    node_of: Callable[[KafkaCluster, BareStream, list[Any]], int],
) -> None:
    kafka = kafka_three_nodes
    stream = stream_on(kafka, is_direct=True, config=TWO_OF_THREE, **OPTIONS)
    assert len(kafka.partitions_of(stream.topic)) == PARTITIONS
    with stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        query.commit(messages)
        query.plan()
        victim = node_of(kafka, stream, messages)
        kafka.pause(victim)
        wait_until_replaced(kafka, victim, stream.topic, TRANSACTION_TOPIC)
        messages = query.write_tasks()
        goes_on = threading.Timer(GOES_ON_AFTER_S, lambda: kafka.resume(victim))
        goes_on.start()
        try:
            query.commit(messages)
            assert not goes_on.is_alive(), "the driver had to wait for it"
        finally:
            goes_on.join()
        kafka.wait_in_sync(stream.topic)
        query.run_batch()
    stream.check(3)
