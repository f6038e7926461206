"""The driver is killed at every request of commit(), before it arrives and after it was carried out.

No fault point is in the code under test: a proxy sees the request and kills the driver's processes. After each crash
the query starts again from its checkpoint; then each row is there once, and no transaction is open.
"""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest

from kafka_sink.wire.apis import END_TXN
from tests.chaos.bare_spark import (
    TASKS,
    BareQuery,
    Checkpoint,
    Killed,
    open_transactions,
    problems,
    run_on,
    settings_of,
    sink_id_of,
)
from tests.chaos.faults import Fault, Harm, Request
from tests.chaos.kafka_proxy import KafkaProxy
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

SIDES = {"before-it-arrives": Harm.LOSE_REQUEST, "after-it-was-carried-out": Harm.LOSE_ANSWER}
# A commit of three tasks has 20 requests in generation 2 and 23 in generation 1, repeats left aside.
REQUESTS_MAX = 60


def whose(fault: Fault) -> str:
    """The request that was hit, with whose transaction it is about."""
    assert fault.hit is not None
    name, body = fault.hit
    owner = body.get("transactional_id") or body.get("v3_and_below_transactional_id") or ""
    return f"{name} of {'the driver' if owner.endswith('-driver') else 'a task'}" if owner else name


def of_a_task(request: Request) -> bool:
    return not request.body["transactional_id"].endswith("-driver")


def is_killed_in_commit(query: BareQuery, proxy: KafkaProxy, harm: Harm, nth: int, hits: list[str]) -> bool:
    query.plan()
    messages = query.write_tasks()
    fault = proxy.on(None, harm, nth=nth, before=query.strike)
    try:
        query.commit(messages)
    except Killed:
        hits.append(whose(fault))
        return True
    fault.stop()
    return False


@pytest.mark.slow
@pytest.mark.parametrize("is_warm", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("side", SIDES)
def test_each_row_is_there_once_wherever_in_a_commit_the_driver_is_killed(
    kafka: KafkaCluster, topic_name: str, side: str, is_warm: bool
) -> None:
    """`first` commit of a process, which fences and reads the ledger, or a `later` one, which knows both."""
    kafka.create_topic(topic_name, partitions=3)
    checkpoint, hits = Checkpoint(), list[str]()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        for nth in count(1):
            with BareQuery(checkpoint, settings) as query:
                if is_warm:
                    query.run_batch()
                if not is_killed_in_commit(query, proxy, SIDES[side], nth, hits):
                    break
            run_on(checkpoint, settings)
            left = open_transactions(kafka.bootstrap_servers, sink_id_of(settings))
            assert left == [], f"open after a kill at request {nth}, {hits[-1]}: {left}"
            assert nth < REQUESTS_MAX
    print(f"\n{kafka.version}, {side}: {len(hits)} kills: {', '.join(hits)}")
    found = Counter(hits)
    # The decision, each task's commit, and the done record.
    assert found["Produce of the driver"] >= 2 and found["EndTxn of the driver"] >= 2
    assert found["EndTxn of a task"] >= TASKS
    assert is_warm or found["InitProducerId of the driver"] >= 1
    assert problems(kafka.bootstrap_servers, topic_name, checkpoint.committed + 1) == []


@pytest.mark.slow
@pytest.mark.parametrize("side", SIDES)
def test_each_row_is_there_once_when_the_driver_is_killed_a_second_time_in_recovery(
    kafka: KafkaCluster, topic_name: str, side: str
) -> None:
    kafka.create_topic(topic_name, partitions=3)
    checkpoint, hits = Checkpoint(), list[str]()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        for nth in count(1):
            kill_after_the_decision(checkpoint, settings, proxy)
            with BareQuery(checkpoint, settings) as query:
                query.worker("planner")
                fault = proxy.on(None, SIDES[side], nth=nth, before=query.strike)
                try:
                    query.plan()
                except Killed:
                    hits.append(whose(fault))
                fault.stop()
            run_on(checkpoint, settings)
            assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
            if len(hits) < nth:
                break
    print(f"\n{kafka.version}, {side}: {len(hits)} kills: {', '.join(hits)}")
    assert Counter(hits)["EndTxn of a task"] >= TASKS
    assert problems(kafka.bootstrap_servers, topic_name, checkpoint.committed + 1) == []


def kill_after_the_decision(checkpoint: Checkpoint, settings: dict[str, str], proxy: KafkaProxy, nth: int = 2) -> None:
    """At the nth EndTxn of the tasks."""
    with BareQuery(checkpoint, settings) as query:
        query.plan()
        messages = query.write_tasks()
        proxy.on(END_TXN, Harm.LOSE_REQUEST, nth=nth, where=of_a_task, before=query.strike)
        with pytest.raises(Killed):
            query.commit(messages)


def test_a_driver_killed_before_commit_leaves_nothing_that_waits_for_a_time_out(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=3)
    checkpoint, settings = Checkpoint(), settings_of(kafka.bootstrap_servers, topic_name)
    with BareQuery(checkpoint, settings) as query:
        query.plan()
        query.write_tasks()
    assert len(open_transactions(kafka.bootstrap_servers, sink_id_of(settings), patience_s=0)) == TASKS
    run_on(checkpoint, settings)
    assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 1) == []


@pytest.mark.parametrize("tasks", [TASKS, 2], ids=["as-before", "planned-with-fewer-tasks"])
def test_a_batch_that_is_delivered_and_not_in_sparks_commit_log_is_not_delivered_again(
    kafka: KafkaCluster, topic_name: str, tasks: int
) -> None:
    kafka.create_topic(topic_name, partitions=3)
    checkpoint, settings = Checkpoint(), settings_of(kafka.bootstrap_servers, topic_name)
    run_on(checkpoint, settings, 2)
    checkpoint.committed -= 1  # the crash came before Spark wrote its commit log
    run_on(checkpoint, settings, 2, tasks=tasks)
    assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 3) == []


@pytest.mark.parametrize("nth", range(1, TASKS + 1))
def test_recovery_at_planning_commits_what_was_decided_before_any_task_runs(
    kafka: KafkaCluster, topic_name: str, nth: int
) -> None:
    kafka.create_topic(topic_name, partitions=3)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        kill_after_the_decision(checkpoint, settings, proxy, nth)
        with BareQuery(checkpoint, settings, tasks=2) as query:
            query.plan()
            assert problems(kafka.bootstrap_servers, topic_name, 1) == []
            query.run_batch()  # the same batch, planned otherwise: its rows are not written twice
    assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 1) == []
