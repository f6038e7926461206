"""A tool goes on copying the ledger of another cluster after the stream has begun here: older records come above newer.

The assumptions: it copies in transactions of its own, in the order of the other ledger; the cleaner has not run since.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_sink.commit.ledger import Kind, LedgerRecord
from kafka_sink.commit.ledger_codec import encode_record
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import Conclusion, DriverOperation
from kafka_sink.errors import CommitAborted
from tests.unit.commit.driver_bench import COMMIT, END, POISON, QUERY, SECOND, SINK, THIRD, Bench, put

HERE, THERE = "this-cluster", "the-old-cluster"
PASSED_OVER = "copied records are passed over"


@pytest.fixture
def begun(bench: Bench) -> Bench:
    """Batch 4 was copied, and batch 5 is delivered here."""
    bench.settings = replace(bench.settings, cluster_id=HERE)
    copy(bench, 4)
    assert bench.commit(bench.receipts(5)).conclusion is Conclusion.DELIVERED
    return bench


def copy(bench: Bench, batch: int, *, query: str = QUERY, cluster_id: str = THERE) -> None:
    record = LedgerRecord(
        Kind.DONE, SINK, BatchKey(query, batch), "a" * 16, row_count=2, topics={"t": 2}, cluster_id=cluster_id
    )
    put(bench, SINK, encode_record(record))


def repeat(bench: Bench, batch: int, run: str = SECOND) -> tuple[Conclusion, int]:
    """In a process that remembers nothing. How it ended, and how many notes there are about copies."""
    found = bench.commit(bench.receipts(batch, run=run), bench.session(run))
    return found.conclusion, sum(note.startswith(PASSED_OVER) for note in found.notes)


def test_a_copy_of_an_earlier_batch_does_not_hide_that_a_later_one_is_delivered(begun: Bench) -> None:
    copy(begun, 4)
    planned = begun.run(DriverOperation.RECOVER)
    (note,) = planned.notes
    assert f"above batch 5 of query {QUERY}" in note and f"of the Kafka cluster {THERE!r} of batch 4" in note
    assert repeat(begun, 5) == (Conclusion.ALREADY_DELIVERED, 1)
    assert begun.seen() == [1, 1]
    # As soon as the stream has written above the copy nobody is told of it.
    assert repeat(begun, 6) == (Conclusion.DELIVERED, 1)
    assert repeat(begun, 7, THIRD) == (Conclusion.DELIVERED, 0)


def test_a_copy_of_an_earlier_batch_does_not_hide_an_open_decision(begun: Bench) -> None:
    begun.decide(begun.receipts(6, run=SECOND), begun.session(SECOND))
    copy(begun, 4)
    begun.asked.clear()
    assert begun.run(DriverOperation.RECOVER).conclusion is not Conclusion.FAILED
    assert COMMIT in begun.purposes() and begun.seen() == [2, 2]


def test_a_copy_that_comes_before_the_marker_of_a_decision_does_not_hide_it(begun: Bench) -> None:
    """Its record is below the copy, and is known to be written after it."""
    begun.before_next(END, lambda: copy(begun, 4))
    begun.decide(begun.receipts(6, run=SECOND), begun.session(SECOND))
    assert begun.ledger()[SINK].key == BatchKey(QUERY, 6)


def test_a_copy_above_a_decision_whose_marker_was_lost_does_not_hide_it(begun: Bench) -> None:
    begun.decide(begun.receipts(6, run=SECOND), begun.session(SECOND))
    begun.lose_the_last_marker()
    copy(begun, 4)
    assert repeat(begun, 6, THIRD)[0] is Conclusion.ALREADY_DELIVERED
    assert begun.seen() == [2, 2]


def test_a_copy_of_the_same_batch_tells_what_became_of_it(begun: Bench) -> None:
    """A ledger that is copied back to where it came from: here batch 6 is open, and it was delivered there."""
    begun.decide(begun.receipts(6, run=SECOND), begun.session(SECOND))
    copy(begun, 6)
    begun.asked.clear()
    assert repeat(begun, 7, THIRD) == (Conclusion.DELIVERED, 0)


def test_a_ledger_that_is_copied_back_goes_on_where_the_other_cluster_has_ended(begun: Bench) -> None:
    """From its beginning, so that it begins below what is here."""
    for batch in range(3, 10):
        copy(begun, batch)
    assert repeat(begun, 9) == (Conclusion.ALREADY_DELIVERED, 0)
    assert repeat(begun, 10, THIRD) == (Conclusion.DELIVERED, 0)


def test_a_copy_of_a_later_batch_is_believed_and_the_checkpoint_is_found_to_be_older(begun: Bench) -> None:
    copy(begun, 8)
    refused = begun.commit(begun.receipts(6, run=SECOND), begun.session(SECOND))
    assert isinstance(refused.error, CommitAborted) and "rolled back to an older state" in str(refused.error)


def test_a_copy_above_a_deletion_is_the_only_record(begun: Bench) -> None:
    """An operator has set aside what was there."""
    put(begun, SINK, None)
    copy(begun, 2)
    assert repeat(begun, 3) == (Conclusion.DELIVERED, 0)


def test_a_deletion_above_a_copy_deletes_it(begun: Bench) -> None:
    copy(begun, 4)
    put(begun, SINK, None)
    assert not begun.ledger()


def test_what_cannot_be_read_below_a_copy_has_no_number(begun: Bench) -> None:
    put(begun, SINK, POISON)
    copy(begun, 4)
    assert begun.ledger()[SINK].key == BatchKey(QUERY, 4)


def test_batches_of_two_queries_are_not_compared(begun: Bench) -> None:
    """Release 0.1.0 kept all queries of a sink under one key."""
    copy(begun, 4, query="query-2")
    assert begun.ledger()[SINK].key == BatchKey("query-2", 4)
