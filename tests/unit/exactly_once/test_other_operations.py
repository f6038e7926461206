"""abort, recovery at planning, the operator's commands, the sweep, and batch writes without a ledger."""

from dataclasses import replace

import pytest

from kafka_sink.errors import CommitAborted, CommitLost, CommitPending
from kafka_sink.exactly_once.ledger import Kind
from kafka_sink.exactly_once.receipt import BatchKey, TaskReceipt
from kafka_sink.exactly_once.session import Conclusion, DriverOperation
from tests.unit.exactly_once.driver_bench import LOST, QUERY, REFUSED, UNSUPPORTED, Bench, after

COMMIT, END, WRITE = "commit transaction", "end ledger transaction", "write ledger record"
KEY = BatchKey(QUERY, 0)
SECOND = "2" * 16


def pending(bench: Bench, batch: int = 0) -> list[TaskReceipt]:
    """A batch that is decided and of which nothing is committed yet; its process is gone."""
    receipts = bench.receipts(batch)
    verdict = bench.run(DriverOperation.COMMIT, receipts, answers={COMMIT: [LOST] * 100_000})
    assert isinstance(verdict.error, CommitPending)
    return receipts


def lost(bench: Bench) -> list[TaskReceipt]:
    """A batch of which the first transaction timed out after the decision."""
    receipts = pending(bench)
    assert receipts[0].transaction is not None
    bench.broker.time_out(receipts[0].transaction.transactional_id)
    bench.settle()
    assert isinstance(bench.run(DriverOperation.FINISH).error, CommitLost)
    return receipts


# ---- abort ----


def test_abort_without_a_commit_ends_all_receipts_and_attempts_that_left_no_message(bench: Bench) -> None:
    receipts = bench.receipts()
    silent = bench.receipt(0, 1, attempt=3)
    verdict = bench.run(DriverOperation.ABORT, receipts)
    bench.settle()
    assert verdict.conclusion is Conclusion.ABORTED
    assert {bench.state_of(receipt) for receipt in (*receipts, silent)} == {"CompleteAbort"}
    assert silent.transaction is not None and verdict.swept == (silent.transaction.transactional_id,)


def test_abort_after_a_failed_check_in_the_same_process_needs_no_ledger(bench: Bench) -> None:
    receipts, session = bench.receipts(), bench.session()
    assert receipts[0].transaction is not None
    bench.broker.time_out(receipts[0].transaction.transactional_id)
    assert isinstance(bench.commit(receipts, session).error, CommitAborted)
    bench.asked.clear()
    assert bench.run(DriverOperation.ABORT, receipts, session).conclusion is Conclusion.ABORTED
    assert "fence older drivers" not in bench.purposes()


def test_abort_in_another_process_finds_the_decision_and_leaves_everything_alone(bench: Bench) -> None:
    receipts = pending(bench)
    bench.asked.clear()
    assert bench.run(DriverOperation.ABORT, receipts).conclusion is Conclusion.LEFT_ALONE
    assert {bench.state_of(receipt) for receipt in receipts} == {"Ongoing"}
    assert not {"abort transaction", "fence older drivers"} & set(bench.purposes())


def test_abort_of_a_second_writing_of_a_delivered_batch_ends_what_is_open_and_nothing_else(bench: Bench) -> None:
    """Inside foreachBatch user code can catch an error and write the batch again, in the same run."""
    first = bench.receipts(0)
    bench.commit(first)
    bench.settle()
    second = bench.receipts(0, attempt=1)
    assert bench.run(DriverOperation.ABORT, second).conclusion is Conclusion.LEFT_ALONE
    bench.settle()
    assert {bench.state_of(receipt) for receipt in first} == {"CompleteCommit"}
    assert {bench.state_of(receipt) for receipt in second} == {"CompleteAbort"}


def test_a_second_writing_of_a_decided_batch_in_the_same_run_is_aborted_and_the_first_one_finished(
    bench: Bench,
) -> None:
    first = pending(bench)
    second = bench.receipts(0, attempt=1)
    assert bench.commit(second).conclusion is Conclusion.ALREADY_DELIVERED
    bench.settle()
    assert {bench.state_of(receipt) for receipt in first} == {"CompleteCommit"}
    assert {bench.state_of(receipt) for receipt in second} == {"CompleteAbort"}


