"""Writes the transaction coordinator's markers to the logs of a transaction's partitions."""

from __future__ import annotations

from collections.abc import Callable

from kafka_sink.testing.batches import Marker
from kafka_sink.testing.cluster import Cluster
from kafka_sink.testing.errors import Refused
from kafka_sink.testing.groups import Groups
from kafka_sink.testing.topics import NO_LEADER, OFFSETS_TOPIC, Partition
from kafka_sink.testing.transaction_state import TopicPartition


class Markers:
    def __init__(self, cluster: Cluster, groups: Groups) -> None:
        self._cluster = cluster
        self._groups = groups
        # Called with each marker that is dropped.
        self.on_dropped: Callable[[TopicPartition, Marker], None] = lambda _partition, _marker: None

    def is_dropped(self, partition: TopicPartition, coordinator_id: int) -> bool:
        """KAFKA-20734: looking for the leader, the coordinator takes a partition without one for a deleted partition.

        What counts is the metadata of its own broker. A leader that is known but down is tried again.
        """
        known = self._cluster.partition(*partition)
        if known is None or not self._cluster.settings.drops_leaderless_markers:
            return False
        leader_id, _ = self._cluster.leader_as_seen_by(coordinator_id, known)
        return leader_id == NO_LEADER

    def write(
        self, partition: TopicPartition, marker: Marker, *, is_strict: bool, done: Callable[[bool], None]
    ) -> None:
        """`done(False)`: no leader now, try again. `done(True)`: replicated, or no longer needed.

        A deleted partition needs no marker; one that refuses it has a newer epoch and needs none, either.
        """
        known = self._cluster.partition(*partition)
        if known is None or known.leader_id == NO_LEADER:
            done(known is None)
            return
        try:
            now_ms = self._cluster.schedule.now_ms
            config = self._cluster.known_topic(known.topic).config
            known.log.append_marker(marker, config, is_strict=is_strict, leader_epoch=known.leader_epoch, now_ms=now_ms)
        except Refused:
            done(True)
            return
        if known.topic == OFFSETS_TOPIC:
            group_ids = self._cluster.keys_coordinated_by(known, self._groups.groups)
            self._groups.end_transaction(marker.producer_id, group_ids, is_commit=marker.is_commit)
        self._await_replicas(known, done)

    def _await_replicas(self, known: Partition, done: Callable[[bool], None]) -> None:
        """Markers are written with acks=all: one that is lost with its leader is written again."""
        end_offset, leader_epoch = known.log.end_offset, known.leader_epoch
        is_answered = False

        def is_over() -> bool:
            nonlocal is_answered
            is_gone = self._cluster.partition(*known.key) is not known
            is_written = is_gone or known.log.high_watermark >= end_offset
            # The callback may change this partition, and so call this again.
            if not is_answered and (is_written or known.leader_epoch != leader_epoch):
                is_answered = True
                done(is_written)
            return is_answered

        self._cluster.replicate(known)
        self._cluster.wait([known.key], is_over)
