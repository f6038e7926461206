"""Transactions on real brokers of both transaction versions (4.3.1: second, 3.9.1: first), checked by foreign readers.

A read_committed reader must get the right records, and afterwards the last stable offset must have advanced: an open
transaction would stop every reader of the topic. Both readers of `tools.foreign_reader` wait for that themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from kafka_sink import Producer
from kafka_sink.errors import KafkaSinkError, LocalProtocolError, OperationTimeout, TransactionAborted
from kafka_sink.kafka.client.ask import AnyBroker, Repeat
from kafka_sink.kafka.wire.apis import API_VERSIONS, INIT_PRODUCER_ID
from tests.conftest import NEWEST, or_without_kafka
from tests.support.asking import client_of
from tests.support.producing import TIMEOUT_S, is_settled, rows, transact, transactional, values
from tools.foreign_reader import read_topic, read_topic_java, wait_until_settled
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until


def test_committed_records_are_seen_and_aborted_ones_never(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=3)
    committed: list[bytes] = []
    everything: list[bytes] = []
    with transactional(kafka, topic_name) as producer:
        producer.init_transactions()
        for turn in range(8):
            producer.begin_transaction()
            sent = [b"%d-%d" % (turn, number) for number in range(60)]
            for value in sent[:30]:
                producer.send(topic_name, value=value, key=value)
            keys = pa.array(sent[30:], pa.binary())
            future = producer.send_arrow(pa.table({"key": keys, "value": keys}), topic=topic_name)
            everything += sent
            # The last one is aborted, one in the middle, and two in succession.
            if turn in (1, 4, 5, 7):
                assert future.result(TIMEOUT_S).row_count == 30
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                assert future.done()
                committed += sent
    assert sorted(values(kafka, topic_name)) == sorted(committed)  # type: ignore[type-var]
    assert sorted(values(kafka, topic_name, "read_uncommitted")) == sorted(everything)  # type: ignore[type-var]
    by_java = read_topic_java(kafka.bootstrap_servers, topic_name, version=kafka.version)
    assert by_java == read_topic(kafka.bootstrap_servers, topic_name)
    assert is_settled(kafka, topic_name)


def test_the_version_of_the_protocol_is_the_one_the_broker_offers(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    receipts = []
    with transactional(kafka, topic_name) as producer:
        producer.init_transactions()
        for _ in range(3):
            producer.begin_transaction()
            producer.send(topic_name, value=b"v")
            receipts.append(producer.prepare_transaction())
            producer.commit_transaction()
    assert {receipt.transaction_version for receipt in receipts} == {2 if kafka.version.startswith("4.") else 1}
    steps = [second.producer_epoch - first.producer_epoch for first, second in itertools.pairwise(receipts)]
    # Transaction version 2 raises the epoch with each end; version 1 gets a new epoch because a receipt was handed out.
    assert steps == [1, 1]
    assert is_settled(kafka, topic_name)


def test_a_broker_that_offers_unstable_versions_is_spoken_to_in_stable_ones(topic_name: str) -> None:
    """InitProducerId 6 (KIP-939) may still change: the producer uses version 5. Its options refuse two-phase commit."""
    with or_without_kafka(KafkaCluster(NEWEST, properties={"unstable.api.versions.enable": True})) as kafka:
        kafka.create_topic(topic_name)
        said = {"client_software_name": "test", "client_software_version": "1"}
        with client_of(kafka.bootstrap_servers) as client:
            offered = client.ask(AnyBroker(), API_VERSIONS, said, timeout_ms=20_000, repeat=Repeat.ALWAYS)
        newest = {row["api_key"]: row["max_version"] for row in offered["api_keys"]}
        if newest[INIT_PRODUCER_ID.key] < 6:
            pytest.skip(f"Apache Kafka {NEWEST} does not know InitProducerId 6")
        assert INIT_PRODUCER_ID.version_max == 5
        with transactional(kafka, topic_name) as producer:
            producer.init_transactions()
            transact(producer, topic_name, b"v")
        assert values(kafka, topic_name) == [b"v"]


def test_an_empty_transaction_and_one_over_many_topics_both_end(kafka: KafkaCluster, topic_name: str) -> None:
    topics = [kafka.create_topic(f"{topic_name}-{number}", partitions=5) for number in range(4)]
    with transactional(kafka, topic_name) as producer:
        producer.init_transactions()
        for commit in (True, False, True):
            producer.begin_transaction()
            (producer.commit_transaction if commit else producer.abort_transaction)()
        producer.begin_transaction()
        for topic in topics:
            for partition in range(5):
                producer.send(topic, value=b"v", partition=partition)
        producer.commit_transaction()
    assert [len(values(kafka, topic)) for topic in topics] == [5] * 4


def test_calls_in_the_wrong_order_are_refused_and_harm_nothing(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name)
    with transactional(kafka_4, topic_name) as producer:
        with pytest.raises(LocalProtocolError, match=r"init_transactions\(\) first"):
            producer.begin_transaction()
        with pytest.raises(LocalProtocolError, match=r"init_transactions\(\) first"):
            producer.send(topic_name, value=b"too early").result(TIMEOUT_S)
        producer.init_transactions()
        with pytest.raises(LocalProtocolError, match=r"begin_transaction\(\) first"):
            producer.send(topic_name, value=b"outside").result(TIMEOUT_S)
        with pytest.raises(LocalProtocolError, match=r"begin_transaction\(\) first"):
            producer.commit_transaction()
        producer.begin_transaction()
        with pytest.raises(LocalProtocolError, match="open"):
            producer.begin_transaction()
        producer.send(topic_name, value=b"inside")
        producer.commit_transaction()
    assert values(kafka_4, topic_name) == [b"inside"]
    with (
        Producer({"bootstrap.servers": kafka_4.bootstrap_servers}) as plain,
        pytest.raises(LocalProtocolError, match=r"transactional\.id"),
    ):
        plain.begin_transaction()


def test_closing_with_an_open_transaction_aborts_it(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    with transactional(kafka, topic_name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic_name, value=b"never").result(TIMEOUT_S)
    # Long before transaction.timeout.ms.
    wait_until_settled(kafka.bootstrap_servers, topic_name, timeout_s=10)
    assert values(kafka, topic_name) == []
    assert values(kafka, topic_name, "read_uncommitted") == [b"never"]


def test_an_exception_in_the_with_block_leaves_nothing_to_be_seen(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name)

    def fail_in_the_middle() -> None:
        with transactional(kafka, topic_name) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic_name, value=b"never")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_the_middle()
    assert is_settled(kafka, topic_name)
    assert values(kafka, topic_name) == []


# ---- offsets ---------------------------------------------------------------------------------------------------


def group_offsets(kafka: KafkaCluster, group: str, topic: str, partitions: Sequence[int]) -> dict[int, int]:
    """The committed offsets, -1001 for none. Waits until the end of a transaction is carried out.

    A read_committed consumer waits for that; an AdminClient with require_stable returns -1001 for an unstable offset.
    """
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    wanted = [TopicPartition(topic, partition) for partition in partitions]
    with closing(consumer):
        # The group's coordinator may be new and still loading.
        found = wait_until(
            lambda: consumer.committed(wanted, timeout=TIMEOUT_S), f"{group} is loaded", passing=(KafkaException,)
        )
    assert all(each.error is None for each in found), found
    return {each.partition: each.offset for each in found}


def test_offsets_are_committed_with_the_transaction_and_dropped_with_it(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=2)
    group = f"group-of-{topic_name}"
    with transactional(kafka, topic_name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic_name, value=b"one")
        producer.send_offsets_to_transaction({(topic_name, 0): 11, (topic_name, 1): 22}, group)
        producer.commit_transaction()
        assert group_offsets(kafka, group, topic_name, [0, 1]) == {0: 11, 1: 22}

        producer.begin_transaction()
        producer.send(topic_name, value=b"two")
        producer.send_offsets_to_transaction({(topic_name, 0): 111}, group)
        producer.abort_transaction()
        assert group_offsets(kafka, group, topic_name, [0, 1]) == {0: 11, 1: 22}

        # Offsets without records are a transaction, too.
        producer.begin_transaction()
        producer.send_offsets_to_transaction({(topic_name, 1): 33}, group)
        producer.commit_transaction()
        assert group_offsets(kafka, group, topic_name, [0, 1]) == {0: 11, 1: 33}
    assert values(kafka, topic_name) == [b"one"]


def test_a_transaction_whose_offsets_cannot_be_sent_is_aborted_and_the_next_one_is_not_kept_waiting(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name)
    with transactional(kafka, topic_name) as producer:
        producer.init_transactions()  # waits until a new coordinator has loaded

    def send_offsets_of_a_missing_topic() -> None:
        with producer.transaction():
            producer.send(topic_name, value=b"aborted")
            producer.send_offsets_to_transaction({(f"{topic_name}-missing", 0): 1}, topic_name)

    with transactional(kafka, topic_name, max_block_ms=5000) as producer:
        producer.init_transactions()
        with pytest.raises(OperationTimeout, match="send_offsets_to_transaction"):
            send_offsets_of_a_missing_topic()
        transact(producer, topic_name, b"committed")
    assert values(kafka, topic_name) == [b"committed"]


def test_consume_transform_produce_moves_every_record_once(kafka: KafkaCluster, topic_name: str) -> None:
    """A foreign consumer, restarted in the middle, continues where the transactions ended."""
    source = kafka.create_topic(f"{topic_name}-in")
    target = kafka.create_topic(f"{topic_name}-out")
    group = f"group-of-{topic_name}"
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as filler:
        assert filler.send_arrow(rows("row", 300), topic=source).result(TIMEOUT_S).row_count == 300
    consumer_settings = {
        "bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "isolation.level": "read_committed",
    }  # fmt: skip
    with transactional(kafka, topic_name) as producer:
        producer.init_transactions()
        for turn in range(6):
            start = group_offsets(kafka, group, source, [0])[0]
            consumer = Consumer(consumer_settings)
            consumer.assign([TopicPartition(source, 0, max(start, 0))])
            messages = consumer.consume(100, timeout=TIMEOUT_S) if start < 300 else []
            consumer.close()
            if not messages:
                break
            producer.begin_transaction()
            for message in messages:
                producer.send(target, value=message.value())
            producer.send_offsets_to_transaction({(source, 0): messages[-1].offset() + 1}, group)
            # Every second transaction is aborted and repeated.
            (producer.abort_transaction if turn % 2 == 0 else producer.commit_transaction)()
    assert values(kafka, target) == [b"row-%d" % number for number in range(300)]
    assert group_offsets(kafka, group, source, [0]) == {0: 300}


# ---- refusals -----------------------------------------------------------------------------------------------


def test_a_refused_record_makes_the_commit_fail_and_an_abort_heals_it(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, config={"max.message.bytes": 2000})
    with transactional(kafka, topic_name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic_name, value=b"small")
        future = producer.send(topic_name, value=b"x" * 5000)
        with pytest.raises(TransactionAborted, match="MESSAGE_TOO_LARGE"):
            producer.commit_transaction()
        assert "MESSAGE_TOO_LARGE" in str(future.exception(TIMEOUT_S))
        producer.abort_transaction()
        transact(producer, topic_name, b"good")
    assert is_settled(kafka, topic_name)
    assert values(kafka, topic_name) == [b"good"]


def test_a_transaction_timeout_above_the_brokers_limit_is_an_error_that_names_both_options(
    kafka: KafkaCluster, topic_name: str
) -> None:
    says = r"transaction\.timeout\.ms.*transaction\.max\.timeout\.ms"
    with (
        transactional(kafka, topic_name, transaction_timeout_ms=2_000_000_000) as producer,
        pytest.raises(KafkaSinkError, match=says),
    ):
        producer.init_transactions()