def test_abort_with_a_stale_memory_reads_the_ledger_anew(bench: Bench) -> None:
    stale = bench.session()
    bench.commit(bench.receipts(0), stale)
    receipts = pending(bench, 1)
    assert bench.run(DriverOperation.ABORT, receipts, stale).conclusion is Conclusion.LEFT_ALONE


def test_abort_fences_before_it_aborts_so_that_no_decision_can_arrive_late(bench: Bench) -> None:
    receipts = bench.receipts()
    bench.run(DriverOperation.COMMIT, receipts, answers={END: [LOST] * 100_000})
    verdict = bench.run(DriverOperation.ABORT, receipts)
    assert verdict.conclusion is Conclusion.ABORTED
    order = bench.purposes()
    assert order.index("abort transaction") > len(order) - 1 - order[::-1].index("fence older drivers")
    bench.settle()
    assert "sink" not in bench.ledger() and {bench.state_of(receipt) for receipt in receipts} == {"CompleteAbort"}


def test_abort_that_cannot_reach_the_ledger_leaves_everything_to_the_time_out(bench: Bench) -> None:
    receipts = bench.receipts()
    verdict = bench.run(DriverOperation.ABORT, receipts, answers={"ledger start": [LOST] * 100_000})
    assert verdict.conclusion is Conclusion.LEFT_ALONE and verdict.notes
    assert {bench.state_of(receipt) for receipt in receipts} == {"Ongoing"}


def test_abort_by_a_run_that_was_replaced_aborts_its_own_and_fences_nobody(bench: Bench) -> None:
    bench.commit(bench.receipts(0))
    successor = bench.session(SECOND)
    bench.commit(bench.receipts(1, run=SECOND), successor)
    theirs, ours = bench.receipts(2, run=SECOND), bench.receipts(1)
    silent = bench.receipt(1, 2, attempt=7)
    bench.asked.clear()
    assert bench.run(DriverOperation.ABORT, ours).conclusion is Conclusion.ABORTED
    assert "fence older drivers" not in bench.purposes()
    bench.settle()
    assert {bench.state_of(receipt) for receipt in (*ours, silent)} == {"CompleteAbort"}
    assert {bench.state_of(receipt) for receipt in theirs} == {"Ongoing"}
    assert bench.commit(theirs, successor).conclusion is Conclusion.DELIVERED


def test_abort_by_a_run_whose_decision_its_successor_finished_does_not_say_that_all_is_aborted(bench: Bench) -> None:
    decided = bench.receipts(0)
    bench.commit(decided)
    bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND))
    assert bench.run(DriverOperation.ABORT, decided).conclusion is Conclusion.LEFT_ALONE
    bench.settle()
    assert {bench.state_of(receipt) for receipt in decided} == {"CompleteCommit"}


# ---- recovery ----


def test_planning_with_nothing_open_only_looks(bench: Bench) -> None:
    assert bench.run(DriverOperation.RECOVER).conclusion is Conclusion.NOTHING_TO_DO
    assert set(bench.purposes()) == {"ledger start", "ledger stop"}


def test_planning_commits_an_open_decision_and_fences_nobody(bench: Bench) -> None:
    pending(bench)
    bench.settle()
    bench.asked.clear()
    assert bench.run(DriverOperation.RECOVER).conclusion is Conclusion.RECOVERED
    bench.settle()
    assert [bench.visible(task) for task in (0, 1)] == [1, 1]
    assert not {"fence older drivers", WRITE} & set(bench.purposes())
    # The first commit of the new run closes it.
    again = bench.commit(bench.receipts(run=SECOND), bench.session(SECOND))
    assert again.conclusion is Conclusion.ALREADY_DELIVERED and bench.ledger()["sink"].kind is Kind.DONE


def test_planning_reports_a_loss_without_writing_it_down(bench: Bench) -> None:
    receipts = pending(bench)
    bench.settle()
    assert receipts[1].transaction is not None
    bench.broker.time_out(receipts[1].transaction.transactional_id)
    bench.settle()
    verdict = bench.run(DriverOperation.RECOVER)
    assert isinstance(verdict.error, CommitLost) and "1 of 2 are committed" in str(verdict.error)
    assert bench.ledger()["sink"].kind is Kind.INTENT


