"""Acknowledged rows that brokers lose while their transaction is open, before anything is decided about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.commit import lost_rows
from kafka_sink.commit.open_parts import OpenParts
from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion
from kafka_sink.errors import CommitAborted
from kafka_sink.kafka.client.ask import Ask
from tests.unit.commit.driver_bench import LOST, UNSUPPORTED, Bench

OPEN_PARTS, DECIDE, COMMIT = "describe producers", "end ledger transaction", "commit transaction"
NOT_LEADER, UNAUTHORIZED = 6, 29
WHERE = ("t", 0)


def receipts_of(bench: Bench, rows: int = 4) -> list[TaskReceipt]:
    """The first task has so many rows in one partition, the second one row."""
    first, *others = bench.receipts()
    written, *more = bench.write_also(first, *[WHERE] * (rows - 1)).written
    for one in more:
        written = written.merge(one)
    return [replace(first, written=(written,), row_count=rows), *others]


def told(bench: Bench, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Leaders tell something else of each producer."""
    tell = bench.broker._on_DescribeProducers

    def changed(body: Any, request: Ask) -> dict[str, Any]:
        answer = tell(body, request)
        for partition in answer["topics"][0]["partitions"]:
            partition["active_producers"] = [change(one) for one in partition["active_producers"]]
        return answer

    bench.broker._on_DescribeProducers = changed  # type: ignore[method-assign]


def looks(bench: Bench) -> list[Ask]:
    return [ask for ask in bench.asked if ask.purpose == lost_rows.LAST_ROWS]


def refusal(bench: Bench, verdict: CommitResult) -> str:
    """Nothing was decided, so Spark runs the batch again."""
    assert isinstance(verdict.error, CommitAborted)
    assert DECIDE not in bench.purposes() and COMMIT not in bench.purposes() and bench.ledger() == {}
    return str(verdict.error)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_batch_whose_acknowledged_rows_are_gone_is_not_decided(bench: Bench, count: int) -> None:
    receipts = receipts_of(bench)
    bench.broker.lose_tail(WHERE, count)
    text = refusal(bench, bench.commit(receipts))
    assert "the brokers have lost acknowledged rows: transaction sink-1111111111111111-0-0 wrote 4 rows to t-0" in text
    assert f"the last {count} of them are gone" in text and "min.insync.replicas=2" in text
    assert "Nothing of it is visible" in text and "the batch may run again" in text


def test_so_it_is_if_another_producer_has_written_in_their_place(bench: Bench) -> None:
    receipts = receipts_of(bench)
    bench.broker.lose_tail(WHERE, 2)
    for _ in range(3):
        bench.broker.write(WHERE, b"other", -1, -1)
    assert "the last 2 of them are gone" in refusal(bench, bench.commit(receipts))
    assert len(looks(bench)) == 1, "there is nothing to wait for"


def test_so_it_is_if_the_marker_of_their_own_transaction_is_in_their_place(bench: Bench) -> None:
    """Somebody ends it between the check and the look."""
    receipts = receipts_of(bench)
    transaction = receipts[0].transaction
    assert transaction is not None
    bench.broker.lose_tail(WHERE)

    def end(ask: Ask) -> None:
        if ask.purpose == lost_rows.LAST_ROWS and not looks(bench)[1:]:
            bench.broker.write_marker(WHERE, *transaction.identity, commit=False)

    bench.before = end
    assert "the last 1 of them are gone" in refusal(bench, bench.commit(receipts))


def test_a_log_that_ends_before_the_rows_is_looked_at_for_five_seconds(bench: Bench) -> None:
    """A leader that has just been elected may not show all that it has."""
    receipts, began_ms = receipts_of(bench), bench.now_ms
    bench.broker.lose_tail(WHERE)
    refusal(bench, bench.commit(receipts))
    assert bench.now_ms - began_ms >= lost_rows.PATIENCE_MS
    assert all(ask.find_again for ask in looks(bench)), "each look goes to the leader of fresh metadata"


def test_a_batch_without_the_time_for_that_names_the_loss(bench: Bench) -> None:
    bench.settings = replace(bench.settings, margin_ms=500)
    receipts = [replace(one, timeout_ms=3_000, remaining_ms=3_000) for one in receipts_of(bench)]
    bench.broker.lose_tail(WHERE)
    began_ms = bench.now_ms
    assert "the last 1 of them are gone" in refusal(bench, bench.commit(receipts))
    assert bench.now_ms - began_ms < lost_rows.PATIENCE_MS


def test_rows_that_appear_meanwhile_are_not_lost(bench: Bench) -> None:
    receipts = receipts_of(bench)
    hidden = bench.broker.logs[WHERE].pop()

    def show(ask: Ask) -> None:
        if ask.purpose == lost_rows.LAST_ROWS and ask.failures == 2:
            bench.broker.logs[WHERE].append(hidden)

    bench.before = show
    assert bench.commit(receipts).conclusion is Conclusion.DELIVERED


