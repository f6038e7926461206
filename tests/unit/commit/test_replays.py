"""A delivered batch runs again: Spark repeats the same rows, but a restored checkpoint may bring others."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kafka_sink.commit.ledger import OTHER_COUNTS, batch_at_hand, difference
from kafka_sink.commit.ledger_codec import decode_record, encode_record
from kafka_sink.commit.receipt import BatchKey, TaskReceipt, WrittenPartition, summarize_receipts
from kafka_sink.commit.session import Conclusion, OnMismatch
from kafka_sink.errors import CommitAborted
from tests.unit.commit.driver_bench import SECOND, Bench


def with_digest(receipts: Sequence[TaskReceipt], digest: int) -> list[TaskReceipt]:
    return [replace(receipt, digest=digest) for receipt in receipts]


def again(bench: Bench, batch: int | str = 0, *, tasks: int = 2, query: str = "query-1") -> list[TaskReceipt]:
    bench.settle()
    return bench.receipts(batch, run=SECOND, tasks=tasks, query=query)


def test_a_repeated_batch_with_the_same_rows_is_passed_over_without_a_word(bench: Bench) -> None:
    bench.commit(with_digest(bench.receipts(), 7))
    verdict = bench.commit(with_digest(again(bench), 7), bench.session(SECOND))
    assert verdict.conclusion is Conclusion.ALREADY_DELIVERED and not verdict.notes
    assert bench.seen() == [1, 1]


def test_rows_of_a_task_that_left_out_all_of_its_own_are_the_same_rows_again(bench: Bench) -> None:
    """record.errors=skip: the task has a digest of what came in, and no transaction."""
    idle = [TaskReceipt(BatchKey("query-1", 0), run, 2, 0, digest=5) for run in ("1" * 16, SECOND)]
    bench.commit([*bench.receipts(), idle[0]])
    verdict = bench.commit([*again(bench), idle[1]], bench.session(SECOND))
    assert verdict.conclusion is Conclusion.ALREADY_DELIVERED and not verdict.notes


def test_a_first_batch_that_left_out_every_row_is_the_same_batch_again(bench: Bench) -> None:
    idle = [TaskReceipt(BatchKey("query-1", 0), run, 0, 0, digest=5) for run in ("1" * 16, SECOND)]
    bench.commit(idle[:1])
    verdict = bench.commit(idle[1:], bench.session(SECOND))
    assert verdict.conclusion is Conclusion.ALREADY_DELIVERED and not verdict.notes


def test_a_repeated_batch_to_another_topic_is_refused(bench: Bench) -> None:
    bench.commit(bench.receipts())
    moved = [replace(receipt, written=tuple(replaced(one) for one in receipt.written)) for receipt in again(bench)]
    verdict = bench.commit(moved, bench.session(SECOND))
    assert isinstance(verdict.error, CommitAborted) and "2 rows to other" in str(verdict.error)


def replaced(written: WrittenPartition) -> WrittenPartition:
    return written._replace(topic="other")


def test_other_contents_in_the_same_counts_are_warned_about(bench: Bench) -> None:
    bench.commit(with_digest(bench.receipts(), 7))
    verdict = bench.commit(with_digest(again(bench), 8), bench.session(SECOND))
    assert verdict.conclusion is Conclusion.ALREADY_DELIVERED
    (note,) = verdict.notes
    assert "with other content" in note and "2 rows to t" in note


def test_two_writes_of_one_run_under_one_name_are_refused_though_they_have_as_many_rows(bench: Bench) -> None:
    """foreachBatch writes created orders and paid ones to one topic. Spark does not repeat a batch within a run."""
    bench.commit(with_digest(bench.receipts(), 7))
    bench.settle()
    verdict = bench.commit(with_digest(bench.receipts(), 8), bench.session())
    assert isinstance(verdict.error, CommitAborted) and "needs its own sink.id" in str(verdict.error)
    assert bench.seen() == [1, 1]


def test_a_second_writing_of_the_same_rows_in_one_run_is_passed_over(bench: Bench) -> None:
    bench.commit(with_digest(bench.receipts(), 7))
    bench.settle()
    verdict = bench.commit(with_digest(bench.receipts(), 7), bench.session())
    assert verdict.conclusion is Conclusion.ALREADY_DELIVERED and not verdict.notes
    assert bench.seen() == [1, 1]


@pytest.mark.parametrize(("choice", "notes"), [(OnMismatch.WARN, 1), (OnMismatch.SKIP, 0)])
def test_an_option_keeps_what_was_delivered_with_or_without_a_warning(
    bench: Bench, choice: OnMismatch, notes: int
) -> None:
    bench.settings = replace(bench.settings, on_mismatch=choice)
    bench.commit(bench.receipts())
    verdict = bench.commit(again(bench, tasks=1), bench.session(SECOND))
    assert verdict.conclusion is Conclusion.ALREADY_DELIVERED and len(verdict.notes) == notes
    assert bench.seen() == [1, 1]


def test_a_decision_of_an_older_release_has_counts_to_compare_and_no_digest(bench: Bench) -> None:
    bench.commit(bench.receipts())
    record = decode_record(encode_record(replace(bench.ledger()["sink"], digest=None)))
    assert record.digest is None
    same, fewer = with_digest(again(bench), 9), again(bench, tasks=1)
    assert difference(record, batch_at_hand("sink", record.key, SECOND, summarize_receipts(same))) is None
    assert difference(record, batch_at_hand("sink", record.key, SECOND, summarize_receipts(fewer))) == OTHER_COUNTS
