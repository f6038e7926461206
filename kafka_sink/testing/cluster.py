"""The cluster: brokers, topics, leaders and their epochs, the internal topics, and waiters for changes of a log.

One state is shared by all brokers. Two things lag behind it, as in Kafka: a broker learns of a new leader after
`delay_ms("metadata")` (until then its Metadata responses have the old one, while Produce and Fetch use the current
state), and a new coordinator returns COORDINATOR_LOAD_IN_PROGRESS for `delay_ms("coordinator_load")`. And a leader can
be deposed without noticing: for a while it still tells its old state, of a log or of transactions (`depose_leader`).

Every replica that is up and not held out is in sync; the high watermark follows an append after
`delay_ms("replication")`. When a leader crashes, everything above the high watermark is lost.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace

from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.log import PartitionLog
from kafka_sink.testing.producer_state import ProducerEntry
from kafka_sink.testing.schedule import Schedule
from kafka_sink.testing.settings import Settings, TopicConfig
from kafka_sink.testing.topics import (
    INTERNAL_TOPICS,
    NO_LEADER,
    TRANSACTION_TOPIC,
    BrokerState,
    Partition,
    Topic,
    check_no_collision,
    check_topic_configs,
    check_topic_name,
    internal_partition,
)

# Kafka's limit for one request.
PARTITIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class View:
    """A log as served to readers by a broker that believes to be the leader; a deposed one serves its old state."""

    log: PartitionLog
    leader_epoch: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int
    producers: Mapping[int, ProducerEntry]


class Cluster:
    """All collections are in insertion order, so equal calls return equal responses."""

    def __init__(self, brokers: list[BrokerState], settings: Settings, schedule: Schedule) -> None:
        self.brokers = {broker.node_id: broker for broker in brokers}
        self.settings = settings
        self.schedule = schedule
        self.cluster_id = "embedded-kafka-cluster"
        self.topics: dict[str, Topic] = {}
        self.topics_created = 0
        self.next_producer_id = 0
        self.on_coordinator_moved: Callable[[Partition], None] = lambda _partition: None
        self.on_coordinator_loaded: Callable[[Partition], None] = lambda _partition: None
        self.on_coordinator_deposed: Callable[[Partition], None] = lambda _partition: None
        self.on_appended: Callable[[Partition], None] = lambda _partition: None
        self.on_deleted: Callable[[str], None] = lambda _topic: None
        self._waiting: dict[int, tuple[frozenset[tuple[str, int]], Callable[[], bool]]] = {}
        self._wait_count = 0
        self._stale: dict[tuple[int, str, int], tuple[int, int, int]] = {}
        self._deposed: dict[tuple[int, str, int], tuple[View, int]] = {}
        self._loading_until: dict[tuple[str, int], int] = {}

    # ---- brokers ----

    @property
    def alive(self) -> list[BrokerState]:
        return [broker for broker in self.brokers.values() if broker.is_up]

    def is_up(self, node_id: int) -> bool:
        return node_id in self.brokers and self.brokers[node_id].is_up

    @property
    def controller_id(self) -> int:
        return self.alive[0].node_id if self.alive else -1

    def stop_broker(self, node_id: int, *, is_crash: bool = False) -> None:
        """A clean stop hands leadership over after everything is replicated; a crash does not."""
        self.brokers[node_id].is_up = False
        for partition in self._all_partitions():
            if node_id in partition.in_sync and len(partition.in_sync) > 1:
                partition.in_sync.remove(node_id)
            if partition.leader_id != node_id:
                self.notify_waiters(partition)
                continue
            if not is_crash:
                partition.log.advance_high_watermark(partition.log.end_offset)
            candidates = [one for one in partition.in_sync if self.is_up(one)]
            self._set_leader(partition, candidates[0] if candidates else NO_LEADER, loses_tail=is_crash)

    def start_broker(self, node_id: int) -> None:
        self.brokers[node_id].is_up = True
        for partition in self._all_partitions():
            if node_id not in partition.replicas:
                continue
            if partition.leader_id == NO_LEADER and node_id in partition.in_sync:
                self._set_leader(partition, node_id, loses_tail=False)
            if node_id not in partition.in_sync:
                partition.in_sync.append(node_id)
            self.notify_waiters(partition)

    def _all_partitions(self) -> list[Partition]:
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    # ---- topics ----

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
        *,
        validate_only: bool = False,
    ) -> Topic:
        check_topic_name(name)
        if name in self.topics:
            raise Refused(Code.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        check_no_collision(name, self.topics)
        if partitions == -1:
            partitions = self.settings.number("num.partitions")
        if replication_factor == -1:
            replication_factor = min(self.settings.number("default.replication.factor"), len(self.alive))
        if partitions <= 0:
            raise Refused(Code.INVALID_PARTITIONS, "the number of partitions must be larger than 0")
        _check_not_too_many(partitions)
        if not 0 < replication_factor <= len(self.alive):
            raise Refused(Code.INVALID_REPLICATION_FACTOR, f"there are {len(self.alive)} brokers")
        config = TopicConfig(self.settings, check_topic_configs(configs or {}))
        self.topics_created += 1
        topic_id = struct.pack(">QQ", 0x656D626564646564, self.topics_created)
        topic = Topic(name, topic_id, config)
        for index in range(partitions):
            topic.partitions.append(self._new_partition(name, index, replication_factor))
        if not validate_only:
            self.topics[name] = topic
        return topic

    def _new_partition(self, name: str, index: int, replication_factor: int) -> Partition:
        """Leaders are assigned round robin, so that a topic of n partitions uses n brokers."""
        alive = [broker.node_id for broker in self.alive]
        replicas = tuple(alive[(index + step) % len(alive)] for step in range(replication_factor))
        return Partition(name, index, replicas, list(replicas), replicas[0])

    def delete_topic(self, name: str) -> None:
        topic = self.known_topic(name)
        del self.topics[name]
        # A recreated topic has another id, and leader epochs that start at 0.
        self._stale = {key: seen for key, seen in self._stale.items() if key[1] != name}
        self._deposed = {key: seen for key, seen in self._deposed.items() if key[1] != name}
        for partition in topic.partitions:
            self.notify_waiters(partition)
        self.on_deleted(name)

    def grow_topic(self, name: str, count: int, *, validate_only: bool = False) -> None:
        topic = self.known_topic(name)
        if count <= len(topic.partitions):
            raise Refused(Code.INVALID_PARTITIONS, f"the topic has {len(topic.partitions)} partitions already")
        _check_not_too_many(count)
        replication_factor = min(len(topic.partitions[0].replicas), len(self.alive))
        if not validate_only:
            for index in range(len(topic.partitions), count):
                topic.partitions.append(self._new_partition(name, index, replication_factor))

    def topic_by_id(self, topic_id: bytes) -> Topic:
        for topic in self.topics.values():
            if topic.topic_id == topic_id:
                return topic
        raise Refused(Code.UNKNOWN_TOPIC_ID)

    def known_topic(self, name: str) -> Topic:
        if name not in self.topics:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
        return self.topics[name]

    def partition(self, topic: str, index: int) -> Partition | None:
        known = self.topics.get(topic)
        return known.partitions[index] if known is not None and 0 <= index < len(known.partitions) else None

    def known_partition(self, topic: str, index: int) -> Partition:
        partition = self.partition(topic, index)
        if partition is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def find_led_partition(self, topic: str, index: int, broker_id: int) -> Partition:
        """Raises Refused if this broker is not its leader."""
        partition = self.known_partition(topic, index)
        if partition.leader_id != broker_id:
            raise Refused(Code.NOT_LEADER_OR_FOLLOWER)
        return partition

    def view(self, topic: str, index: int, broker_id: int) -> View:
        """For readers; raises Refused if this broker does not believe to be the leader."""
        if self.is_deposed(topic, index, broker_id):
            return self._deposed[broker_id, topic, index][0]
        return _view(self.find_led_partition(topic, index, broker_id))

    def is_deposed(self, topic: str, index: int, broker_id: int) -> bool:
        """This broker was its leader and has not noticed yet that it is no longer."""
        deposed = self._deposed.get((broker_id, topic, index))
        return deposed is not None and self.schedule.now_ms < deposed[1]

    # ---- leaders ----

    def move_leader(self, topic: str, index: int, node_id: int, *, loses_tail: bool = False) -> None:
        """To a replica that is up; `loses_tail` as if the old leader had crashed."""
        partition = self.known_partition(topic, index)
        if node_id not in partition.replicas or not self.is_up(node_id):
            raise ValueError(f"broker {node_id} cannot lead {topic}-{index}")
        if not loses_tail:
            partition.log.advance_high_watermark(partition.log.end_offset)
        self._set_leader(partition, node_id, loses_tail=loses_tail)

    def depose_leader(self, topic: str, index: int, node_id: int, unaware_ms: int) -> None:
        """Moves the leader to another replica; the old one, frozen or cut off, does not notice for a while, and tells
        readers and who describes producers or transactions what it knew. Writes to it are refused at once, where a real
        one would wait for its followers until the time-out."""
        partition = self.known_partition(topic, index)
        key, before = (partition.leader_id, topic, index), _view(partition)
        before = replace(before, producers=deepcopy(before.producers))
        if topic == TRANSACTION_TOPIC:
            self.on_coordinator_deposed(partition)
        self.move_leader(topic, index, node_id)
        until_ms = self.schedule.now_ms + unaware_ms
        self._deposed[key] = (before, until_ms)
        self._stale[key] = (key[0], before.leader_epoch, until_ms)

    def take_offline(self, topic: str, index: int) -> None:
        """The disks of all replicas in sync fail, or their brokers lose them: no leader until `bring_online`, or until
        a broker that was in sync restarts. Nothing is lost."""
        partition = self.known_partition(topic, index)
        partition.log.advance_high_watermark(partition.log.end_offset)
        self._set_leader(partition, NO_LEADER, loses_tail=False)

    def bring_online(self, topic: str, index: int) -> None:
        partition = self.known_partition(topic, index)
        candidates = [one for one in partition.in_sync if self.is_up(one)]
        if partition.leader_id == NO_LEADER and candidates:
            self._set_leader(partition, candidates[0], loses_tail=False)

    def lose_acknowledged(self, topic: str, index: int, end_offset: int) -> None:
        """Records from this offset on are lost in all replicas, also acknowledged ones: power failed before they were
        on a disk, or a replica that was not in sync became the leader."""
        partition = self.known_partition(topic, index)
        partition.log.truncate(end_offset)
        self._set_leader(partition, partition.leader_id, loses_tail=False)

    def end_outdated_views(self, node_id: int | None = None) -> None:
        """Of one broker, or of all."""
        self._deposed = {key: seen for key, seen in self._deposed.items() if node_id not in (None, key[0])}
        self._stale = {key: seen for key, seen in self._stale.items() if node_id not in (None, key[0])}

    def _set_leader(self, partition: Partition, node_id: int, *, loses_tail: bool) -> None:
        old = (partition.leader_id, partition.leader_epoch)
        if loses_tail:
            partition.log.truncate_to_high_watermark()
        partition.leader_id = node_id
        partition.leader_epoch += 1
        self._deposed.pop((node_id, *partition.key), None)
        self._stale.pop((node_id, *partition.key), None)
        for broker in self.alive:
            delay_ms = self.settings.delay_ms("metadata")
            if delay_ms > 0:
                key = (broker.node_id, *partition.key)
                self._stale[key] = (*old, self.schedule.now_ms + delay_ms)
        self.notify_waiters(partition)
        if partition.topic in INTERNAL_TOPICS:
            self._move_coordinator(partition)

    def leader_as_seen_by(self, broker_id: int, partition: Partition) -> tuple[int, int]:
        stale = self._stale.get((broker_id, *partition.key))
        if stale is not None and self.schedule.now_ms < stale[2]:
            return stale[0], stale[1]
        return partition.leader_id, partition.leader_epoch

    def hold_out_of_sync(self, topic: str, index: int, node_ids: list[int]) -> None:
        """Removes these replicas from the ISR, until `restore_in_sync`. The leader always stays."""
        partition = self.known_partition(topic, index)
        partition.in_sync = [one for one in partition.in_sync if one not in node_ids or one == partition.leader_id]
        self.notify_waiters(partition)

    def restore_in_sync(self, topic: str, index: int) -> None:
        partition = self.known_partition(topic, index)
        missing = [one for one in partition.replicas if self.is_up(one) and one not in partition.in_sync]
        partition.in_sync.extend(missing)
        self.notify_waiters(partition)

    def has_enough_replicas(self, partition: Partition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is None or len(partition.in_sync) >= topic.config.number("min.insync.replicas")

    # ---- changes of logs, and their waiters ----

    def replicate(self, partition: Partition) -> None:
        """After an append: the high watermark follows when the replicas have it."""
        end_offset = partition.log.end_offset
        leader_epoch = partition.leader_epoch

        def advance() -> None:
            if partition.leader_epoch == leader_epoch:
                partition.log.advance_high_watermark(end_offset)
                self.notify_waiters(partition)

        self.schedule.after(self.settings.delay_ms("replication"), advance)
        self.on_appended(partition)

    def wait(
        self,
        partitions: list[tuple[str, int]],
        is_over: Callable[[], bool],
        patience_ms: int | None = None,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Calls `is_over` now and after each change of these partitions, until it is true or the time is over."""
        if is_over():
            return
        self._wait_count += 1
        number = self._wait_count
        self._waiting[number] = (frozenset(partitions), is_over)

        def end() -> None:
            if self._waiting.pop(number, None) is not None:
                give_up()

        if patience_ms is not None:
            self.schedule.after(max(patience_ms, 1), end)

    def notify_waiters(self, partition: Partition) -> None:
        """After a change of the partition: its waiters check again."""
        for number, (keys, is_over) in list(self._waiting.items()):
            if number in self._waiting and partition.key in keys and is_over():
                self._waiting.pop(number, None)

    # ---- coordinators ----

    def new_producer_id(self) -> int:
        producer_id = self.next_producer_id
        self.next_producer_id += 1
        return producer_id

    def coordinator_partition(self, topic: str, key: str) -> Partition:
        """Creates the internal topic if need be; callers that must not create it check `topics` first."""
        if topic not in self.topics:
            name = "transaction.state.log" if topic == TRANSACTION_TOPIC else "offsets.topic"
            replication_factor = min(3, len(self.alive))
            configs = {"cleanup.policy": "compact"}
            if topic == TRANSACTION_TOPIC:
                # As transaction.state.log.min.isr; the model itself writes this log without regard to it.
                configs["min.insync.replicas"] = str(min(2, replication_factor))
            self.create_topic(topic, self.settings.number(f"{name}.num.partitions"), replication_factor, configs)
        partitions = self.topics[topic].partitions
        return partitions[internal_partition(key, len(partitions))]

    def check_coordinator(self, topic: str, key: str, broker_id: int) -> None:
        if topic not in self.topics or self.coordinator_partition(topic, key).leader_id != broker_id:
            raise Refused(Code.NOT_COORDINATOR)
        if self._is_loading(self.coordinator_partition(topic, key)):
            raise Refused(Code.COORDINATOR_LOAD_IN_PROGRESS)

    def coordinator_trouble(self, transactional_id: str) -> Code:
        """The error for a broker that asks the id's coordinator on behalf of a client."""
        if TRANSACTION_TOPIC not in self.topics:
            return Code.COORDINATOR_NOT_AVAILABLE
        partition = self.coordinator_partition(TRANSACTION_TOPIC, transactional_id)
        if not self.is_up(partition.leader_id):
            return Code.COORDINATOR_NOT_AVAILABLE
        return Code.COORDINATOR_LOAD_IN_PROGRESS if self._is_loading(partition) else Code.NONE

    def _is_loading(self, partition: Partition) -> bool:
        return self._loading_until.get(partition.key, -1) > self.schedule.now_ms

    def _move_coordinator(self, partition: Partition) -> None:
        self.on_coordinator_moved(partition)
        if partition.leader_id == NO_LEADER:
            return
        delay_ms = self.settings.delay_ms("coordinator_load")
        epoch = partition.leader_epoch
        self._loading_until[partition.key] = self.schedule.now_ms + delay_ms

        def load() -> None:
            if partition.leader_epoch == epoch:
                self.on_coordinator_loaded(partition)

        self.schedule.after(delay_ms, load)

    def keys_coordinated_by(self, partition: Partition, keys: Iterable[str]) -> list[str]:
        """The ids that belong to this partition of an internal topic."""
        count = len(self.topics[partition.topic].partitions)
        return [key for key in keys if internal_partition(key, count) == partition.index]


def _check_not_too_many(partitions: int) -> None:
    if partitions > PARTITIONS_MAX:
        raise Refused(Code.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _view(partition: Partition) -> View:
    log = partition.log
    limits = log.end_offset, log.high_watermark, log.last_stable_offset
    return View(log, partition.leader_epoch, *limits, log.producers.entries)
