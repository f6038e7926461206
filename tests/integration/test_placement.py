"""Keys go to the same partitions as with the Java client, and with CRC32 to the same as with librdkafka.

The keys are produced to a real broker, and a foreign reader reports the partition of each. Java's own code computes
where Java would send them (java/Placement.java); librdkafka produces them itself.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka
import numpy as np
import pyarrow as pa

from kafka_sink import Producer
from kafka_sink.formats.records.columns import RecordColumns
from kafka_sink.formats.records.routing import PartitionView
from tools.foreign_reader import scan_topic
from tools.java import run_source
from tools.kafka_cluster import KafkaCluster

KEY_COUNT = 30_000
KEY_BYTES_MAX = 60
PARTITION_COUNTS = (1, 3, 12, 100)
TIMEOUT_S = 120
PLACEMENT = Path(__file__).parent / "java" / "Placement.java"


def random_keys(seed: int) -> list[bytes]:
    """Lengths from 0 (the empty key) to 60; every length and every byte value occurs many times."""
    source = random.Random(seed)
    return [source.randbytes(source.randint(0, KEY_BYTES_MAX)) for _ in range(KEY_COUNT)]


def java_placement(version: str, keys: Sequence[bytes]) -> np.ndarray:
    """One row per key, one column per partition count."""
    content = b"".join(struct.pack(">i", len(key)) + key for key in keys)
    output = run_source(version, PLACEMENT, [str(count) for count in PARTITION_COUNTS], input_bytes=content)
    return np.frombuffer(output, ">i4").reshape(len(keys), len(PARTITION_COUNTS))


def numbered(keys: Sequence[bytes]) -> pa.Table:
    values = [b"%d" % number for number in range(len(keys))]
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


def placement_in_log(kafka: KafkaCluster, topic: str) -> np.ndarray:
    """The partition of every key, by the key's number, which is the value; -1 for a missing key."""
    found = np.full(KEY_COUNT, -1)
    for record in scan_topic(kafka.bootstrap_servers, topic):
        assert record.value is not None
        number = int(record.value)
        assert found[number] == -1, f"key {number} is there twice"
        found[number] = record.partition
    return found


def test_random_keys_land_where_the_java_client_puts_them(kafka_4: KafkaCluster, topic_name: str) -> None:
    keys = random_keys(1)
    assert b"" in keys
    expected = java_placement(kafka_4.version, keys)
    topics = [kafka_4.create_topic(f"{topic_name}-{count}", partitions=count) for count in PARTITION_COUNTS]
    with Producer({"bootstrap.servers": kafka_4.bootstrap_servers}) as producer:
        futures = [producer.send_arrow(numbered(keys), topic=topic) for topic in topics]
        assert [future.result(TIMEOUT_S).row_count for future in futures] == [KEY_COUNT] * len(topics)
    for column, topic in enumerate(topics):
        differing = np.flatnonzero(placement_in_log(kafka_4, topic) != expected[:, column])
        assert len(differing) == 0, (
            f"{topic}: {len(differing)} keys differ, the first of length {len(keys[differing[0]])}"
        )


def test_keys_sent_one_by_one_land_where_the_java_client_puts_them(kafka_3: KafkaCluster, topic_name: str) -> None:
    keys = random_keys(2)
    expected = java_placement(kafka_3.version, keys)[:, PARTITION_COUNTS.index(12)]
    kafka_3.create_topic(topic_name, partitions=12)
    with Producer({"bootstrap.servers": kafka_3.bootstrap_servers}) as producer:
        for number, key in enumerate(keys):
            producer.send(topic_name, value=b"%d" % number, key=key)
        producer.flush(timeout_s=TIMEOUT_S)
    assert np.array_equal(placement_in_log(kafka_3, topic_name), expected)


def test_crc32_places_keys_where_librdkafka_does(kafka_4: KafkaCluster, topic_name: str) -> None:
    """Both send the empty key to any partition, so it is left out."""
    keys = [key or b"\0" for key in random_keys(3)]
    servers = kafka_4.bootstrap_servers
    ours = kafka_4.create_topic(f"{topic_name}-ours", partitions=12)
    theirs = kafka_4.create_topic(f"{topic_name}-theirs", partitions=12)
    settings = {"bootstrap.servers": servers, "partitioner": "consistent_random", "linger.ms": 20}
    librdkafka = confluent_kafka.Producer({**settings, "queue.buffering.max.messages": 2 * KEY_COUNT, "log_level": 0})
    for number, key in enumerate(keys):
        librdkafka.produce(theirs, b"%d" % number, key=key)
    assert librdkafka.flush(TIMEOUT_S) == 0
    with Producer(settings) as producer:
        assert producer.send_arrow(numbered(keys), topic=ours).result(TIMEOUT_S).row_count == KEY_COUNT
    assert np.array_equal(placement_in_log(kafka_4, ours), placement_in_log(kafka_4, theirs))


def test_keys_are_ignored_and_all_partitions_used_when_asked_for(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name, partitions=6)
    settings = {"bootstrap.servers": kafka_4.bootstrap_servers, "partitioner.ignore.keys": True}
    with Producer(settings) as producer:
        data = numbered([b"the same key"] * KEY_COUNT)
        ranges = producer.send_arrow(data, topic=topic_name).result(TIMEOUT_S).partitions
    assert sorted(partition for _, partition in ranges) == list(range(6))
    assert sum(found.record_count for found in ranges.values()) == KEY_COUNT


def test_round_robin_deals_records_evenly(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name, partitions=5)
    settings = {"bootstrap.servers": kafka_4.bootstrap_servers, "partitioner.class": "RoundRobinPartitioner"}
    with Producer(settings) as producer:
        futures = [producer.send(topic_name, value=b"%d" % number, key=b"any") for number in range(1000)]
        partitions = [future.result(TIMEOUT_S).partition for future in futures]
    assert sorted(partitions[:5]) == list(range(5))
    assert partitions == partitions[:5] * 200


def test_a_callable_over_whole_columns_decides_where_records_go(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name, partitions=7)

    def by_length(topic: str, columns: RecordColumns, view: PartitionView) -> np.ndarray:
        assert topic == topic_name and columns.value is not None
        return columns.value.lengths % view.partition_count

    with Producer({"bootstrap.servers": kafka_4.bootstrap_servers, "partitioner": by_length}) as producer:
        futures = [producer.send(topic_name, value=b"x" * number) for number in range(30)]
        assert [future.result(TIMEOUT_S).partition for future in futures] == [number % 7 for number in range(30)]
