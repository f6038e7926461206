"""abort, recovery at planning, the operator's commands, the sweep, and batch writes without a ledger."""

from dataclasses import replace

import pytest

from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.commit.session import Conclusion, DriverOperation
from kafka_sink.errors import CommitLost, CommitPending
from tests.unit.commit.driver_bench import END, LEADERLESS, LOST, REFUSED, SECOND, UNSUPPORTED, WRITE, Bench

ABORT = "abort transaction"


def pending(bench: Bench, batch: int = 0) -> list[TaskReceipt]:
    """A decided batch without any committed transaction; its process has died."""
    receipts = bench.receipts(batch)
    bench.decide(receipts)
    return receipts


def lost(bench: Bench) -> list[TaskReceipt]:
    """A batch whose first transaction timed out after the decision."""
    receipts = pending(bench)
    bench.time_out(receipts[0])
    bench.settle()
    assert isinstance(bench.run(DriverOperation.FINISH).error, CommitLost)
    return receipts


# ---- abort ----


def test_abort_fences_before_it_aborts_so_that_no_decision_can_arrive_late(bench: Bench) -> None:
    receipts = bench.receipts()
    bench.run(DriverOperation.COMMIT, receipts, answers={END: [LOST] * 100_000})
    late = next(request for request in bench.asked if request.purpose == END)
    bench.before_next(ABORT, lambda: bench.broker.answer(late))
    assert bench.run(DriverOperation.ABORT, receipts).conclusion is Conclusion.ABORTED
    bench.settle()
    assert "sink" not in bench.ledger() and {bench.state_of(receipt) for receipt in receipts} == {"CompleteAbort"}


@pytest.mark.parametrize("number", [0, "monday"])
def test_an_abort_knows_whether_a_decision_is_open(bench: Bench, number: int | str) -> None:
    """An open one may be of an earlier run, which nobody has finished: this batch is aborted, and that one is not."""
    query = "" if isinstance(number, str) else "q"
    first = bench.receipts(number, query=query)
    bench.decide(first, bench.session("1" * 16, first[0].key))
    later = bench.receipts(number, query=query, run="2" * 16, attempt=1)
    session = bench.session("2" * 16, later[0].key)
    bench.run(DriverOperation.COMMIT, later, session, answers={"commit transaction": [LOST] * 100_000})
    aborted = bench.run(DriverOperation.ABORT, later, session)
    assert (aborted.conclusion, aborted.has_nothing_open) == (Conclusion.ABORTED, False)
    bench.run(DriverOperation.FINISH, key=later[0].key)
    assert bench.run(DriverOperation.ABORT, later, bench.session("2" * 16, later[0].key)).has_nothing_open


# ---- recovery ----


def test_planning_with_nothing_open_only_looks(bench: Bench) -> None:
    assert bench.run(DriverOperation.RECOVER).conclusion is Conclusion.NOTHING_TO_DO
    assert set(bench.purposes()) == {"read ledger", "ledger stop"}


# ---- the operator's choice ----


@pytest.mark.parametrize(
    ("operation", "choice"), [(DriverOperation.ACCEPT, "accepted as it is"), (DriverOperation.REPLAY, "to run again")]
)
@pytest.mark.parametrize("unanswered", [WRITE, END])
def test_a_choice_that_may_not_be_recorded_says_so_and_can_be_made_again(
    bench: Bench, operation: DriverOperation, choice: str, unanswered: str
) -> None:
    lost(bench)
    verdict = bench.run(operation, answers={unanswered: [LOST] * 100_000})
    assert isinstance(verdict.error, CommitPending) and verdict.error.name == "PKS-6014"
    assert f"is {choice}" in str(verdict.error) and "is committed and visible" not in str(verdict.error)
    bench.settle()
    assert bench.run(operation).conclusion is Conclusion.RESOLVED


# ---- the sweep ----


