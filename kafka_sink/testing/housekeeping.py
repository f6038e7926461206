"""Background work of the brokers, at intervals and after appends (compaction).

Kafka's log cleaner looks for work every `log.cleaner.backoff.ms`. Here a partition is checked that long after an
append, so that an idle cluster needs no wake-ups; it is checked again while records are too young.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka_sink.testing.cluster import Cluster
from kafka_sink.testing.compaction import cleanable_end, compact, end_of_old_segments
from kafka_sink.testing.topics import Partition
from kafka_sink.testing.transactions import TransactionCoordinator


class Housekeeping:
    """Time-outs of transactions, expiry of transactional ids and of producers, retention by size, compaction."""

    def __init__(self, cluster: Cluster, coordinator: TransactionCoordinator) -> None:
        self._cluster = cluster
        cluster.on_appended = self._on_appended
        self._to_compact: set[tuple[str, int]] = set()
        self._every("transaction.abort.timed.out.transaction.cleanup.interval.ms", coordinator.abort_timed_out)
        self._every("transaction.remove.expired.transaction.cleanup.interval.ms", coordinator.expire_ids)
        self._every("producer.id.expiration.check.interval.ms", self._clean_logs)

    def _every(self, interval_property: str, action: Callable[[], None]) -> None:
        interval_ms = self._cluster.settings.number(interval_property)

        def run() -> None:
            action()
            self._cluster.schedule.after(interval_ms, run)

        self._cluster.schedule.after(interval_ms, run)

    def _clean_logs(self) -> None:
        """Removes producers that have been inactive for long, and the oldest batches if there are too many."""
        now_ms = self._cluster.schedule.now_ms
        expiration_ms = self._cluster.settings.number("producer.id.expiration.ms")
        for topic in self._cluster.topics.values():
            for partition in topic.partitions:
                partition.log.producers.expire(lambda entry: now_ms - entry.last_timestamp_ms >= expiration_ms)
            retention_bytes = topic.config.number("retention.bytes")
            if retention_bytes >= 0 and topic.config.has_policy("delete") and not topic.is_internal:
                for partition in topic.partitions:
                    partition.log.delete_oldest(retention_bytes)

    # ---- compaction ----

    def _on_appended(self, partition: Partition) -> None:
        """Internal topics are skipped: the model keeps their content elsewhere."""
        topic = self._cluster.topics.get(partition.topic)
        key = partition.key
        if topic is None or topic.is_internal or key in self._to_compact:
            return
        if topic.config.has_policy("compact"):
            self._to_compact.add(key)
            wait_ms = max(self._cluster.settings.number("log.cleaner.backoff.ms"), 1)
            self._cluster.schedule.after(wait_ms, lambda: self._compact(key))

    def _compact(self, key: tuple[str, int]) -> None:
        self._to_compact.discard(key)
        partition = self._cluster.partition(*key)
        if partition is None:
            return
        config, now_ms = self._cluster.topics[partition.topic].config, self._cluster.schedule.now_ms
        end_offset = cleanable_end(partition.log, config, now_ms)
        compact(partition.log, config, now_ms)
        if end_of_old_segments(partition.log, config) > end_offset:
            self._on_appended(partition)
