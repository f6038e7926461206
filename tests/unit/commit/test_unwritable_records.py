"""A record that could not be read back is refused before the decision: nothing is visible, and the error gives advice.

The assumption under test: a person, a query or a broker can cause any record, with any labels, topics and offsets.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_sink.commit import ledger_codec, ledger_write
from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.receipt import BatchKey, TaskReceipt, WrittenPartition
from kafka_sink.commit.session import Conclusion, DriverOperation
from kafka_sink.errors import CommitAborted, CommitLost
from kafka_sink.kafka.wire.codes import MESSAGE_TOO_LARGE
from tests.unit.commit.driver_bench import WRITE, Bench

LABEL = "x" * 1_001
# In place of the real limit, of which test_ledger.py is: a batch with more than ten thousand topics takes seconds.
TOPICS_MAX = 20


def labelled(bench: Bench) -> list[TaskReceipt]:
    return bench.receipts(LABEL, query="")


def many_topics(bench: Bench) -> list[TaskReceipt]:
    first, *others = bench.receipts()
    return [bench.write_also(first, *((f"u{number}", 0) for number in range(TOPICS_MAX))), *others]


def unknown_offset(bench: Bench) -> list[TaskReceipt]:
    first, *others = bench.receipts()
    return [replace(first, written=(WrittenPartition("t", 0, 1, -1, -1),)), *others]


@pytest.mark.parametrize(
    ("made", "field", "advice"),
    [
        (labelled, "'batch'", "Choose a shorter batch.id"),
        (many_topics, "topics", "fewer topics"),
        (unknown_offset, "'last_offset'", "the next run of the batch"),
    ],
)
def test_a_batch_whose_decision_could_not_be_read_is_aborted_before_it_is_decided(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, made: object, field: str, advice: str
) -> None:
    assert callable(made)
    monkeypatch.setattr(ledger_codec, "TOPICS_MAX", TOPICS_MAX)
    receipts = made(bench)
    session = bench.session(key=receipts[0].key)
    verdict = bench.commit(receipts, session)
    assert isinstance(verdict.error, CommitAborted) and "Nothing of it is visible" in str(verdict.error)
    assert field in str(verdict.error) and advice in str(verdict.error)
    assert "write ledger record" not in bench.purposes() and bench.ledger() == {}
    assert {bench.state_of(receipt) for receipt in receipts} == {"CompleteAbort"}
    # The sink is unchanged: the session delivers the next batch of a stream.
    assert bench.commit(bench.receipts(attempt=1), None if session.code else session).conclusion is Conclusion.DELIVERED


def test_a_later_batch_of_a_run_is_refused_in_the_same_way(bench: Bench) -> None:
    session = bench.session()
    assert bench.commit(bench.receipts(), session).conclusion is Conclusion.DELIVERED
    first, second = bench.receipts(1)
    verdict = bench.commit([replace(first, written=(WrittenPartition("t", 0, 1, -1, -1),)), second], session)
    assert isinstance(verdict.error, CommitAborted) and "'last_offset'" in str(verdict.error)
    bench.settle()
    assert {bench.state_of(receipt) for receipt in (first, second)} == {"CompleteAbort"}
    assert bench.commit(bench.receipts(1, attempt=1), session).conclusion is Conclusion.DELIVERED


def test_one_partition_with_a_known_offset_is_witness_enough(bench: Bench) -> None:
    first, *others = bench.receipts()
    known, written = bench.write_also(first, ("s", 0)).written
    unknown = written._replace(first_offset=-1, last_offset=-1)
    assert bench.commit([replace(first, written=(unknown, known)), *others]).conclusion is Conclusion.DELIVERED


def test_a_first_batch_without_rows_that_could_not_be_read_is_refused_as_well(bench: Bench) -> None:
    empty = TaskReceipt(BatchKey("q" * 1_001, 0), "1" * 16, 0, 0)
    verdict = bench.commit([empty])
    assert isinstance(verdict.error, CommitAborted) and "'query'" in str(verdict.error)
    assert bench.ledger() == {}


def test_a_label_beyond_the_number_that_is_read_is_refused_and_the_known_ones_stay_usable(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_write, "KEYS_MAX", 2)
    for label in ("a", "b"):
        assert bench.commit(bench.receipts(label, query="")).conclusion is Conclusion.DELIVERED
    verdict = bench.commit(bench.receipts("c", query=""))
    assert isinstance(verdict.error, CommitAborted) and "Choose another sink.id" in str(verdict.error)
    assert bench.commit(bench.receipts("a", query="", attempt=1)).conclusion is Conclusion.ALREADY_DELIVERED


@pytest.mark.parametrize("transaction_version", [1, 2])
def test_a_loss_whose_record_the_ledger_refuses_says_so_beside_the_loss(transaction_version: int) -> None:
    """It is larger than the intent was: it has the fates of the transactions as well."""
    bench = Bench(transaction_version=transaction_version)
    receipts = bench.receipts()
    bench.times_out_before_its_commit(receipts[0])
    refused = bench.commit(receipts, answers={WRITE: [None, MESSAGE_TOO_LARGE]})
    assert isinstance(refused.error, CommitLost)
    text = str(refused.error)
    assert "MESSAGE_TOO_LARGE" in text and "max.message.bytes" in text and "nothing to choose" in text
    assert isinstance(bench.run(DriverOperation.FINISH).error, CommitLost)
    assert bench.ledger()["sink"].kind is Kind.STUCK
