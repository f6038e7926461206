"""Answers to a Fetch that end before the last stable offset that they tell: a segment ends, or the answer is full. A
record that was aborted must not be believed, although it lies below that offset and no marker of it was read."""

from __future__ import annotations

from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.commit.session import Conclusion, DriverOperation
from kafka_sink.errors import KafkaSinkError
from tests.support.tiny_broker import LEDGER
from tests.unit.commit.driver_bench import END, LOST, SECOND, Bench, stop_before

READ, STOP = "read ledger", "ledger stop"


def begin_segment(bench: Bench) -> None:
    """The next record of the ledger is the first of a segment."""
    bench.broker.segments.setdefault((LEDGER, 0), []).append(len(bench.broker.logs[LEDGER, 0]))


def abort_in_the_next_segment(bench: Bench) -> None:
    begin_segment(bench)
    bench.take_the_drivers_id()
    bench.settle()


def test_planning_does_not_finish_an_intent_whose_abort_is_behind_the_end_of_the_answer(bench: Bench) -> None:
    """The end of the log is reported before the abort, and the records behind it."""
    stop_before(bench, END, bench.receipts(), bench.session())
    bench.before_next(READ, lambda: abort_in_the_next_segment(bench))
    assert bench.run(DriverOperation.RECOVER).conclusion is Conclusion.NOTHING_TO_DO
    assert bench.seen() == [0, 0]
    assert bench.commit(bench.receipts(run=SECOND), bench.session(SECOND)).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [1, 1]


def test_an_answer_that_reaches_the_last_stable_offset_may_end_before_the_marker(bench: Bench) -> None:
    """Another sink's transaction is open: the last stable offset stays below the marker."""
    stop_before(bench, END, bench.receipts(), bench.session())
    assert bench.broker.write_in_task("another-driver", (LEDGER, 0), b"of another sink")[2] >= 0
    bench.before_next(READ, lambda: abort_in_the_next_segment(bench))
    assert bench.run(DriverOperation.RECOVER).conclusion is Conclusion.NOTHING_TO_DO
    assert bench.seen() == [0, 0]


def test_a_driver_with_a_claim_does_not_finish_an_intent_whose_abort_is_in_the_segment_behind_the_claim(
    bench: Bench,
) -> None:
    """A younger driver has its intent open when the elder one claims, and is fenced by a third."""
    younger = bench.receipts(run=SECOND)
    bench.before_next("claim ledger", lambda: _go_on(bench, younger))
    assert bench.commit(bench.receipts()).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [1, 1]


def _go_on(bench: Bench, younger: list[TaskReceipt]) -> None:
    stop_before(bench, END, younger, bench.session(SECOND))
    bench.before_next(READ, lambda: abort_in_the_next_segment(bench))


def test_a_committed_record_without_a_marker_is_believed_when_all_is_read(bench: Bench) -> None:
    """As the cleaner leaves it: the marker is gone, and the last stable offset is above the record."""
    bench.decide(bench.receipts())
    bench.settle()
    log = bench.broker.logs[LEDGER, 0]
    intent = next(offset for offset, entry in enumerate(log) if entry[0] >= 0 and entry[2] is not None)
    producer_id, epoch, _, is_commit = log[intent + 1]
    assert is_commit
    # The end of a later transaction of another epoch has taken its place.
    log[intent + 1] = (producer_id, epoch + 5, None, False)
    begin_segment(bench)
    assert bench.run(DriverOperation.RECOVER).conclusion is Conclusion.RECOVERED
    assert bench.seen() == [1, 1]
    assert bench.purposes().count(STOP) == 2, "once more after the last stable offset was told"


def test_offsets_that_no_answer_shows_are_told_as_that_and_not_as_a_broker_that_does_not_answer(bench: Bench) -> None:
    """Redpanda has batches of its own in the log, which clients do not get, and its end is above them."""
    bench.decide(bench.receipts())
    bench.settle()
    end = len(bench.broker.logs[LEDGER, 0])
    at_end = {"topics": [{"partitions": [{"partition_index": 0, "error_code": 0, "offset": end + 2}]}]}
    verdict = bench.run(DriverOperation.RECOVER, answers={STOP: [at_end]})
    assert isinstance(verdict.error, KafkaSinkError)
    assert f"its leader shows nothing from offset {end} on, and has told an end of {end + 2}" in str(verdict.error)
    assert "no answer" not in str(verdict.error)


def test_the_end_of_the_log_is_requested_again_until_it_is_told(bench: Bench) -> None:
    stop_before(bench, END, bench.receipts(), bench.session())
    bench.before_next(READ, lambda: abort_in_the_next_segment(bench))
    verdict = bench.run(DriverOperation.RECOVER, answers={STOP: [None, LOST, 6]})
    assert verdict.conclusion is Conclusion.NOTHING_TO_DO


def test_a_reader_that_has_seen_every_marker_asks_for_nothing_more(bench: Bench) -> None:
    bench.commit(bench.receipts())
    bench.settle()
    bench.asked.clear()
    assert bench.run(DriverOperation.RECOVER).conclusion is Conclusion.NOTHING_TO_DO
    assert bench.purposes() == [STOP, READ]
