"""Operators and other clients end transactions of a batch: while a task writes, before the decision, and after it.

The tiny broker follows what Apache Kafka did in `tests/chaos/test_operators.py`. `Aborts` are the ways to end one: by
the rules of either transaction version, and with a marker in one partition that the coordinator does not hear of.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any

import pytest

from kafka_sink.commit import open_parts
from kafka_sink.commit.preflight import LOOKS_AGAIN
from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion
from kafka_sink.errors import CommitAborted, CommitLost
from kafka_sink.kafka.client.ask import Ask
from tests.unit.commit.driver_bench import LOST, UNSUPPORTED, Bench

OPEN_PARTS, DESCRIBE, COMMIT, DECIDE = (
    "describe producers", "describe transactions", "commit transaction", "end ledger transaction",
)  # fmt: skip
NOT_LEADER, UNAUTHORIZED = 6, 29
OTHER = ("t", 2)


class Abort(Enum):
    BY_OWN_VERSION = "EndTxn as a client of this cluster sends it"
    BY_VERSION_1 = "EndTxn by the rules of version 1, which leave the epoch"
    MARKER = "the marker of an abort in one partition, without a word to the coordinator"


def abort(bench: Bench, receipt: TaskReceipt, how: Abort) -> None:
    transaction, place = receipt.transaction, receipt.written[0]
    assert transaction is not None
    name, (producer_id, epoch) = transaction.transactional_id, transaction[1:3]
    if how is Abort.MARKER:
        bench.broker.write_marker((place.topic, place.partition), producer_id, epoch, commit=False)
    else:
        is_first = how is Abort.BY_VERSION_1 or bench.transaction_version == 1
        assert bench.broker.end(name, producer_id, epoch, commit=False, is_first=is_first) == 0
        bench.settle()


def ended_in_the_middle(bench: Bench, how: Abort, *more: tuple[str, int]) -> list[TaskReceipt]:
    """The first task goes on after somebody has ended its transaction: to another partition, or to the same one."""
    first, *others = bench.receipts()
    abort(bench, first, how)
    return [bench.write_also(first, *more), *others]


def refused(bench: Bench, verdict: CommitResult) -> str:
    """Nothing of the batch is visible, and Spark runs it again."""
    assert isinstance(verdict.error, CommitAborted)
    assert COMMIT not in bench.purposes() and bench.ledger() == {} and bench.seen() == [0, 0]
    assert "sink-1111111111111111-0-0" in str(verdict.error) and "another tool" in str(verdict.error)
    return str(verdict.error)


def test_a_transaction_that_was_aborted_while_its_task_wrote_is_not_decided(bench: Bench) -> None:
    receipts = ended_in_the_middle(bench, Abort.BY_VERSION_1, OTHER)
    assert "does not hold t-0 any more" in refused(bench, bench.commit(receipts))


def test_so_it_is_where_leaders_tell_nothing(bench: Bench) -> None:
    receipts = ended_in_the_middle(bench, Abort.BY_VERSION_1, OTHER)
    refused(bench, bench.commit(receipts, answers={OPEN_PARTS: [UNSUPPORTED]}))


def test_a_partition_that_was_added_again_after_an_abort_does_not_hold_the_rows_from_before(bench: Bench) -> None:
    """A late copy of the task's own request added it again, and nothing was written."""
    receipts = ended_in_the_middle(bench, Abort.BY_VERSION_1, OTHER)
    assert receipts[0].transaction is not None
    bench.broker.add_partitions(receipts[0].transaction.transactional_id, [("t", 0)])
    assert "is not open in t-0, where its rows begin at offset 0" in refused(bench, bench.commit(receipts))


def test_rows_that_follow_an_abort_in_the_same_partition_do_not_hide_it(bench: Bench) -> None:
    first, *others = ended_in_the_middle(bench, Abort.BY_VERSION_1, ("t", 0))
    before, after = first.written
    receipts = [replace(first, written=(before.merge(after),)), *others]
    assert "is open since offset 2 only in t-0" in refused(bench, bench.commit(receipts))


@pytest.mark.parametrize("more", [(), (OTHER,)], ids=["prepared", "writing"])
def test_a_marker_that_the_coordinator_does_not_know_of_is_seen(
    bench: Bench, more: tuple[tuple[str, int], ...]
) -> None:
    receipts = ended_in_the_middle(bench, Abort.MARKER, *more)
    assert "is not open in t-0" in refused(bench, bench.commit(receipts))


def test_an_unknown_offset_leaves_the_question_whether_anything_is_open(bench: Bench) -> None:
    """A broker may acknowledge a repeated request without its offset."""
    first, *others = bench.receipts()
    known, also = bench.write_also(first, OTHER).written
    unknown = replace(first, written=(known._replace(first_offset=-1), also))
    assert bench.commit([unknown, *others]).conclusion is Conclusion.DELIVERED


def test_an_unknown_offset_in_a_closed_part_is_refused(bench: Bench) -> None:
    first, *others = ended_in_the_middle(bench, Abort.MARKER, OTHER)
    written = (first.written[0]._replace(first_offset=-1), first.written[1])
    refused(bench, bench.commit([replace(first, written=written), *others]))


@pytest.mark.parametrize(
    ("told", "words"),
    [(UNSUPPORTED, "do not speak DescribeProducers"), (UNAUTHORIZED, "needs Read on this topic")],
    ids=["unsupported", "not allowed"],
)
def test_where_leaders_tell_nothing_that_is_said_and_the_batch_goes_on(bench: Bench, told: object, words: str) -> None:
    verdict = bench.commit(bench.receipts(), answers={OPEN_PARTS: [told]})
    assert verdict.conclusion is Conclusion.DELIVERED
    (note,) = verdict.notes
    assert words in note and "kafka-transactions.sh" in note


