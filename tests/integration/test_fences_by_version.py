"""What a fence leaves in the ledger of Apache Kafka 4.0.0, which raises the epoch twice, and of the newest release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.commit_step import Progress
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.end_txn import AbortTransactions, partitions_of
from kafka_sink.commit.log_scan import READ_UNCOMMITTED, RawBatch, fetch_body, raw_batches, read_fetch_answer
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import CommitResult, Conclusion
from kafka_sink.kafka.client.ask import Leader, Reply
from kafka_sink.kafka.wire.apis import DESCRIBE_PRODUCERS, FETCH
from kafka_sink.kafka.wire.codes import INVALID_PRODUCER_EPOCH
from tests.conftest import or_without_kafka
from tests.support.asking import client_of
from tests.support.commanding import Sink, rows
from tests.support.markers import FIRST, write_marker
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


def state_of_driver(client: Client, sink: Sink, producer_id: int) -> Mapping[str, Any]:
    """As the leader of the ledger tells it."""
    body = {"topics": [{"name": sink.ledger_topic, "partition_indexes": [0]}]}
    (told,) = client.ask(Leader(sink.ledger_topic, 0), DESCRIBE_PRODUCERS, body)["topics"][0]["partitions"]
    return next(one for one in told["active_producers"] if one["producer_id"] == producer_id)


@pytest.mark.slow
def test_before_kafka_4_2_a_second_copy_of_the_last_marker_does_not_end_a_draft(topic_name: str) -> None:
    first, second = BatchKey("query-1", 0), BatchKey("query-1", 1)
    with or_without_kafka(KafkaCluster("4.0.0")) as kafka:
        sink = Sink(kafka.bootstrap_servers, topic_name, topic_name, f"{topic_name}-ledger")
        sink.create()
        driver = sink.session(first)
        sink.deliver(first, driver)
        identity = driver.identity
        assert identity is not None
        with client_of(sink.servers) as client:
            receipts = [sink.task(second, number) for number in range(2)]
            assert client.run(DyingInDraft(sink.committer(client, second, receipts, driver))).error is None
            known = state_of_driver(client, sink, identity.producer_id)
            assert known["current_txn_start_offset"] >= 0 and known["producer_epoch"] == identity.producer_epoch + 1
            address = kafka.address_of(kafka.leader_of(sink.ledger_topic, 0))
            code = write_marker(
                address, sink.ledger_topic, 0, identity, commit=True, coordinator_epoch=known["coordinator_epoch"],
                version=FIRST,
            )  # fmt: skip
            assert code == INVALID_PRODUCER_EPOCH
            assert state_of_driver(client, sink, identity.producer_id)["current_txn_start_offset"] >= 0
        replace(sink, run="f" * 16).deliver(second)
        assert sink.visible() == sorted(rows(first, 0, 1) + rows(second, 0, 1))


def test_a_draft_that_the_next_driver_fenced_is_no_decision(kafka_4: KafkaCluster, topic_name: str) -> None:
    leave_a_draft_and_deliver(kafka_4, topic_name, raises=1)


@pytest.mark.slow
def test_nor_is_it_where_the_fence_raises_the_epoch_twice(topic_name: str) -> None:
    with or_without_kafka(KafkaCluster("4.0.0")) as kafka:
        leave_a_draft_and_deliver(kafka, topic_name, raises=2)
