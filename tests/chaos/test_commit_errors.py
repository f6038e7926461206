"""commit() raises at each of its steps, and Spark calls abort() with the same messages, in another process.

The batch is then completely there or absent, depending on whether the decision had been made; none of its transactions
is open; and after a restart each row is there once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from kafka_sink.errors import CommitAborted, CommitError, CommitPending
from kafka_sink.kafka.wire.apis import (
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    Api,
)
from tests.chaos import bare_work
from tests.chaos.bare_export import BareExport
from tests.chaos.bare_spark import ROWS, TASKS
from tests.chaos.bare_stream import BareStream
from tests.chaos.extent import NEWEST_MAINLY
from tests.chaos.refusals import Body, add_refused, describe_refused, produce_refused, refused
from tests.support.faults import Fault, Harm, Request, of_a_task, of_the_driver
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600), pytest.mark.usefixtures("own_ledger")]


class Step(NamedTuple):
    api: Api
    refusal: Callable[[Body], Body]
    where: Callable[[Request], bool]
    nth: int
    error: type[CommitError]


STEPS = {
    "fence": Step(INIT_PRODUCER_ID, refused, of_the_driver, 1, CommitAborted),
    "claim": Step(PRODUCE, produce_refused, of_the_driver, 1, CommitAborted),
    "check": Step(DESCRIBE_TRANSACTIONS, describe_refused, lambda _: True, 1, CommitAborted),
    "write-the-intent": Step(PRODUCE, produce_refused, of_the_driver, 2, CommitAborted),
    "decide": Step(END_TXN, refused, of_the_driver, 1, CommitAborted),
    **{f"commit-{k}-of-{TASKS}": Step(END_TXN, refused, of_a_task, k, CommitPending) for k in range(1, TASKS + 1)},
}
FIRST_GENERATION_STEPS = {
    # In transaction version 2 this is no part of the commit: tests/chaos/test_closing_later.py.
    "write-done": Step(PRODUCE, produce_refused, of_the_driver, 3, CommitPending),
    "close": Step(END_TXN, refused, of_the_driver, 2, CommitPending),
    "add-the-ledger": Step(ADD_PARTITIONS_TO_TXN, add_refused, of_the_driver, 1, CommitAborted),
    "renew": Step(INIT_PRODUCER_ID, refused, of_the_driver, 2, CommitPending),
    "add-the-ledger-again": Step(ADD_PARTITIONS_TO_TXN, add_refused, of_the_driver, 2, CommitPending),
}
# Each has a neighbour with the same outcome: another of the tasks' transactions, or of the driver's last requests.
SLOW_STEPS = {f"commit-1-of-{TASKS}", f"commit-{TASKS}-of-{TASKS}", "close", "add-the-ledger-again"}


def with_slow_steps(steps: Iterable[str]) -> list[Any]:
    return [pytest.param(step, marks=[pytest.mark.slow] if step in SLOW_STEPS else []) for step in steps]


def check_a_refusal(stream: BareStream, step: Step) -> None:
    with stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        stream.proxy.on(step.api, Harm.REFUSE, nth=step.nth, where=step.where, refusal=step.refusal)
        with pytest.raises(step.error) as caught:
            query.commit(messages)
        query.abort(messages)
        assert caught.value.row_count == ROWS and stream.topic in str(caught.value)
    assert stream.open_of_tasks() == []
    assert stream.times_seen().total() == (ROWS if step.error is CommitPending else 0)
    stream.run(2)
    stream.check(2)


@NEWEST_MAINLY
@pytest.mark.parametrize("step", with_slow_steps(STEPS))
def test_a_batch_is_wholly_there_or_absent_after_commit_has_raised(stream: BareStream, step: str) -> None:
    check_a_refusal(stream, STEPS[step])


@pytest.mark.parametrize("step", with_slow_steps(FIRST_GENERATION_STEPS))
def test_a_batch_is_wholly_there_or_absent_after_a_step_that_only_older_brokers_need_has_raised(
    stream_on: Callable[..., BareStream], kafka_3: KafkaCluster, step: str
) -> None:
    check_a_refusal(stream_on(kafka_3), FIRST_GENERATION_STEPS[step])


@NEWEST_MAINLY
def test_a_permission_that_is_taken_away_after_the_decision_loses_nothing(stream: BareStream) -> None:
    """commit() fails, and recovery fails repeatedly; when the permission is back, the batch is finished."""
    with stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        fault = stream.proxy.on(END_TXN, Harm.REFUSE, where=of_a_task, refusal=refused, lasts=True)
        with pytest.raises(CommitPending, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            query.commit(messages)
        query.abort(messages)
    for _ in range(2):
        with stream.query() as query, pytest.raises(CommitPending, match="3 of 3 transactions"):
            query.plan()
    assert len(stream.open_of_tasks()) == TASKS
    fault.stop()
    stream.run(2)
    stream.check(2)


# ---- the abort itself meets the decision, because no planning has finished it before ----


def refuse_commits_of_tasks(stream: BareStream, *, lasts: bool) -> Fault:
    """From the second one on, or only that one. An abort of the same transactions would be carried out."""
    return stream.proxy.on(
        END_TXN,
        Harm.REFUSE,
        nth=2,
        where=lambda request: of_a_task(request) and request.body["committed"],
        refusal=refused,
        lasts=lasts,
    )


@NEWEST_MAINLY
def test_an_abort_in_a_process_that_need_not_plan_anew_aborts_nothing_that_is_decided(stream: BareStream) -> None:
    """Spark gives it to any free process, such as one that has planned and committed before. The next run finishes what
    is decided."""
    with stream.query() as query:
        query.run_batch()
        earlier = query.move_worker("commit")
        query.plan()
        messages = query.write_tasks()
        fault = refuse_commits_of_tasks(stream, lasts=False)
        with pytest.raises(CommitPending):
            query.commit(messages)
        earlier.call(bare_work.abort, query.settings, messages, query.batch_id)
    assert fault.has_acted and len(stream.open_of_tasks()) == 1
    stream.run(2)
    stream.check(3)


@NEWEST_MAINLY
@pytest.mark.parametrize("lasts", [False, True], ids=["once", "as-long-as-the-abort"])
def test_the_abort_of_a_batch_write_with_a_name_aborts_nothing_that_is_decided(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster, topic_name: str, lasts: bool
) -> None:
    stream = stream_on(kafka, sink__id=topic_name[-40:].lstrip("-"), batch__id="day-1")
    with BareExport(stream.settings) as export:
        export.plan()
        export.write_tasks()
        fault = refuse_commits_of_tasks(stream, lasts=lasts)
        with pytest.raises(CommitPending):
            export.commit()
        export.abort()
    assert fault.has_acted
    fault.stop()
    if lasts:
        with BareExport(stream.settings) as again:
            again.plan()
    assert stream.open_of_tasks() == []
    assert set(stream.times_seen().values()) == {1} and stream.times_seen().total() == ROWS


@NEWEST_MAINLY
@pytest.mark.slow
@pytest.mark.parametrize("harm", [Harm.LOSE_REQUEST, Harm.LOSE_ANSWER], ids=["not-made", "made"])
@pytest.mark.parametrize(
    ("owner", "says"),
    [
        (of_the_driver, "whether the decision to commit it was written"),
        (of_a_task, "3 of 3 transactions are not known to be committed"),
    ],
    ids=["the-decision", "the-tasks"],
)
def test_an_end_that_is_not_answered_until_the_deadline_is_settled_by_the_next_run(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster, owner: Callable[[Request], bool], says: str, harm: Harm
) -> None:
    """The driver tries to commit the intent, or after the decision the transactions of the tasks, until its deadline.
    The ledger knows whether the decision was made."""
    stream = stream_on(kafka, kafka__transaction__timeout__ms=60_000)
    with stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        fault = stream.proxy.on(END_TXN, harm, where=owner, lasts=True)
        with pytest.raises(CommitPending, match=says):
            query.commit(messages)
        fault.stop()
        query.abort(messages)
    if owner is of_the_driver:
        assert stream.times_seen().total() == (ROWS if harm is Harm.LOSE_ANSWER else 0)
        assert stream.open_of_tasks() == []
    stream.run(2)
    stream.check(2)
