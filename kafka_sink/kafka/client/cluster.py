"""A view of the cluster: brokers, topics, partition leaders. Immutable, so that application threads may read it.

Every change makes a new view from the old one and a response of a broker. Brokers learn of changes at different times,
so a response may be older than the view. Two rules keep an old response from undoing a newer one:

1. The leader epoch of a partition never goes back (KIP-320). A response with a lower epoch changes nothing.
2. Except when the topic was deleted and created again: it has a new topic id, and its epochs start over.

It must not know connections, time or how the responses were obtained.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from kafka_sink.errors import RemoteProtocolError
from kafka_sink.frozen import frozen
from kafka_sink.kafka.wire.codes import UNKNOWN_TOPIC_OR_PARTITION

NO_LEADER = -1
NO_EPOCH = -1
NO_TOPIC_ID = bytes(16)

# The largest clusters known run a few thousand brokers and, with KRaft, about two million partitions. A response with
# more is from a broken or hostile peer, and would cost unbounded memory.
BROKERS_MAX = 10_000
PARTITIONS_MAX = 4_000_000
HOST_CHARACTERS_MAX = 255  # RFC 1035: a domain name has at most 255 octets
# Printable ASCII that never occurs in a host name or address, but in attempts to inject something else.
HOST_CHARACTERS_REFUSED = frozenset("/\\@?#\"'<>`{}|^&;,*$()=!+~")


def topic_id_text(topic_id: bytes) -> str:
    """As Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


@frozen
class Endpoint:
    host: str
    port: int
    rack: str | None = None


class FoundCoordinator(NamedTuple):
    """`first_refresh` of the metadata after that: a coordinator that has just joined is not in an earlier one."""

    node_id: int
    first_refresh: int


class PartitionLeader(NamedTuple):
    leader_id: int = NO_LEADER
    leader_epoch: int = NO_EPOCH


@frozen
class TopicView:
    """While `error_code` is set the partitions have no leader; they are kept for the epochs seen so far."""

    name: str
    topic_id: bytes = NO_TOPIC_ID  # brokers before 2.8 know none
    partitions: Mapping[int, PartitionLeader] = field(default_factory=lambda: MappingProxyType({}))
    error_code: int = 0
    is_internal: bool = False
    # The lowest number of replicas of any partition.
    replica_count: int = 0
    # While `error_code` is set: the partitions that had no leader when brokers listed them last, unless the topic is
    # known to be deleted (`with_deleted`).
    leaderless: frozenset[int] = frozenset()

    def is_leaderless(self, partition: int) -> bool:
        """Whether brokers have listed it without a leader: all of its replicas, or their disks, are down. An error for
        the whole topic lists no partitions, so what was told before it counts."""
        view = self.partitions.get(partition)
        if view is None or view.leader_id != NO_LEADER:
            return False
        return not self.error_code or partition in self.leaderless


class PartitionInfo(NamedTuple):
    """`leader_id` is None while the partition has no leader."""

    topic: str
    partition: int
    leader_id: int | None
    leader_epoch: int


