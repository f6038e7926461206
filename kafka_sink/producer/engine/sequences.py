"""Sequence numbers: they make resends idempotent and prove the order (KIP-98, KIP-360).

A broker keeps the last five batches of each (producer id, epoch) per partition. A batch it remembers is acknowledged
with its old offset; one whose base sequence is not the next is rejected as out of order. So a batch gets its sequence
when it is first drained and keeps it over all resends, and unacknowledged batches are resent in sequence order.

The first batch of a producer id is sent to a partition alone. A leader without state for the producer accepts any first
sequence, so with several in flight and the first one refused (too large, too few replicas for a moment) the second
would be accepted in its place, and the first could never be written. A recreated topic has no state either.

At most four batches may overtake a batch. With one more after it in the log the leader has forgotten it and answers
"out of order" for a batch that it has. While a resend is unacknowledged later batches may be acknowledged, for instance
if the resend went to an old leader; so the limit is on sequences assigned since, not on batches in flight.

Two exceptions:

Unresolved. A batch expired (delivery.timeout.ms) after it had been sent without a definite response: whether its
sequences are used is unknown. No new sequence is assigned in that partition until every later batch has a response. If
the last of them was acknowledged, the broker accepted all sequences, so the expired batch is in the log. If not, there
may be a gap, which only a new epoch (sequences start at 0 again) resolves.

Epoch bump. Without transactions the producer bumps its epoch locally: no other producer uses the id, so brokers accept
it. A batch that is in the log under its old sequence must not get a new one, or it would be written twice. So the epoch
is bumped only when every unsettled batch of the affected partitions is certainly not in the log. Those that may be are
resent with their old sequences, one by one, until a broker gives a definite response. Java renumbers at once. In a
transaction nothing is ever renumbered: the transaction is aborted instead.

"Out of order" means that no send of a batch was appended only if no later batch is in the log. A broker enforces the
order only as long as it has the producer's state: a recreated topic accepts any first sequence, and a restarted broker
remembers only the last batch. Then the batch after the refused one is a duplicate, and whether the refused one is in
the log is unknown. So refusals are evaluated from the last batch backwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kafka_sink.errors import LocalProtocolError
from kafka_sink.formats.records.batch import NO_SEQUENCE
from kafka_sink.kafka.client.producer_identity import PRODUCER_EPOCH_MAX
from kafka_sink.producer.engine.producer_batch import NO_IDENTITY, ProducerBatch, ProducerIdentity, TopicPartition

SEQUENCE_MODULUS = 2**31
# How many batches a broker remembers per producer and partition.
BATCHES_REMEMBERED = 5


def sequence_after(sequence: int, record_count: int) -> int:
    """The sequence `record_count` records later; after 2**31 - 1 comes 0."""
    return (sequence + record_count) % SEQUENCE_MODULUS


@dataclass(slots=True)
class PartitionSequences:
    identity: ProducerIdentity
    next_sequence: int = 0
    # The sequence of the last record known to be in the log; -1 before the first.
    last_acked_sequence: int = NO_SEQUENCE
    # Every batch with a sequence and no final response, in sequence order: in flight or queued for a retry.
    unacked: list[ProducerBatch] = field(default_factory=list)
    # Base sequences of acknowledged batches after the first of `unacked`.
    overtakers: list[int] = field(default_factory=list)
    is_unresolved: bool = False

    def forget(self, batch: ProducerBatch) -> None:
        self.unacked.remove(batch)
        if self.overtakers:
            first = self.unacked[0].base_sequence if self.unacked else self.next_sequence
            self.overtakers = [sequence for sequence in self.overtakers if _is_later(sequence, first)]


class Sequences:
    def __init__(self) -> None:
        self.identity = NO_IDENTITY
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self.to_renumber: dict[TopicPartition, None] = {}
        # Partitions whose leader has accepted a batch of this producer id; see above on the first batch.
        self._known_at: set[TopicPartition] = set()
        self._topic_ids: dict[str, bytes] = {}
        # False: no partition is unresolved, so none needs to be checked.
        self.may_be_unresolved = False

    # ---- queries ----

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions that batches were sent to since the transaction epoch began."""
        return self._partitions.keys()

    def may_send(self, batch: ProducerBatch) -> bool:
        if batch.base_sequence != NO_SEQUENCE:
            sent_to = self._partitions[batch.topic_partition]
            if batch.topic_partition in self.to_renumber:
                return batch is _next_in_doubt(sent_to)
            # A resend waits until everything before it is settled: in effect one batch in flight meanwhile.
            return sent_to.unacked[0] is batch
        # May it get a sequence?
        if self.identity.producer_id < 0:
            return False
        partition = self._partitions.get(batch.topic_partition)
        if partition is None:
            return True
        if partition.is_unresolved or batch.topic_partition in self.to_renumber:
            return False
        unacked = partition.unacked
        if unacked and (
            # After one more batch the broker could forget the first unacknowledged one.
            len(unacked) + len(partition.overtakers) >= BATCHES_REMEMBERED
            or batch.topic_partition not in self._known_at
        ):
            return False
        # Batches of the old epoch first: a broker rejects them after one with the new epoch.
        return not unacked or partition.identity == self.identity

    def is_gap_before(self, batch: ProducerBatch) -> bool:
        """Whether a batch that is refused as out of order will be refused again, although all before it are settled."""
        partition = self._partitions[batch.topic_partition]
        if partition.is_unresolved:
            return partition.unacked[0] is batch
        return batch.base_sequence == sequence_after(partition.last_acked_sequence, 1)

    def settle_unresolved(self) -> tuple[TopicPartition, ...]:
        """Checks unresolved partitions in which nothing is unacknowledged; returns those that may have a gap."""
        if not self.may_be_unresolved:
            return ()
        unresolved = [key for key, value in self._partitions.items() if value.is_unresolved]
        self.may_be_unresolved = bool(unresolved)
        gaps = []
        for topic_partition in unresolved:
            partition = self._partitions[topic_partition]
            if partition.unacked:
                continue
            if partition.next_sequence == sequence_after(partition.last_acked_sequence, 1):
                partition.is_unresolved = False
            else:
                gaps.append(topic_partition)
        return tuple(gaps)

    # ---- events ----

    def on_topics(self, topic_ids: Mapping[str, bytes]) -> None:
        """A topic with a new id has new logs without producer state."""
        for topic, topic_id in topic_ids.items():
            if self._topic_ids.setdefault(topic, topic_id) != topic_id:
                self._topic_ids[topic] = topic_id
                self._known_at = {key for key in self._known_at if key[0] != topic}

    def on_drained(self, batch: ProducerBatch) -> None:
        """Assigns the sequence of a batch that is about to be sent for the first time."""
        if batch.base_sequence != NO_SEQUENCE:
            return
        partition = self._partitions.get(batch.topic_partition)
        if partition is None or partition.identity != self.identity:
            partition = self._partitions[batch.topic_partition] = PartitionSequences(self.identity)
        batch.identity = self.identity
        batch.base_sequence = partition.next_sequence
        partition.next_sequence = (partition.next_sequence + batch.record_count) % SEQUENCE_MODULUS
        partition.unacked.append(batch)

    def on_acked(self, batch: ProducerBatch) -> None:
        partition = self._partitions[batch.topic_partition]
        if partition.unacked[0] is batch and not partition.overtakers:
            del partition.unacked[0]
        else:
            partition.overtakers.append(batch.base_sequence)
            partition.forget(batch)
        if batch.identity.producer_id == self.identity.producer_id:
            self._known_at.add(batch.topic_partition)
        last = (batch.base_sequence + batch.record_count - 1) % SEQUENCE_MODULUS
        before = partition.last_acked_sequence
        # The usual case is seen without a call, as this is done for every batch (tests/integration/test_calls.py).
        if last == before + batch.record_count or _is_later(last, before):
            partition.last_acked_sequence = last

    def on_given_up(self, batch: ProducerBatch) -> None:
        """The batch failed. Whether its sequences are used is known (a definite refusal) or not (unresolved)."""
        partition = self._partitions[batch.topic_partition]
        partition.forget(batch)
        if not batch.is_surely_not_in_log:
            partition.is_unresolved = self.may_be_unresolved = True

    def on_out_of_order(self, batch: ProducerBatch) -> None:
        """The leader accepted this batch neither as new nor as a duplicate."""
        batch.is_out_of_order = True
        _settle_doubts(self._partitions[batch.topic_partition])

    def on_split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """The parts take over the sequences of the refused batch: consecutive, from the same base."""
        partition = self._partitions[batch.topic_partition]
        position = partition.unacked.index(batch)
        sequence = batch.base_sequence
        for part in parts:
            part.identity = batch.identity
            part.base_sequence = sequence
            sequence = sequence_after(sequence, part.record_count)
        partition.unacked[position : position + 1] = parts

    def mark_for_renumbering(self, topic_partition: TopicPartition) -> None:
        self.to_renumber[topic_partition] = None

    def renumber_when_quiet(self) -> bool:
        """Bumps the epoch once all marked partitions can be renumbered; returns whether it did.

        If the epochs are used up, the identity becomes invalid: the owner must fetch a new producer id and `adopt` it.
        """
        if not self.to_renumber or self.identity.producer_id < 0:
            return False
        for topic_partition in self.to_renumber:
            _settle_doubts(self._partitions[topic_partition])
        if not all(self._can_renumber(topic_partition) for topic_partition in self.to_renumber):
            return False
        if self.identity.producer_epoch >= PRODUCER_EPOCH_MAX:
            self.identity = NO_IDENTITY
            return True
        self.adopt(ProducerIdentity(self.identity.producer_id, self.identity.producer_epoch + 1))
        return True

    def adopt(self, identity: ProducerIdentity) -> None:
        """Sets a new identity; marked partitions restart under it now, others when their old batches are done.

        A partition marked while the new producer id was requested may have to wait for another epoch.
        """
        self._become(identity)
        for topic_partition in [key for key in self.to_renumber if self._can_renumber(key)]:
            self._restart(topic_partition)
            del self.to_renumber[topic_partition]

    def release_all(self) -> None:
        """The identity was refused, and nothing was written under it: batches get their numbers with the next one."""
        for partition in self._partitions.values():
            for batch in partition.unacked:
                batch.on_released()
        self._partitions.clear()
        self._become(NO_IDENTITY)

    def restart_all(self, identity: ProducerIdentity) -> None:
        """A new transaction epoch: every partition starts at 0. Nothing may be unacknowledged."""
        unsettled = [key for key, value in self._partitions.items() if value.unacked]
        if unsettled:
            raise LocalProtocolError(f"new producer epoch while batches of {unsettled[0]} are unsettled")
        self._partitions.clear()
        self._become(identity)

    def _become(self, identity: ProducerIdentity) -> None:
        if identity.producer_id != self.identity.producer_id:
            self._known_at.clear()
        self.identity = identity

    def _can_renumber(self, topic_partition: TopicPartition) -> bool:
        return not any(batch.may_be_in_log for batch in self._partitions[topic_partition].unacked)

    def _restart(self, topic_partition: TopicPartition) -> None:
        """Its batches start at 0 in the current epoch."""
        fresh = PartitionSequences(self.identity)
        for batch in self._partitions[topic_partition].unacked:
            batch.identity = self.identity
            batch.base_sequence = fresh.next_sequence
            fresh.next_sequence = sequence_after(fresh.next_sequence, batch.record_count)
            fresh.unacked.append(batch)
        self._partitions[topic_partition] = fresh


def _next_in_doubt(partition: PartitionSequences) -> ProducerBatch | None:
    """Before renumbering, batches that may be in the log are resent one by one; this is the next."""
    if any(batch.is_on_wire for batch in partition.unacked):
        return None
    in_doubt = [batch for batch in partition.unacked if batch.may_be_in_log]
    not_asked = [batch for batch in in_doubt if not batch.is_out_of_order]
    return next(iter(not_asked or in_doubt), None)


def _settle_doubts(partition: PartitionSequences) -> None:
    """Settles the batches that were refused as out of order, from the last one backwards; see above."""
    for batch in reversed(partition.unacked):
        if batch.may_be_in_log:
            is_overtaken = _is_later(partition.last_acked_sequence, batch.base_sequence)
            if not batch.is_out_of_order or batch.whole_may_be_in_log or is_overtaken:
                return
            batch.on_denied()


def _is_later(sequence: int, than: int) -> bool:
    """Also where one is -1, before the first: the others are small then."""
    return 0 < (sequence - than) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2
