"""What readers see of a transaction's last row: which answers tell how it ended, and which do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.commit.commit_step import SingleStep
from kafka_sink.commit.describe_transactions import DescribeTransactions
from kafka_sink.commit.end_txn import MARKER
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry, TransactionOutcome
from kafka_sink.commit.log_scan import READ_COMMITTED, FetchedPartition
from kafka_sink.commit.messages import lost_error
from kafka_sink.commit.open_decisions import OpenDecision, Standing, ask_rows, judge_open
from kafka_sink.commit.receipt import BatchKey, PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.commit.session import CommitResult, Conclusion, DeliverySettings, DriverOperation
from kafka_sink.commit.verdict import VERDICT, verdict_of
from kafka_sink.errors import CommitLost, CommitPending
from kafka_sink.formats.records.batch import seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, encode_batch
from kafka_sink.kafka.client.ask import Ask, Leader
from tests.unit.commit.driver_bench import COMMIT, NOT_SENT, REFUSED, SECOND, TOPIC_GONE, Bench

COMMITTED, LOST = TransactionOutcome.COMMITTED, TransactionOutcome.LOST
MINE, OTHER = 9, 4
TRANSACTION = PreparedTransaction("sink-run-0-0", MINE, 5, 2)
# Its last row is the last one of a batch with three.
WITNESS = WrittenPartition("t", 0, 10, 0, 12)


def batch(
    producer_id: int = MINE,
    epoch: int = 5,
    *,
    last: int = 12,
    rows: int = 3,
    is_transactional: bool = True,
    is_control: bool = False,
) -> bytes:
    encoded = encode_batch([Record(0, b"k", b"v")] * rows, make_compressor("none"))
    header = seal(
        encoded, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=is_transactional
    )
    changed = bytearray((last - rows + 1).to_bytes(8, "big") + header[8:] + encoded.payload)
    changed[22] |= 0x20 * is_control
    return bytes(changed)


def without_records(whole: bytes) -> bytes:
    """As compaction leaves the last batch of a producer: offsets and epoch, and nothing else."""
    emptied = bytearray(whole[:61])
    emptied[8:12] = (61 - 12).to_bytes(4, "big")
    emptied[57:61] = bytes(4)
    return bytes(emptied)


@pytest.mark.parametrize(
    ("records", "stable", "aborted", "outcome"),
    [
        (batch(), 13, (), COMMITTED),
        (batch(), 13, ((MINE, 0),), LOST),
        (batch(), 13, ((MINE, 12),), LOST),
        # Behind the first batch there may be any others.
        (batch() + batch(OTHER, last=15), 16, ((OTHER, 13), (MINE, 3)), LOST),
        # Another producer's, and a later one of this producer: some brokers list all that end behind the offset.
        (batch(), 99, ((OTHER, 0),), COMMITTED),
        (batch(), 99, ((MINE, 13),), COMMITTED),
        # It has not ended, or an older one has not.
        (batch(), 12, (), None),
        (batch(), 5, ((MINE, 0),), None),
        # Nothing is shown: no leader's answer, a redirection to another replica, or aborted rows are left out.
        (b"", 13, (), None),
        (batch(OTHER, last=15), 16, (), None),
        (batch()[:-1], 13, (), None),
        # A topic that was created anew, or the row of another transaction of the producer.
        (batch(OTHER), 13, (), None),
        (batch(epoch=4), 13, (), None),
        (batch(epoch=6), 13, (), None),
        (batch(last=13), 14, (), None),
        (batch(is_transactional=False), 13, (), None),
        # What compaction has left of it.
        (without_records(batch()), 13, (), None),
        (without_records(batch()), 13, ((MINE, 0),), None),
        (batch(is_control=True, rows=1), 13, (), None),
    ],
)
def test_a_row_below_the_last_stable_offset_tells_how_its_transaction_ended(
    records: bytes, stable: int, aborted: tuple[tuple[int, int], ...], outcome: TransactionOutcome | None
) -> None:
    assert verdict_of(FetchedPartition(0, stable, stable, records, aborted), TRANSACTION, WITNESS) is outcome


def test_without_an_offset_no_row_tells_anything() -> None:
    found = FetchedPartition(0, 13, 13, batch(last=2))
    assert verdict_of(found, TRANSACTION, WITNESS._replace(last_offset=-1)) is None


# ---- in a commit and a recovery ----


def forget(bench: Bench, receipts: list[TaskReceipt], *, commit: bool) -> None:
    """Its transactions have ended, and no coordinator knows them any more."""
    for receipt in receipts:
        assert receipt.transaction is not None
        name, producer_id, epoch, version = receipt.transaction
        if commit:
            assert bench.broker.end(name, producer_id, epoch, commit=True, is_first=version == 1) == 0
        else:
            bench.time_out(receipt)
        bench.settle()
        del bench.broker.transactions[name]


def in_one_partition(bench: Bench, tasks: int = 4) -> list[TaskReceipt]:
    """Tasks that have all written to the same partition."""
    place = ("t", 9)
    receipts = [bench.write_also(one, place) for one in bench.receipts(tasks=tasks)]
    return [replace(one, written=one.written[1:], row_count=1) for one in receipts]


def assert_found_as_it_ended(found: CommitResult, *, commit: bool) -> None:
    if commit:
        assert found.conclusion is Conclusion.RECOVERED
    else:
        assert isinstance(found.error, CommitLost) and "Not committed, rows not visible: 4 rows" in str(found.error)


@pytest.mark.parametrize("commit", [True, False])
def test_one_small_answer_per_transaction_tells_whatever_was_written_since(bench: Bench, commit: bool) -> None:
    receipts = in_one_partition(bench)
    bench.decide(receipts)
    forget(bench, receipts, commit=commit)
    for number in range(50):
        bench.broker.write_in_task(f"another application {number}", ("t", 9), b"another")
    bench.asked.clear()
    found = bench.run(DriverOperation.FINISH, session=bench.session(SECOND))
    assert_found_as_it_ended(found, commit=commit)
    fetches = [ask for ask in bench.asked if ask.target == Leader("t", 9) and ask.api.name == "Fetch"]
    assert [ask.purpose for ask in fetches] == [VERDICT] * 4
    for ask, receipt in zip(fetches, receipts, strict=True):
        (asked,) = ask.body["topics"][0]["partitions"]
        assert ask.body["isolation_level"] == READ_COMMITTED and asked["partition_max_bytes"] == 1
        assert asked["fetch_offset"] == receipt.written[0].last_offset


def compact_rows(bench: Bench, place: tuple[str, int]) -> None:
    """Markers are kept for longer than the rows."""
    log = bench.broker.logs[place]
    log[:] = [(1, 0, None, True) if batch is not None else (pid, *rest) for pid, *rest in log for batch in rest[1:2]]


@pytest.mark.parametrize("commit", [True, False])
def test_a_partition_without_the_rows_is_searched_once_for_all_transactions(bench: Bench, commit: bool) -> None:
    receipts = in_one_partition(bench)
    bench.decide(receipts)
    forget(bench, receipts, commit=commit)
    compact_rows(bench, ("t", 9))
    bench.asked.clear()
    found = bench.run(DriverOperation.FINISH, session=bench.session(SECOND))
    assert_found_as_it_ended(found, commit=commit)
    assert bench.purposes().count(MARKER) == 1


def test_a_search_that_has_begun_behind_a_row_goes_back_to_it(bench: Bench) -> None:
    """The answer about the first row comes last."""
    receipts = in_one_partition(bench)
    bench.decide(receipts)
    forget(bench, receipts, commit=True)
    compact_rows(bench, ("t", 9))
    answers = {VERDICT: [89]}
    found = bench.run(DriverOperation.FINISH, session=bench.session(SECOND), answers=answers)
    assert found.conclusion is Conclusion.RECOVERED


def test_an_older_transaction_that_never_ends_does_not_hide_the_marker(bench: Bench) -> None:
    """It holds the last stable offset back, so that no row behind it is shown to a read_committed reader."""
    bench.broker.write_in_task("another application", ("t", 9), b"hanging")
    receipts = in_one_partition(bench)
    bench.decide(receipts)
    forget(bench, receipts, commit=True)
    found = bench.run(DriverOperation.FINISH, session=bench.session(SECOND))
    assert found.conclusion is Conclusion.RECOVERED and MARKER in bench.purposes()


# ---- a log that is too long to be read ----


def endless(bench: Bench, *, stable: int) -> Any:
    """Each Fetch takes a second, and there is always more."""

    def answer(request: Ask) -> dict[str, Any]:
        bench.now_ms += 1_000
        (asked,) = request.body["topics"][0]["partitions"]
        told = bench.broker.answer(request)
        (partition,) = told["responses"][0]["partitions"]
        foreign = batch(OTHER, last=asked["fetch_offset"] + 2)
        partition |= {"records": foreign, "error_code": 0, "high_watermark": 1 << 40, "last_stable_offset": stable}
        return told

    return [answer] * 10_000


@pytest.mark.parametrize("operation", [DriverOperation.RECOVER, DriverOperation.FINISH])
def test_a_search_ends_with_the_time_of_the_operation(bench: Bench, operation: DriverOperation) -> None:
    receipts = in_one_partition(bench)
    bench.decide(receipts)
    forget(bench, receipts, commit=True)
    compact_rows(bench, ("t", 9))
    began_ms, patience_ms = bench.now_ms, bench.settings.patience_ms
    answers = {MARKER: endless(bench, stable=1 << 40)}
    found = bench.run(operation, session=bench.session(SECOND), answers=answers)
    assert began_ms + patience_ms <= bench.now_ms <= began_ms + patience_ms + 2_000
    # Whoever tried again would read the same: an operator chooses.
    assert isinstance(found.error, CommitLost) and "can no longer be read: 4 rows" in str(found.error)


def without_shown_records(bench: Bench) -> Any:
    """As brokers answer whose tiered storage takes longer than they wait for it, and those that hide what is there."""

    def answer(request: Ask) -> dict[str, Any]:
        told = bench.broker.answer(request)
        (partition,) = told["responses"][0]["partitions"]
        partition |= {"records": b""}
        return told

    return answer


def test_answers_without_records_are_not_taken_for_the_end_of_the_log(bench: Bench) -> None:
    receipts = in_one_partition(bench)
    bench.decide(receipts)
    forget(bench, receipts, commit=True)
    answers = {purpose: [without_shown_records(bench)] * count for purpose, count in ((VERDICT, 2), (MARKER, 10))}
    found = bench.run(DriverOperation.FINISH, session=bench.session(SECOND), answers=answers)
    assert found.conclusion is Conclusion.RECOVERED, found.error


def test_of_a_log_that_is_never_shown_to_its_end_nothing_more_is_expected(bench: Bench) -> None:
    receipts = in_one_partition(bench)
    bench.decide(receipts)
    forget(bench, receipts, commit=True)
    answers = {purpose: [without_shown_records(bench)] * 10_000 for purpose in (VERDICT, MARKER)}
    began_ms = bench.now_ms
    found = bench.run(DriverOperation.FINISH, session=bench.session(SECOND), answers=answers)
    assert isinstance(found.error, CommitLost) and "can no longer be read: 4 rows" in str(found.error)
    assert bench.now_ms - began_ms >= bench.settings.short_log_ms


@pytest.mark.parametrize(
    ("patience_ms", "stable", "count"),
    [(20_000, 1 << 40, 10_000), (120_000, 0, 10_000), (120_000, 1 << 40, 70)],
    ids=["without time", "still open", "no answer since"],
)
def test_a_search_that_does_not_tell_enough_leaves_it_pending(
    bench: Bench, patience_ms: int, stable: int, count: int
) -> None:
    receipts = in_one_partition(bench)
    bench.decide(receipts)
    forget(bench, receipts, commit=True)
    compact_rows(bench, ("t", 9))
    bench.settings = replace(bench.settings, patience_ms=patience_ms)
    began_ms = bench.now_ms
    answers = {MARKER: endless(bench, stable=stable)[:count] + [NOT_SENT] * 1_000}
    found = bench.run(DriverOperation.FINISH, session=bench.session(SECOND), answers=answers)
    assert bench.now_ms <= began_ms + patience_ms + 2_000
    assert isinstance(found.error, CommitPending) and "t-9: time was up before its log was searched" in str(found.error)
    # With time, the next one finds it.
    bench.settings = replace(bench.settings, patience_ms=120_000)
    assert bench.run(DriverOperation.FINISH, session=bench.session(SECOND)).conclusion is Conclusion.RECOVERED


def test_no_search_begins_when_time_is_up(bench: Bench) -> None:
    receipts = bench.receipts(tasks=1)

    def compacted(request: Ask) -> None:
        if request.purpose == VERDICT:
            bench.now_ms = 10**8
            compact_rows(bench, ("t", 0))

    bench.before = compacted
    found = bench.commit(receipts, answers={COMMIT: [90]})
    assert isinstance(found.error, CommitPending) and MARKER not in bench.purposes()


def test_a_transaction_that_its_coordinator_has_forgotten_while_it_is_open_names_the_way_out(bench: Bench) -> None:
    """The coordinators have lost their log. Nobody can commit it, and no time-out ends it."""
    receipts = in_one_partition(bench)
    bench.decide(receipts)
    for receipt in receipts:
        assert receipt.transaction is not None
        del bench.broker.transactions[receipt.transaction.transactional_id]
    found = bench.run(DriverOperation.FINISH, session=bench.session(SECOND))
    assert isinstance(found.error, CommitPending)
    assert "t-9 shows it open, and its coordinator does not commit it" in str(found.error)
    assert "Readers stop at an offset" in str(found.error)


# ---- how an open decision stands ----

ENTRIES = tuple(TransactionEntry(task, 0, 100 + task, 5, 2, "t", task, 9, 0) for task in (0, 1))


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_whose_ids_are_forgotten_stands_as_readers_see_it(bench: Bench, commit: bool) -> None:
    receipts = bench.receipts()
    bench.decide(receipts)
    forget(bench, receipts, commit=commit)
    assert standing(bench) is (Standing.COMMITTED if commit else Standing.OVERDUE)


@pytest.mark.parametrize("answer", [1, 29, REFUSED, TOPIC_GONE], ids=["gone", "forbidden", "refused", "deleted"])
def test_of_rows_that_are_gone_or_not_shown_nothing_is_said(bench: Bench, answer: Any) -> None:
    receipts = bench.receipts()
    bench.decide(receipts)
    forget(bench, receipts, commit=True)
    began_ms = bench.now_ms
    assert standing(bench, {VERDICT: [answer] * 1_000}) is Standing.OVERDUE
    assert bench.now_ms < began_ms + 5_000


def test_what_coordinators_tell_is_not_asked_of_rows(bench: Bench) -> None:
    receipts = bench.receipts()
    bench.decide(receipts)
    bench.asked.clear()
    assert standing(bench) is Standing.OPEN
    assert VERDICT not in bench.purposes()


def standing(bench: Bench, answers: dict[str, list[Any]] | None = None) -> Standing:
    (record,) = bench.ledger().values()
    assert record.kind is Kind.INTENT
    names = [one.transactional_id for one in record.transactions]
    described = DescribeTransactions(bench.settings, names, passes_over_refused=True)
    bench.drive(SingleStep(described, bench.now_ms + 60_000))
    rows = ask_rows(bench.settings, described, [record])
    bench.drive(SingleStep(rows, bench.now_ms + 60_000), answers)
    (found,) = judge_open(described, [record], 0, rows.outcomes)
    assert isinstance(found, OpenDecision)
    return found.standing


# ---- what people are told ----


def test_a_loss_of_which_no_log_tells_anything_is_not_put_down_to_a_time_out() -> None:
    record = LedgerRecord(Kind.STUCK, "orders", BatchKey("q", 7), "0123456789abcdef", topics={"t": 18}, entries=ENTRIES)
    unresolved = TransactionOutcome.UNRESOLVED
    text = str(lost_error(DeliverySettings().commands, record, [unresolved, unresolved]))
    assert "timed out" not in text and "retention has taken the rows and the markers" in text
    assert "to accept it is the usual choice" in text and "--accept" in text
    mixed = str(lost_error(DeliverySettings().commands, record, [unresolved, COMMITTED]))
    assert "timed out" in mixed and "retention" not in mixed
