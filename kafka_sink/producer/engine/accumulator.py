"""Closed batches waiting for their partition's leader: one queue per partition, and which may be sent now.

Batches arrive closed (the appender owns the open ones), so linger and batch size are already handled; what remains
is back-off, order and fairness. It knows no broker: leaders are passed in as a view, and the caller decides whether a
batch may be sent.

Order: a queue is in append order; a batch to be retried is inserted by its sequence, or at the front if there are no
sequences. A request contains at most one batch per partition, as brokers require.

The cost of a sender iteration must not grow with the number of partitions. So partitions with something to send are
kept by leader in round-robin order, and regrouped only when the cluster view changes. Only partitions with a batch that
was sent before are checked one by one, because of its back-off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from math import inf

from kafka_sink.kafka.client.cluster import ClusterView, PartitionLeader
from kafka_sink.producer.engine.producer_batch import ProducerBatch, TopicPartition


class Accumulator:
    def __init__(self, loads: dict[str, dict[int, int]]) -> None:
        """`loads`, by topic and partition: how many batches are queued; partitions with none are absent."""
        self._queues: dict[TopicPartition, deque[ProducerBatch]] = {}
        self.loads = loads
        self.batch_count = 0
        # Partitions whose queue may hold batches that were sent before.
        self._retried: set[TopicPartition] = set()
        # By leader: the partitions with queued batches; the first is next.
        self._waiting: dict[int, dict[TopicPartition, None]] = {}
        # Partitions with queued batches and no leader.
        self.leaderless: dict[TopicPartition, None] = {}
        # The view that they are grouped by.
        self.cluster = ClusterView()

    def __iter__(self) -> Iterator[ProducerBatch]:
        for queue in self._queues.values():
            yield from queue

    # ---- adding and removing ----

    def append(self, batch: ProducerBatch) -> None:
        queue = self._queues.get(batch.topic_partition)
        if queue is None:
            queue = self._queue_of(batch)
        queue.append(batch)
        self.batch_count += 1
        self.loads[batch.topic][batch.partition] = len(queue)

    def requeue(self, batch: ProducerBatch) -> None:
        """Puts a drained batch back: by sequence if it has one, else at the front."""
        queue = self._queue_of(batch)
        self._retried.add(batch.topic_partition)
        self.batch_count += 1
        ahead = []
        while queue and queue[0].has_sequence and _comes_before(queue[0], batch):
            ahead.append(queue.popleft())
        queue.appendleft(batch)
        queue.extendleft(reversed(ahead))
        self.loads[batch.topic][batch.partition] = len(queue)

    def remove(self, batch: ProducerBatch) -> None:
        topic_partition = batch.topic_partition
        queue = self._queues[topic_partition]
        queue.remove(batch)
        self.batch_count -= 1
        if queue:
            self.loads[batch.topic][batch.partition] = len(queue)
        else:
            del self._queues[topic_partition], self.loads[batch.topic][batch.partition]
            self._retried.discard(topic_partition)
            self._take_out(topic_partition)

    def take_all(self, opened_until_ms: float = inf) -> list[ProducerBatch]:
        """Takes out the batches that were opened until then, wherever they are in their queues."""
        batches = [batch for batch in self if batch.opened_ms <= opened_until_ms]
        for batch in batches:
            self.remove(batch)
        return batches

    # ---- draining ----

    def regroup(self, cluster: ClusterView) -> None:
        """By the leaders of a new view; the order of the partitions is kept."""
        order = [each for waiting in self._waiting.values() for each in waiting]
        order += self._queues
        self.cluster = cluster
        self._waiting.clear()
        self.leaderless.clear()
        for topic_partition in dict.fromkeys(order):
            self._put_in(topic_partition)

    def readiness(self, now_ms: int) -> tuple[list[int], list[str], int | None]:
        """Nodes with something to send, topics without a known leader, and when the next back-off ends."""
        leaderless = list(dict.fromkeys([topic for topic, _ in self.leaderless])) if self.leaderless else []
        if not self._retried:
            return list(self._waiting), leaderless, None
        back_off_ends_ms: list[int] = []
        resting: dict[int, int] = {}
        for topic_partition in self._retried:
            leader = self.cluster.leader_with_epoch(*topic_partition)
            if leader is None:
                continue
            is_resting = True
            for batch in _candidates(self._queues[topic_partition]):
                if _is_backing_off(batch, now_ms, leader):
                    back_off_ends_ms.append(batch.retry_at_ms)
                else:
                    is_resting = False
            if is_resting:
                resting[leader.leader_id] = resting.get(leader.leader_id, 0) + 1
        nodes = [node_id for node_id, waiting in self._waiting.items() if len(waiting) > resting.get(node_id, 0)]
        return nodes, leaderless, min(back_off_ends_ms, default=None)

    def drain(
        self,
        now_ms: int,
        node_id: int,
        request_bytes_max: int,
        may_send: Callable[[ProducerBatch], bool],
    ) -> dict[TopicPartition, ProducerBatch]:
        """Takes the batches of one request: the head of each queue led by the node, as far as they fit.

        The first batch is taken whatever its size, so that a large batch cannot block its partition forever.
        """
        waiting = self._waiting.get(node_id)
        if waiting is None:
            return {}
        drained: dict[TopicPartition, ProducerBatch] = {}
        size = 0
        for topic_partition in list(waiting):
            batch = self._queues[topic_partition][0]
            if topic_partition in self._retried:
                again = self._next_retry(topic_partition, now_ms, may_send)
                if not _is_retried(batch):
                    self._retried.remove(topic_partition)
                if again is None:
                    continue
                batch = again
            elif not may_send(batch):
                continue
            if drained and size + batch.size > request_bytes_max:
                break
            self.remove(batch)
            if topic_partition in waiting:  # after all others: no partition starves
                del waiting[topic_partition]
                waiting[topic_partition] = None
            size += batch.size
            drained[topic_partition] = batch
        return drained

    def _next_retry(
        self, topic_partition: TopicPartition, now_ms: int, may_send: Callable[[ProducerBatch], bool]
    ) -> ProducerBatch | None:
        """When the next retry is due in a partition with batches that were sent before."""
        queue = self._queues[topic_partition]
        leader = self.cluster.leader_with_epoch(*topic_partition)
        batch = next((batch for batch in _candidates(queue) if may_send(batch)), None)
        return None if batch is None or leader is None or _is_backing_off(batch, now_ms, leader) else batch

    # ---- inside ----

    def _queue_of(self, batch: ProducerBatch) -> deque[ProducerBatch]:
        topic_partition = batch.topic_partition
        queue = self._queues.get(topic_partition)
        if queue is None:
            queue = self._queues[topic_partition] = deque()
            if batch.topic not in self.loads:
                self.loads[batch.topic] = {}
            self._put_in(topic_partition)
        return queue

    def _put_in(self, topic_partition: TopicPartition) -> None:
        leader = self.cluster.leader_with_epoch(*topic_partition)
        if leader is None:
            self.leaderless[topic_partition] = None
        else:
            self._waiting.setdefault(leader.leader_id, {})[topic_partition] = None

    def _take_out(self, topic_partition: TopicPartition) -> None:
        self.leaderless.pop(topic_partition, None)
        leader = self.cluster.leader_with_epoch(*topic_partition)
        if leader is not None:
            waiting = self._waiting.get(leader.leader_id, {})
            waiting.pop(topic_partition, None)
            if not waiting:
                self._waiting.pop(leader.leader_id, None)


def _candidates(queue: deque[ProducerBatch]) -> Iterator[ProducerBatch]:
    """The head, and the retried batches with a sequence that follow it; no new batch overtakes them. Each has a
    back-off of its own, or a leader would get one as fast as it refuses it."""
    for position, batch in enumerate(queue):
        if position and not batch.has_sequence:
            return
        yield batch


def _is_retried(batch: ProducerBatch) -> bool:
    """It was drained before, or is part of a split batch that was. These precede all new batches in the queue."""
    return batch.attempts > 0 or batch.split_from is not None


def _is_backing_off(batch: ProducerBatch, now_ms: int, leader: PartitionLeader) -> bool:
    # The back-off was for the old leader; a new one has not refused anything yet.
    return now_ms < batch.retry_at_ms and batch.sent_to == leader


def _comes_before(queued: ProducerBatch, batch: ProducerBatch) -> bool:
    """Sequence order, across the wrap from 2**31 - 1 to 0. Both are of one identity: only an epoch bump gives another
    one, to all batches of the partition at once."""
    return 0 < (batch.base_sequence - queued.base_sequence) % 2**31 < 2**30
