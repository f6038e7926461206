"""Partition information for users."""

from __future__ import annotations

from typing import NamedTuple

from kafka_sink.client.cluster import ClusterView


class PartitionInfo(NamedTuple):
    """`leader_id` is None while the partition has no leader."""

    topic: str
    partition: int
    leader_id: int | None
    leader_epoch: int


def partition_infos(cluster: ClusterView, topic: str) -> list[PartitionInfo]:
    found = cluster.topics[topic].partitions
    return [
        PartitionInfo(topic, index, cluster.leader(topic, index), found[index].leader_epoch) for index in sorted(found)
    ]
