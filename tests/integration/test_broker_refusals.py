"""What real brokers refuse, and what the error says: which records, why, what to do. Others are delivered."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from kafka_sink.errors import DataError, DeliveryError, DeliveryTimeout, KafkaSinkError, OperationTimeout
from kafka_sink.formats.records.batch import HEADER_BYTES
from kafka_sink.formats.records.columns import RECORD_OVERHEAD_BYTES_MAX
from kafka_sink.testing import EmbeddedBroker
from tests.chaos.extent import NEWEST_MAINLY
from tests.support.producing import TIMEOUT_S, producer_of, values
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

SECRET = b"content-that-no-text-may-show"
MESSAGE_TOO_LARGE = 10
INVALID_RECORD = 87
# max.request.size without the most that the parts of a batch and of a record around a value without a key take.
LARGEST_ROW_BYTES = 1_048_576 - HEADER_BYTES - RECORD_OVERHEAD_BYTES_MAX - 5


@NEWEST_MAINLY
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batches_too_large_for_the_topic_are_split_and_arrive_once_and_in_order(
    kafka: KafkaCluster, topic_name: str, codec: str
) -> None:
    kafka.create_topic(topic_name, config={"max.message.bytes": 6000})
    sent = [b"%05d" % number + bytes((number * at * at) % 256 for at in range(300)) for number in range(2000)]
    with producer_of(kafka, batch_size=100_000, linger_ms=50, compression_type=codec) as producer:
        future = producer.send_arrow(pa.table({"value": pa.array(sent[:1000], pa.binary())}), topic=topic_name)
        futures = [producer.send(topic_name, value=value) for value in sent[1000:]]
        assert future.result(TIMEOUT_S).partitions[topic_name, 0].last_offset == 999
        assert [future.result(TIMEOUT_S).offset for future in futures] == list(range(1000, 2000))
    assert values(kafka, topic_name) == sent


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_row_of_random_bytes_just_below_the_largest_request_is_delivered_with_every_codec(
    kafka_4: KafkaCluster, topic_name: str, codec: str
) -> None:
    """Random bytes grow in a codec, and a batch of one row cannot be split. All limits are the defaults."""
    kafka_4.create_topic(topic_name)
    row = Random(7).randbytes(LARGEST_ROW_BYTES)
    with producer_of(kafka_4, compression_type=codec) as producer:
        future = producer.send_arrow(pa.table({"value": pa.array([row], pa.binary())}), topic=topic_name)
        assert future.result(TIMEOUT_S).row_count == 1
        assert producer.send(topic_name, value=row).result(TIMEOUT_S).offset == 1
        with pytest.raises(DataError, match=r"max\.request\.size allows 1048576"):
            producer.send(topic_name, value=row + b"x").result(TIMEOUT_S)
    assert values(kafka_4, topic_name) == [row, row]


def test_a_request_on_which_brokers_close_the_connection_without_a_word_is_named_by_its_size() -> None:
    """Nothing else tells: it is sent again until its time is up."""
    with EmbeddedBroker(properties={"socket.request.max.bytes": "9000000"}, topics={"t": 1}) as broker:
        limits = {"max_request_size": 12_000_000, "delivery_timeout_ms": 2500, "request_timeout_ms": 2000}
        with producer_of(broker, linger_ms=0, **limits) as producer:
            error = producer.send("t", value=bytes(10_000_000)).exception(TIMEOUT_S)
    assert isinstance(error, DeliveryTimeout)
    (size,) = re.findall(r"one of (\d+) bytes \(on one above socket\.request\.max\.bytes", str(error))
    assert 10_000_000 < int(size) < 10_001_000


@NEWEST_MAINLY
def test_a_single_record_too_large_fails_alone_and_says_what_to_do(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, config={"max.message.bytes": 3000})
    with producer_of(kafka, linger_ms=50) as producer:
        futures = [
            producer.send(topic_name, value=SECRET + b"x" * 5000 if number == 7 else b"%d" % number)
            for number in range(20)
        ]
        errors = [future.exception(TIMEOUT_S) for future in futures]
    assert [number for number, error in enumerate(errors) if error is not None] == [7]
    error = errors[7]
    assert isinstance(error, DeliveryError) and error.name == "PKS-5001"
    assert (error.topic, error.partition, error.code, error.ambiguous) == (topic_name, 0, MESSAGE_TOO_LARGE, False)
    text = str(error)
    assert "MESSAGE_TOO_LARGE" in text and "max.message.bytes" in text and topic_name in text
    # The size says how far the limit would have to be raised.
    (size,) = re.findall(r"take (\d+) bytes", text)
    assert 5000 < int(size) < 5200
    assert SECRET.decode() not in text
    assert values(kafka, topic_name) == [b"%d" % number for number in range(20) if number != 7]


def test_a_record_above_max_request_size_is_refused_before_it_is_sent(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name)
    with producer_of(kafka_4, max_request_size=2000) as producer:
        with pytest.raises(DataError, match=r"max\.request\.size.*2000") as caught:
            producer.send(topic_name, value=SECRET * 100).result(TIMEOUT_S)
        assert SECRET.decode() not in str(caught.value)
        with pytest.raises(DataError, match=r"row 2 .*max\.request\.size") as caught:
            producer.send_arrow(pa.table({"value": [b"a", b"b", SECRET * 100, b"d"]}), topic=topic_name).result(
                TIMEOUT_S
            )
        assert caught.value.row == 2
        assert producer.send(topic_name, value=b"fits").result(TIMEOUT_S).offset == 0
    assert values(kafka_4, topic_name) == [b"fits"]


@NEWEST_MAINLY
def test_a_topic_that_is_not_there_is_waited_for_at_most_max_block_ms(kafka: KafkaCluster, topic_name: str) -> None:
    with producer_of(kafka, max_block_ms=3000) as producer:
        started = time.monotonic()
        with pytest.raises(OperationTimeout) as caught:
            producer.send(topic_name, value=SECRET).result(TIMEOUT_S)
        assert time.monotonic() - started >= 2.9
        text = str(caught.value)
        assert topic_name in text and "max.block.ms=3000" in text and "UNKNOWN_TOPIC_OR_PARTITION" in text
        assert SECRET.decode() not in text
        with pytest.raises(OperationTimeout, match=topic_name):
            producer.send_arrow(pa.table({"value": [SECRET]}), topic=topic_name).result(TIMEOUT_S)


def test_a_topic_that_appears_while_send_waits_is_written_to(kafka_4: KafkaCluster, topic_name: str) -> None:
    with producer_of(kafka_4, max_block_ms=20_000) as producer, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(lambda: producer.send(topic_name, value=b"waited").result(TIMEOUT_S))
        time.sleep(0.5)
        assert not sending.done()
        kafka_4.create_topic(topic_name)
        assert sending.result(TIMEOUT_S).offset == 0


@pytest.mark.parametrize("name", ["", "with space", "a/b", "x" * 250, ".."])
def test_a_name_no_topic_can_have_is_refused_at_once(kafka_4: KafkaCluster, name: str) -> None:
    # A call that waited for the topic would not return within the test.
    with producer_of(kafka_4, max_block_ms=3_600_000) as producer, pytest.raises(KafkaSinkError, match="topic"):
        producer.send(name, value=SECRET).result(TIMEOUT_S)


@NEWEST_MAINLY
def test_records_without_key_on_a_compacted_topic_are_named_one_by_one(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, config={"cleanup.policy": "compact"})
    with producer_of(kafka, linger_ms=200) as producer:
        futures = [
            producer.send(topic_name, value=SECRET, key=None if number in (3, 5) else b"k%d" % number)
            for number in range(8)
        ]
        errors = [future.exception(TIMEOUT_S) for future in futures]
        assert all(isinstance(error, DeliveryError) and error.code == INVALID_RECORD for error in errors)
        texts = [str(error) for error in errors]
        assert all(topic_name in text and "INVALID_RECORD" in text for text in texts)
        # The broker refuses the whole batch; its answer says what is wrong with the faulty records.
        assert [number for number, text in enumerate(texts) if "This record" in text] == [3, 5]
        assert all("key" in texts[number].partition("This record")[2] for number in (3, 5))
        assert not any(SECRET.decode() in text for text in texts)

        rows = pa.table({"key": [b"a", b"b", None], "value": [SECRET] * 3})
        with pytest.raises(DeliveryError, match="Row 2") as caught:
            producer.send_arrow(rows, topic=topic_name).result(TIMEOUT_S)
        assert SECRET.decode() not in str(caught.value)
        # A refused batch does not end the producer.
        assert producer.send(topic_name, value=b"good", key=b"key").result(TIMEOUT_S).offset == 0
    assert values(kafka, topic_name) == [b"good"]


@NEWEST_MAINLY
def test_a_timestamp_the_topic_does_not_accept_is_refused(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, config={"message.timestamp.before.max.ms": 3_600_000})
    with producer_of(kafka) as producer:
        with pytest.raises(DeliveryError, match="timestamp") as caught:
            producer.send(topic_name, value=SECRET, timestamp_ms=1).result(TIMEOUT_S)
        assert "INVALID_TIMESTAMP" in str(caught.value) and topic_name in str(caught.value)
        assert producer.send(topic_name, value=b"now").result(TIMEOUT_S).offset == 0


@NEWEST_MAINLY
def test_log_append_time_is_what_the_future_tells(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, config={"message.timestamp.type": "LogAppendTime"})
    with producer_of(kafka) as producer:
        told_ms = producer.send(topic_name, value=b"v", timestamp_ms=5).result(TIMEOUT_S).timestamp_ms
    (record,) = read_topic(kafka.bootstrap_servers, topic_name)
    assert told_ms == record.timestamp_ms > 1_000_000_000_000


def test_a_partition_out_of_range_names_the_partitions_there_are(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name, partitions=3)
    with producer_of(kafka_4, max_block_ms=3000) as producer:
        wait_until(lambda: producer.partitions_for(topic_name), "the topic is known", passing=(OperationTimeout,))
        with pytest.raises(DataError, match=r"3 partitions \(0 to 2\).*partition 3"):
            producer.send(topic_name, value=SECRET, partition=3).result(TIMEOUT_S)
        rows = pa.table({"value": [SECRET] * 3, "partition": pa.array([0, 2, 9], pa.int32())})
        with pytest.raises(DataError, match=r"partition 9") as caught:
            producer.send_arrow(rows, topic=topic_name).result(TIMEOUT_S)
        assert SECRET.decode() not in str(caught.value)
        with pytest.raises(KafkaSinkError, match="partition"):
            producer.send(topic_name, value=SECRET, partition=-2).result(TIMEOUT_S)
    assert values(kafka_4, topic_name) == []


@NEWEST_MAINLY
def test_partitions_added_while_producing_are_seen_and_used(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=1)
    with producer_of(kafka, metadata_max_age_ms=300, linger_ms=0) as producer:
        assert producer.send(topic_name, value=b"v").result(TIMEOUT_S).partition == 0
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic_name, 4)])[topic_name].result(TIMEOUT_S)
        # An explicit new partition is waited for; other records go to it once the metadata is refreshed.
        assert producer.send(topic_name, value=b"v", partition=3).result(TIMEOUT_S).partition == 3
        seen: set[int] = set()

        def is_all_seen() -> bool:
            seen.update(
                producer.send(topic_name, value=b"v", key=b"%d" % key).result(TIMEOUT_S).partition for key in range(20)
            )
            return seen == {0, 1, 2, 3}

        wait_until(is_all_seen, lambda: f"all partitions are used: {seen}")


@NEWEST_MAINLY
def test_a_topic_deleted_and_created_again_while_producing_is_written_to_again(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=2)
    with producer_of(kafka, delivery_timeout_ms=60_000) as producer:
        for number in range(20):
            assert producer.send(topic_name, value=b"old", partition=number % 2).result(TIMEOUT_S).offset == number // 2
        kafka.delete_topic(topic_name)
        futures = [
            producer.send(topic_name, value=b"between %d" % number, partition=number % 2) for number in range(10)
        ]
        time.sleep(0.5)
        assert not any(future.done() for future in futures)
        kafka.create_topic(topic_name, partitions=2)
        assert [future.result(60).offset for future in futures] == [number // 2 for number in range(10)]
        # Records that are sent later continue behind these.
        assert producer.send(topic_name, value=b"new", partition=0).result(TIMEOUT_S).offset == 5
    records = read_topic(kafka.bootstrap_servers, topic_name)
    assert [record.value for record in records if record.partition == 0] == [
        *(b"between %d" % number for number in range(0, 10, 2)), b"new",
    ]  # fmt: skip
    assert [record.value for record in records if record.partition == 1] == [
        b"between %d" % number for number in range(1, 10, 2)
    ]
