"""Transactions that time out before and after the decision, coordinators that die, a cluster that is away.

Before the decision a time-out costs a repetition of the batch. After it nothing can hide it: the query stops, says
which rows of which batch are missing, and stops again at each start, until an operator has chosen.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

import pytest

from kafka_sink.delivery.identity import driver_transactional_id, sink_id_of_query
from kafka_sink.errors import CommitAborted, CommitLost
from kafka_sink.testing.topics import TRANSACTION_TOPIC, internal_partition
from kafka_sink.wire.api import Api
from kafka_sink.wire.apis import DESCRIBE_TRANSACTIONS, END_TXN, INIT_PRODUCER_ID
from tests.chaos.bare_spark import (
    PARTITIONS,
    ROWS,
    TASKS,
    BareQuery,
    Checkpoint,
    open_transactions,
    problems,
    run_on,
    settings_of,
    sink_id_of,
)
from tests.chaos.faults import Harm
from tests.chaos.kafka_proxy import KafkaProxy
from tests.chaos.test_commit_errors import of_a_task, of_the_driver
from tests.chaos.test_driver_crashes import kill_after_the_decision
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

# Time enough to write three tasks on a busy machine; the broker looks for what is over every ten seconds.
TIMEOUT_MS = 20_000
SHARE = ROWS // TASKS


def wait_for_time_out(kafka: KafkaCluster, settings: Mapping[str, str]) -> None:
    assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings), patience_s=120) == []


@pytest.mark.slow
def test_a_time_out_before_the_decision_costs_a_repetition_and_nothing_else(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    checkpoint = Checkpoint()
    settings = settings_of(kafka.bootstrap_servers, topic_name, kafka__transaction__timeout__ms=TIMEOUT_MS)
    with BareQuery(checkpoint, settings) as query:
        query.plan()
        messages = query.write_tasks()
        wait_for_time_out(kafka, settings)
        with pytest.raises(CommitAborted, match=r"ended by its time-out|is not known") as caught:
            query.commit(messages)
        assert "Nothing of it is visible and nothing is lost" in str(caught.value)
        query.abort(messages)
        assert problems(kafka.bootstrap_servers, topic_name, 0) == []
    run_on(checkpoint, settings, 2)
    assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 2) == []


@pytest.mark.slow
def test_a_time_out_after_the_decision_stops_the_query_at_each_start_and_says_what_is_missing(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name, kafka__transaction__timeout__ms=TIMEOUT_MS)
        run_on(checkpoint, settings)
        kill_after_the_decision(checkpoint, settings, proxy, nth=1)
        wait_for_time_out(kafka, settings)
        texts = set()
        for _ in range(3):
            with pytest.raises(CommitLost) as caught:
                run_on(checkpoint, settings)
            texts.add(str(caught.value))
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    (text,) = texts
    assert f"batch 1 of query {checkpoint.query_id} ({ROWS} rows to {topic_name})" in text
    seen = read_topic(kafka.bootstrap_servers, topic_name)
    missing = 2 * ROWS - len(seen)
    assert missing >= (TASKS - 1) * SHARE and max(Counter(record.value for record in seen).values()) == 1
    assert f"{TASKS - missing // SHARE} of {TASKS} are committed and visible" in text
    assert f"Not committed, rows not visible: {missing} rows of Spark partition" in text
    assert "resolve --replay" in text and "resolve --accept" in text


# ---- three nodes ----


def coordinator_of(kafka: KafkaCluster, transactional_id: str) -> int:
    count = len(kafka.partitions_of(TRANSACTION_TOPIC))
    return kafka.leader_of(TRANSACTION_TOPIC, internal_partition(transactional_id, count))


@pytest.mark.parametrize(
    ("api", "is_drivers", "nth"),
    [
        (END_TXN, False, 2),
        pytest.param(END_TXN, True, 1, marks=pytest.mark.slow),
        pytest.param(END_TXN, True, 2, marks=pytest.mark.slow),
        pytest.param(INIT_PRODUCER_ID, True, 1, marks=pytest.mark.slow),
    ],
    ids=["between-decision-and-last-commit", "at-the-decision", "at-the-done-record", "at-the-fencing"],
)
def test_a_coordinator_that_is_killed_in_a_commit_delays_it_and_nothing_else(
    kafka_three_nodes: KafkaCluster, topic_name: str, api: Api, is_drivers: bool, nth: int
) -> None:
    kafka = kafka_three_nodes
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name, ledger__replication__factor=3)
        with BareQuery(checkpoint, settings) as query:
            query.plan()
            messages = query.write_tasks()
            driver = driver_transactional_id(sink_id_of_query(sink_id_of(settings), checkpoint.query_id))
            owner = driver if is_drivers else _last_id(messages)
            victim = coordinator_of(kafka, owner)
            where = of_the_driver if is_drivers else of_a_task
            fault = proxy.on(api, Harm.LOSE_ANSWER, nth=nth, where=where, before=lambda: kafka.kill(victim))
            query.commit(messages)
            assert fault.has_acted
            query.run_batch()
            kafka.start(victim)
            query.run_batch()
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 3) == []


def _last_id(messages: list[object]) -> str:
    return str(messages[-1].receipt.transaction.transactional_id)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(
    "api", [DESCRIBE_TRANSACTIONS, END_TXN], ids=["before-the-decision", "in-the-middle-of-the-commits"]
)
def test_a_cluster_that_goes_away_in_a_commit_and_comes_back_delays_it_and_nothing_else(
    kafka_three_nodes: KafkaCluster, topic_name: str, api: Api
) -> None:
    kafka = kafka_three_nodes
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    checkpoint = Checkpoint()

    def kill_all() -> None:
        for node_id in kafka.node_ids:
            kafka.kill(node_id)

    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name, ledger__replication__factor=3)
        with BareQuery(checkpoint, settings) as query:
            query.plan()
            messages = query.write_tasks()
            where = of_a_task if api is END_TXN else lambda _: True
            fault = proxy.on(api, Harm.LOSE_REQUEST, where=where, before=kill_all)
            query.begin_commit(messages)
            assert fault.wait_until_acted(60)
            time.sleep(5)
            kafka.heal()
            query.worker("commit").result()
            checkpoint.committed += 1
            query.run_batch()
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 2) == []
