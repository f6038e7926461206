"""What real leaders and coordinators answer to a transaction that begins with the epoch after that of the last one.

commit/identity_pool.py rests on it: exact requests, in transaction version 2. The releases before Kafka 4.2 of that
version are run with PYKAFKA_SINK_KAFKA (tools/compat.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_sink import Producer, TransactionReceipt
from kafka_sink.commit.admin.client import Client
from kafka_sink.formats.records.batch import seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, encode_batch
from kafka_sink.kafka.client.ask import Ask, Coordinator, Leader
from kafka_sink.kafka.client.producer_identity import ProducerIdentity
from kafka_sink.kafka.wire.apis import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, END_TXN, INIT_PRODUCER_ID, PRODUCE
from tests.support.asking import answers_to, client_of, request
from tests.support.markers import FIRST, WITH_TRANSACTION_VERSION, write_marker
from tools.foreign_reader import end_offsets, read_topic
from tools.java import release
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS = 47, 49, 51
# A broker that is told of a new topic later than the others.
NOT_LEADER = 6


class Asker:
    """One transactional id of one topic with two partitions."""

    def __init__(self, kafka: KafkaCluster, client: Client, topic: str) -> None:
        self.kafka, self.client, self.topic = kafka, client, topic

    def prepare(self) -> TransactionReceipt:
        """A transaction with one record in partition 0, which is left open."""
        with Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "transactional.id": self.topic}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(self.topic, b"before", partition=0)
            return producer.prepare_transaction()

    def ask(self, ask: Ask) -> dict[str, Any]:
        (answer,) = answers_to(self.client, ask)
        return dict(answer.bodies[0])

    def produce(self, identity: tuple[int, int], partition: int = 0, *, transactional_id: str = "") -> int:
        """One record, as the first of its transaction in this partition; returns the error code."""
        batch = encode_batch([Record(int(time.time() * 1000), None, b"after")], make_compressor("none"))
        header = seal(batch, *identity, base_sequence=0, is_transactional=True)
        parts = [{"index": partition, "records": header + batch.payload}]
        body = {
            "transactional_id": transactional_id or self.topic,
            "acks": -1,
            "timeout_ms": 20_000,
            "topic_data": [{"name": self.topic, "partition_data": parts}],
        }
        while True:
            asked = request(Leader(self.topic, partition), PRODUCE, body, version_min=12, version_max=12)
            code: int = self.ask(asked)["responses"][0]["partition_responses"][0]["error_code"]
            if code not in (CONCURRENT_TRANSACTIONS, NOT_LEADER):
                return code

    def end(self, receipt: TransactionReceipt, *, commit: bool) -> int:
        body = {
            "transactional_id": receipt.transactional_id,
            "producer_id": receipt.producer_id,
            "producer_epoch": receipt.producer_epoch,
            "committed": commit,
        }
        ask = request(Coordinator(receipt.transactional_id), END_TXN, body, version_min=5, version_max=5)
        while (code := int(self.ask(ask)["error_code"])) == CONCURRENT_TRANSACTIONS:
            pass
        return code

    def init(self) -> None:
        body = {"transactional_id": self.topic, "transaction_timeout_ms": 60_000}
        ask = request(Coordinator(self.topic), INIT_PRODUCER_ID, body)
        wait_until(lambda: self.ask(ask)["error_code"] == 0, "InitProducerId")

    def state(self) -> tuple[str, int]:
        ask = request(Coordinator(self.topic), DESCRIBE_TRANSACTIONS, {"transactional_ids": [self.topic]})
        [found] = self.ask(ask)["transaction_states"]
        return found["transaction_state"], found["producer_epoch"]

    def producer_state(self, producer_id: int) -> dict[str, Any]:
        """Of partition 0, as its leader tells it."""
        body = {"topics": [{"name": self.topic, "partition_indexes": [0]}]}
        [told] = self.ask(request(Leader(self.topic, 0), DESCRIBE_PRODUCERS, body))["topics"][0]["partitions"]
        return next(one for one in told["active_producers"] if one["producer_id"] == producer_id)

    def values(self) -> list[bytes]:
        return [record.value or b"" for record in read_topic(self.kafka.bootstrap_servers, self.topic)]


@pytest.fixture
def asker(kafka_4: KafkaCluster, topic_name: str) -> Iterator[Asker]:
    if release(kafka_4.version) < (4,):
        pytest.skip("transaction version 1")
    kafka_4.create_topic(topic_name, partitions=2)
    with client_of(kafka_4.bootstrap_servers) as client:
        yield Asker(kafka_4, client, topic_name)


def following(receipt: TransactionReceipt) -> ProducerIdentity:
    return ProducerIdentity(receipt.producer_id, receipt.producer_epoch + 1)


@pytest.mark.parametrize("partition", [0, 1], ids=["where it is open", "elsewhere"])
def test_while_a_transaction_is_open_the_next_epoch_is_refused_and_nothing_is_appended(
    asker: Asker, partition: int
) -> None:
    receipt = asker.prepare()
    before = end_offsets(asker.kafka.bootstrap_servers, asker.topic)
    assert asker.produce(following(receipt), partition) == INVALID_PRODUCER_EPOCH
    assert end_offsets(asker.kafka.bootstrap_servers, asker.topic) == before
    assert asker.state() == ("Ongoing", receipt.producer_epoch)
    assert asker.end(receipt, commit=True) == 0
    assert asker.values() == [b"before"]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_the_end_of_a_transaction_gives_the_next_epoch_and_late_requests_of_the_ended_one_change_nothing(
    asker: Asker, commit: bool
) -> None:
    receipt = asker.prepare()
    identity = following(receipt)
    assert asker.end(receipt, commit=commit) == 0
    assert asker.produce(identity) == 0
    assert asker.produce((receipt.producer_id, receipt.producer_epoch), 1) == INVALID_PRODUCER_EPOCH
    assert asker.end(receipt, commit=True) != 0 and asker.end(receipt, commit=False) != 0
    assert asker.state() == ("Ongoing", identity.producer_epoch)
    goes_on = TransactionReceipt(receipt.transactional_id, *identity, 2, True, {})
    assert asker.end(goes_on, commit=True) == 0
    assert asker.values() == ([b"before", b"after"] if commit else [b"after"])


def test_after_an_init_producer_id_of_somebody_else_the_expected_epoch_is_refused(asker: Asker) -> None:
    receipt = asker.prepare()
    assert asker.end(receipt, commit=True) == 0
    asker.init()
    assert asker.produce(following(receipt)) == INVALID_PRODUCER_EPOCH
    assert asker.produce(following(receipt), 1) == INVALID_PRODUCER_EPOCH


def test_of_an_id_that_the_coordinator_does_not_know_or_that_has_another_producer_id_nothing_is_appended(
    asker: Asker,
) -> None:
    receipt = asker.prepare()
    assert asker.end(receipt, commit=True) == 0
    unknown = f"{asker.topic}-never-used"
    assert asker.produce(following(receipt), 1, transactional_id=unknown) == INVALID_PRODUCER_ID_MAPPING
    assert asker.produce((receipt.producer_id + 1_000_000, 1), 1) == INVALID_PRODUCER_ID_MAPPING
    assert end_offsets(asker.kafka.bootstrap_servers, asker.topic)[1] == 0


def test_a_marker_that_arrives_a_second_time_does_not_end_the_transaction_that_goes_on(asker: Asker) -> None:
    """From Kafka 4.2 on. Before it does, which is why the sink asks for another epoch there."""
    receipt = asker.prepare()
    identity = following(receipt)
    assert asker.end(receipt, commit=True) == 0
    assert asker.produce(identity) == 0
    address = asker.kafka.address_of(asker.kafka.leader_of(asker.topic, 0))
    known = asker.producer_state(identity.producer_id)
    assert known["current_txn_start_offset"] >= 0
    is_strict = release(asker.kafka.version) >= (4, 2)
    code = write_marker(
        address, asker.topic, 0, identity, commit=True, coordinator_epoch=known["coordinator_epoch"],
        version=WITH_TRANSACTION_VERSION if is_strict else FIRST,
    )  # fmt: skip
    is_open = asker.producer_state(identity.producer_id)["current_txn_start_offset"] >= 0
    assert (code, is_open) == ((INVALID_PRODUCER_EPOCH, True) if is_strict else (0, False))
    goes_on = TransactionReceipt(receipt.transactional_id, *identity, 2, True, {})
    asker.end(goes_on, commit=False)
    assert asker.values() == ([b"before"] if is_strict else [b"before", b"after"])
