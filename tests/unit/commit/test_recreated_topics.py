"""A topic that is deleted before the decision takes the rows of the batch with it, though every transaction is open.

`tests/chaos/test_recreated_topics.py` shows the same with Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kafka_sink.commit.commit_step import GONE_MS
from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.commit.session import Conclusion
from kafka_sink.errors import CommitAborted
from kafka_sink.kafka.client.ask import Ask
from tests.support.tiny_broker import LEDGER
from tests.unit.commit.driver_bench import TOPIC_GONE, UNSUPPORTED, Bench

WRITTEN, ANOTHER = b"1" * 16, b"2" * 16


def written_under_an_id(bench: Bench, batch: int = 0) -> Sequence[TaskReceipt]:
    bench.broker.topic_ids["t"] = WRITTEN
    return [replace(receipt, topic_ids={"t": WRITTEN}) for receipt in bench.receipts(batch)]


def test_a_topic_with_the_id_that_was_written_to_delays_nothing(bench: Bench) -> None:
    began_ms = bench.now_ms
    assert bench.commit(written_under_an_id(bench)).conclusion is Conclusion.DELIVERED
    assert bench.now_ms < began_ms + GONE_MS and bench.seen() == [1, 1]


@pytest.mark.parametrize(("now", "says"), [(None, "was deleted after"), (ANOTHER, "was deleted and created again")])
@pytest.mark.parametrize("is_first", [True, False], ids=["first batch of a run", "next batch"])
def test_a_batch_whose_topic_is_gone_is_not_decided_and_its_transactions_are_aborted(
    bench: Bench, now: bytes | None, says: str, is_first: bool
) -> None:
    session = bench.session()
    if not is_first:
        bench.commit(written_under_an_id(bench), session)
    receipts = written_under_an_id(bench, 0 if is_first else 1)
    bench.broker.topic_ids["t"] = now
    verdict = bench.commit(receipts, session)
    assert isinstance(verdict.error, CommitAborted) and f"topic t {says}" in str(verdict.error)
    assert bench.seen() == [1 - is_first] * 2
    assert {bench.state_of(receipt) for receipt in receipts} == {"CompleteAbort"}


@pytest.mark.parametrize("now", [None, ANOTHER], ids=["deleted", "created again"])
def test_brokers_that_describe_no_transactions_are_asked_for_the_topic_all_the_same(
    bench: Bench, now: bytes | None
) -> None:
    receipts = written_under_an_id(bench)
    bench.broker.topic_ids["t"] = now
    verdict = bench.commit(receipts, answers={"describe transactions": [UNSUPPORTED]})
    assert isinstance(verdict.error, CommitAborted) and "topic t was deleted" in str(verdict.error)
    assert bench.seen() == [0, 0]


@pytest.mark.parametrize("is_first", [True, False], ids=["first batch of a run", "next batch"])
def test_a_ledger_that_was_deleted_is_not_waited_for_until_the_transactions_time_out(
    bench: Bench, is_first: bool
) -> None:
    session = bench.session()
    if not is_first:
        bench.commit(bench.receipts(0), session)
    receipts = bench.receipts(0 if is_first else 1)
    bench.broker.topic_ids[LEDGER] = None
    began_ms = bench.now_ms
    verdict = bench.commit(receipts, session, answers={"claim ledger": [TOPIC_GONE] * 1_000})
    assert isinstance(verdict.error, CommitAborted) and "ledger topic ledger" in str(verdict.error)
    assert bench.now_ms < began_ms + 2 * GONE_MS and bench.seen() == [1 - is_first] * 2


def test_a_batch_is_refused_if_one_of_its_tasks_wrote_to_the_topic_before(bench: Bench) -> None:
    first, second = written_under_an_id(bench)
    bench.broker.topic_ids["t"] = ANOTHER
    verdict = bench.commit([first, replace(second, topic_ids={"t": ANOTHER})])
    assert isinstance(verdict.error, CommitAborted) and bench.seen() == [0, 0]


@pytest.mark.parametrize("told", [None, ANOTHER], ids=["no-topic", "another-topic"])
def test_a_broker_that_has_not_heard_of_the_topic_yet_only_delays_the_batch(bench: Bench, told: bytes | None) -> None:
    receipts = written_under_an_id(bench)
    bench.broker.topic_ids["t"] = told
    hears_at_ms = bench.now_ms + GONE_MS // 2

    def hear(_: Ask) -> None:
        if bench.now_ms >= hears_at_ms:
            bench.broker.topic_ids["t"] = WRITTEN

    bench.before = hear
    assert bench.commit(receipts).conclusion is Conclusion.DELIVERED
    assert bench.now_ms >= hears_at_ms and bench.seen() == [1, 1]


def test_brokers_without_topic_ids_are_not_asked_for_them(bench: Bench) -> None:
    receipts = written_under_an_id(bench)
    del bench.broker.topic_ids["t"]
    assert bench.commit(receipts).conclusion is Conclusion.DELIVERED