def test_the_sweep_after_a_batch_ends_losing_attempts_and_older_runs_but_no_successor(bench: Bench) -> None:
    crashed = bench.receipt(0, 0, run="0" * 16)
    receipts = bench.receipts()
    loser = bench.receipt(0, 1, attempt=1)
    successor = bench.receipt(0, 0, run=SECOND)
    foreign = bench.broker.write_in_task("other-sink-" + "0" * 16 + "-0-0", ("t", 0), b"foreign")
    verdict = bench.commit(receipts)
    bench.settle()
    assert bench.state_of(crashed) == bench.state_of(loser) == "CompleteAbort"
    assert bench.state_of(successor) == "Ongoing" and foreign[1] >= 0
    assert bench.broker.transactions["other-sink-" + "0" * 16 + "-0-0"][2] == "Ongoing"
    assert len(verdict.swept) == 2 and verdict.conclusion is Conclusion.DELIVERED


def test_a_late_abort_of_the_sweep_does_not_touch_the_next_transaction_of_the_same_id(bench: Bench) -> None:
    session = bench.session()
    receipts = bench.receipts(0)
    loser = bench.receipt(0, 1, attempt=1)
    bench.commit(receipts, session)
    sweeping = [request for request in bench.asked if request.purpose == "abort transaction"]
    bench.settle()
    following = bench.receipt(1, 1, attempt=1)
    answered = [bench.broker.answer(request)["error_code"] for request in sweeping]
    assert answered == [90] and bench.state_of(following) == "Ongoing"
    assert loser.transaction is not None


@pytest.mark.parametrize("trouble", [UNSUPPORTED, REFUSED, LOST, 14])
def test_a_sweep_that_is_not_possible_is_a_note_and_never_an_error(bench: Bench, trouble: object) -> None:
    verdict = bench.run(DriverOperation.COMMIT, bench.receipts(), answers={"list transactions": [trouble]})
    assert verdict.conclusion is Conclusion.DELIVERED and verdict.notes and verdict.swept == ()


def test_the_sweep_leaves_a_transaction_open_until_its_partitions_have_leaders(bench: Bench) -> None:
    failed = bench.receipt(0, 0, attempt=7)
    session = bench.session()
    assert failed.transaction is not None
    name = failed.transaction.transactional_id
    verdict = bench.commit(bench.receipts(0), session, answers={ABORT: [LEADERLESS]})
    (aborting,) = [request for request in bench.asked if request.purpose == ABORT]
    assert aborting.led_partitions == (("t", 0),)
    assert verdict.conclusion is Conclusion.DELIVERED and verdict.swept == ()
    assert verdict.notes == (f"transaction {name} was left open: t-0 has no leader now",)
    assert bench.state_of(failed) == "Ongoing"
    assert bench.commit(bench.receipts(1), session).swept == (name,)


def test_abort_leaves_a_transaction_open_while_a_partition_of_it_has_no_leader(bench: Bench) -> None:
    receipts = bench.receipts(0)
    verdict = bench.run(DriverOperation.ABORT, receipts, answers={ABORT: [LEADERLESS] * 2})
    assert [request.led_now for request in bench.asked if request.purpose == ABORT][:2] == [
        (("t", 0),), (("t", 1),)
    ]  # fmt: skip
    assert verdict.conclusion is Conclusion.ABORTED and "t-0 has no leader now" in verdict.notes[0]


def test_a_slow_sweep_holds_the_batch_up_no_longer_than_its_bound(bench: Bench) -> None:
    bench.receipt(0, 1, attempt=1)
    began = bench.now_ms
    verdict = bench.run(DriverOperation.COMMIT, bench.receipts(), answers={"abort transaction": [LOST] * 100_000})
    assert verdict.conclusion is Conclusion.DELIVERED and any("took too long" in note for note in verdict.notes)
    assert bench.now_ms - began < 2 * bench.settings.sweep_ms


# ---- batch writes ----


def test_a_thousand_transactions_are_committed_with_bounded_parallelism(bench: Bench) -> None:
    bench.settings = replace(bench.settings, parallel_requests=50)
    receipts = bench.receipts(tasks=1_000)
    assert bench.commit(receipts).conclusion is Conclusion.DELIVERED
    bench.settle()
    assert all(bench.visible(task) == 1 for task in (0, 499, 999))
