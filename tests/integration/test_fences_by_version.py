"""What a fence leaves in the ledger of Apache Kafka 4.0.0, which raises the epoch twice, and of the newest release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from kafka_sink.commit.commit_step import Progress
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.end_txn import AbortTransactions, partitions_of
from kafka_sink.commit.log_scan import READ_UNCOMMITTED, RawBatch, fetch_body, raw_batches, read_fetch_answer
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import CommitResult, Conclusion
from kafka_sink.kafka.client.ask import Leader, Reply
from kafka_sink.kafka.wire.apis import FETCH
from tests.conftest import or_without_kafka
from tests.support.asking import client_of
from tests.support.commanding import Sink, rows
from tools.kafka_cluster import KafkaCluster


@dataclass
class DyingInDraft:
    """Its record is in the ledger, and its EndTxn is never sent."""

    committer: Committer

    def step(self, now_ms: int, answers: Sequence[Reply]) -> Progress[CommitResult]:
        progress = self.committer.step(now_ms, answers)
        if any(ask.purpose == "end ledger transaction" for ask in progress.asks):
            return Progress((), None, CommitResult(Conclusion.FAILED))
        return progress


def epochs(sink: Sink) -> list[tuple[str, int]]:
    """Of the ledger's records in transactions, and of their markers."""
    with client_of(sink.servers) as client:
        body = fetch_body(sink.ledger_topic, 0, 0, READ_UNCOMMITTED)
        answer = read_fetch_answer(
            client.ask(Leader(sink.ledger_topic, 0), FETCH, body, version_max=FETCH.last_by_name)
        )
    found = [raw for raw in raw_batches(answer.records) if raw.is_control or raw.is_transactional]
    return [(kind_of(raw), raw.producer_epoch) for raw in found]


def kind_of(raw: RawBatch) -> str:
    if not raw.is_control:
        return "record"
    return "abort" if raw.decode_marker().is_abort_marker else "commit"


def leave_a_draft_and_deliver(kafka: KafkaCluster, name: str, *, raises: int) -> None:
    sink = Sink(kafka.bootstrap_servers, name, name, f"{name}-ledger")
    sink.create()
    first, second = BatchKey("query-1", 0), BatchKey("query-1", 1)
    driver = sink.session(first)
    sink.deliver(first, driver)
    with client_of(sink.servers) as client:
        assert sink.settings(client).fence_raises_max == raises
        receipts = [sink.task(second, number) for number in range(2)]
        assert client.run(DyingInDraft(sink.committer(client, second, receipts, driver))).error is None
        for receipt in receipts:
            client.run_step(AbortTransactions(sink.settings(client), partitions_of([receipt])))
    _, draft = epochs(sink)[-1]
    replace(sink, run="f" * 16).deliver(second)
    assert ("abort", draft + raises) in epochs(sink)
    assert sink.visible() == sorted(rows(first, 0, 1) + rows(second, 0, 1))


def test_a_draft_that_the_next_driver_fenced_is_no_decision(kafka_4: KafkaCluster, topic_name: str) -> None:
    leave_a_draft_and_deliver(kafka_4, topic_name, raises=1)


@pytest.mark.slow
def test_nor_is_it_where_the_fence_raises_the_epoch_twice(topic_name: str) -> None:
    with or_without_kafka(KafkaCluster("4.0.0")) as kafka:
        leave_a_draft_and_deliver(kafka, topic_name, raises=2)
