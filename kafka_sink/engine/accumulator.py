"""Closed batches waiting for their partition's leader: one queue per partition, and which of them may go now.

Batches arrive closed (the task thread owns the open ones), so linger and fill level are settled before a batch gets
here; what remains is back-off, order and fairness. It knows no broker: leaders come in as a view, whether a batch may
go as a question to the caller.

Order: a queue is in append order; a batch that comes back for another try goes to where its sequence puts it, or to
the front where there are no sequences. At most one batch per partition goes into one request, as brokers expect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from kafka_sink.engine.cluster import ClusterView
from kafka_sink.engine.producer_batch import ProducerBatch, TopicPartition
from kafka_sink.frozen import frozen


@frozen
class Readiness:
    """Nodes with something to send, topics whose leader has to be found first, and when a back-off ends next."""

    node_ids: tuple[int, ...]
    leaderless_topics: tuple[str, ...]
    next_ready_ms: int | None


class Accumulator:
    def __init__(self) -> None:
        self._queues: dict[TopicPartition, deque[ProducerBatch]] = {}
        self._muted: set[TopicPartition] = set()
        # Where the last drain of each node stopped: the next one starts behind it, so that no partition starves.
        self._last_drained: dict[int, TopicPartition] = {}

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def __iter__(self) -> Iterator[ProducerBatch]:
        for queue in self._queues.values():
            yield from queue

    def append(self, batch: ProducerBatch) -> None:
        self._queue_of(batch).append(batch)

    def requeue(self, batch: ProducerBatch) -> None:
        """Puts a batch back that was drained before: among those with sequences in their order, else at the front."""
        queue = self._queue_of(batch)
        if not batch.has_sequence:
            queue.appendleft(batch)
            return
        ahead = []
        while queue and queue[0].has_sequence and _comes_before(queue[0], batch):
            ahead.append(queue.popleft())
        queue.appendleft(batch)
        queue.extendleft(reversed(ahead))

    def requeue_parts(self, parts: list[ProducerBatch]) -> None:
        for part in reversed(parts):
            self.requeue(part)

    def remove(self, batch: ProducerBatch) -> None:
        queue = self._queues[batch.topic_partition]
        queue.remove(batch)
        self._drop_if_empty(batch.topic_partition, queue)

    def mute(self, topic_partition: TopicPartition) -> None:
        self._muted.add(topic_partition)

    def unmute(self, topic_partition: TopicPartition) -> None:
        self._muted.discard(topic_partition)

    def readiness(self, now_ms: int, cluster: ClusterView) -> Readiness:
        node_ids: dict[int, None] = {}
        leaderless: dict[str, None] = {}
        back_off_ends_ms: list[int] = []
        for topic_partition, queue in self._queues.items():
            leader = cluster.leader_with_epoch(*topic_partition)
            if leader is None:
                leaderless[topic_partition[0]] = None
                continue
            if topic_partition in self._muted:
                continue
            for batch in _candidates(queue):
                if _is_backing_off(batch, now_ms, leader):
                    back_off_ends_ms.append(batch.retry_at_ms)
                else:
                    node_ids[leader[0]] = None
        return Readiness(tuple(node_ids), tuple(leaderless), min(back_off_ends_ms, default=None))

    def drain(
        self,
        now_ms: int,
        cluster: ClusterView,
        node_id: int,
        request_bytes_max: int,
        may_send: Callable[[ProducerBatch], bool],
    ) -> list[ProducerBatch]:
        """Takes the batches of one request: the head of each queue led by the node, as far as they fit.

        The first batch goes whatever its size, so that one large batch cannot block its partition for ever.
        """
        drained: list[ProducerBatch] = []
        size = 0
        for topic_partition in self._in_turn(node_id):
            leader = cluster.leader_with_epoch(*topic_partition)
            if leader is None or leader[0] != node_id or topic_partition in self._muted:
                continue
            queue = self._queues[topic_partition]
            batch = next((batch for batch in _candidates(queue) if may_send(batch)), None)
            if batch is None or _is_backing_off(batch, now_ms, leader):
                continue
            if drained and size + batch.encoded.size > request_bytes_max:
                break
            queue.remove(batch)
            self._drop_if_empty(topic_partition, queue)
            self._last_drained[node_id] = topic_partition
            size += batch.encoded.size
            drained.append(batch)
        return drained

    def expired(self, opened_before_ms: int) -> list[ProducerBatch]:
        """Takes out every queued batch that was opened before the given time, whatever stands in front of it."""
        expired = [batch for batch in self if batch.opened_ms <= opened_before_ms]
        for batch in expired:
            self.remove(batch)
        return expired

    def take_all(self) -> list[ProducerBatch]:
        batches = list(self)
        self._queues.clear()
        return batches

    def queue_loads(self) -> dict[str, dict[int, int]]:
        loads: dict[str, dict[int, int]] = {}
        for (topic, partition), queue in self._queues.items():
            loads.setdefault(topic, {})[partition] = len(queue)
        return loads

    def _queue_of(self, batch: ProducerBatch) -> deque[ProducerBatch]:
        return self._queues.setdefault(batch.topic_partition, deque())

    def _drop_if_empty(self, topic_partition: TopicPartition, queue: deque[ProducerBatch]) -> None:
        if not queue:
            del self._queues[topic_partition]

    def _in_turn(self, node_id: int) -> list[TopicPartition]:
        order = list(self._queues)
        last = self._last_drained.get(node_id)
        if last in self._queues:
            start = order.index(last) + 1
            return order[start:] + order[:start]
        return order


def _candidates(queue: deque[ProducerBatch]) -> Iterator[ProducerBatch]:
    """The head, and those behind it that come back with a number; nothing new goes past them."""
    for position, batch in enumerate(queue):
        if position and not batch.has_sequence:
            return
        yield batch


def _is_backing_off(batch: ProducerBatch, now_ms: int, leader: tuple[int, int]) -> bool:
    # A new leader has not refused anything yet: the wait was for the old one.
    return now_ms < batch.retry_at_ms and batch.sent_to == leader


def _comes_before(queued: ProducerBatch, batch: ProducerBatch) -> bool:
    """Sequence order, across the wrap from 2**31 - 1 to 0; another identity is older and was queued before."""
    if queued.identity != batch.identity:
        return True
    return 0 < (batch.base_sequence - queued.base_sequence) % 2**31 < 2**30
