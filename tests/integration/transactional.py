"""What the tests of transactions share: a transactional producer, and what foreign readers see."""

from __future__ import annotations

import pyarrow as pa

from kafka_sink import Producer
from tools.foreign_reader import Isolation, end_offsets, read_topic, wait_until_settled
from tools.kafka_cluster import KafkaCluster

TIMEOUT_S = 90


def transactional(kafka: KafkaCluster, transactional_id: str, **more: object) -> Producer:
    named = {name.replace("_", "."): more[name] for name in more}
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": transactional_id, **named})


def values(kafka: KafkaCluster, topic: str, isolation: Isolation = "read_committed") -> list[bytes | None]:
    records = read_topic(kafka.bootstrap_servers, topic, isolation)
    return [record.value for record in records]


def rows(prefix: str, count: int) -> pa.Table:
    return pa.table({"value": pa.array([b"%s-%d" % (prefix.encode(), number) for number in range(count)])})


def is_settled(kafka: KafkaCluster, topic: str) -> bool:
    wait_until_settled(kafka.bootstrap_servers, topic, timeout_s=TIMEOUT_S)
    servers = kafka.bootstrap_servers
    return end_offsets(servers, topic, "read_committed") == end_offsets(servers, topic, "read_uncommitted")
