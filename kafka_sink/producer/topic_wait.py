"""Waiting until a topic, or one of its partitions, is known: at most max.block.ms, as in the Java client. For a
partition of a known topic at most five seconds: a wrong number is far more common than a partition that is being
created.

The engine requests metadata; this only watches the published view. An error that makes waiting pointless counts only if
it came after the call: a missing permission may have been granted since.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka_sink.errors import DataError, KafkaSinkError, OperationTimeout, copy_error
from kafka_sink.errors.table.brokers import TOPIC_UNKNOWN
from kafka_sink.errors.table.writes import ROW_PARTITION
from kafka_sink.formats.records.routing import PartitionView
from kafka_sink.kafka.client.cluster import ClusterView, TopicView
from kafka_sink.producer.engine.commands import WantTopic
from kafka_sink.producer.mailbox import Mailbox
from kafka_sink.producer.serialize import check_string

NEW_PARTITION_WAIT_MS = 5_000


def partition_view(
    cluster: ClusterView, topic: str, slow_node_ids: frozenset[int], rack: str = ""
) -> PartitionView | None:
    """None while the partitions are unknown. Available: those led in `rack` and not slow, else not slow, else all."""
    partition_count = cluster.partition_count(topic)
    if partition_count is None:
        return None
    available = cluster.available_partitions(topic)
    if slow_node_ids:
        quick = tuple(each for each in available if cluster.leader(topic, each) not in slow_node_ids)
        available = quick or available
    if rack:
        available = tuple(each for each in available if cluster.leader_rack(topic, each) == rack) or available
    return PartitionView(partition_count, available)


def wait_for_topic(
    mailbox: Mailbox,
    topic: str,
    partition: int,
    max_block_ms: int,
    refusal: Callable[[], KafkaSinkError | None],
    *,
    seen: TopicView | None = None,
) -> None:
    """Returns when the topic has more than `partition` partitions; -1: any. Raises as soon as the producer refuses.
    `seen`: what is known of the topic, and too old."""
    check_string("the name of a topic", topic, "topic")
    started_ms = mailbox.clock.monotonic_ms()
    deadline_ms = started_ms + max_block_ms
    with mailbox.lock:
        mailbox.wanted_topics[topic] = mailbox.wanted_topics.get(topic, 0) + 1
    try:
        while True:
            refused = refusal()
            if refused is not None:
                raise copy_error(refused)
            cluster = mailbox.cluster
            partition_count = cluster.partition_count(topic)
            if partition_count is not None and cluster.topics[topic] is not seen:
                if partition < partition_count:
                    return
                deadline_ms = min(deadline_ms, started_ms + NEW_PARTITION_WAIT_MS)
            mailbox.post(WantTopic(topic))
            mailbox.wake()
            can_wait = max_block_ms > 0 and not mailbox.is_sender_thread
            if not can_wait or not mailbox.wait_for(
                lambda before=cluster: mailbox.cluster is not before or refusal() is not None,  # type: ignore[misc]
                deadline_ms,
                "waiting for a topic",
            ):
                raise _timeout_error(mailbox, topic, partition, max_block_ms)
            report = mailbox.topic_reports.get(topic)
            if report is not None and report.error is not None:
                raise copy_error(report.error)
    finally:
        with mailbox.lock:
            mailbox.wanted_topics[topic] -= 1
            if not mailbox.wanted_topics[topic]:
                del mailbox.wanted_topics[topic]


def _timeout_error(mailbox: Mailbox, topic: str, partition: int, max_block_ms: int) -> KafkaSinkError:
    limit = f"within max.block.ms={max_block_ms}"
    if mailbox.is_sender_thread:
        limit = "yet, and a delivery callback cannot wait for it"
    partition_count = mailbox.cluster.partition_count(topic)
    if partition_count is not None and partition >= partition_count:
        waited_ms = min(max_block_ms, NEW_PARTITION_WAIT_MS)
        limit = limit if mailbox.is_sender_thread else f"within {waited_ms} ms"
        return DataError(
            f"topic {topic} has {partition_count} partitions (0 to {partition_count - 1}); "
            f"partition {partition} did not appear {limit}",
            ROW_PARTITION,
            column="partition",
        )
    report = mailbox.topic_reports.get(topic)
    trouble = report.trouble if report is not None else ""
    return OperationTimeout(
        f"topic {topic} is not known {limit}: {trouble or 'no broker has answered so far'}", TOPIC_UNKNOWN
    )
