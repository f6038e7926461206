"""One export, run twice in a cluster: for testing and in earnest, with one sink.id and one batch.id, and a ledger each.

Neither sees what the other has decided. Embedded broker and Apache Kafka.
"""

from __future__ import annotations

from dataclasses import replace

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import Conclusion
from tests.support.asking import client_of
from tests.support.commanding import Sink, rows

LABEL = BatchKey("", "2026-11-27")


def of_ledger(sink: Sink, name: str) -> Sink:
    made = replace(sink, topic=f"{sink.topic}-{name}", ledger_topic=f"{sink.ledger_topic}-{name}")
    made.create()
    return made


def started(sink: Sink, unique: str) -> Sink:
    return replace(sink, run=sink.run_of(str(LABEL.batch_id), unique))


def check_independent(sink: Sink) -> None:
    production, staging = of_ledger(sink, "production"), of_ledger(sink, "staging")
    started(production, "first").decide_and_die(LABEL)
    started(staging, "first").deliver(LABEL)
    again = started(production, "second")
    with client_of(again.servers) as client:
        receipts = [again.task(LABEL, number) for number in range(2)]
        result = client.run(again.committer(client, LABEL, receipts))
    assert result.error is None and result.conclusion is Conclusion.ALREADY_DELIVERED
    assert production.visible() == staging.visible() == rows(LABEL, 0, 1)


def check_at_the_same_time(sink: Sink) -> None:
    production, staging = (started(of_ledger(sink, name), "first") for name in ("production", "staging"))
    with client_of(sink.servers) as client:
        receipts = [production.task(LABEL, number) for number in range(2)]
        staging.deliver(LABEL)
        result = client.run(production.committer(client, LABEL, receipts))
    assert result.error is None and result.conclusion is Conclusion.DELIVERED
    assert production.visible() == staging.visible() == rows(LABEL, 0, 1)


def test_an_export_with_another_ledger_leaves_what_was_decided_in_the_first_one_alone(sink: Sink) -> None:
    check_independent(sink)


def test_an_export_with_another_ledger_leaves_decisions_alone_on_apache_kafka(sink_on_kafka: Sink) -> None:
    check_independent(sink_on_kafka)


def test_an_export_with_another_ledger_leaves_a_write_that_is_under_way_alone(sink: Sink) -> None:
    check_at_the_same_time(sink)


def test_an_export_with_another_ledger_leaves_a_write_alone_on_apache_kafka(sink_on_kafka: Sink) -> None:
    check_at_the_same_time(sink_on_kafka)
