"""The broker that leads the ledger dies between an acknowledged decision and its marker, and so does the driver.

The coordinator acknowledges the decision; afterwards a request from broker to broker writes the marker that makes it
readable. The proxy holds the driver's EndTxn, the ledger's leader is killed with SIGKILL, and only then the coordinator
gets the request. With three replicas it writes the marker to the next leader. With one replica brokers from 4.3 on
treat the partition as deleted and never write it (KAFKA-20734); 3.9.1 writes it when the broker is back.

The next run must find every row there once, however many transactions of the batch the dead driver had committed: none,
some, or all. No row may be lost or duplicated, with or without an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaException

from kafka_sink.kafka.wire.apis import END_TXN
from tests.chaos.bare_spark import TASKS, Killed
from tests.chaos.bare_stream import BareStream
from tests.chaos.outages import TRANSACTION_TOPIC, leader_as_told_by
from tests.conftest import FIRST_GENERATION, NEWEST, or_without_kafka
from tests.support.faults import Harm, of_a_task, of_the_driver
from tools.foreign_reader import end_offsets
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

# transaction.version 2 is transaction version 2. 3.9.1 supports only 0.
TRANSACTION_VERSIONS = ((NEWEST, 2), (NEWEST, 1), (FIRST_GENERATION, 0))
# Long enough for the brokers to notice that one is gone, while the proxy holds the request.
PATIENT = {"kafka__request__timeout__ms": 60_000, "ledger__replication__factor": 3}
COORDINATOR_PARTITIONS = 2
TRIES = 20
MARKER_PATIENCE_S = 15


@dataclass(frozen=True)
class Moment:
    """When the driver dies: at which EndTxn of its tasks, and whether that request is carried out."""

    name: str
    nth: int
    harm: Harm


MOMENTS = (
    Moment("none-committed", 1, Harm.LOSE_REQUEST),
    Moment("some-committed", 2, Harm.LOSE_REQUEST),
    Moment("all-committed", TASKS, Harm.LOSE_ANSWER),
)


@pytest.fixture(params=TRANSACTION_VERSIONS, ids=lambda which: f"{which[0]}-{which[1]}", scope="module")
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    version, transaction_version = request.param
    feature = None if version.startswith("3.") else transaction_version
    with or_without_kafka(KafkaCluster(version, 3, transaction_version=feature)) as cluster:
        yield cluster


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.name)
@pytest.mark.parametrize("replicas", [3, 1])
def test_a_decision_whose_ledger_loses_its_leader_before_the_marker_shows_each_row_once(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster, replicas: int, moment: Moment, topic_name: str
) -> None:
    with BareStream(kafka, f"{topic_name}-first", **PATIENT) as first:
        first.run()  # creates the cluster's internal topics
    kafka.wait_in_sync(TRANSACTION_TOPIC)
    coordinators = {kafka.leader_of(TRANSACTION_TOPIC, partition) for partition in range(COORDINATOR_PARTITIONS)}
    victim = next(node for node in kafka.node_ids if node not in coordinators)
    ledger = ledger_led_by(kafka, victim, topic_name, replicas)
    stream = stream_on(kafka, ledger__topic=ledger, **PATIENT)
    others = [node for node in kafka.node_ids if node != victim]

    def die() -> None:
        kafka.kill(victim)
        if replicas == 1:
            wait_until(
                lambda: {leader_as_told_by(kafka, node, ledger, 0) for node in others} == {-1}, "it has no leader"
            )

    with stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        decision = stream.proxy.on(END_TXN, Harm.DELAY_REQUEST, where=of_the_driver, before=die)
        death = stream.proxy.on(END_TXN, moment.harm, nth=moment.nth, where=of_a_task, before=query.strike)
        with pytest.raises(Killed):
            query.commit(messages)
    assert decision.has_acted and death.has_acted
    kafka.start(victim)
    kafka.wait_in_sync(ledger, stream.topic, TRANSACTION_TOPIC)
    has_marker = is_settled(kafka, ledger)
    print(f"{kafka.version}, {replicas} replicas, {moment.name}: {'a' if has_marker else 'no'} marker")
    assert has_marker is not (replicas == 1 and kafka.version.startswith("4."))
    stream.run(2)
    assert stream.open_of_tasks() == []
    assert stream.problems(2) == []


def ledger_led_by(kafka: KafkaCluster, node: int, topic: str, replicas: int) -> str:
    """Kafka places a topic's first replica at random, so several topics are tried."""
    for number in range(TRIES):
        config = {"cleanup.policy": "compact", "min.insync.replicas": min(replicas, 2)}
        ledger = kafka.create_topic(f"ledger-{number}-{topic}"[:249], 1, replicas, config)
        if kafka.leader_of(ledger, 0) == node:
            return ledger
    raise AssertionError(f"none of {TRIES} topics was placed on node {node}")


def is_settled(kafka: KafkaCluster, ledger: str) -> bool:
    """Whether every transaction in the ledger has its marker after a limited wait."""
    servers = kafka.bootstrap_servers

    def has_no_open_end() -> bool:
        return end_offsets(servers, ledger, "read_committed") == end_offsets(servers, ledger)

    with suppress(TimeoutError):
        wait_until(has_no_open_end, "the ledger has every marker", MARKER_PATIENCE_S, passing=(KafkaException,))
        return True
    return False
