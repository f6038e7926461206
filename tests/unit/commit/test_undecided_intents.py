"""The marker of an intent is lost, and it was that of an abort: the batch was never decided.

Its commit has said that nothing of the batch is visible. That has to stay true, whatever of its transactions is still
open. What was decided looks the same until one of its transactions is known to be committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.commit.session import Conclusion, DriverOperation, DriverSession
from kafka_sink.errors import CommitAborted, CommitPending
from kafka_sink.kafka.client.ask import Ask
from tests.support.tiny_broker import LEDGER, ONGOING, TinyBroker
from tests.unit.commit.driver_bench import (
    COMMIT,
    END,
    LOST,
    REFUSED,
    SECOND,
    SINK,
    THIRD,
    UNSUPPORTED,
    Bench,
    after,
)
from tests.unit.commit.test_leaders import lose_leader

PARTITIONS, ABORT = "find partitions of transaction", "abort transaction"
# A draft lives for so long.
DRAFT_MS = 60_000


def lose_the_draft(bench: Bench, session: DriverSession) -> None:
    """The transaction of the appended intent times out while the ledger has no leader: its abort marker is lost."""
    driver, began_ms = session.transactional_id, bench.now_ms

    def is_over() -> bool:
        known = bench.broker.transactions.get(driver)
        return bench.now_ms - began_ms > DRAFT_MS and known is not None and known[2] == ONGOING

    def lose() -> None:
        bench.broker.time_out(driver)
        bench.broker.complete(driver, is_lost=True)

    bench.before = once(bench.before, is_over, lose)


def once(
    before: Callable[[Ask], None] | None, is_time: Callable[[], bool], act: Callable[[], None]
) -> Callable[[Ask], None]:
    """A hook that acts once, beside the one before."""
    left = [act]

    def hook(request: Ask) -> None:
        if before is not None:
            before(request)
        if left and is_time():
            left.pop()()

    return hook


def refuse(bench: Bench, receipts: Sequence[TaskReceipt], session: DriverSession) -> None:
    """C2 waits for the leader of the first task's partition in vain; that transaction cannot be aborted."""
    bench.broker.leaderless.add(("t", 0))
    lose_the_draft(bench, session)
    verdict = bench.commit(receipts, session, age_max_ms=None)
    bench.broker.leaderless.clear()
    bench.before = None
    assert isinstance(verdict.error, CommitAborted)
    assert "Nothing of it is visible" in str(verdict.error)
    assert [bench.state_of(one) for one in receipts] == [ONGOING, "PrepareAbort"]
    assert not bench.broker.logs[LEDGER, 0][-1][3], "the draft has no marker"


def die_with_a_draft(
    bench: Bench, receipts: Sequence[TaskReceipt], session: DriverSession, *, is_marker_lost: bool = True
) -> None:
    """The driver dies in C2, with the intent appended."""
    bench.broker.leaderless.add(("t", 0))
    with pytest.raises(AssertionError, match="no result in time"):
        bench.run(DriverOperation.COMMIT, receipts, session, until_ms=bench.now_ms + 1_000, age_max_ms=None)
    bench.broker.leaderless.clear()
    assert bench.broker.transactions[session.transactional_id][2] == ONGOING
    bench.broker.time_out(session.transactional_id)
    bench.broker.complete(session.transactional_id, is_lost=is_marker_lost)


def die_between_two_time_outs(bench: Bench, receipts: Sequence[TaskReceipt], session: DriverSession) -> None:
    """The driver dies with a draft. The transaction of its first task times out before anybody comes next."""
    die_with_a_draft(bench, receipts, session)
    bench.time_out(receipts[0])
    bench.settle()


def delivered_before(bench: Bench) -> DriverSession:
    session = bench.session()
    assert bench.commit(bench.receipts(), session).conclusion is Conclusion.DELIVERED
    bench.asked.clear()
    return session


