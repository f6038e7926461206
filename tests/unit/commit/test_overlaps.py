"""Requests that a commit sends in parallel, and that the decision is still made after the check."""

import pytest

from kafka_sink.commit.committer import Committer
from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.session import Conclusion, DriverOperation, DriverSession, Job
from kafka_sink.errors import CommitAborted
from kafka_sink.kafka.client.ask import Ask
from tests.unit.commit.driver_bench import COMMIT, END, LOST, WRITE, Bench

LEADERS, DESCRIBE = "find partitions without a leader", "describe transactions"
OPEN_PARTS = "describe producers"
LIST = "list transactions"


def warm(bench: Bench) -> DriverSession:
    """A process that has committed the first batch of its run."""
    session = bench.session()
    assert bench.commit(bench.receipts(0), session).conclusion is Conclusion.DELIVERED
    bench.asked.clear()
    return session


def first_requests(bench: Bench, session: DriverSession) -> set[str]:
    """The purposes of the requests that the commit of the next batch sends before it has an answer."""
    receipts = bench.receipts(1)
    job = Job(DriverOperation.COMMIT, receipts[0].key, receipts, age_max_ms=0)
    committer = Committer(bench.settings, session, job, bench.now_ms)
    return {request.purpose for request in committer.step(bench.now_ms).asks}


def test_the_intent_is_appended_while_the_transactions_are_looked_at(bench: Bench) -> None:
    written = "renew driver epoch" if bench.transaction_version == 1 else WRITE
    assert first_requests(bench, warm(bench)) == {DESCRIBE, OPEN_PARTS, LEADERS, written}


def test_the_first_batch_of_a_run_is_looked_at_before_its_intent_is_written(bench: Bench) -> None:
    bench.commit(bench.receipts())
    order = bench.purposes()
    assert order.index(DESCRIBE) < order.index(WRITE)


@pytest.mark.parametrize("tries", [1, 3])
def test_nothing_is_decided_before_the_transactions_were_looked_at_however_late_that_answer_is(
    bench: Bench, tries: int
) -> None:
    session = warm(bench)
    verdict = bench.commit(bench.receipts(1), session, answers={DESCRIBE: [LOST] * tries})
    assert verdict.conclusion is Conclusion.DELIVERED
    order = bench.purposes()
    assert order.count(DESCRIBE) == 1 + tries
    assert order.index(WRITE) < order.index(END)
    assert max(index for index, purpose in enumerate(order) if purpose == DESCRIBE) < order.index(END)


def test_a_batch_that_fails_the_check_is_not_decided_although_its_intent_is_in_the_log(bench: Bench) -> None:
    session = warm(bench)
    receipts = bench.receipts(1)
    bench.time_out(receipts[0])
    verdict = bench.commit(receipts, session)
    assert isinstance(verdict.error, CommitAborted) and "time-out" in str(verdict.error)
    assert END not in bench.purposes() and COMMIT not in bench.purposes()
    assert WRITE in bench.purposes()
    assert bench.state_of(receipts[1]).endswith("Abort")
    # The fence of the next run aborts the transaction of the intent; then that run delivers the batch again.
    again = bench.receipts(1, run="2" * 16)
    assert bench.commit(again, bench.session("2" * 16)).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [2, 2]
    assert bench.ledger()["sink"].run == "2" * 16


def test_a_draft_of_a_failed_check_whose_abort_marker_is_lost_doubles_nothing(bench: Bench) -> None:
    """After the next claim it looks like an intent whose marker is lost. Its transactions turn out to be aborted, so it
    was not decided."""
    session = warm(bench)
    receipts = bench.receipts(1)
    bench.time_out(receipts[0])
    assert isinstance(bench.commit(receipts, session).error, CommitAborted)
    bench.broker.time_out("sink-driver")
    bench.broker.complete("sink-driver", is_lost=True)
    again = bench.receipts(1, run="2" * 16)
    assert bench.commit(again, bench.session("2" * 16)).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [2, 2]
    assert bench.ledger()["sink"].kind is Kind.DONE


def test_open_transactions_are_listed_while_those_of_the_decision_are_committed_and_these_are_left_alone(
    bench: Bench,
) -> None:
    session = warm(bench)
    dangling = bench.receipt(1, 0, attempt=7)  # a task that was killed
    receipts = bench.receipts(1)
    asked_before: list[str] = []
    bench.before = lambda request: asked_before.append(request.purpose)
    # The broker answers the list normally while both commits have no answer yet.
    verdict = bench.commit(receipts, session, answers={COMMIT: [LOST, LOST]})
    assert verdict.conclusion is Conclusion.DELIVERED
    assert dangling.transaction is not None
    assert verdict.swept == (dangling.transaction.transactional_id,)
    assert asked_before.index(LIST) < asked_before.index(END, asked_before.index(COMMIT))
    # Only the transaction that was not decided is described.
    described = [request for request in bench.asked if request.purpose == DESCRIBE]
    assert described[-1].body["transactional_ids"] == [dangling.transaction.transactional_id]
    bench.settle()
    assert bench.state_of(dangling) == "CompleteAbort"


def test_a_list_that_is_slow_holds_up_no_commit_for_long(bench: Bench) -> None:
    session = warm(bench)
    receipts = bench.receipts(1)
    job = Job(DriverOperation.COMMIT, receipts[0].key, receipts, age_max_ms=0)
    committer = Committer(bench.settings, session, job, bench.now_ms)
    progress = committer.step(bench.now_ms)
    kept: list[Ask] = []
    for _ in range(20):
        kept += [request for request in progress.asks if request.purpose == LIST]
        answers = [bench._answer(request, {}) for request in progress.asks if request.purpose != LIST]
        bench.settle()
        bench.now_ms += 20  # the wait of the driver while markers are written
        progress = committer.step(bench.now_ms, answers)
    assert kept and progress.result is None and bench.ledger()["sink"].kind is Kind.DONE
    verdict = committer.step(bench.now_ms + bench.settings.sweep_ms).result
    assert verdict is not None and verdict.conclusion is Conclusion.DELIVERED
    assert any("took too long" in note for note in verdict.notes)
