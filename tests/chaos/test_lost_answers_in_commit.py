"""Requests of commit() and their answers are lost, cut, duplicated or delayed, or arrive after the driver has given up.

commit() recovers by itself from a fault of any one request. What arrives too late has no effect: neither on the next
transaction nor on the decision of a later driver.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest

from kafka_sink.errors import CommitAborted, CommitPending
from kafka_sink.kafka.wire.apis import END_TXN, INIT_PRODUCER_ID, PRODUCE, Api
from tests.chaos.bare_spark import Killed
from tests.chaos.bare_stream import BareStream, freezer
from tests.chaos.extent import NEWEST_MAINLY
from tests.support.faults import Harm, of_a_task, of_the_driver
from tools.kafka_cluster import KafkaCluster

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(900),
    NEWEST_MAINLY,
    pytest.mark.usefixtures("own_ledger"),
]

PASSING = [Harm.LOSE_ANSWER, Harm.LOSE_REQUEST, Harm.CUT_ANSWER, Harm.CUT_REQUEST, Harm.DUPLICATE_REQUEST]


@pytest.mark.slow
@pytest.mark.parametrize("harm", PASSING, ids=lambda harm: harm.name.lower())
def test_commit_gets_over_the_loss_of_any_one_request_or_answer(stream: BareStream, harm: Harm) -> None:
    """A process without state commits each batch, and each time another request is harmed. A copy of its fencing
    request fences the very driver that sent it: it fences again and continues."""
    with stream.query() as query:
        for nth in count(1):
            query.plan()
            messages = query.write_tasks()
            fault = stream.proxy.on(None, harm, nth=nth)
            query.commit(messages)
            query.end_worker("commit")
            fault.stop()
            if not fault.has_acted:
                break
    assert nth > 15
    stream.check()


@pytest.mark.parametrize(
    "harm",
    [Harm.LOSE_ANSWER, pytest.param(Harm.CUT_ANSWER, marks=pytest.mark.slow)],
    ids=lambda harm: harm.name.lower(),
)
def test_planning_gets_over_the_loss_of_any_one_answer(stream: BareStream, harm: Harm) -> None:
    stream.run()
    for nth in count(1):
        with stream.query() as query:
            fault = stream.proxy.on(None, harm, nth=nth)
            query.plan()
        fault.stop()
        if not fault.has_acted:
            break
    assert nth > 3  # configuration, the ledger's end, its records


@pytest.mark.parametrize("harm", [Harm.LOSE_ANSWER, Harm.DUPLICATE_REQUEST], ids=lambda harm: harm.name.lower())
@pytest.mark.parametrize("owner", [of_the_driver, of_a_task], ids=["the-decision", "a-task"])
def test_an_end_of_a_transaction_whose_answer_is_lost_is_asked_for_again(
    stream: BareStream, owner: object, harm: Harm
) -> None:
    fault = stream.proxy.on(END_TXN, harm, where=owner)
    stream.run(2)
    assert fault.has_acted
    stream.check(2)


@pytest.mark.slow
def test_a_request_that_arrives_and_whose_answer_never_comes_is_given_up_and_repeated(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster
) -> None:
    """One direction of the connection is dead, without an error."""
    stream = stream_on(kafka, kafka__request__timeout__ms=3000)
    for nth in (1, 2):  # the decision and a task, then the done record and another task
        decision = stream.proxy.on(END_TXN, Harm.SILENT_ANSWER, nth=nth, where=of_the_driver)
        task = stream.proxy.on(END_TXN, Harm.SILENT_ANSWER, nth=nth, where=of_a_task)
        stream.run()
        assert decision.has_acted and task.has_acted
    stream.check(2)


# ---- late requests ----


@pytest.mark.parametrize(
    ("api", "owner", "nth"),
    [
        (END_TXN, of_a_task, 2),
        (END_TXN, of_the_driver, 1),
        pytest.param(END_TXN, of_the_driver, 2, marks=pytest.mark.slow),
        pytest.param(PRODUCE, of_the_driver, 1, marks=pytest.mark.slow),
        (PRODUCE, of_the_driver, 2),
        (INIT_PRODUCER_ID, of_the_driver, 1),
    ],
    ids=["commit-of-a-task", "decision", "end-of-the-done-record", "claim", "intent", "fencing"],
)
def test_a_dead_drivers_request_that_arrives_after_its_successors_batches_changes_nothing(
    stream: BareStream, api: Api, owner: object, nth: int
) -> None:
    with stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        held = stream.proxy.on(api, Harm.HOLD_REQUEST, nth=nth, where=owner, before=query.strike)
        with pytest.raises(Killed):
            query.commit(messages)
    with stream.query() as query:
        query.run_batch()
        query.plan()
        messages = query.write_tasks()
        held.release()  # the successor has prepared its next batch, and commits it now
        # The late request fences its own successor, which fences again: no other run has claimed the ledger since.
        query.commit(messages)
    stream.run()
    stream.check()


def test_an_abort_that_arrives_late_does_not_hit_the_batch_that_ran_again(stream: BareStream) -> None:
    with stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        held = stream.proxy.on(END_TXN, Harm.HOLD_REQUEST, nth=2, where=of_a_task, before=query.strike)
        with pytest.raises(Killed):
            query.abort(messages)
    with stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        held.release()
        query.commit(messages)
        query.run_batch()
    stream.check(2)


@pytest.mark.parametrize("nth", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_driver_that_was_frozen_in_its_commit_and_wakes_up_after_its_successor_does_no_harm(
    stream: BareStream, nth: int
) -> None:
    """It is frozen after the decision; its successor finishes the batch and delivers more; then it continues."""
    with stream.query(stream.checkpoint.copy()) as old:
        old.plan()
        messages = old.write_tasks()
        committer = old.worker("commit")
        frozen = stream.proxy.on(END_TXN, Harm.LOSE_ANSWER, nth=nth, where=of_a_task, before=freezer(committer))
        old.begin_commit(messages)
        assert frozen.wait_until_acted()
        stream.run(3)
        committer.send_signal(signal.SIGCONT)
        with suppress(CommitPending):
            committer.result()
        old.end_worker("commit")
        with suppress(CommitPending, CommitAborted):
            old.abort(messages)
    stream.check(3)
    stream.run()
    stream.check(4)
