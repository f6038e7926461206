"""The record that closes the decision of a stream's batch may be written after the commit has returned. Until then, and
if it never is, the open decision is found and closed like any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.commit.committer import Committer
from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.ledger_write import LedgerWrite, WriteState
from kafka_sink.commit.receipt import UNNAMED_BATCH, TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion, DriverOperation, DriverSession, Job
from kafka_sink.commit.verdict import VERDICT
from kafka_sink.errors import CommitLost
from tests.support.closing import Closing
from tests.unit.commit.driver_bench import COMMIT, END, FENCE, LOST, SECOND, SINK, WRITE, Bench


@pytest.fixture
def new() -> Bench:
    """Of transaction version 2, in which alone it is done."""
    return Bench(2)


def commit(
    bench: Bench, receipts: Sequence[TaskReceipt], session: DriverSession, answers: dict[str, list[Any]] | None = None
) -> CommitResult:
    job = Job(DriverOperation.COMMIT, receipts[0].key, receipts, may_close_later=True)
    result: CommitResult = bench.drive(Committer(bench.settings, session, job, bench.now_ms), answers)
    return result


def close(
    bench: Bench, session: DriverSession, result: CommitResult, answers: dict[str, list[Any]] | None = None
) -> LedgerWrite:
    assert result.closing is not None
    closed: LedgerWrite = bench.drive(Closing(bench.settings, session, result.closing, bench.now_ms), answers)
    return closed


def left_open(bench: Bench, batch: int = 0, session: DriverSession | None = None) -> CommitResult:
    """A batch whose process dies after its commit has returned."""
    result = commit(bench, bench.receipts(batch), session or bench.session())
    assert result.conclusion is Conclusion.DELIVERED and bench.ledger()[SINK].kind is Kind.INTENT
    return result


def test_a_batch_is_delivered_when_its_transactions_are_committed_and_its_record_follows(new: Bench) -> None:
    session = new.session()
    result = commit(new, new.receipts(), session)
    assert result.conclusion is Conclusion.DELIVERED and new.seen() == [1, 1]
    assert new.purposes().count(WRITE) == 1 and new.ledger()[SINK].kind is Kind.INTENT
    assert close(new, session, result).state is WriteState.WRITTEN
    assert new.ledger()[SINK].kind is Kind.DONE
    new.asked.clear()
    second = commit(new, new.receipts(1), session)
    assert second.conclusion is Conclusion.DELIVERED and FENCE not in new.purposes()
    assert close(new, session, second).state is WriteState.WRITTEN and new.seen() == [2, 2]


def test_in_transaction_version_1_the_record_is_written_before_the_commit_returns() -> None:
    old = Bench(1)
    result = commit(old, old.receipts(), old.session())
    assert result.conclusion is Conclusion.DELIVERED and result.closing is None
    assert old.ledger()[SINK].kind is Kind.DONE


def test_so_it_is_if_a_task_has_used_version_1(new: Bench) -> None:
    """The version of the cluster was raised while the tasks wrote."""
    first, second = new.receipts()
    assert second.transaction is not None
    receipts = [first, replace(second, transaction=second.transaction._replace(transaction_version=1))]
    job = Job(DriverOperation.COMMIT, first.key, receipts, may_close_later=True)
    committer = Committer(new.settings, new.session(), job, new.now_ms)
    progress = committer.step(new.now_ms)
    while progress.result is None:
        # The broker knows version 2 alone; what is asked of it is not looked at here.
        for ask in progress.asks:
            ask.version_min = max(ask.version_min, 0)
        progress = committer.step(new.now_ms, [new._answer(ask, {}) for ask in progress.asks])
        new.settle()
        new.now_ms += 100
    assert progress.result.closing is None


@pytest.mark.parametrize("batch", ["monday", ""])
def test_so_it_is_for_batch_writes(new: Bench, batch: str) -> None:
    receipts = new.receipts(batch, query="")
    job = Job(DriverOperation.COMMIT, receipts[0].key, receipts, may_close_later=True)
    result = new.drive(Committer(new.settings, new.session(key=job.key), job, new.now_ms))
    assert result.conclusion is Conclusion.DELIVERED and result.closing is None
    assert (job.key == UNNAMED_BATCH) == (not new.ledger())


def test_so_it_is_in_a_process_that_ends_with_its_commit(new: Bench) -> None:
    assert new.commit(new.receipts(), new.session()).closing is None


def test_a_batch_that_is_lost_in_part_is_recorded_before_its_error(new: Bench) -> None:
    receipts = new.receipts()
    new.times_out_before_its_commit(receipts[0])
    result = commit(new, receipts, new.session())
    assert isinstance(result.error, CommitLost) and result.closing is None
    assert new.ledger()[SINK].kind is Kind.STUCK


def test_what_others_left_open_is_aborted_before_the_commit_returns(new: Bench) -> None:
    """A task of the next batch may use such an id again."""
    session = new.session()
    close(new, session, commit(new, new.receipts(), session))
    dangling = new.receipt(1, 0, attempt=7)
    result = commit(new, new.receipts(1), session)
    assert dangling.transaction is not None and result.swept == (dangling.transaction.transactional_id,)
    assert result.closing is not None and new.ledger()[SINK].kind is Kind.INTENT


def test_readers_are_waited_for_before_the_commit_returns(new: Bench) -> None:
    new.settings = replace(new.settings, visible_ms=5_000)
    result = commit(new, new.receipts(), new.session())
    assert "last stable offsets" in new.purposes() and result.closing is not None


# ---- if it is not written --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["1" * 16, SECOND], ids=["same run", "next run"])
def test_the_next_commit_closes_a_decision_that_its_process_left_open(new: Bench, run: str) -> None:
    left_open(new)
    session = new.session(run)
    result = new.commit(new.receipts(1, run=run), session)
    assert result.conclusion is Conclusion.DELIVERED and new.seen() == [2, 2]
    record = new.ledger()[SINK]
    assert (record.kind, record.key.batch_id) == (Kind.DONE, 1)


def test_it_does_so_though_the_next_transactions_have_begun_under_the_same_ids(new: Bench) -> None:
    """The end of these is refused by their epochs, and the log tells that they are committed."""
    left_open(new)
    new.settle()
    following = new.receipts(1)
    new.asked.clear()
    assert new.commit(following, new.session()).conclusion is Conclusion.DELIVERED
    assert VERDICT in new.purposes()
    assert new.seen() == [2, 2]


def test_a_run_that_repeats_the_batch_finds_it_delivered(new: Bench) -> None:
    """The driver died before Spark's own commit log was written."""
    left_open(new)
    again = new.receipts(0, run=SECOND)
    assert new.commit(again, new.session(SECOND)).conclusion is Conclusion.ALREADY_DELIVERED
    assert new.seen() == [1, 1] and new.ledger()[SINK].kind is Kind.DONE


