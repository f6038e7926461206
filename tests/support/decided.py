"""Decisions whose driver is dead, on any brokers, and the next one, which comes when their topics are gone."""

from __future__ import annotations

from dataclasses import replace

from kafka_sink import Producer
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.manifest import Manifest
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import CommitResult, DriverOperation, Job
from tests.support.asking import client_of
from tests.support.commanding import Dying, Sink

KEY = BatchKey("query-1", 0)


def decide(sink: Sink, manifests: str) -> None:
    """One of its two tasks has written to each partition. The manifest is to go to the second one of its topic."""
    receipts = [sink.task(KEY, number) for number in range(2)]
    job = Job(DriverOperation.COMMIT, KEY, receipts, manifest=Manifest(manifests, 1, sink.sink_id))
    with client_of(sink.servers) as client:
        committer = Committer(sink.settings(client), sink.session(KEY), job, client.now_ms())
        assert client.run(Dying(committer)).error is None


def time_out(sink: Sink) -> None:
    """Ends the transactions of its tasks as their time-outs do."""
    for number in range(2):
        with Producer(sink.task_options(number)) as producer:
            producer.init_transactions()


def run_as(sink: Sink, operation: DriverOperation) -> CommitResult:
    """The next driver. It has less patience, so that the test ends."""
    with client_of(sink.servers) as client:
        settings = replace(sink.settings(client), short_log_ms=1_000, patience_ms=60_000)
        return client.run(Committer(settings, sink.session(KEY), Job(operation, KEY), client.now_ms()))
