"""Logs that show less than was written.

The marker of a ledger transaction is lost with its only replica (E3): the record is in the log, but nothing shows how
its transaction ended. After a fence it cannot be open any more. And a former leader that was frozen or cut off still
reports the old end of the log.
"""

import pytest

from kafka_sink.commit.session import Conclusion, DriverOperation
from kafka_sink.errors import CommitLost, CommitPending
from tests.support.tiny_broker import LEDGER
from tests.unit.commit.driver_bench import (
    COMMIT,
    END,
    LOST,
    POISON,
    SECOND,
    SINK,
    THIRD,
    Bench,
    after,
    put,
    stop_before,
    without_rows,
)

CLAIM_INTENT_AND_MARKER = 3
DUPLICATE = 46


def test_the_end_of_a_later_record_is_not_taken_for_that_of_an_intent_without_a_marker(bench: Bench) -> None:
    """The next driver's fence aborts the done record after the intent, so there is one marker for two records."""
    session = bench.session()
    bench.before_next(COMMIT, bench.lose_the_last_marker)
    verdict = bench.commit(bench.receipts(), session, answers={END: [None, *[LOST] * 100_000]})
    assert isinstance(verdict.error, CommitPending) and "committed and visible" in str(verdict.error)
    assert bench.commit(bench.receipts(run=SECOND), bench.session(SECOND)).conclusion is Conclusion.ALREADY_DELIVERED
    assert bench.seen() == [1, 1]


# ---- open intents ----


def test_an_intent_that_a_younger_driver_has_open_is_not_taken_for_a_decision_that_lost_its_marker(
    bench: Bench,
) -> None:
    """The first driver is fenced before its claim is in the ledger. After its claim it reads the intent that the other
    driver has written but not decided."""
    younger = bench.receipts(run=SECOND)
    bench.before_next("claim ledger", lambda: stop_before(bench, END, younger, bench.session(SECOND)))
    assert bench.commit(bench.receipts()).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [1, 1]
    assert bench.purposes().count("fence older drivers") >= 2


def test_a_stream_whose_first_record_was_open_and_is_aborted_later_goes_on(bench: Bench) -> None:
    """The first batch has no rows, so the ledger has only this record of the stream. The first driver finds it after
    its claim. The younger driver, which has it open, never returns; its transaction ends by its time-out."""
    younger = [without_rows(0, SECOND)]
    bench.before_next("claim ledger", lambda: stop_before(bench, END, younger, bench.session(SECOND)))
    session = bench.session()
    assert bench.commit([without_rows(0)], session).error is None
    bench.settle()
    bench.broker.time_out(session.transactional_id)
    bench.settle()
    assert bench.commit(bench.receipts(1, run=THIRD), bench.session(THIRD)).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [1, 1]


def test_below_an_intent_that_nobody_decided_the_done_record_without_a_marker_still_counts(bench: Bench) -> None:
    """Both records have lost their markers. Without the done record the stream would be unknown and refused."""
    session = bench.session()
    assert bench.commit(bench.receipts(), session).conclusion is Conclusion.DELIVERED
    bench.lose_the_last_marker()
    receipts = bench.receipts(1)
    stop_before(bench, END, receipts, session)
    for receipt in receipts:
        bench.time_out(receipt)
    bench.settle()
    assert bench.broker.init(bench.session().transactional_id, None)[0] == 51
    bench.lose_the_last_marker()
    assert bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND)).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [2, 2]


def test_planning_does_not_look_again_for_what_a_done_record_without_a_marker_has_closed(bench: Bench) -> None:
    """The markers of its transactions may be lost as well. Planning would call the batch lost at each start, and the
    operator's commands, which read with a claim, would find nothing to resolve."""
    assert bench.commit(bench.receipts()).conclusion is Conclusion.DELIVERED
    bench.lose_the_last_marker()
    before = bench.purposes().count(COMMIT)
    assert bench.run(DriverOperation.RECOVER).conclusion is Conclusion.NOTHING_TO_DO
    assert bench.purposes().count(COMMIT) == before
    assert bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND)).conclusion is Conclusion.DELIVERED


def test_planning_is_not_stopped_by_a_record_without_a_marker_that_it_cannot_read(bench: Bench) -> None:
    """It may never be committed, so it says nothing: the decision below it is open, and is finished."""
    bench.decide(bench.receipts())
    put(bench, SINK, POISON)
    bench.lose_the_last_marker()
    assert bench.run(DriverOperation.RECOVER).conclusion is Conclusion.RECOVERED
    assert bench.seen() == [1, 1]


# ---- outdated leaders ----


@pytest.mark.parametrize("outdated_ms", [1_000, 59_000])
def test_a_marker_is_looked_for_again_while_the_log_ends_before_what_it_acknowledged(
    bench: Bench, outdated_ms: int
) -> None:
    bench.decide(bench.receipts())
    bench.settle()
    # Another driver has finished it. The coordinator answers the repetition with "fenced", so the log is read.
    assert bench.run(DriverOperation.FINISH).conclusion is Conclusion.RECOVERED
    bench.settle()
    bench.outdated = (("t", 0), 0, bench.now_ms + outdated_ms)
    # The done record is lost with the ledger's tail, so the decision has to be finished once more.
    del bench.broker.logs[LEDGER, 0][CLAIM_INTENT_AND_MARKER:]
    assert bench.run(DriverOperation.RECOVER, answers={COMMIT: [90, 90]}).conclusion is Conclusion.RECOVERED


def test_a_log_that_stays_shorter_than_what_it_acknowledged_is_another_one(bench: Bench) -> None:
    bench.decide(bench.receipts())
    bench.settle()
    began_ms = bench.now_ms
    bench.outdated = (("t", 0), 0, 10**9)
    verdict = bench.run(DriverOperation.FINISH, answers={COMMIT: [90]})
    assert isinstance(verdict.error, CommitLost)
    assert "Ended in a way that can no longer be read" in str(verdict.error)
    assert bench.now_ms - began_ms >= bench.settings.short_log_ms


def test_the_end_of_an_earlier_record_is_not_taken_for_that_of_an_intent_with_an_unknown_offset(bench: Bench) -> None:
    """The broker acknowledges the retried intent as a duplicate, which names no offset. Then another driver fences
    this one, which aborts the intent. In transaction version 2 the marker before it has the epoch of the intent."""
    session = bench.session()
    assert bench.commit(bench.receipts(), session).conclusion is Conclusion.DELIVERED
    bench.before_next(END, bench.take_the_drivers_id, which=2)
    answers = {"write ledger record": [after(DUPLICATE)], END: [LOST]}
    verdict = bench.commit(bench.receipts(1), session, answers=answers)
    assert isinstance(verdict.error, CommitPending) and "is not known" in str(verdict.error)
    assert bench.seen() == [1, 1]
    assert bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND)).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [2, 2]
