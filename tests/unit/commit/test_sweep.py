"""Whose open transactions a sweep may end: a table of the newest record of the ledger key, an operation, and runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_sink.commit.committer import Committer
from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.identity import TaskIdentity, run_of_label
from kafka_sink.commit.ledger import Kind, LedgerRecord
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion, DriverOperation, DriverSession, Job
from kafka_sink.commit.sweep import LIST_AGAIN_MS, NOT_VERIFIED, sweep_rule
from kafka_sink.kafka.client.ask import Ask
from kafka_sink.kafka.wire.apis import ONGOING
from tests.support.tiny_broker import LEDGER
from tests.unit.commit.driver_bench import LEADERLESS, LOST, REFUSED, UNSUPPORTED, Bench

SINK, NAMED, SINCE_MS = "sink-query", "sink", 1_000
OWN, REPLACED, OTHER = "1" * 16, "2" * 16, "3" * 16
STREAM, EXPORT = BatchKey("query", 7), BatchKey("", "monday")
OWN_OF_LABEL, ELDER_OF_LABEL = run_of_label("monday", "a", LEDGER), run_of_label("monday", "b", LEDGER)
OF_OTHER_LABEL = run_of_label("tuesday", "c", LEDGER)


def record(key: BatchKey, run: str, kind: Kind = Kind.DONE) -> LedgerRecord:
    return LedgerRecord(kind, SINK, key, run, runs=(REPLACED,), since_ms=SINCE_MS)


def is_swept(
    newest: LedgerRecord | None,
    run: str,
    start_ms: int,
    *,
    own: str = OWN,
    key: BatchKey = STREAM,
    operation: DriverOperation = DriverOperation.COMMIT,
    sink_id: str = SINK,
    state: str = ONGOING,
    stopped_runs: frozenset[str] = frozenset(),
) -> bool:
    rule = sweep_rule(DriverSession(SINK, own, NAMED), newest, Job(operation, key, stopped_runs=stopped_runs))
    name = TaskIdentity(sink_id, run, 0, 0).transactional_id
    found = TransactionDescription(name, state, 1, 0, 60_000, start_ms, ())
    return rule.is_dangling(found)


@pytest.mark.parametrize(
    ("run", "start_ms", "swept"),
    [
        (OWN, SINCE_MS + 1, True),
        (REPLACED, SINCE_MS + 1, True),
        (OTHER, SINCE_MS - 1, True),
        # It may be a successor.
        (OTHER, SINCE_MS, False),
        # The brokers do not know when it began.
        (OTHER, -1, False),
    ],
)
def test_a_run_ends_its_own_transactions_those_of_replaced_runs_and_elder_ones(
    run: str, start_ms: int, swept: bool
) -> None:
    assert is_swept(record(STREAM, OWN), run, start_ms) is swept
    assert not is_swept(record(STREAM, OWN), run, start_ms, state="PrepareCommit")
    assert not is_swept(record(STREAM, OWN), run, start_ms, sink_id="another")


@pytest.mark.parametrize("newest", [None, record(STREAM, OTHER), replace(record(STREAM, OWN), runs=(), since_ms=-1)])
def test_without_a_record_of_its_own_a_run_ends_its_own_transactions_only(newest: LedgerRecord | None) -> None:
    assert is_swept(newest, OWN, SINCE_MS - 1)
    assert not is_swept(newest, REPLACED, SINCE_MS - 1) and not is_swept(newest, OTHER, SINCE_MS - 1)


def test_under_the_name_of_the_release_before_only_replaced_runs_are_over() -> None:
    assert is_swept(record(STREAM, OWN), REPLACED, SINCE_MS - 1, sink_id=NAMED)
    assert not is_swept(record(STREAM, OWN), OTHER, SINCE_MS - 1, sink_id=NAMED)


@pytest.mark.parametrize("operation", [DriverOperation.SWEEP, DriverOperation.FINISH])
def test_an_operator_ends_the_transactions_of_every_run_that_it_has_stopped(operation: DriverOperation) -> None:
    stopped_runs = frozenset({OTHER, OWN_OF_LABEL})
    for run in (OTHER, OWN_OF_LABEL):
        assert is_swept(None, run, SINCE_MS + 1, operation=operation, stopped_runs=stopped_runs)
        assert not is_swept(None, run, SINCE_MS + 1, operation=operation, stopped_runs=stopped_runs, sink_id="another")
    assert not is_swept(None, OF_OTHER_LABEL, SINCE_MS + 1, operation=operation, stopped_runs=stopped_runs)


def test_a_stream_leaves_the_transactions_of_labels_alone_though_they_began_earlier() -> None:
    """Their sink id can be the same, inside foreachBatch with query.id. They may be decided by now."""
    assert is_swept(record(STREAM, OWN), OTHER, SINCE_MS - 1)
    assert not is_swept(record(STREAM, OWN), OWN_OF_LABEL, SINCE_MS - 1)


def test_once_a_label_is_delivered_every_run_of_it_is_over_and_no_run_of_another_one() -> None:
    delivered = record(EXPORT, ELDER_OF_LABEL)
    assert is_swept(delivered, ELDER_OF_LABEL, SINCE_MS + 1, own=OWN_OF_LABEL, key=EXPORT)
    assert is_swept(delivered, REPLACED, SINCE_MS + 1, own=OWN_OF_LABEL, key=EXPORT)
    assert is_swept(delivered, run_of_label("monday", "d", LEDGER), SINCE_MS - 1, own=OWN_OF_LABEL, key=EXPORT)
    assert not is_swept(delivered, OF_OTHER_LABEL, SINCE_MS - 1, own=OWN_OF_LABEL, key=EXPORT)


@pytest.mark.parametrize(("start_ms", "swept"), [(8_999, True), (9_000, False), (-1, False)])
def test_a_repetition_of_a_delivered_label_ends_runs_that_no_record_has_if_they_began_before_its_own_tasks(
    start_ms: int, swept: bool
) -> None:
    """They were killed while they repeated it. One that began later may be repeating it now, and finds out itself."""
    receipts = [TaskReceipt(EXPORT, OWN_OF_LABEL, 0, 1, timeout_ms=60_000, remaining_ms=ms) for ms in (59_000, 59_900)]
    rule = sweep_rule(
        DriverSession(SINK, OWN_OF_LABEL, NAMED),
        record(EXPORT, ELDER_OF_LABEL),
        Job(DriverOperation.COMMIT, EXPORT, receipts, wall_ms=10_000),
    )
    name = TaskIdentity(SINK, run_of_label("monday", "d", LEDGER), 0, 0).transactional_id
    assert rule.is_dangling(TransactionDescription(name, ONGOING, 1, 0, 60_000, start_ms, ())) is swept


def test_while_a_label_is_not_delivered_the_run_of_its_record_is_not_over() -> None:
    stuck = record(EXPORT, ELDER_OF_LABEL, Kind.STUCK)
    assert not is_swept(stuck, ELDER_OF_LABEL, SINCE_MS - 1, own=OWN_OF_LABEL, key=EXPORT)


# ---- tasks of a failed job that live on ----

LIST = "list transactions"


def abort(bench: Bench, answers: dict[str, list[object]] | None = None, *, has_late_tasks: bool = True) -> CommitResult:
    """Of a batch of which one of two tasks gave a receipt."""
    receipts = bench.receipts(tasks=1)
    job = Job(DriverOperation.ABORT, receipts[0].key, receipts, has_late_tasks=has_late_tasks)
    verdict = bench.drive(Committer(bench.settings, bench.session(), job, bench.now_ms), answers)
    assert isinstance(verdict, CommitResult) and verdict.conclusion is Conclusion.ABORTED
    return verdict


def begins_before_list(bench: Bench, which: int) -> None:
    bench.before_next(LIST, lambda: bench.receipt(0, 1), which=which)


@pytest.mark.parametrize("which", [1, 2, 9])
def test_a_transaction_that_a_task_begins_after_the_first_list_is_aborted(bench: Bench, which: int) -> None:
    begins_before_list(bench, which)
    verdict = abort(bench)
    (late,) = verdict.swept
    bench.settle()
    assert bench.broker.transactions[late][2] == "CompleteAbort" and verdict.is_swept and not verdict.notes


def test_the_list_is_made_again_until_nothing_came_for_as_long_as_workers_live(bench: Bench) -> None:
    late_ms, began_ms = bench.settings.late_tasks_ms, bench.now_ms
    abort(bench)
    assert late_ms <= bench.now_ms - began_ms <= late_ms + LIST_AGAIN_MS
    began_ms = bench.now_ms
    begins_before_list(bench, late_ms // LIST_AGAIN_MS // 2)
    abort(bench)
    assert late_ms * 1.3 < bench.now_ms - began_ms < late_ms * 1.7


def test_a_batch_of_which_every_task_has_ended_is_swept_once_and_waits_for_nothing(bench: Bench) -> None:
    began_ms = bench.now_ms
    assert abort(bench, has_late_tasks=False).is_swept
    assert bench.purposes().count(LIST) == 1 and bench.now_ms == began_ms


def test_tasks_that_never_stop_beginning_transactions_hold_the_driver_up_no_longer_than_its_bound(bench: Bench) -> None:
    began_ms = bench.now_ms

    def begin(request: Ask) -> None:
        if request.purpose == LIST:
            bench.receipt(0, 1, attempt=bench.purposes().count(LIST) + 1)

    bench.before = begin
    verdict = abort(bench)
    bound_ms = 2 * bench.settings.late_tasks_ms + bench.settings.sweep_ms
    assert not verdict.is_swept and bound_ms <= bench.now_ms - began_ms <= bound_ms + LIST_AGAIN_MS
    assert "sweeping took too long" in verdict.notes[-1] and len(verdict.swept) > 10


@pytest.mark.parametrize("trouble", [LOST, 14, 15])
def test_a_broker_that_did_not_list_is_asked_again(bench: Bench, trouble: object) -> None:
    count = bench.settings.late_tasks_ms // LIST_AGAIN_MS + 3
    begins_before_list(bench, count + 1)
    verdict = abort(bench, {LIST: [trouble] * count})
    assert verdict.is_swept and len(verdict.swept) == 1 and not verdict.notes


def test_a_transaction_whose_partition_has_no_leader_yet_is_aborted_when_it_has_one(bench: Bench) -> None:
    bench.receipt(0, 1)
    verdict = abort(bench, {"abort transaction": [None, LEADERLESS, LEADERLESS]})
    assert verdict.is_swept and len(verdict.swept) == 1 and not verdict.notes


@pytest.mark.parametrize("trouble", [UNSUPPORTED, REFUSED])
def test_where_nothing_can_be_listed_the_verdict_says_so_at_once(bench: Bench, trouble: object) -> None:
    began_ms = bench.now_ms
    verdict = abort(bench, {LIST: [trouble]})
    assert not verdict.is_swept and verdict.notes and bench.now_ms == began_ms


def test_on_brokers_that_do_not_verify_transactions_nothing_is_listed_and_the_verdict_says_so() -> None:
    bench = Bench(1)
    bench.settings = replace(bench.settings, brokers_verify=False)
    verdict = abort(bench)
    assert not verdict.is_swept and verdict.notes == (NOT_VERIFIED,) and LIST not in bench.purposes()


def test_a_batch_that_is_aborted_leaves_the_open_decision_of_the_batch_before(bench: Bench) -> None:
    """Inside foreachBatch user code may catch the error of a commit and write the next batch, of which a task fails."""
    decided = bench.receipts(0)
    bench.decide(decided)
    failed = bench.receipt(1, 0, attempt=9)
    aborted = bench.run(DriverOperation.ABORT, [failed])
    assert aborted.conclusion is Conclusion.ABORTED and aborted.swept == ()
    assert bench.state_of(failed) in ("PrepareAbort", "CompleteAbort")
    assert [bench.state_of(one) for one in decided] == [ONGOING, ONGOING]
    again = bench.commit(bench.receipts(1, run=OTHER), bench.session(OTHER))
    assert again.conclusion is Conclusion.DELIVERED
    assert bench.seen() == [2, 2]


# ---- beside a decision that is not closed yet ----


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_killed_task_is_swept_although_its_id_is_part_of_an_open_decision_of_the_batch_before(
    bench: Bench, is_finished: bool
) -> None:
    """Its process uses the ids again, and the record that closes the decision comes later, or failed. What is decided
    and not committed is left alone."""
    first = bench.receipts(tasks=3)
    if is_finished:
        job = Job(DriverOperation.COMMIT, first[0].key, first, may_close_later=True, age_max_ms=0)
        bench.drive(Committer(bench.settings, bench.session(), job, bench.now_ms))
    else:
        # The third transaction is not committed: two of the ids are used again all the same.
        bench.decide(first)
        for receipt in first[:2]:
            assert receipt.transaction is not None
            bench.broker.end(*receipt.transaction[:3], commit=True, is_first=bench.transaction_version == 1)
    bench.settle()
    receipt, killed = bench.receipt(1, 0), bench.receipt(1, 1)
    assert receipt.transaction is not None and killed.transaction is not None and first[1].transaction is not None
    assert killed.transaction.transactional_id == first[1].transaction.transactional_id
    job = Job(DriverOperation.ABORT, receipt.key, [receipt], has_late_tasks=True)
    verdict = bench.drive(Committer(bench.settings, bench.session(), job, bench.now_ms))
    assert verdict.is_swept and verdict.swept == (killed.transaction.transactional_id,)
    bench.settle()
    assert (bench.state_of(receipt), bench.state_of(killed)) == ("CompleteAbort", "CompleteAbort")
    assert bench.state_of(first[2]) == ("CompleteCommit" if is_finished else ONGOING)