@frozen
class ClusterView:
    brokers: Mapping[int, Endpoint] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicView] = field(default_factory=lambda: MappingProxyType({}))
    cluster_id: str | None = None
    controller_id: int = NO_LEADER

    def partition_count(self, topic: str) -> int | None:
        """None while the topic is unknown or has an error: its records cannot be assigned to partitions yet."""
        topic_view = self.topics.get(topic)
        if topic_view is None or topic_view.error_code or not topic_view.partitions:
            return None
        # Partition numbers are dense in Kafka; a gap in a response must not change the partition of all other keys.
        return max(topic_view.partitions) + 1

    def available_partitions(self, topic: str) -> tuple[int, ...]:
        """The partitions that have a known leader now, in order."""
        topic_view = self.topics.get(topic)
        if topic_view is None:
            return ()
        return tuple(sorted(index for index, view in topic_view.partitions.items() if view.leader_id in self.brokers))

    def leader_with_epoch(self, topic: str, partition: int) -> PartitionLeader | None:
        """None when there is no leader or when the leader's address is unknown."""
        topic_view = self.topics.get(topic)
        view = None if topic_view is None else topic_view.partitions.get(partition)
        return None if view is None or view.leader_id not in self.brokers else view

    def leader(self, topic: str, partition: int) -> int | None:
        leader = self.leader_with_epoch(topic, partition)
        return None if leader is None else leader.leader_id

    def is_leaderless(self, topic: str, partition: int) -> bool:
        topic_view = self.topics.get(topic)
        return topic_view is not None and topic_view.is_leaderless(partition)

    def partition_infos(self, topic: str) -> list[PartitionInfo]:
        found = self.topics[topic].partitions
        return [
            PartitionInfo(topic, index, self.leader(topic, index), found[index].leader_epoch) for index in sorted(found)
        ]

    def leader_rack(self, topic: str, partition: int) -> str | None:
        leader = self.leader(topic, partition)
        return None if leader is None else self.brokers[leader].rack

    def topic_ids(self) -> dict[str, bytes]:
        return {view.name: view.topic_id for view in self.topics.values() if view.topic_id != NO_TOPIC_ID}

    def topic_name(self, topic_id: bytes) -> str | None:
        if topic_id == NO_TOPIC_ID:
            return None
        return next((view.name for view in self.topics.values() if view.topic_id == topic_id), None)


def merge(
    view: ClusterView,
    metadata_body: Mapping[str, Any],
    *,
    asked: Collection[str] = (),
    has_reliable_epochs: bool = True,
) -> ClusterView:
    """The view after a Metadata response. Topics that are not in it are kept, unless they were `asked` for.

    `has_reliable_epochs` is False for responses before version 9: brokers older than 2.4 report wrong epochs during a
    reassignment, so that the epoch check would drop correct responses.
    """
    brokers = _read_brokers(metadata_body["brokers"])
    partition_count = sum(len(topic["partitions"]) for topic in metadata_body["topics"])
    if partition_count > PARTITIONS_MAX:
        raise RemoteProtocolError(f"a Metadata answer names {partition_count} partitions, more than {PARTITIONS_MAX}")
    cluster_id = metadata_body.get("cluster_id")
    known = view.topics
    if view.cluster_id is not None and cluster_id is not None and cluster_id != view.cluster_id:
        known = {}  # another cluster: its epochs and ids are not comparable
    topics = dict(known)
    for answer in metadata_body["topics"]:
        name = answer["name"]
        # A null name is for a request by topic id, which is never sent here.
        if name is not None:
            topics[name] = _merge_topic(known.get(name), answer, has_reliable_epochs)
    for name in set(asked) - {answer["name"] for answer in metadata_body["topics"]}:
        topics[name] = _without_leaders(topics.get(name, TopicView(name)), UNKNOWN_TOPIC_OR_PARTITION)
    return ClusterView(
        brokers=MappingProxyType(brokers),
        topics=MappingProxyType(topics),
        cluster_id=cluster_id,
        controller_id=metadata_body.get("controller_id", NO_LEADER),
    )


def with_leader_hints(view: ClusterView, produce_body: Mapping[str, Any]) -> ClusterView:
    """The view after the leader hints of a Produce response (KIP-951); the same object if nothing is new.

    A hint counts only if it is complete, newer than the view, and about a known partition.
    """
    endpoints = dict(view.brokers)
    endpoints.update(_read_brokers(produce_body.get("node_endpoints") or ()))
    topics: dict[str, TopicView] = {}
    for answer in produce_body["responses"]:
        name = answer.get("name") or view.topic_name(answer.get("topic_id") or NO_TOPIC_ID)
        topic_view = None if name is None else view.topics.get(name)
        if name is None or topic_view is None:
            continue
        partitions = dict(topic_view.partitions)
        for partition_answer in answer["partition_responses"]:
            hint = partition_answer.get("current_leader") or {}
            hinted = PartitionLeader(hint.get("leader_id", NO_LEADER), hint.get("leader_epoch", NO_EPOCH))
            known = partitions.get(partition_answer["index"])
            if known is not None and hinted.leader_epoch > known.leader_epoch and hinted.leader_id in endpoints:
                partitions[partition_answer["index"]] = hinted
        if partitions != topic_view.partitions:
            topics[name] = replace(topic_view, partitions=MappingProxyType(partitions))
    if not topics:
        return view
    return replace(view, brokers=MappingProxyType(endpoints), topics=MappingProxyType({**view.topics, **topics}))


