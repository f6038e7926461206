"""Brokers before 3.6, which accept a record for a transaction that has ended, and brokers with a short time limit.

First the assumption itself, with bare requests: what a late Produce does on brokers of three releases. Then the sink's
behaviour: it asks the brokers whether they verify, and sweeps only if they do.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kafka_sink import TransactionReceipt
from kafka_sink.commit.admin.client import VERIFICATION, Client
from kafka_sink.commit.admin.support import TransactionSupport
from kafka_sink.commit.log_scan import read_offset_answer
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import Conclusion
from kafka_sink.commit.sweep import NOT_VERIFIED
from kafka_sink.formats.records.batch import NO_TIMESTAMP, seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, encode_batch
from kafka_sink.kafka.client.ask import Coordinator, Leader
from kafka_sink.kafka.wire.apis import DESCRIBE_TRANSACTIONS, END_TXN, LIST_OFFSETS, PRODUCE, RESOURCE_BROKER
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark.driver import Driver
from kafka_sink.testing import EmbeddedBroker
from kafka_sink.testing.api import topics
from kafka_sink.testing.api.parts import Answer
from kafka_sink.testing.call import Call
from tests.conftest import ONLY, or_without_kafka
from tests.support.asking import client_of, end_body, end_versions, prepared
from tests.support.commanding import Shell, Sink, rows
from tools.java import release as release_of
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

# `make compat` chooses one of them.
OLD = ONLY if ONLY is not None and ONLY.startswith(("3.4.", "3.5.")) else "3.5.2"
# The sink asks for a minute for the driver's transactions.
ALLOWED_MS = 20_000
BATCH, NEXT = BatchKey("query-1", 0), BatchKey("query-1", 1)
COMMITTED, UNCOMMITTED = 1, 0
INVALID_TXN_STATE = 48


@pytest.fixture(scope="module")
def old_kafka() -> Iterator[KafkaCluster]:
    with or_without_kafka(KafkaCluster(OLD, 1, {"transaction.max.timeout.ms": ALLOWED_MS})) as cluster:
        yield cluster


def described_state(client: Client, transactional_id: str) -> str:
    body = {"transactional_ids": [transactional_id]}
    answer = client.ask(Coordinator(transactional_id), DESCRIBE_TRANSACTIONS, body)
    return str(answer["transaction_states"][0]["transaction_state"])


def offset_of_end(client: Client, topic: str, isolation_level: int) -> int:
    asked = [{"partition_index": 0, "timestamp": -1}]
    body = {"replica_id": -1, "isolation_level": isolation_level, "topics": [{"name": topic, "partitions": asked}]}
    error_code, offset = read_offset_answer(client.ask(Leader(topic, 0), LIST_OFFSETS, body, version_min=2))
    assert error_code == 0
    return offset


def aborted_by_the_old_rules(client: Client, receipt: TransactionReceipt) -> None:
    coordinator = Coordinator(receipt.transactional_id)
    answer = client.ask(coordinator, END_TXN, end_body(receipt, commit=False), **end_versions(receipt))
    assert answer["error_code"] == 0
    wait_until(lambda: described_state(client, receipt.transactional_id) == "CompleteAbort", "it is aborted")


def late_produce(client: Client, receipt: TransactionReceipt, topic: str) -> int:
    """Sends the task's next batch as if it had been in transit since before the abort; returns the error code."""
    batch = encode_batch([Record(NO_TIMESTAMP, None, b"late")], make_compressor("none"))
    header = seal(
        batch, producer_id=receipt.producer_id, producer_epoch=receipt.producer_epoch, base_sequence=1,
        is_transactional=True,
    )  # fmt: skip
    data = [{"name": topic, "partition_data": [{"index": 0, "records": header + batch.payload}]}]
    body = {"transactional_id": receipt.transactional_id, "acks": -1, "timeout_ms": 20_000, "topic_data": data}
    answer = client.ask(Leader(topic, 0), PRODUCE, body, version_max=9)
    return int(answer["responses"][0]["partition_responses"][0]["error_code"])


# ---- the assumption --------------------------------------------------------------------------------------------


def test_before_3_6_a_late_record_opens_a_transaction_that_nobody_knows(
    old_kafka: KafkaCluster, topic_name: str
) -> None:
    """This is why there is no sweep on these brokers; if it fails, the sweep may be allowed."""
    topic = old_kafka.create_topic(topic_name)
    with client_of(old_kafka.bootstrap_servers) as client:
        receipt = prepared(old_kafka.bootstrap_servers, topic_name, topic, b"row", timeout_ms=ALLOWED_MS)
        aborted_by_the_old_rules(client, receipt)
        assert late_produce(client, receipt, topic) == 0
        assert described_state(client, receipt.transactional_id) == "CompleteAbort", "the coordinator knows of nothing"
        assert offset_of_end(client, topic, COMMITTED) < offset_of_end(client, topic, UNCOMMITTED)


def test_from_3_6_on_a_late_record_is_refused(kafka_3: KafkaCluster, topic_name: str) -> None:
    if not kafka_3.verifies:
        pytest.skip(f"Apache Kafka {kafka_3.version} takes it")
    topic = kafka_3.create_topic(topic_name)
    with client_of(kafka_3.bootstrap_servers) as client:
        receipt = prepared(kafka_3.bootstrap_servers, topic_name, topic, b"row")
        assert receipt.transaction_version == 1
        aborted_by_the_old_rules(client, receipt)
        assert late_produce(client, receipt, topic) == INVALID_TXN_STATE
        assert offset_of_end(client, topic, COMMITTED) == offset_of_end(client, topic, UNCOMMITTED)


