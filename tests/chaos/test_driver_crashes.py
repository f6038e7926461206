"""The driver is killed at every request of commit(), before it arrives and after it was carried out.

There is no fault point in the code under test: a proxy sees the request and kills the driver's processes. After each
crash the query starts again from its checkpoint; then each row is there once, and no transaction is open.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

import pytest

from kafka_sink.kafka.wire.apis import END_TXN, PRODUCE, Api
from tests.chaos.bare_spark import ROWS, TASKS, Checkpoint, Killed
from tests.chaos.bare_stream import BareStream
from tests.chaos.extent import NEWEST_MAINLY
from tests.support.faults import SIDES, of_a_task, of_the_driver, whose

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900), pytest.mark.usefixtures("own_ledger")]

# A commit of three tasks has 20 requests in transaction version 2 and 23 in transaction version 1, without retries.
REQUESTS_MAX = 60


# What a commit sends in sequence: the decision, each task's commit, the done record.
IN_SEQUENCE = ((PRODUCE, of_the_driver, 2), (END_TXN, of_the_driver, 2), (END_TXN, of_a_task, TASKS))


@pytest.mark.slow
@pytest.mark.parametrize("is_warm", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("side", SIDES)
def test_each_row_is_there_once_wherever_in_a_commit_the_driver_is_killed(
    stream: BareStream, side: str, is_warm: bool
) -> None:
    """The `first` commit of a process, which fences and reads the ledger, or a `later` one, which does neither."""
    hits: list[str] = []

    def is_killed(nth: int, api: Api | None = None, **more: Any) -> bool:
        """At the `nth` request of a commit, or of those of `api` that count."""
        with stream.query() as query:
            if is_warm:
                query.run_batch()
            query.plan()
            messages = query.write_tasks()
            fault = stream.proxy.on(api, SIDES[side], nth=nth, before=query.strike, **more)
            try:
                query.commit(messages)
            except Killed:
                hits.append(whose(fault))
            else:
                fault.stop()
                return False
        stream.run()
        left = stream.open()
        assert left == [], f"open after a kill at request {nth}, {hits[-1]}: {left}"
        return True

    for nth in count(1):
        if not is_killed(nth):
            break
        assert nth < REQUESTS_MAX
    # The look for open transactions is sent beside the others: a number may meet it twice, and one of them never.
    for api, where, number in IN_SEQUENCE:
        assert is_killed(number, api, where=where)
    print(f"\n{stream.kafka.version}, {side}: {len(hits)} kills: {', '.join(hits)}")
    found = Counter(hits)
    # The decision, each task's commit, and the done record.
    assert found["Produce of the driver"] >= 2 and found["EndTxn of the driver"] >= 2
    assert found["EndTxn of a task"] >= TASKS
    assert is_warm or found["InitProducerId of the driver"] >= 1
    stream.check()


@pytest.mark.slow
@pytest.mark.parametrize("side", SIDES)
def test_each_row_is_there_once_when_the_driver_is_killed_a_second_time_in_recovery(
    stream: BareStream, side: str
) -> None:
    hits: list[str] = []
    for nth in count(1):
        stream.kill_after_the_decision()
        with stream.query() as query:
            query.worker("planner")
            fault = stream.proxy.on(None, SIDES[side], nth=nth, before=query.strike)
            try:
                query.plan()
            except Killed:
                hits.append(whose(fault))
            fault.stop()
        stream.run()
        assert stream.open() == []
        if len(hits) < nth:
            break
    print(f"\n{stream.kafka.version}, {side}: {len(hits)} kills: {', '.join(hits)}")
    assert Counter(hits)["EndTxn of a task"] >= TASKS
    stream.check()


@pytest.mark.usefixtures("sweeping")
def test_a_driver_killed_before_commit_leaves_nothing_that_waits_for_a_time_out(direct_stream: BareStream) -> None:
    with direct_stream.query() as query:
        query.plan()
        query.write_tasks()
    assert len(direct_stream.open(patience_s=0)) == TASKS
    direct_stream.run()
    direct_stream.check(1)


@NEWEST_MAINLY
def test_two_queries_with_equal_checkpoint_paths_know_nothing_of_each_other(direct_stream: BareStream) -> None:
    """Each pod has its own volume at the same path. With Spark: tests/spark/test_shared_paths.py."""
    other = Checkpoint()
    for _ in range(2):
        direct_stream.run()
        direct_stream.run(checkpoint=other)
    # After a crash a batch runs again that is not the newest of the path.
    direct_stream.checkpoint.committed -= 1
    direct_stream.run()
    assert direct_stream.open() == []
    seen = direct_stream.times_seen()
    assert len(seen) == 2 * ROWS and set(seen.values()) == {2}


@pytest.mark.parametrize("tasks", [TASKS, 2], ids=["as-before", "planned-with-fewer-tasks"])
def test_a_batch_that_is_delivered_and_not_in_sparks_commit_log_is_not_delivered_again(
    direct_stream: BareStream, tasks: int
) -> None:
    direct_stream.run(2)
    direct_stream.checkpoint.committed -= 1  # the crash came before Spark wrote its commit log
    direct_stream.run(2, tasks=tasks)
    direct_stream.check(3)


@pytest.mark.parametrize("nth", range(1, TASKS + 1))
def test_recovery_at_planning_commits_what_was_decided_before_any_task_runs(stream: BareStream, nth: int) -> None:
    stream.kill_after_the_decision(nth=nth)
    with stream.query(tasks=2) as query:
        query.plan()
        assert stream.problems(1) == []
        query.run_batch()  # the same batch, divided differently: its rows are not written twice
    stream.check(1)