def test_where_all_rows_are_there_nobody_looks(bench: Bench) -> None:
    verdict = bench.commit(receipts_of(bench))
    assert verdict.conclusion is Conclusion.DELIVERED and verdict.notes == () and looks(bench) == []


def test_of_rows_in_several_partitions_the_ones_that_are_gone_are_named(bench: Bench) -> None:
    first, *others = receipts_of(bench)
    first = bench.write_also(first, ("t", 2), ("t", 2))
    bench.broker.lose_tail(("t", 2))
    written = (first.written[0], first.written[1].merge(first.written[2]))
    receipts = [replace(first, written=written), *others]
    assert "wrote 2 rows to t-2" in refusal(bench, bench.commit(receipts))


@pytest.mark.parametrize("last_sequence", [0, 2, 4, 2**31 - 1, -5])
def test_a_number_that_the_log_contradicts_is_not_believed(bench: Bench, last_sequence: int) -> None:
    """As a server may tell that counts requests, or nothing at all."""
    told(bench, lambda one: {**one, "last_sequence": last_sequence})
    verdict = bench.commit(receipts_of(bench))
    assert verdict.conclusion is Conclusion.DELIVERED
    is_less = last_sequence in (0, 2)
    assert len(looks(bench)) == is_less and len(verdict.notes) == is_less
    assert not is_less or "the number is not believed" in verdict.notes[0]


@pytest.mark.parametrize("answer", [UNSUPPORTED, UNAUTHORIZED], ids=["unsupported", "not allowed"])
def test_so_it_is_if_nobody_can_look(bench: Bench, answer: object) -> None:
    told(bench, lambda one: {**one, "last_sequence": 0})
    verdict = bench.commit(receipts_of(bench), answers={lost_rows.LAST_ROWS: [answer]})
    assert verdict.conclusion is Conclusion.DELIVERED and "the number is not believed" in verdict.notes[0]


@pytest.mark.parametrize("answer", [LOST, NOT_LEADER], ids=["lost", "not leader"])
def test_a_look_without_an_answer_is_repeated(bench: Bench, answer: object) -> None:
    receipts = receipts_of(bench)
    bench.broker.lose_tail(WHERE, 2)
    bench.broker.write(WHERE, b"other", -1, -1)
    bench.broker.write(WHERE, b"other", -1, -1)
    refusal(bench, bench.commit(receipts, answers={lost_rows.LAST_ROWS: [answer, answer]}))
    assert len(looks(bench)) == 3


def test_numbers_of_another_epoch_say_nothing(bench: Bench) -> None:
    told(bench, lambda one: {**one, "last_sequence": 0, "producer_epoch": one["producer_epoch"] + 1})
    assert bench.commit(receipts_of(bench)).conclusion is Conclusion.DELIVERED and looks(bench) == []


def test_rows_whose_place_no_broker_has_told_are_not_compared(bench: Bench) -> None:
    told(bench, lambda one: {**one, "last_sequence": 0})
    first, *others = receipts_of(bench)
    assert bench.commit([replace(first, unknown=(WHERE,)), *others]).conclusion is Conclusion.DELIVERED
    assert looks(bench) == []


@pytest.mark.parametrize(
    ("rows", "last_sequence", "missing"),
    [(1, 0, 0), (2**31, 2**31 - 1, 0), (2**31 + 5, 4, 0), (2**31 + 5, 1, 3), (2**31 + 5, 2**31 - 3, 7), (7, -1, 0)],
)
def test_after_the_last_number_comes_zero(bench: Bench, rows: int, last_sequence: int, missing: int) -> None:
    first = bench.receipts(tasks=1)[0]
    assert first.transaction is not None
    producer = {"producer_id": first.transaction.producer_id, "producer_epoch": first.transaction.producer_epoch}
    parts = OpenParts([WHERE], [first.transaction.producer_id], 1, is_known=True)
    parts.on_told(WHERE, [{**producer, "last_sequence": last_sequence, "current_txn_start_offset": 0}])
    receipt = replace(first, written=(first.written[0]._replace(row_count=rows),))
    assert [one.missing_count for one in parts.short_parts(receipt)] == [missing] * bool(missing)


def test_no_more_than_ten_partitions_are_looked_at(bench: Bench) -> None:
    first = bench.receipt(0, 0)
    first = bench.write_also(first, *[("t", number) for number in range(1, 15)])
    two_each = bench.write_also(first, *[("t", number) for number in range(15)])
    merged = tuple(one.merge(two) for one, two in zip(first.written, two_each.written[15:], strict=True))
    told(bench, lambda one: {**one, "last_sequence": 0})
    verdict = bench.commit([replace(first, written=merged, row_count=30)])
    assert verdict.conclusion is Conclusion.DELIVERED and len(looks(bench)) == lost_rows.LOOKS_MAX