# ---- the sink's behaviour --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "properties", "told"),
    [
        ("4.3", {}, TransactionSupport(2, True)),
        ("3.9", {}, TransactionSupport(1, True, epoch_of_end_is_safe=False)),
        ("4.3", {"transaction.version": "0"}, TransactionSupport(1, True, epoch_of_end_is_safe=False)),
        ("3.9", {VERIFICATION: "false"}, TransactionSupport(1, False, epoch_of_end_is_safe=False)),
    ],
)
def test_the_brokers_are_asked_whether_they_verify(
    release: str, properties: dict[str, str], told: TransactionSupport
) -> None:
    with (
        EmbeddedBroker(brokers=3, release=release, properties=properties) as broker,
        client_of(broker.bootstrap_servers) as client,
    ):
        assert client.transaction_support() == told
        broker.stop_broker(2)
        assert client.transaction_support() == told, "a broker that is away has no say"


def test_one_broker_that_does_not_verify_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting is one of each broker: a change of it reaches one after the other."""
    configs, others = topics._configs, set[int]()

    def changed(call: Call, kind: int, name: str) -> list[Answer]:
        is_other = kind == RESOURCE_BROKER and call.broker_id in others
        return [
            {**one, "value": "false"} if is_other and one["name"] == VERIFICATION else one
            for one in configs(call, kind, name)
        ]

    monkeypatch.setattr(topics, "_configs", changed)
    with EmbeddedBroker(brokers=3, release="3.9") as broker, client_of(broker.bootstrap_servers) as client:
        assert client.transaction_support().verifies
        for number in (1, 2, 3):
            others |= {number}
            assert not client.transaction_support().verifies
            others -= {number}


def test_apache_kafka_says_whether_it_verifies(old_kafka: KafkaCluster, kafka: KafkaCluster) -> None:
    with client_of(old_kafka.bootstrap_servers) as old, client_of(kafka.bootstrap_servers) as new:
        assert old.transaction_support() == TransactionSupport(1, False, epoch_of_end_is_safe=False)
        version = 2 if kafka.version.startswith("4.") else 1
        goes_on = release_of(kafka.version) >= (4, 2)
        assert new.transaction_support() == TransactionSupport(version, kafka.verifies, epoch_of_end_is_safe=goes_on)


def sink_of(kafka: KafkaCluster, topic_name: str) -> Sink:
    name = topic_name[-60:].lstrip("-")
    sink = Sink(kafka.bootstrap_servers, topic_name, name, f"ledger-{name}", timeout_ms=ALLOWED_MS)
    sink.create()
    return sink


def test_before_3_6_a_batch_is_delivered_and_what_a_killed_task_left_ends_by_its_time_out(
    old_kafka: KafkaCluster, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sink, shell = sink_of(old_kafka, topic_name), Shell(capsys)
    killed = f"{sink.sink_id}-{sink.run}-7-0"
    sink.task(BATCH, 7)
    receipts = [sink.task(BATCH, number) for number in range(2)]
    with client_of(sink.servers) as client:
        verdict = client.run(sink.committer(client, BATCH, receipts))
        assert verdict.conclusion is Conclusion.DELIVERED and verdict.notes == (NOT_VERIFIED,)
        assert described_state(client, killed) == "Ongoing"
        told = shell.about(sink, "transactions", "--abort", "--yes", "--json")
        assert told.exit_code == 4 and told.content["left_open"] == [killed]
        assert told.content["notes"] == [NOT_VERIFIED]
        wait_until(lambda: described_state(client, killed) == "CompleteAbort", "its time is over")
    assert sink.visible() == sorted(rows(BATCH, 0, 1))


def test_brokers_that_allow_less_than_a_minute_are_asked_for_less(old_kafka: KafkaCluster, topic_name: str) -> None:
    check_short_time_outs(sink_of(old_kafka, topic_name))


def test_embedded_brokers_that_allow_less_than_a_minute_are_asked_for_less() -> None:
    with EmbeddedBroker(properties={"transaction.max.timeout.ms": str(ALLOWED_MS)}) as broker:
        sink = Sink(broker.bootstrap_servers, "t", "orders", "ledger", timeout_ms=ALLOWED_MS)
        sink.create()
        check_short_time_outs(sink)


def check_short_time_outs(sink: Sink) -> None:
    with client_of(sink.servers) as client:
        for batch in (BATCH, NEXT):
            receipts = [sink.task(batch, number) for number in range(2)]
            assert client.run(sink.committer(client, batch, receipts)).conclusion is Conclusion.DELIVERED
    assert sink.visible() == sorted(rows(BATCH, 0, 1) + rows(NEXT, 0, 1))


def test_a_process_says_once_that_nothing_is_swept(caplog: pytest.LogCaptureFixture) -> None:
    properties = {"transaction.partition.verification.enable": "false"}
    with EmbeddedBroker(release="3.9", properties=properties) as broker:
        sink = Sink(broker.bootstrap_servers, "t", "orders", "ledger")
        sink.create()
        options = parse_sink_options(
            {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t", "ledger.topic": sink.ledger_topic}
        )
        driver = Driver(options, sink.sink_id, sink.run)
        with caplog.at_level(logging.WARNING, logger="kafka_sink"), client_of(sink.servers) as client:
            for batch in (BATCH, NEXT):
                driver.commit(client, batch, [sink.task(batch, number) for number in range(2)])
        assert [record.getMessage() for record in caplog.records if record.name == "kafka_sink"] == [NOT_VERIFIED]
        assert sink.visible() == sorted(rows(BATCH, 0, 1) + rows(NEXT, 0, 1))