def restart(bench: Bench, run: str = SECOND) -> None:
    """The next run of the query delivers batch 1."""
    assert bench.run(DriverOperation.RECOVER, session=bench.session(run)).error is None
    verdict = bench.commit(bench.receipts(1, run=run), bench.session(run))
    assert verdict.conclusion is Conclusion.DELIVERED, verdict.error
    assert bench.seen() == [2, 2]


def test_of_a_refused_batch_nothing_becomes_visible_and_it_runs_again(bench: Bench) -> None:
    session = delivered_before(bench)
    refused = bench.receipts(1)
    refuse(bench, refused, session)
    restart(bench)
    assert [bench.state_of(one) for one in refused] == ["CompleteAbort"] * 2


def test_of_a_batch_whose_driver_died_in_its_check_nothing_becomes_visible(bench: Bench) -> None:
    """The transaction of its first wave has timed out, that of the last one is open."""
    session = delivered_before(bench)
    died = bench.receipts(1)
    die_between_two_time_outs(bench, died, session)
    restart(bench)
    assert bench.state_of(died[1]) == "CompleteAbort"


def test_where_the_log_does_not_tell_any_more_the_coordinator_does(bench: Bench) -> None:
    """Brokers have lost the end of a log, so the marker of the abort is in the place of the row."""
    session = delivered_before(bench)
    died = bench.receipts(1)
    die_with_a_draft(bench, died, session)
    bench.broker.lose_tail(("t", 0))
    for one in died:
        bench.time_out(one)
    bench.settle()
    assert bench.run(DriverOperation.RECOVER, session=bench.session(SECOND)).error is None
    assert bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND)).conclusion is Conclusion.DELIVERED


def test_the_next_run_says_that_the_batch_was_not_committed(bench: Bench) -> None:
    session = delivered_before(bench)
    refuse(bench, bench.receipts(1), session)
    verdict = bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND))
    (note,) = verdict.notes
    assert "was not committed: its transactions are aborted, and nothing of it is visible" in note


def test_an_operators_command_says_it_as_well(bench: Bench) -> None:
    session = delivered_before(bench)
    refuse(bench, bench.receipts(1), session)
    verdict = bench.run(DriverOperation.FINISH, session=bench.session(""))
    assert verdict.conclusion is Conclusion.NOTHING_TO_DO
    assert "The query runs it again" in verdict.notes[0]
    assert bench.seen() == [1, 1]


@pytest.mark.parametrize("is_named", [True, False], ids=["with a name", "without a name"])
def test_the_abort_of_a_refused_batch_write_commits_nothing(bench: Bench, is_named: bool) -> None:
    sink_id = SINK if is_named else "batch-" + "1" * 16
    receipts = [bench.receipt("b" if is_named else "", task, query="", sink_id=sink_id) for task in (0, 1)]
    key = receipts[0].key

    def session() -> DriverSession:
        return bench.session(key=key) if is_named else DriverSession(sink_id, "1" * 16)

    refuse(bench, receipts, session())
    verdict = bench.run(DriverOperation.ABORT, receipts, session())
    assert verdict.conclusion is Conclusion.ABORTED
    assert "It may be written again" in verdict.notes[0]
    assert bench.seen() == [0, 0]


def test_an_intent_that_the_end_of_a_later_one_has_ended_is_no_decision(bench: Bench) -> None:
    """The next run appends its intent, is refused too, and the fence of the third writes that marker alone. For the
    leader it ends both, so the first intent is below the last stable offset."""
    session = delivered_before(bench)
    first = bench.receipts(1)
    die_between_two_time_outs(bench, first, session)
    die_with_a_draft(bench, bench.receipts(1, run=SECOND), bench.session(SECOND), is_marker_lost=False)
    assert not bench.broker.has_open((LEDGER, 0))
    restart(bench, THIRD)
    assert bench.state_of(first[1]) == "CompleteAbort"