def test_an_unreachable_broker_at_planning_is_said_to_have_changed_nothing(bench: Bench) -> None:
    verdict = bench.run(DriverOperation.RECOVER, answers={"ledger start": [LOST] * 100_000})
    assert isinstance(verdict.error, CommitAborted) and verdict.error.name == "PKS-6007"
    assert "Nothing was changed" in str(verdict.error)


def test_finish_closes_the_decision_without_a_query(bench: Bench) -> None:
    pending(bench)
    assert bench.run(DriverOperation.FINISH).conclusion is Conclusion.RECOVERED
    assert bench.ledger()["sink"].kind is Kind.DONE
    assert bench.run(DriverOperation.FINISH).conclusion is Conclusion.NOTHING_TO_DO


# ---- the operator's choice ----


def test_accepting_a_lost_batch_lets_the_next_one_go_on(bench: Bench) -> None:
    lost(bench)
    assert bench.run(DriverOperation.ACCEPT).conclusion is Conclusion.RESOLVED
    record = bench.ledger()["sink"]
    assert record.kind is Kind.DONE and record.is_accepted
    again = bench.commit(bench.receipts(0, run=SECOND), bench.session(SECOND))
    assert again.conclusion is Conclusion.ALREADY_DELIVERED
    assert bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND)).conclusion is Conclusion.DELIVERED


def test_replaying_a_lost_batch_runs_it_again_and_doubles_only_what_was_visible(bench: Bench) -> None:
    lost(bench)
    assert bench.run(DriverOperation.REPLAY).conclusion is Conclusion.RESOLVED
    again = bench.commit(bench.receipts(0, run=SECOND), bench.session(SECOND))
    assert again.conclusion is Conclusion.DELIVERED
    bench.settle()
    assert [bench.visible(task) for task in (0, 1)] == [1, 2]


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


def test_there_is_nothing_to_choose_where_nothing_is_lost(bench: Bench) -> None:
    assert bench.run(DriverOperation.ACCEPT).conclusion is Conclusion.NOTHING_TO_DO
    bench.commit(bench.receipts())
    assert bench.run(DriverOperation.REPLAY).conclusion is Conclusion.NOTHING_TO_DO


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


def test_the_sweep_ends_what_a_replaced_run_began_after_it_was_replaced(bench: Bench) -> None:
    bench.commit(bench.receipts(0))
    successor = bench.session(SECOND)
    bench.commit(bench.receipts(1, run=SECOND), successor)
    late = bench.receipts(1)
    verdict = bench.commit(bench.receipts(2, run=SECOND), successor)
    bench.settle()
    assert verdict.conclusion is Conclusion.DELIVERED and len(verdict.swept) == len(late)
    assert {bench.state_of(receipt) for receipt in late} == {"CompleteAbort"}


def test_a_late_abort_of_the_sweep_does_not_touch_the_next_transaction_of_the_same_id(bench: Bench) -> None:
    session = bench.session()
    receipts = bench.receipts(0)
    loser = bench.receipt(0, 1, attempt=1)
    bench.commit(receipts, session)
    sweeping = [request for request in bench.asked if request.key.purpose == "abort transaction"]
    bench.settle()
    following = bench.receipt(1, 1, attempt=1)
    answered = [bench.broker.answer(request)["error_code"] for request in sweeping]
    assert answered == [90] and bench.state_of(following) == "Ongoing"
    assert loser.transaction is not None


@pytest.mark.parametrize("trouble", [UNSUPPORTED, REFUSED, LOST, 14])
def test_a_sweep_that_is_not_possible_is_a_note_and_never_an_error(bench: Bench, trouble: object) -> None:
    verdict = bench.run(DriverOperation.COMMIT, bench.receipts(), answers={"list transactions": [trouble]})
    assert verdict.conclusion is Conclusion.DELIVERED and verdict.notes and verdict.swept == ()


