"""A transactional application runs while coordinator and leaders are killed and frozen, one after the other.

Two read_committed readers check it, one that ran all the time and one that reads everything afterwards: they see
exactly the committed transactions, each of them whole, once and in order. Both transaction versions.

extent.py says how often each outage happens. Run with `-s` to see the figures.
"""

from __future__ import annotations

import time

import pytest

from tests.chaos.extent import ROUNDS
from tests.chaos.outages import (
    TRANSACTION_TOPIC,
    Outage,
    coordinator_partition,
    create_topic,
    kill_leader,
    pause_leader,
)
from tests.chaos.tail import Tail
from tests.chaos.transaction_loop import PARTITIONS, Fate, TransactionChecker, TransactionLoop
from tests.conftest import FIRST_GENERATION, or_without_kafka
from tools.foreign_reader import scan_topic
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.kafka, pytest.mark.timeout(900)]

TRANSACTIONAL_ID = "under-fire"
PAUSE_S = 8
# Shorter than an outage: steps then end in time-outs, and records expire.
SETTINGS = {
    "transactional.id": TRANSACTIONAL_ID,
    "request.timeout.ms": 3000,
    "delivery.timeout.ms": 6000,
    "max.block.ms": 3000,
    "linger.ms": 0,
}


class Fire:
    """Each outage lasts until the application has committed without the node, and then with it again."""

    def __init__(self, kafka: KafkaCluster, topic: str, loop: TransactionLoop) -> None:
        self._kafka = kafka
        self._topic = topic
        self._loop = loop
        self._coordinator = TRANSACTION_TOPIC, coordinator_partition(TRANSACTIONAL_ID, 2)
        self.outages = 0

    def run(self) -> None:
        for number in range(ROUNDS):
            self._kill(*self._coordinator)
            self._kill(self._topic, number % PARTITIONS)
            pause_leader(self._kafka, *self._coordinator, PAUSE_S)
            self._await_recovery()

    def _kill(self, topic: str, partition: int) -> None:
        victim = kill_leader(self._kafka, topic, partition)
        self._await_commits()
        self._kafka.start(victim)
        self._await_recovery()

    def _await_recovery(self) -> None:
        self._kafka.wait_in_sync(self._topic, TRANSACTION_TOPIC)
        self._await_commits()
        self.outages += 1

    def _await_commits(self) -> None:
        before = self._loop.committed
        wait_until(lambda: self._loop.committed >= before + 5, "five more transactions committed")


def test_exactly_the_committed_transactions_are_visible(kafka_three_nodes: KafkaCluster, topic_name: str) -> None:
    check_transactions_under_fire(kafka_three_nodes, topic_name)


@pytest.mark.slow
def test_so_are_those_of_brokers_of_the_first_generation(topic_name: str) -> None:
    # Only for this test: two clusters of three nodes at the same time would be too much for a small machine.
    with or_without_kafka(KafkaCluster(FIRST_GENERATION, 3)) as kafka:
        check_transactions_under_fire(kafka, topic_name)


def check_transactions_under_fire(kafka: KafkaCluster, topic_name: str) -> None:
    topic = create_topic(kafka, topic_name, PARTITIONS, {"min.insync.replicas": 2})
    loop = TransactionLoop({"bootstrap.servers": kafka.bootstrap_servers, **SETTINGS}, topic)
    beside, afterwards = TransactionChecker(loop.fates), TransactionChecker(loop.fates)
    tail = Tail(kafka.bootstrap_servers, topic, beside.on_record)
    tail.start()
    fire = Fire(kafka, topic, loop)
    outage = Outage(fire.run)
    started = time.monotonic()

    def is_over() -> bool:
        # No faults at the beginning and at the end: the outages hit a running application, which must run afterwards.
        if outage.started_at == 0.0 and loop.committed >= 10:
            outage.start()
        return outage.ended_at > 0.0

    loop.run(is_over)
    took_s = time.monotonic() - started
    outage.join()
    tail.finish()
    for record in scan_topic(kafka.bootstrap_servers, topic):
        afterwards.on_record(record.partition, record.value)
    fates = {fate.value: loop.fates.count(fate) for fate in Fate if fate in loop.fates}
    print(
        f"\n{kafka.version}: {fire.outages} outages in {took_s:.1f} s, {len(loop.fates)} transactions {fates}, "
        f"{afterwards.record_count:,} records visible, longest gap {loop.longest_gap_s:.2f} s, steps called again "
        f"{loop.step_timeouts}, errors {dict(loop.errors)}, producers {loop.producers}"
    )
    assert fire.outages == 3 * ROUNDS
    assert afterwards.verdict() == []
    assert beside.verdict() == []
    assert beside.record_count == afterwards.record_count > 0
    assert loop.fates.count(Fate.ABORTED) > 0
    # A coordinator that was frozen after it had decided to commit, and was replaced, still takes the end of the next
    # transaction for that of an unknown producer until it learns of its replacement. The producer cannot know better.
    fenced_by_former = min(ROUNDS, loop.errors["ProducerFenced"])
    assert loop.fates.count(Fate.UNKNOWN) <= fenced_by_former, "\n".join([loop.last_error, *told_by_brokers(kafka)])


def told_by_brokers(kafka: KafkaCluster) -> list[str]:
    """The log says why a coordinator fenced the only producer, or ended a transaction by itself."""
    logs = [(node_id, kafka.log_path(node_id).read_text()) for node_id in kafka.node_ids]
    return [f"node {node_id}: {line}" for node_id, log in logs for line in log.splitlines() if TRANSACTIONAL_ID in line]