@pytest.mark.parametrize("told", [LOST, NOT_LEADER], ids=["lost", "not leader"])
def test_leaders_are_asked_until_they_answer(bench: Bench, told: object) -> None:
    receipts = ended_in_the_middle(bench, Abort.MARKER)
    refused(bench, bench.commit(receipts, answers={OPEN_PARTS: [told, told]}))
    assert bench.purposes().count(OPEN_PARTS) == 3 + LOOKS_AGAIN


def test_leaders_are_asked_in_parallel_with_coordinators(bench: Bench) -> None:
    bench.commit(bench.receipts())
    order = bench.purposes()
    assert order.index(OPEN_PARTS) == order.index(DESCRIBE) + 1 and order.count(OPEN_PARTS) == 1


def test_leaders_that_tell_of_too_many_producers_are_left_alone_for_ten_minutes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their answers would take longer than the rest of each commit; meanwhile the coordinator's list is compared."""
    monkeypatch.setattr(open_parts, "PRODUCERS_MAX", 1)
    session = bench.session()
    assert bench.commit(bench.receipts(0), session).notes == ()
    (note,) = bench.commit(bench.receipts(1, attempt=1), session).notes
    assert "producers" in note and bench.purposes().count(OPEN_PARTS) == 1
    bench.now_ms += 600_000
    bench.commit(bench.receipts(2, attempt=2), session)
    assert bench.purposes().count(OPEN_PARTS) == 2


def add_producers_of_earlier_batches(bench: Bench, count: int) -> None:
    """As leaders remember them for a day, in each partition."""
    tell = bench.broker._on_DescribeProducers

    def tell_of_all(body: Any, request: Ask) -> dict[str, Any]:
        told = tell(body, request)
        for partition in told["topics"][0]["partitions"]:
            earlier = [{"producer_id": 10**6 + one, "current_txn_start_offset": -1} for one in range(count)]
            partition["active_producers"] += earlier
        return told

    bench.broker._on_DescribeProducers = tell_of_all  # type: ignore[method-assign]


def asked_partitions(bench: Bench) -> list[list[int]]:
    return [ask.body["topics"][0]["partition_indexes"] for ask in bench.asked if ask.purpose == OPEN_PARTS]


def test_a_batch_with_more_producers_than_leaders_may_be_asked_about_asks_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand tasks that write to a hundred partitions each are a million, in one answer per leader."""
    monkeypatch.setattr(open_parts, "PRODUCERS_ASKED_MAX", 2)
    verdict = bench.commit(bench.receipts(tasks=3))
    assert verdict.conclusion is Conclusion.DELIVERED and OPEN_PARTS not in bench.purposes()
    assert "would tell of more than" in verdict.notes[0]


def test_one_partition_tells_if_earlier_batches_had_too_many_producers_to_ask_about_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_parts, "SAMPLED_FROM", 1)
    monkeypatch.setattr(open_parts, "PRODUCERS_ASKED_MAX", 100)
    add_producers_of_earlier_batches(bench, 60)
    session = bench.session()
    verdict = bench.commit(bench.receipts(tasks=3), session)
    assert verdict.conclusion is Conclusion.DELIVERED and asked_partitions(bench) == [[0]]
    assert "would tell of more than" in verdict.notes[0]
    bench.commit(bench.receipts(1, tasks=3, attempt=1), session)
    assert asked_partitions(bench) == [[0]]
    bench.now_ms += 600_000
    bench.commit(bench.receipts(2, tasks=3, attempt=2), session)
    assert asked_partitions(bench) == [[0], [0]]


def test_if_there_are_few_the_others_are_asked_about_and_the_next_batch_asks_about_all_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_parts, "SAMPLED_FROM", 1)
    add_producers_of_earlier_batches(bench, 60)
    session = bench.session()
    assert bench.commit(bench.receipts(tasks=3), session).notes == ()
    assert asked_partitions(bench) == [[0], [1, 2]]
    bench.commit(bench.receipts(1, tasks=3, attempt=1), session)
    assert asked_partitions(bench) == [[0], [1, 2], [0, 1, 2]]


@pytest.mark.parametrize("task", [0, 1])
def test_an_abort_is_seen_in_the_first_partition_and_in_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, task: int
) -> None:
    monkeypatch.setattr(open_parts, "SAMPLED_FROM", 1)
    receipts = bench.receipts()
    abort(bench, receipts[task], Abort.MARKER)
    error = bench.commit(receipts).error
    assert isinstance(error, CommitAborted) and f"is not open in t-{task}" in str(error)
    assert COMMIT not in bench.purposes()


@pytest.mark.parametrize("how", [Abort.BY_OWN_VERSION, Abort.BY_VERSION_1])
def test_an_abort_of_a_prepared_transaction_before_the_check_aborts_the_batch(bench: Bench, how: Abort) -> None:
    receipts = bench.receipts()
    abort(bench, receipts[0], how)
    assert "is CompleteAbort instead of Ongoing" in refused(bench, bench.commit(receipts))


@pytest.mark.parametrize("how", [Abort.BY_OWN_VERSION, Abort.BY_VERSION_1])
@pytest.mark.parametrize("purpose", [DECIDE, COMMIT], ids=["before the decision", "after the decision"])
def test_an_abort_between_check_and_end_is_a_loss_that_names_its_task(bench: Bench, purpose: str, how: Abort) -> None:
    receipts = bench.receipts()
    bench.before_next(purpose, lambda: abort(bench, receipts[0], how))
    verdict = bench.commit(receipts)
    assert isinstance(verdict.error, CommitLost) and "Spark partition 0 (1 rows" in str(verdict.error)
    assert bench.seen() == [0, 1]
