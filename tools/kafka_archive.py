"""Class archives for a quick start of Apache Kafka's JVMs: one for each version, created once and kept with its jars.

A temporary node is started, used for a write and a read, and stopped. At its end the JVM writes the classes that it has
loaded. A JVM with an archive (class data sharing) does not have to read and verify these classes again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from signal import SIGTERM

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not re-exported by its stubs

from tools.kafka_format import format_nodes
from tools.kafka_jars import cache_lock, jars
from tools.kafka_node import FAST_START, KafkaNode, archive_path, free_port, wait_until_ready

_TOPIC = "throw-away"
_PATIENCE_S = 60


def make_archive(version: str) -> None:
    """Creates the archive if it does not exist."""
    final = archive_path(version)
    if final.exists():
        return
    jars(version)  # before the lock, which it may need itself
    with cache_lock(f"kafka-{version}"), tempfile.TemporaryDirectory(prefix="pykafka-sink-") as folder:
        if final.exists():
            return
        written = Path(folder) / "classes.jsa"
        options = (*FAST_START, f"-XX:ArchiveClassesAtExit={written}")
        node = KafkaNode(version, 1, free_port(), free_port(), Path(folder) / "node-1", options)
        node.write_properties([node], {})
        format_nodes([node], {}, {})
        node.start()
        try:
            # Until then its metadata names no controller, and confluent-kafka may wait a minute before it asks again.
            wait_until_ready([node], _PATIENCE_S)
            _use(node.address)
            node.signal(SIGTERM)
            node.join(_PATIENCE_S)
        finally:
            node.kill()
        if written.exists():  # an older JVM cannot write one; brokers then start without it
            temporary = final.with_suffix(".new")
            temporary.write_bytes(written.read_bytes())
            temporary.rename(final)


def _use(servers: str) -> None:
    """Does what most tests do: creates a topic, writes a transaction, reads it with a group."""
    admin = AdminClient({"bootstrap.servers": servers})  # must outlive its future
    admin.create_topics([NewTopic(_TOPIC, 1, 1)])[_TOPIC].result(_PATIENCE_S)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": _TOPIC, "log_level": 0})
    producer.init_transactions(_PATIENCE_S)
    producer.begin_transaction()
    producer.produce(_TOPIC, b"value", partition=0)
    producer.commit_transaction(_PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": _TOPIC, "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(_TOPIC, 0, 0)])
        consumer.consume(1, _PATIENCE_S)
        consumer.commit(offsets=[TopicPartition(_TOPIC, 0, 1)], asynchronous=False)
    finally:
        consumer.close()