# ---- what may be decided ----


def test_while_none_is_aborted_the_batch_may_be_decided_and_is_delivered(bench: Bench) -> None:
    bench.decide(bench.receipts())
    bench.lose_the_last_marker()
    assert bench.run(DriverOperation.FINISH).conclusion is Conclusion.RECOVERED
    assert bench.seen() == [1, 1]


def test_one_that_is_committed_proves_the_decision_and_the_others_wait_for_nobody(bench: Bench) -> None:
    """The coordinator of the second one hangs, and that of the third one must not be too late."""
    receipts = bench.receipts(tasks=3)
    pending = bench.commit(receipts, answers={COMMIT: [None, *[LOST] * 100_000]})
    assert isinstance(pending.error, CommitPending)
    bench.lose_the_last_marker()
    bench.asked.clear()
    began_ms = bench.now_ms
    answers = {PARTITIONS: [None, *[LOST] * 2]}
    assert bench.run(DriverOperation.FINISH, answers=answers).conclusion is Conclusion.RECOVERED
    assert bench.now_ms - began_ms < 1_000
    assert [*bench.seen(), bench.visible(2)] == [1, 1, 1]


def test_the_coordinators_of_a_decision_whose_markers_are_lost_in_the_topic_too_tell_that_it_is_committed(
    bench: Bench,
) -> None:
    receipts = bench.receipts()
    bench.decide(receipts)
    bench.lose_the_last_marker()
    for one in receipts:
        assert one.transaction is not None
        name, producer_id, epoch, version = one.transaction
        bench.broker.end(name, producer_id, epoch, commit=True, is_first=version == 1)
        bench.broker.complete(name, is_lost=True)
    assert bench.run(DriverOperation.FINISH).conclusion is Conclusion.RECOVERED


def test_a_coordinator_that_calls_a_committed_transaction_open_does_not_have_the_batch_dropped(bench: Bench) -> None:
    """It was frozen, and tells what was so before. The other transaction has timed out."""
    receipts = bench.receipts()
    frozen = TinyBroker(bench.broker.state(), bench.transaction_version)
    bench.commit(receipts, answers={COMMIT: [None, *[LOST] * 100_000]})
    bench.time_out(receipts[1])
    bench.lose_the_last_marker()
    stale = [lambda request: frozen.answer(request)]
    verdict = bench.run(DriverOperation.FINISH, answers={PARTITIONS: stale})
    assert "1 of 2 are committed" in str(verdict.error)
    assert bench.seen() == [1, 0]


@pytest.mark.parametrize("is_dropped", [True, False])
def test_where_coordinators_do_not_describe_transactions_the_log_alone_tells(bench: Bench, is_dropped: bool) -> None:
    bench.decide(bench.receipts())
    bench.lose_the_last_marker()
    receipts = bench.receipts(run=SECOND)
    if is_dropped:
        bench.broker.time_out(f"{SINK}-{'1' * 16}-1-0")
        bench.settle()
    verdict = bench.commit(receipts, bench.session(SECOND), answers={PARTITIONS: [UNSUPPORTED] * 100})
    assert verdict.conclusion is (Conclusion.DELIVERED if is_dropped else Conclusion.ALREADY_DELIVERED)
    assert bench.seen() == [1, 1]


# ---- nobody knows yet ----


@pytest.mark.parametrize("is_of_next_batch", [True, False])
def test_while_one_does_not_tell_nothing_is_ended_and_no_text_calls_the_batch_decided(
    bench: Bench, is_of_next_batch: bool
) -> None:
    session = delivered_before(bench)
    refused = bench.receipts(1)
    die_between_two_time_outs(bench, refused, session)
    bench.asked.clear()
    answers = {PARTITIONS: [None, *[LOST] * 100_000]}
    receipts = bench.receipts(2 if is_of_next_batch else 1, run=SECOND)
    verdict = bench.commit(receipts, bench.session(SECOND), answers=answers)
    assert isinstance(verdict.error, CommitPending)
    text = str(verdict.error)
    assert "batch 1 of query query-1 (2 rows to t) of sink 'sink': whether" in text
    assert "the end of its record in the ledger is lost" in text and "is decided" not in text
    assert COMMIT not in bench.purposes() and ABORT not in bench.purposes()[:-1]
    assert bench.state_of(refused[1]) == ONGOING
    restart(bench, THIRD)