def test_a_command_closes_it(new: Bench) -> None:
    left_open(new)
    assert new.run(DriverOperation.FINISH).conclusion is Conclusion.RECOVERED
    assert new.ledger()[SINK].kind is Kind.DONE


def test_planning_sees_that_all_is_committed_and_leaves_the_record_to_the_next_commit(new: Bench) -> None:
    left_open(new)
    assert new.run(DriverOperation.RECOVER).conclusion is Conclusion.RECOVERED
    assert new.ledger()[SINK].kind is Kind.INTENT


def test_a_process_that_did_not_wait_for_its_record_fences_itself_and_closes_the_decision_first(new: Bench) -> None:
    """Its memory says that the last decision is open. So the next one is never written over it."""
    session = new.session()
    left_open(new, 0, session)
    new.asked.clear()
    assert commit(new, new.receipts(1), session).conclusion is Conclusion.DELIVERED
    purposes = new.purposes()
    assert purposes.index(FENCE) < purposes.index(COMMIT) < purposes.index(WRITE)
    assert new.seen() == [2, 2]


@pytest.mark.parametrize("answers", [{WRITE: [LOST] * 10_000}, {END: [LOST] * 10_000}], ids=["append", "end"])
def test_a_record_that_gets_no_answer_is_given_up_and_the_next_commit_closes_the_decision(
    new: Bench, answers: dict[str, list[Any]]
) -> None:
    session = new.session()
    result = left_open(new, 0, session)
    closed = close(new, session, result, answers)
    assert closed.state is not WriteState.WRITTEN and "no time left" in closed.reason
    # `Driver.close` tells its process, which then begins without state.
    assert commit(new, new.receipts(1), new.session()).conclusion is Conclusion.DELIVERED
    assert new.seen() == [2, 2]


def test_a_record_that_comes_too_late_is_refused_and_aborts_nothing_of_the_next_commit(new: Bench) -> None:
    """Another process of the run, or the next run, has closed the decision meanwhile."""
    slow = new.session()
    result = left_open(new, 0, slow)
    other = new.session()
    second = commit(new, new.receipts(1), other)
    assert second.conclusion is Conclusion.DELIVERED
    closed = close(new, slow, result)
    assert closed.state is WriteState.NOT_WRITTEN and closed.is_fenced
    new.asked.clear()
    assert close(new, other, second).state is WriteState.WRITTEN
    assert new.seen() == [2, 2] and new.ledger()[SINK].key.batch_id == 1


def test_an_abort_in_another_process_leaves_the_batch_alone(new: Bench) -> None:
    """Spark may fail the batch after its commit has returned."""
    receipts = new.receipts()
    commit(new, receipts, new.session())
    assert new.run(DriverOperation.ABORT, receipts).conclusion is Conclusion.LEFT_ALONE
    assert new.seen() == [1, 1]