def without_topics(view: ClusterView, names: Collection[str]) -> ClusterView:
    kept = {name: topic_view for name, topic_view in view.topics.items() if name not in names}
    return replace(view, topics=MappingProxyType(kept))


def without_brokers(view: ClusterView) -> ClusterView:
    """Back to the start: no partition has a reachable leader, but counts, ids and epochs are remembered."""
    return replace(view, brokers=MappingProxyType({}))


def with_deleted(view: ClusterView, names: Collection[str]) -> ClusterView:
    """These topics, of which no broker knows, were deleted: none of their partitions waits for a leader."""
    deleted = {name: replace(view.topics[name], leaderless=frozenset()) for name in names}
    return replace(view, topics=MappingProxyType({**view.topics, **deleted})) if deleted else view


def _merge_topic(known: TopicView | None, answer: Mapping[str, Any], has_reliable_epochs: bool) -> TopicView:
    name, error_code = answer["name"], answer["error_code"]
    topic_id = answer.get("topic_id") or NO_TOPIC_ID
    if error_code:
        # Kept under the old id: if the topic reappears with another id it is a new one, with the same id the old one.
        return _without_leaders(known or TopicView(name), error_code)
    old_partitions: Mapping[int, PartitionLeader] = {} if known is None else known.partitions
    if known is not None and topic_id not in (NO_TOPIC_ID, known.topic_id):
        old_partitions = {}
    partitions: dict[int, PartitionLeader] = {}
    if known is not None and topic_id != NO_TOPIC_ID and topic_id == known.topic_id:
        # A topic's partition count never decreases: a response that lacks some is older than their creation.
        partitions.update(old_partitions)
    for partition_answer in answer["partitions"]:
        index = partition_answer["partition_index"]
        if not 0 <= index < PARTITIONS_MAX:
            raise RemoteProtocolError(f"Metadata answer names partition {index} of topic {name}")
        leader_id = partition_answer["leader_id"]
        epoch = partition_answer.get("leader_epoch", NO_EPOCH) if has_reliable_epochs else NO_EPOCH
        old = old_partitions.get(index, PartitionLeader())
        is_stale = epoch != NO_EPOCH and epoch < old.leader_epoch
        partitions[index] = old if is_stale else PartitionLeader(max(leader_id, NO_LEADER), epoch)
    replica_count = min((len(each.get("replica_nodes", ())) for each in answer["partitions"]), default=0)
    is_internal = bool(answer.get("is_internal", False))
    return TopicView(name, topic_id, MappingProxyType(partitions), 0, is_internal, replica_count)


def _without_leaders(topic_view: TopicView, error_code: int) -> TopicView:
    partitions = {index: view._replace(leader_id=NO_LEADER) for index, view in topic_view.partitions.items()}
    leaderless = frozenset(index for index in partitions if topic_view.is_leaderless(index))
    return replace(topic_view, partitions=MappingProxyType(partitions), error_code=error_code, leaderless=leaderless)


def _read_brokers(brokers: Iterable[Mapping[str, Any]]) -> dict[int, Endpoint]:
    endpoints: dict[int, Endpoint] = {}
    for broker in brokers:
        if len(endpoints) >= BROKERS_MAX:
            raise RemoteProtocolError(f"an answer names more than {BROKERS_MAX} brokers")
        node_id, host, port = broker["node_id"], broker["host"], broker["port"]
        if node_id < 0:
            raise RemoteProtocolError(f"an answer names a broker with the negative id {node_id}")
        if not is_host_plausible(host) or not 0 < port < 65_536:
            raise RemoteProtocolError(f"an answer gives broker {node_id} the impossible address {host[:80]!a}:{port}")
        endpoints[node_id] = Endpoint(host, port, broker.get("rack"))
    return endpoints


def is_host_plausible(host: str) -> bool:
    """Host names, with the underscores people use, and addresses of both families; neither paths nor URLs."""
    return 0 < len(host) <= HOST_CHARACTERS_MAX and all(
        "!" <= character <= "~" and character not in HOST_CHARACTERS_REFUSED for character in host
    )
