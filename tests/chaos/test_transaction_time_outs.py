"""Transactions that time out before and after the decision, coordinators that die, a cluster that is not reachable.

A time-out before the decision costs a repetition of the batch. After the decision it cannot be hidden: the query stops,
names the missing rows of the batch, and stops again at each start, until an operator has chosen.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kafka_sink.commit.identity import Line, sink_id_of_query
from kafka_sink.errors import CommitAborted, CommitLost
from kafka_sink.kafka.wire.apis import DESCRIBE_TRANSACTIONS, END_TXN, INIT_PRODUCER_ID, Api
from tests.chaos.bare_spark import ROWS, TASKS
from tests.chaos.bare_stream import BareStream
from tests.chaos.clusters import coordinator_of
from tests.support.faults import Harm, of_a_task, of_the_driver
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

# Enough time to write three tasks on a busy machine; the broker looks for timed-out transactions every ten seconds.
TIMEOUT_MS = 20_000
SHARE = ROWS // TASKS


def wait_for_time_out(stream: BareStream) -> None:
    assert stream.open(patience_s=120) == []


@pytest.mark.slow
def test_a_time_out_before_the_decision_costs_a_repetition_and_nothing_else(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster
) -> None:
    stream = stream_on(kafka, is_direct=True, kafka__transaction__timeout__ms=TIMEOUT_MS)
    with stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        wait_for_time_out(stream)
        with pytest.raises(CommitAborted, match=r"ended by its time-out|is not known") as caught:
            query.commit(messages)
        assert "Nothing of it is visible and nothing is lost" in str(caught.value)
        query.abort(messages)
        assert stream.problems(0) == []
    stream.run(2)
    stream.check(2)


@pytest.mark.slow
def test_a_time_out_after_the_decision_stops_the_query_at_each_start_and_says_what_is_missing(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster
) -> None:
    stream = stream_on(kafka, kafka__transaction__timeout__ms=TIMEOUT_MS)
    stream.run()
    stream.kill_after_the_decision(nth=1)
    wait_for_time_out(stream)
    texts = set()
    for _ in range(3):
        with pytest.raises(CommitLost) as caught:
            stream.run()
        texts.add(str(caught.value))
    assert stream.open() == []
    (text,) = texts
    assert f"batch 1 of query {stream.checkpoint.query_id} ({ROWS} rows to {stream.topic})" in text
    seen = stream.times_seen()
    missing = 2 * ROWS - seen.total()
    assert missing >= (TASKS - 1) * SHARE and max(seen.values()) == 1
    assert f"{TASKS - missing // SHARE} of {TASKS} are committed and visible" in text
    assert f"Not committed, rows not visible: {missing} rows of Spark partition" in text
    assert "resolve --replay" in text and "resolve --accept" in text


# ---- three nodes ----


@pytest.fixture
def stream_of_three(stream_on: Callable[..., BareStream], kafka_three_nodes: KafkaCluster) -> BareStream:
    return stream_on(kafka_three_nodes, ledger__replication__factor=3)


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
    stream_of_three: BareStream, api: Api, is_drivers: bool, nth: int
) -> None:
    stream, kafka = stream_of_three, stream_of_three.kafka
    with stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        driver = Line(sink_id_of_query(stream.sink_id, stream.checkpoint.query_id)).driver_id
        victim = coordinator_of(kafka, driver if is_drivers else _last_id(messages))
        where = of_the_driver if is_drivers else of_a_task
        fault = stream.proxy.on(api, Harm.LOSE_ANSWER, nth=nth, where=where, before=lambda: kafka.kill(victim))
        query.commit(messages)
        assert fault.has_acted
        query.run_batch()
        kafka.start(victim)
        query.run_batch()
    stream.check(3)


def _last_id(messages: list[object]) -> str:
    return str(messages[-1].receipt.transaction.transactional_id)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(
    "api", [DESCRIBE_TRANSACTIONS, END_TXN], ids=["before-the-decision", "in-the-middle-of-the-commits"]
)
def test_a_cluster_that_goes_away_in_a_commit_and_comes_back_delays_it_and_nothing_else(
    stream_of_three: BareStream, api: Api
) -> None:
    stream, kafka = stream_of_three, stream_of_three.kafka

    def kill_all() -> None:
        for node_id in kafka.node_ids:
            kafka.kill(node_id)

    with stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        where = of_a_task if api is END_TXN else lambda _: True
        fault = stream.proxy.on(api, Harm.LOSE_REQUEST, where=where, before=kill_all)
        query.begin_commit(messages)
        assert fault.wait_until_acted()
        time.sleep(5)
        kafka.heal()
        query.worker("commit").result()
        stream.checkpoint.committed += 1
        query.run_batch()
    stream.check(2)
