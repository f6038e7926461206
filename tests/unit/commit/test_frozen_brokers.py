"""A broker that was frozen while its tasks wrote to its successor wakes up, and answers the check as of before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.commit import preflight
from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.commit.session import Conclusion
from kafka_sink.errors import CommitAborted
from kafka_sink.kafka.client.ask import Ask
from tests.support.tiny_broker import TinyBroker
from tests.unit.commit.driver_bench import LOST, UNSUPPORTED, Bench

OPEN_PARTS, DESCRIBE, DECIDE = "describe producers", "describe transactions", "end ledger transaction"
UNAUTHORIZED = 29


def frozen_now(bench: Bench) -> Callable[[Ask], dict[str, Any]]:
    """Answers requests as of this moment."""
    before = TinyBroker(bench.broker.state(), bench.transaction_version)
    return before.answer


def second_batch(bench: Bench, attempt: int) -> tuple[Callable[[Ask], dict[str, Any]], list[TaskReceipt]]:
    """It is written behind the back of the broker that is asked first."""
    bench.commit(bench.receipts(0), bench.session())
    bench.settle()
    answer = frozen_now(bench)
    bench.asked.clear()
    return answer, bench.receipts(1, attempt=attempt)


def asked(bench: Bench, purpose: str) -> list[Ask]:
    return [ask for ask in bench.asked if ask.purpose == purpose]


@pytest.mark.parametrize("attempt", [0, 1], ids=["known id", "new id"])
@pytest.mark.parametrize("purpose", [OPEN_PARTS, DESCRIBE])
@pytest.mark.parametrize("count", [1, preflight.LOOKS_AGAIN])
def test_what_a_broker_tells_as_of_before_the_batch_does_not_refuse_it(
    bench: Bench, purpose: str, attempt: int, count: int
) -> None:
    answer, receipts = second_batch(bench, attempt)
    verdict = bench.commit(receipts, answers={purpose: [answer] * count})
    assert verdict.conclusion is Conclusion.DELIVERED and verdict.notes == () and bench.seen() == [2, 2]
    first, *again = asked(bench, purpose)
    assert not first.find_again and len(again) == count
    assert all(ask.find_again for ask in again), "each look goes to the broker that is looked up anew"


@pytest.mark.parametrize("purpose", [OPEN_PARTS, DESCRIBE])
def test_only_what_was_refused_is_asked_for_again(bench: Bench, purpose: str) -> None:
    first, second = bench.receipt(0, 0), None
    answer = frozen_now(bench)
    second = bench.receipt(0, 1)
    assert bench.commit([first, second], answers={purpose: [answer]}).conclusion is Conclusion.DELIVERED
    assert second.transaction is not None
    body = asked(bench, purpose)[1].body
    if purpose == DESCRIBE:
        assert body == {"transactional_ids": [second.transaction.transactional_id]}
    else:
        assert body == {"topics": [{"name": "t", "partition_indexes": [1]}]}


def test_a_transaction_that_somebody_has_ended_is_refused_after_a_second(bench: Bench) -> None:
    receipts, began_ms = bench.receipts(), bench.now_ms
    bench.time_out(receipts[0])
    bench.settle()
    verdict = bench.commit(receipts)
    assert isinstance(verdict.error, CommitAborted) and "is CompleteAbort instead of Ongoing" in str(verdict.error)
    assert 500 <= bench.now_ms - began_ms <= 2_000 and DECIDE not in bench.purposes()
    assert len(asked(bench, DESCRIBE)) == len(asked(bench, OPEN_PARTS)) == 1 + preflight.LOOKS_AGAIN


@pytest.mark.parametrize("purpose", [OPEN_PARTS, DESCRIBE])
def test_a_batch_whose_time_ends_meanwhile_names_what_was_told(bench: Bench, purpose: str) -> None:
    bench.settings = replace(bench.settings, margin_ms=500)
    answer, receipts = second_batch(bench, 1)
    receipts = [replace(one, timeout_ms=1_000, remaining_ms=1_000) for one in receipts]
    verdict = bench.commit(receipts, answers={purpose: [answer] + [LOST] * 100})
    told = "is not known to its coordinator" if purpose == DESCRIBE else "is not open in t-0"
    assert isinstance(verdict.error, CommitAborted) and told in str(verdict.error)


def test_a_leader_that_tells_of_too_few_rows_is_not_believed_about_what_is_open(bench: Bench) -> None:
    """It was frozen after the first row, whose transaction somebody has ended in this partition. The task wrote on, to
    its successor."""
    first, *others = bench.receipts()
    assert first.transaction is not None
    answer = frozen_now(bench)
    where, identity = ("t", 0), first.transaction.identity
    bench.broker.write_marker(where, *identity, commit=False)
    early, late = bench.write_also(first, where).written
    receipts = [replace(first, written=(early.merge(late),), row_count=2), *others]
    verdict = bench.commit(receipts, answers={OPEN_PARTS: [answer]})
    assert isinstance(verdict.error, CommitAborted) and "is open since offset" in str(verdict.error)
    assert bench.seen() == [0, 0]
    assert asked(bench, OPEN_PARTS)[1].body == {"topics": [{"name": "t", "partition_indexes": [0]}]}


@pytest.mark.parametrize("later", [UNSUPPORTED, UNAUTHORIZED], ids=["unsupported", "not allowed"])
def test_a_successor_that_tells_nothing_of_producers_leaves_it_to_the_coordinators(bench: Bench, later: object) -> None:
    answer, receipts = second_batch(bench, 1)
    verdict = bench.commit(receipts, answers={OPEN_PARTS: [answer, later]})
    assert verdict.conclusion is Conclusion.DELIVERED and "checked only with its coordinator" in verdict.notes[0]


def test_a_usual_commit_asks_once(bench: Bench) -> None:
    bench.commit(bench.receipts())
    assert len(asked(bench, OPEN_PARTS)) == len(asked(bench, DESCRIBE)) == 1
