"""What the transaction coordinator needs of the rest of the cluster: producer ids, its epoch, and markers in logs."""

from __future__ import annotations

from kafka_sink.testing.cluster import Cluster
from kafka_sink.testing.errors import Refused
from kafka_sink.testing.groups import Groups
from kafka_sink.testing.topics import NO_LEADER, OFFSETS_TOPIC, TRANSACTION_TOPIC, internal_partition
from kafka_sink.testing.transaction_state import TopicPartition, TransactionRecord


class Markers:
    def __init__(self, cluster: Cluster, groups: Groups) -> None:
        self._cluster = cluster
        self._groups = groups

    def new_producer_id(self) -> int:
        return self._cluster.new_producer_id()

    def coordinator_epoch(self, transactional_id: str) -> int:
        return self._cluster.coordinator_partition(TRANSACTION_TOPIC, transactional_id).leader_epoch

    def write_marker(
        self, partition: TopicPartition, record: TransactionRecord, *, is_commit: bool, coordinator_epoch: int
    ) -> bool:
        """A partition that is gone needs no marker; one that refuses it has seen a newer epoch, which settles it too.

        The producer's epoch comes from the record in Prepare*: with version 2 it is above that of the data.
        """
        known = self._cluster.partition(*partition)
        if known is None:
            return True
        if known.leader_id == NO_LEADER:
            return False
        try:
            known.log.append_marker(
                producer_id=record.producer_id, producer_epoch=record.producer_epoch, is_commit=is_commit,
                coordinator_epoch=coordinator_epoch, is_strict=record.version >= 2, leader_epoch=known.leader_epoch,
                now_ms=self._cluster.schedule.now_ms,
            )
        except Refused:
            return True
        if known.topic == OFFSETS_TOPIC:
            count = len(self._cluster.topics[OFFSETS_TOPIC].partitions)
            group_ids = [one for one in self._groups.groups if internal_partition(one, count) == known.index]
            self._groups.end_transaction(record.producer_id, group_ids, is_commit=is_commit)
        self._cluster.appended(known)
        return True
