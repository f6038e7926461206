"""Faults of brokers, partitions, topics and coordinators, made through the hooks of the broker core.

Every fault ends by itself after its length, or with `heal`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from kafka_sink.testing import BrokerCluster, Fault
from kafka_sink.testing.topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from tests.sim.network import Network
from tests.sim.scenario import TOPICS
from tests.sim.trace import Trace

REQUEST_TIMED_OUT, UNKNOWN_PRODUCER_ID = 7, 59
# Errors that a broker may answer without doing the work, by API, and errors that it may answer after doing the work.
REFUSALS = {
    "Produce": (3, 5, 6, 7, 13, 19, 56, -1, 2, 87, 29, 10),
    "InitProducerId": (14, 15, 16, 51),
    "AddPartitionsToTxn": (14, 15, 16, 51, 3),
    "AddOffsetsToTxn": (14, 15, 16, 51),
    "EndTxn": (14, 15, 16, 51, -1),
    "TxnOffsetCommit": (14, 15, 16, 3, 7),
    "FindCoordinator": (15, 14),
    "Metadata": (5, 3),
}
REFUSED_ALTHOUGH_DONE = {
    "Produce": (7, 20, 56, -1, 6),
    "InitProducerId": (15, 16),
    "AddPartitionsToTxn": (15, 16),
    "AddOffsetsToTxn": (15, 16),
    "EndTxn": (15, 16, -1),
    "TxnOffsetCommit": (7, 15, 16),
}


class ClusterFaults:
    """`topics` may lose leaders and replicas; the keys of `refusals` and `refused_although_done` are names of APIs."""

    def __init__(
        self, core: BrokerCluster, network: Network, trace: Trace, *, topics: tuple[str, ...] = TOPICS,
        refusals: Mapping[str, tuple[int, ...]] = REFUSALS,
        refused_although_done: Mapping[str, tuple[int, ...]] = REFUSED_ALTHOUGH_DONE,
    ) -> None:  # fmt: skip
        self.topics = topics
        self.refusals = refusals
        self.refused_although_done = refused_although_done
        self.core = core
        self.network = network
        self.trace = trace
        self.is_healed = False
        # Topics that were deleted on purpose; and whether a leader died with the unreplicated end of its log, which
        # acks=1 does not survive.
        self.reborn_topics: set[str] = set()
        self.lost_tails = False
        self.dead_logs: list[tuple[tuple[str, int], object]] = []
        self.replication_stalled_until_ms = 0
        # By topic: until when an outdated leader may answer for at least one of its partitions.
        self.outdated_until_ms: dict[str, int] = {}
        self.table: dict[str, Callable[[Random, int], bool]] = {
            one.__name__: one
            for one in (
                self.crash, self.stop, self.pause_broker, self.move_leader, self.lose_leader, self.depose_leader,
                self.move_coordinator, self.below_min_isr, self.api_error, self.throttle, self.delete_topic,
                self.recreate_topic, self.grow_topic, self.stall_replication, self.forget_producer,
            )
        }  # fmt: skip

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Ends a fault, unless all faults were healed before."""
        self.network.loop.after(delay_ms, lambda: None if self.is_healed else self.then(action))

    def then(self, action: Callable[[], None]) -> None:
        action()
        self.flush()

    def flush(self) -> None:
        self.network.route(self.core.tick(self.network.loop.now_ms))

    # ---- brokers ----

    def crash(self, pick: Random, length_ms: int) -> bool:
        return self._down(pick, length_ms, is_crash=True)

    def stop(self, pick: Random, length_ms: int) -> bool:
        return self._down(pick, length_ms, is_crash=False)

    def _down(self, pick: Random, length_ms: int, *, is_crash: bool) -> bool:
        alive = self.core.cluster.alive
        if not alive:
            return False
        broker = pick.choice(alive)
        self.lost_tails |= is_crash
        self.core.stop_broker(broker.node_id, is_crash=is_crash)
        self.flush()
        self.network.hang_up(broker.node_id)

        def start() -> None:
            if not broker.is_up:
                self.core.start_broker(broker.node_id)

        self.later(length_ms, start)
        return True

    def pause_broker(self, pick: Random, length_ms: int) -> bool:
        """The broker stays alive for the cluster, but does not read from clients or write to them."""
        broker_id = pick.choice(list(self.core.cluster.brokers))
        self.network.paused_until_ms[broker_id] = self.network.loop.now_ms + length_ms
        return True

    # ---- partitions ----

    def move_leader(self, pick: Random, length_ms: int) -> bool:
        return self._move(pick, self.topics, loses_tail=False)

    def lose_leader(self, pick: Random, length_ms: int) -> bool:
        self.lost_tails = True
        return self._move(pick, self.topics, loses_tail=True)

    def depose_leader(self, pick: Random, length_ms: int) -> bool:
        """A leader that was frozen or cut off does not know its successor, and shows readers its old data."""
        topic = self.core.cluster.topics.get(pick.choice(self.topics))
        if topic is None:
            return False
        partition = pick.choice(topic.partitions)
        candidates = [
            one for one in partition.in_sync if self.core.cluster.brokers[one].is_up and one != partition.leader_id
        ]
        if not candidates or partition.leader_id not in self.core.cluster.brokers:
            return False
        self.core.cluster.depose_leader(topic.name, partition.index, pick.choice(candidates), length_ms)
        until_ms = self.network.loop.now_ms + length_ms
        self.outdated_until_ms[topic.name] = max(until_ms, self.outdated_until_ms.get(topic.name, 0))
        return True

    def move_coordinator(self, pick: Random, length_ms: int) -> bool:
        return self._move(pick, (TRANSACTION_TOPIC, TRANSACTION_TOPIC, OFFSETS_TOPIC), loses_tail=False)

    def _move(self, pick: Random, topics: tuple[str, ...], *, loses_tail: bool) -> bool:
        topic = self.core.cluster.topics.get(pick.choice(topics))
        if topic is None:
            return False
        partition = pick.choice(topic.partitions)
        candidates = [one for one in partition.in_sync if self.core.cluster.brokers[one].is_up]
        if loses_tail:
            # The tail is lost only if another broker becomes the leader.
            candidates = [one for one in candidates if one != partition.leader_id]
        if not candidates:
            return False
        self.core.cluster.move_leader(topic.name, partition.index, pick.choice(candidates), loses_tail=loses_tail)
        return True

    def below_min_isr(self, pick: Random, length_ms: int) -> bool:
        topic = self.core.cluster.topics.get(pick.choice(self.topics))
        if topic is None:
            return False
        partition = pick.choice(topic.partitions)
        if partition.leader_id not in self.core.cluster.brokers:
            return False
        self.core.cluster.hold_out_of_sync(topic.name, partition.index, list(partition.replicas))

        def restore() -> None:
            if self.core.cluster.partition(topic.name, partition.index) is partition:
                self.core.cluster.restore_in_sync(topic.name, partition.index)

        self.later(length_ms, restore)
        return True

    def stall_replication(self, pick: Random, length_ms: int) -> bool:
        self.replication_stalled_until_ms = self.network.loop.now_ms + length_ms
        return True

    # ---- answers ----

    def api_error(self, pick: Random, length_ms: int) -> bool:
        is_done = pick.random() < 0.5
        table = self.refused_although_done if is_done else self.refusals
        api = pick.choice(("Produce", "Produce", *table))
        error_code = pick.choice(table[api])
        self._answer_with(
            Fault(api=api, error_code=error_code, after_apply=is_done, times=pick.choice((1, 1, 2, 6))), length_ms
        )
        return True

    def forget_producer(self, pick: Random, length_ms: int) -> bool:
        """A leader says that it has no state of the producer, which may even be wrong; half of the time right after an
        answer that left open whether a batch was written."""
        if pick.random() < 0.5:
            self._answer_with(Fault(api="Produce", error_code=REQUEST_TIMED_OUT, after_apply=True), length_ms)
        self._answer_with(
            Fault(api="Produce", error_code=UNKNOWN_PRODUCER_ID, times=pick.choice((1, 1, 2, 6))), length_ms
        )
        return True

    def _answer_with(self, fault: Fault, length_ms: int) -> None:
        self.core.faults.add(fault)

        def end() -> None:
            if fault in self.core.faults.planned:
                self.core.faults.planned.remove(fault)

        self.later(length_ms, end)

    def throttle(self, pick: Random, length_ms: int) -> bool:
        api = pick.choice(("Produce", "Produce", "Metadata", "EndTxn", "InitProducerId", "ApiVersions"))
        self.core.throttle_times_ms[api] = pick.choice((5, 50, 500))
        self.later(length_ms, lambda: self.core.throttle_times_ms.clear())
        return True

    # ---- topics ----

    def delete_topic(self, pick: Random, length_ms: int) -> bool:
        topic = self.core.cluster.topics.get(pick.choice(self.topics))
        if topic is None:
            return False
        count = len(topic.partitions)
        self._delete(topic.name)
        self.later(length_ms, lambda: self.create(topic.name, count))
        return True

    def recreate_topic(self, pick: Random, length_ms: int) -> bool:
        topic = self.core.cluster.topics.get(pick.choice(self.topics))
        if topic is None:
            return False
        count = len(topic.partitions)
        self._delete(topic.name)
        self.create(topic.name, max(1, count + pick.choice((-1, 0, 0, 1))))
        return True

    def _delete(self, name: str) -> None:
        self.reborn_topics.add(name)
        for partition in self.core.cluster.topics[name].partitions:
            self.dead_logs.append(((name, partition.index), partition.log))
        self.core.cluster.delete_topic(name)

    def create(self, name: str, count: int) -> None:
        if name not in self.core.cluster.topics and self.core.cluster.alive:
            replication_factor = min(3, len(self.core.cluster.alive))
            self.core.cluster.create_topic(name, count, replication_factor)

    def _replace_what_has_too_few_replicas(self) -> None:
        """A topic that was created while brokers were down has too few replicas for writes with acks=all."""
        needed = self.core.settings.number("min.insync.replicas")
        for name in self.topics:
            topic = self.core.cluster.topics.get(name)
            if topic is not None and any(len(partition.replicas) < needed for partition in topic.partitions):
                self._delete(name)

    def grow_topic(self, pick: Random, length_ms: int) -> bool:
        topic = self.core.cluster.topics.get(pick.choice(self.topics))
        if topic is None or len(topic.partitions) > 6 or not self.core.cluster.alive:
            return False
        self.core.cluster.grow_topic(topic.name, len(topic.partitions) + 1)
        return True

    # ---- the end ----

    def heal(self) -> None:
        self.is_healed = True
        self.core.faults.clear()
        self.core.throttle_times_ms.clear()
        self.replication_stalled_until_ms = 0
        self.core.cluster.end_outdated_views()
        self.outdated_until_ms.clear()
        for broker in self.core.cluster.brokers.values():
            if not broker.is_up:
                self.core.start_broker(broker.node_id)
        self._replace_what_has_too_few_replicas()
        for name in self.topics:
            self.create(name, 2)
        for topic in self.core.cluster.topics.values():
            for partition in topic.partitions:
                self.core.cluster.restore_in_sync(topic.name, partition.index)
        self.flush()