def test_what_may_not_be_aborted_is_left_to_the_next_start(bench: Bench) -> None:
    session = delivered_before(bench)
    refused = bench.receipts(1)
    refuse(bench, refused, session)
    verdict = bench.run(DriverOperation.FINISH, answers={ABORT: [REFUSED]})
    assert isinstance(verdict.error, CommitPending) and "whether the decision" in str(verdict.error)
    assert bench.seen() == [1, 1]


def test_an_abort_waits_for_a_leader_without_asking_the_coordinator_each_time(bench: Bench) -> None:
    session = delivered_before(bench)
    refused = bench.receipts(1)
    die_between_two_time_outs(bench, refused, session)
    bench.asked.clear()
    lose_leader(bench, 1, back_after_ms=bench.now_ms + 30_000)
    verdict = bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND))
    assert verdict.conclusion is Conclusion.DELIVERED, verdict.error
    assert bench.purposes().count(PARTITIONS) <= 3
    assert 1 < bench.purposes().count(ABORT) < 200


# ---- the driver that has written it is alive ----


@pytest.mark.parametrize("has_ended", [True, False])
def test_a_driver_that_finds_its_own_intent_without_a_marker_delivers_its_batch_itself(
    bench: Bench, has_ended: bool
) -> None:
    """The draft times out while C2 waits for a leader. The sink must not call its rows those of an earlier run."""
    session = delivered_before(bench)
    receipts = bench.receipts(1)
    lose_leader(bench, 0, back_after_ms=DRAFT_MS + 30_000)
    lose_the_draft(bench, session)
    if has_ended:
        bench.before = once(bench.before, lambda: bench.now_ms > DRAFT_MS + 10_000, lambda: bench.time_out(receipts[1]))
    verdict = bench.commit(receipts, session)
    if has_ended:
        assert isinstance(verdict.error, CommitAborted)
        assert bench.seen() == [1, 1]
    else:
        assert verdict.conclusion is Conclusion.DELIVERED
        assert bench.seen() == [2, 2]
        assert bench.commit(bench.receipts(2), session).conclusion is Conclusion.DELIVERED


def test_another_write_of_the_batch_in_the_same_run_is_still_called_a_repetition(bench: Bench) -> None:
    session = bench.session()
    bench.decide(bench.receipts(), session)
    verdict = bench.commit(bench.receipts(attempt=1), session)
    assert verdict.conclusion is Conclusion.ALREADY_DELIVERED
    assert bench.seen() == [1, 1]


@pytest.mark.parametrize("is_closed", [True, False], ids=["recovered", "fenced"])
def test_a_decision_whose_answer_was_lost_is_delivered_though_another_driver_came_in_between(
    bench: Bench, is_closed: bool
) -> None:
    """The log tells that it was made. The epoch for the next record is not known, so the driver looks again."""
    session = delivered_before(bench)
    receipts = bench.receipts(1)

    def come_between() -> None:
        if is_closed:
            assert bench.run(DriverOperation.FINISH, session=bench.session("")).conclusion is Conclusion.RECOVERED
        else:
            bench.take_the_drivers_id()

    bench.before_next(END, come_between, which=2)
    verdict = bench.commit(receipts, session, answers={END: [after(LOST)]})
    assert verdict.conclusion is Conclusion.DELIVERED, verdict.error
    assert bench.seen() == [2, 2]
    assert bench.ledger()[SINK].kind is Kind.DONE
