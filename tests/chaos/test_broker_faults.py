"""Brokers that die, freeze, restart or do not answer while tasks write and commits are in progress.

A query waits for brokers that come back and repeats unanswered requests. No batch fails, none is delivered twice, and
no transaction stays open.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kafka_sink.errors import DeliveryError
from kafka_sink.kafka.wire.apis import END_TXN, INIT_PRODUCER_ID, PRODUCE
from tests.chaos.bare_spark import PARTITIONS
from tests.chaos.bare_stream import BareStream
from tests.chaos.extent import NEWEST_MAINLY
from tests.chaos.outages import TRANSACTION_TOPIC, Outage
from tests.chaos.test_cluster_changes import cluster_of
from tests.chaos.test_three_nodes import restarts_all
from tests.chaos.test_transaction_time_outs import coordinator_of
from tests.conftest import FIRST_GENERATION
from tests.support.faults import Fault, Harm, of_a_task, of_the_driver
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

TWO_OF_THREE = {"min.insync.replicas": 2}
DAY_S = 86_400


# For three nodes; an unanswered request is given up soon.
PATIENT = {"ledger__replication__factor": 3, "kafka__request__timeout__ms": 4000}


def partition_of(fault: Fault) -> int:
    """The partition of the Produce request that was hit."""
    assert fault.hit is not None
    body: Mapping[str, Any] = fault.hit[1]
    return int(body["topic_data"][0]["partition_data"][0]["index"])


# ---- one connection ----


@NEWEST_MAINLY  # on both versions without Spark's processes: test_proxy.py
@pytest.mark.parametrize(
    "harm",
    [
        Harm.LOSE_ANSWER,
        Harm.DUPLICATE_REQUEST,
        pytest.param(Harm.CUT_ANSWER, marks=pytest.mark.slow),
        pytest.param(Harm.CUT_REQUEST, marks=pytest.mark.slow),
        pytest.param(Harm.SILENCE, marks=pytest.mark.slow),
        pytest.param(Harm.SILENT_ANSWER, marks=pytest.mark.slow),
        pytest.param(Harm.SILENT_HOLD, marks=pytest.mark.slow),
    ],
    ids=lambda harm: harm.name.lower(),
)
def test_a_task_gets_over_the_loss_of_any_of_its_produce_requests(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster, harm: Harm
) -> None:
    """In both directions, with and without an error on the connection."""
    stream = stream_on(kafka, kafka__request__timeout__ms=2000)
    with stream.query() as query:
        for nth in (1, 2, 3):
            fault = stream.proxy.on(PRODUCE, harm, nth=nth, where=of_a_task)
            query.run_batch()
            assert fault.has_acted
    stream.check(3)


# ---- three nodes ----


@pytest.mark.parametrize(
    "way", ["kill", pytest.param("stop", marks=pytest.mark.slow), pytest.param("pause", marks=pytest.mark.slow)]
)
def test_a_leader_that_goes_away_while_a_task_writes_delays_it_and_nothing_else(
    stream_on: Callable[..., BareStream], kafka_three_nodes: KafkaCluster, way: str
) -> None:
    """The records are in its log and the answer is lost: they are sent again to the new leader."""
    kafka = kafka_three_nodes
    stream = stream_on(kafka, config=TWO_OF_THREE, **PATIENT)
    with stream.query() as query:
        query.run_batch()

        def strike() -> None:
            getattr(kafka, way)(kafka.leader_of(stream.topic, partition_of(fault)))

        fault = stream.proxy.on(PRODUCE, Harm.LOSE_ANSWER, nth=2, where=of_a_task, before=strike)
        query.run_batch()
        assert fault.has_acted
        kafka.heal()
        query.run_batch()
    stream.check(3)


@pytest.mark.slow
def test_a_coordinator_that_is_killed_when_a_task_begins_delays_it_and_nothing_else(
    stream_on: Callable[..., BareStream], kafka_three_nodes: KafkaCluster
) -> None:
    kafka = kafka_three_nodes
    stream = stream_on(kafka, **PATIENT)

    def strike() -> None:
        assert fault.hit is not None
        kafka.kill(coordinator_of(kafka, fault.hit[1]["transactional_id"]))

    with stream.query() as query:
        fault = stream.proxy.on(INIT_PRODUCER_ID, Harm.LOSE_ANSWER, where=of_a_task, before=strike)
        query.run_batch()
        assert fault.has_acted
        kafka.heal()
        query.run_batch()
    stream.check(2)


@pytest.mark.slow
def test_too_few_replicas_in_sync_delay_a_task_until_they_are_back(
    stream_on: Callable[..., BareStream], kafka_three_nodes: KafkaCluster
) -> None:
    kafka = kafka_three_nodes
    stream = stream_on(kafka, config={"min.insync.replicas": 3}, **PATIENT)
    with stream.query() as query:
        query.run_batch()
        query.plan()
        victim = kafka.node_ids[-1]
        kafka.kill(victim)
        comeback = threading.Timer(15, lambda: kafka.start(victim))
        comeback.start()
        try:
            query.commit(query.write_tasks())
            assert not comeback.is_alive(), "the rows were taken while a replica was missing"
        finally:
            comeback.join()
    stream.check(2)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_batches_go_on_while_all_brokers_are_restarted_one_after_the_other(
    stream_on: Callable[..., BareStream], kafka_three_nodes: KafkaCluster
) -> None:
    kafka = kafka_three_nodes
    stream = stream_on(kafka, is_direct=True, config=TWO_OF_THREE, ledger__replication__factor=3)
    outage = Outage(lambda: restarts_all(kafka, stream.topic))
    with stream.query() as query:
        query.run_batch()
        outage.start()
        while not outage.is_over:
            query.run_batch()
        outage.join()
        query.run_batch()
    batches = stream.checkpoint.committed + 1
    print(f"\n{batches} batches in {outage.ended_at - outage.started_at:.0f} s of restarts")
    assert batches > 2
    stream.check(batches)


@pytest.mark.slow
def test_a_partition_that_has_no_leader_when_it_is_committed_is_forgotten_by_brokers_of_4(
    stream_on: Callable[..., BareStream], kafka_three_nodes: KafkaCluster
) -> None:
    """KAFKA-20734; the test also shows when it is fixed. The coordinator takes such a partition for a deleted one and
    writes no marker into it. Its rows stay hidden, and no request of a client can change that. A commit that waits for
    its rows to be visible reports it."""
    kafka = kafka_three_nodes
    # The coordinator answers when the dead node has left its replicas. On a busy machine that takes more than four
    # seconds, and a request that is repeated would wait for the leader, to keep brokers from forgetting it.
    patient = {**PATIENT, "kafka__request__timeout__ms": 60_000}
    stream = stream_on(kafka, replication_factor=1, commit__visible__timeout__ms=2000, **patient)
    (told,) = [line for line in commit_with_a_dead_leader(stream) if "KAFKA-20734" in line]
    assert "read_committed readers do not see all of it yet" in told and f"{stream.topic}-" in told
    kafka.heal()
    assert stream.open() == []
    with pytest.raises(TimeoutError, match="a transaction is still open"):
        read_topic(kafka.bootstrap_servers, stream.topic)


@pytest.mark.slow
@pytest.mark.kafka
def test_a_partition_that_has_no_leader_when_it_is_committed_shows_its_rows_when_it_is_back(
    stream_on: Callable[..., BareStream],
) -> None:
    """On brokers before 4.0 the markers wait. A commit that has to repeat its request waits, too, as its transaction is
    neither open nor ended until then."""
    with cluster_of(FIRST_GENERATION, nodes=3) as kafka:
        stream = stream_on(kafka, replication_factor=1, **PATIENT)
        commit_with_a_dead_leader(stream, comes_back_after_s=15)
        stream.check(1)


def commit_with_a_dead_leader(stream: BareStream, *, comes_back_after_s: float | None = None) -> list[str]:
    """A node that leads some of the rows' partitions, as their only replica, is dead when a batch is committed. Returns
    the log of the commit."""
    kafka = stream.kafka
    # Creates the cluster's internal topics.
    with BareStream(kafka, f"{stream.topic}-first", **PATIENT) as first:
        first.run()
    kafka.wait_in_sync(TRANSACTION_TOPIC)
    coordinators = {kafka.leader_of(TRANSACTION_TOPIC, partition) for partition in range(2)}
    victim = next(node for node in kafka.node_ids if node not in coordinators)
    assert victim in {kafka.leader_of(stream.topic, partition) for partition in range(PARTITIONS)}
    comeback = threading.Timer(comes_back_after_s or 0, lambda: kafka.start(victim))
    with stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        fault = stream.proxy.on(END_TXN, Harm.DELAY_REQUEST, where=of_a_task, before=lambda: kafka.kill(victim))
        query.begin_commit(messages)
        assert fault.wait_until_acted()
        if comes_back_after_s is not None:
            comeback.start()
        query.worker("commit").result()
        if comes_back_after_s is not None:
            comeback.join()
        return query.worker("commit").log


# ---- clocks ----


@NEWEST_MAINLY
@pytest.mark.parametrize("days", [1, -1])
def test_clocks_that_jump_by_a_day_in_the_middle_of_a_batch_change_nothing(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster, days: int
) -> None:
    """The clocks of the tasks' and the driver's processes: time limits are measured by a clock that cannot jump."""
    stream = stream_on(kafka, is_direct=True, config={"message.timestamp.after.max.ms": 1 << 62})
    with stream.query() as query:
        query.run_batch()
        query.plan()
        first = query.write_task(0)
        query.jump_clocks(days * DAY_S)
        query.commit([first, query.write_task(1), query.write_task(2)])
        query.run_batch()
    stream.run()
    stream.check(4)


@NEWEST_MAINLY
def test_a_clock_that_is_too_far_ahead_for_the_topic_fails_the_task_and_loses_nothing(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster
) -> None:
    """From Kafka 4.0 on, topics by default refuse timestamps of more than an hour ahead."""
    stream = stream_on(kafka, is_direct=True, config={"message.timestamp.after.max.ms": 3_600_000})
    with stream.query() as query:
        query.run_batch()
        query.plan()
        first = query.write_task(0)
        query.jump_clocks(DAY_S)
        with pytest.raises(DeliveryError, match="INVALID_TIMESTAMP"):
            query.write_task(1)
        query.abort([first, None, None])
        stream.check(1)
    stream.run()
    stream.check(2)


# ---- requests of the driver ----


@pytest.mark.slow
def test_a_commit_that_is_held_back_for_a_minute_arrives_and_changes_nothing(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster
) -> None:
    """The driver gives up waiting and repeats the request; batches later the first request arrives."""
    stream = stream_on(kafka, kafka__request__timeout__ms=3000)
    held = [
        stream.proxy.on(END_TXN, Harm.SILENT_HOLD, nth=2, where=of_a_task),
        stream.proxy.on(END_TXN, Harm.SILENT_HOLD, nth=1, where=of_the_driver),
    ]
    with stream.query() as query:
        query.run_batch()
        assert all(fault.has_acted for fault in held)
        threading.Event().wait(60)
        query.run_batch()
        query.plan()
        messages = query.write_tasks()
        answers = [fault.release() for fault in held]
        query.commit(messages)
    print(f"\n{kafka.version}: answered {[answer['error_code'] for answer in answers]}")
    stream.check(3)