def test_a_slow_sweep_holds_the_batch_up_no_longer_than_its_bound(bench: Bench) -> None:
    bench.receipt(0, 1, attempt=1)
    began = bench.now_ms
    verdict = bench.run(DriverOperation.COMMIT, bench.receipts(), answers={"abort transaction": [LOST] * 100_000})
    assert verdict.conclusion is Conclusion.DELIVERED and any("took too long" in note for note in verdict.notes)
    assert bench.now_ms - began < 2 * bench.settings.sweep_ms


def test_the_operators_sweep_fences_finishes_and_then_ends_every_transaction_of_the_sink(bench: Bench) -> None:
    pending(bench)
    dangling = [bench.receipt(0, 5, run=SECOND), bench.receipt(0, 6)]
    verdict = bench.run(DriverOperation.SWEEP)
    bench.settle()
    assert [bench.visible(task) for task in (0, 1)] == [1, 1]
    assert {bench.state_of(receipt) for receipt in dangling} == {"CompleteAbort"} and len(verdict.swept) == 2


# ---- batch writes ----


def test_a_write_without_a_ledger_checks_and_commits_and_touches_no_ledger(bench: Bench) -> None:
    verdict = bench.run(DriverOperation.COMMIT_WITHOUT_LEDGER, bench.receipts("", query=""))
    bench.settle()
    assert verdict.conclusion is Conclusion.DELIVERED and [bench.visible(task) for task in (0, 1)] == [1, 1]
    assert not {WRITE, "fence older drivers", "ledger stop"} & set(bench.purposes())


def test_a_write_without_a_ledger_repeats_until_time_outs_make_every_answer_definite(bench: Bench) -> None:
    receipts = bench.receipts("", query="")
    verdict = bench.run(DriverOperation.COMMIT_WITHOUT_LEDGER, receipts, answers={COMMIT: [LOST] * 300})
    assert verdict.conclusion is Conclusion.DELIVERED


def test_a_write_without_a_ledger_that_is_visible_in_part_says_what_would_have_helped(bench: Bench) -> None:
    receipts, session = bench.receipts("", query=""), bench.session()
    bench.times_out_before_its_commit(receipts[0])
    verdict = bench.run(DriverOperation.COMMIT_WITHOUT_LEDGER, receipts, session, answers={COMMIT: [48]})
    assert isinstance(verdict.error, CommitLost) and verdict.error.name == "PKS-6022"
    assert "batch.id" in str(verdict.error)
    assert bench.run(DriverOperation.ABORT_WITHOUT_LEDGER, receipts, session).conclusion is Conclusion.LEFT_ALONE


def test_a_labelled_write_is_done_once_even_after_other_labels(bench: Bench) -> None:
    first = bench.commit(bench.receipts("monday", query=""))
    second = bench.commit(bench.receipts("tuesday", run=SECOND, query=""), bench.session(SECOND))
    again = bench.commit(bench.receipts("monday", run="3" * 16, query=""), bench.session("3" * 16))
    assert (first.conclusion, second.conclusion) == (Conclusion.DELIVERED, Conclusion.DELIVERED)
    assert again.conclusion is Conclusion.ALREADY_DELIVERED
    bench.settle()
    assert set(bench.ledger()) == {"sink/monday", "sink/tuesday"} and bench.visible(0) == 2


def test_a_thousand_transactions_are_committed_with_bounded_parallelism(bench: Bench) -> None:
    bench.settings = replace(bench.settings, parallel_requests=50)
    receipts = bench.receipts(tasks=1_000)
    verdict = bench.commit(receipts)
    assert verdict.conclusion is Conclusion.DELIVERED
    bench.settle()
    assert all(bench.visible(task) == 1 for task in (0, 499, 999))


def test_an_answer_that_comes_after_it_was_carried_out_and_lost_is_no_second_commit(bench: Bench) -> None:
    verdict = bench.run(
        DriverOperation.COMMIT, bench.receipts(), answers={WRITE: [after(LOST)], COMMIT: [after(LOST)] * 2}
    )
    assert verdict.conclusion is Conclusion.DELIVERED
    bench.settle()
    assert [bench.visible(task) for task in (0, 1)] == [1, 1]
