"""Sequence numbers: what makes a resend harmless and an order provable (KIP-98, KIP-360).

A broker keeps the last five batches of each (producer id, epoch) per partition. A batch it has seen is answered with
its old offset; a batch whose base sequence is not the next one is refused as out of order. So a batch gets its
sequence when it is first drained and keeps it over all resends, and batches that wait for an answer are resent in
sequence order.

The first batch of a producer id goes to a partition alone. A leader that knows nothing of the producer takes any first
sequence, so with several on the wire and the first of them refused (too large, too few replicas for a moment) the
second would be taken in its place, and the first could never be written any more. A topic that was deleted and created
again knows nothing either.

A batch is overtaken by four others at most. With one more in the log behind it a leader has forgotten it and answers
"out of order" for a batch that it has. While a resend waits for its answer others may be acknowledged, for instance if
the resend went to an old leader; so what counts is how many got a number since, not how many are on the wire.

Two situations leave that path:

Unresolved. A batch was given up (delivery.timeout.ms) after it had been sent without a definite answer: nobody knows
whether its sequences are used. No new sequence is handed out in that partition until every batch behind it has its
answer. If the last of them was acknowledged, the broker accepted all sequences, so the lost one was in the log after
all. If not, there may be a gap, and only a new epoch (sequences start at 0 again) gets over it.

Epoch bump. Without transactions the producer raises its epoch by itself: brokers do not fence ids that belong to
nobody else. A batch that is in the log under its old number must not get a new one, or it would be written twice. So
it happens only when every unsettled batch of the affected partitions is certainly not in the log. Those that may be
are resent under their old numbers, one by one, until a broker says yes or no. Java renumbers at once. In a transaction
nothing is ever renumbered: the transaction is aborted instead.

"Out of order" is a no for all sends of a batch only if nothing behind it is in the log. That a broker takes a number
only after the one before holds as long as it remembers the producer: a re-created topic takes any first number, and a
broker that was started again remembers the last batch only. Then the batch behind the refused one is a duplicate, and
nobody can say any more whether the refused one is in the log. So a refusal counts from the last batch backwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_sink.engine.producer_batch import NO_IDENTITY, NO_SEQUENCE, ProducerBatch, ProducerIdentity, TopicPartition
from kafka_sink.errors import LocalProtocolError

SEQUENCE_MODULUS = 2**31
# One below the largest: brokers keep 32767 for fencing, so a producer id with this epoch is used up.
PRODUCER_EPOCH_MAX = 32766
# Of each producer a broker remembers so many batches per partition.
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
    last_acked_offset: int = -1
    # Every batch with a sequence and no final answer, in sequence order: on the wire or queued for another try.
    unacked: list[ProducerBatch] = field(default_factory=list)
    # Base sequences of acknowledged batches behind the first of `unacked`.
    overtakers: list[int] = field(default_factory=list)
    is_unresolved: bool = False

    def is_overtaken(self, batch: ProducerBatch) -> bool:
        """Is a batch behind this one known to be in the log?"""
        last = self.last_acked_sequence
        return last != NO_SEQUENCE and batch.identity == self.identity and _is_later(last, batch.base_sequence)

    def forget(self, batch: ProducerBatch) -> None:
        if batch in self.unacked:
            self.unacked.remove(batch)
        if self.overtakers:
            first = self.unacked[0].base_sequence if self.unacked else self.next_sequence
            self.overtakers = [sequence for sequence in self.overtakers if _is_later(sequence, first)]


class Sequences:
    def __init__(self) -> None:
        self.identity = NO_IDENTITY
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self.to_renumber: dict[TopicPartition, None] = {}
        # Partitions whose leader has taken a batch of this producer id; see above on the first batch.
        self._known_at: set[TopicPartition] = set()
        self._topic_ids: dict[str, bytes] = {}
        # False: no partition is unresolved, and nobody need look.
        self.may_be_unresolved = False

    # ---- questions ----

    def may_send(self, batch: ProducerBatch) -> bool:
        partition = self._partitions.get(batch.topic_partition)
        if batch.base_sequence != NO_SEQUENCE:
            if partition is None:
                return False
            if batch.topic_partition in self.to_renumber:
                return batch is _next_in_doubt(partition)
            # A resend goes only when everything before it is settled: in effect one in flight until it is through.
            return partition.unacked[0] is batch
        # May it get a number?
        if self.identity.producer_id < 0:
            return False
        if partition is None:
            return True
        if partition.is_unresolved or batch.topic_partition in self.to_renumber:
            return False
        unacked = partition.unacked
        if unacked and (
            # With one more batch behind it the first open one could be forgotten by its broker.
            len(unacked) + len(partition.overtakers) >= BATCHES_REMEMBERED
            or batch.topic_partition not in self._known_at
        ):
            return False
        # Batches of the old epoch first: a broker that saw the new epoch refuses them.
        return not unacked or partition.identity == self.identity

    def is_next_expected(self, batch: ProducerBatch) -> bool:
        """Does this batch directly follow what the broker is known to have?"""
        partition = self._partition_of(batch)
        expected = 0
        if partition.last_acked_sequence != NO_SEQUENCE:
            expected = sequence_after(partition.last_acked_sequence, 1)
        return batch.base_sequence == expected

    def is_first_unsettled(self, batch: ProducerBatch) -> bool:
        """Has everything before this batch had its end?"""
        return self._partition_of(batch).unacked[0] is batch

    def is_unresolved(self, topic_partition: TopicPartition) -> bool:
        partition = self._partitions.get(topic_partition)
        return partition is not None and partition.is_unresolved

    def settle_unresolved(self) -> tuple[TopicPartition, ...]:
        """Looks at unresolved partitions in which nothing is open any more; returns those that may have a gap."""
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

    def last_acked_offset(self, topic_partition: TopicPartition) -> int:
        partition = self._partitions.get(topic_partition)
        return -1 if partition is None else partition.last_acked_offset

    # ---- events ----

    def on_topics(self, topic_ids: Mapping[str, bytes]) -> None:
        """A topic with another id than before has new logs, which know no producer."""
        for topic, topic_id in topic_ids.items():
            if self._topic_ids.setdefault(topic, topic_id) != topic_id:
                self._topic_ids[topic] = topic_id
                self._known_at = {key for key in self._known_at if key[0] != topic}

    def on_drained(self, batch: ProducerBatch) -> None:
        """Numbers a batch that is about to be sent for the first time."""
        if batch.base_sequence != NO_SEQUENCE:
            return
        partition = self._partitions.get(batch.topic_partition)
        if partition is None or partition.identity != self.identity:
            partition = self._partitions[batch.topic_partition] = PartitionSequences(self.identity)
        batch.identity = self.identity
        batch.base_sequence = partition.next_sequence
        partition.next_sequence = (partition.next_sequence + batch.record_count) % SEQUENCE_MODULUS
        partition.unacked.append(batch)

    def on_acked(self, batch: ProducerBatch, base_offset: int) -> None:
        """Also for a batch that was given up meanwhile: that it is in the log after all may settle its partition."""
        partition = self._partitions.get(batch.topic_partition)
        if partition is None or batch.base_sequence == NO_SEQUENCE:
            partition = self._partition_of(batch)
        is_of_now = batch.identity == partition.identity
        if partition.unacked and partition.unacked[0] is batch and not partition.overtakers:
            del partition.unacked[0]
        else:
            is_first = bool(partition.unacked) and partition.unacked[0] is batch
            if is_of_now and not is_first:
                partition.overtakers.append(batch.base_sequence)
            partition.forget(batch)
        if batch.identity.producer_id == self.identity.producer_id:
            self._known_at.add(batch.topic_partition)
        last = (batch.base_sequence + batch.record_count - 1) % SEQUENCE_MODULUS
        before = partition.last_acked_sequence
        if is_of_now and (before == NO_SEQUENCE or last == before + batch.record_count or _is_later(last, before)):
            partition.last_acked_sequence = last
        last_offset = base_offset + batch.record_count - 1
        if base_offset >= 0 and last_offset > partition.last_acked_offset:
            partition.last_acked_offset = last_offset

    def on_given_up(self, batch: ProducerBatch) -> None:
        """The batch failed. Whether its sequences are used is known (a definite refusal) or not (unresolved)."""
        if not batch.has_sequence:
            return
        partition = self._partition_of(batch)
        partition.forget(batch)
        if not batch.is_surely_not_in_log:
            partition.is_unresolved = self.may_be_unresolved = True

    def on_out_of_order(self, batch: ProducerBatch) -> None:
        """The leader took this batch neither as new nor as a duplicate."""
        batch.is_out_of_order = True
        _settle_doubts(self._partition_of(batch))

    def on_split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """The parts take over the sequences of the refused whole: consecutive ones from the same base."""
        partition = self._partition_of(batch)
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
        """Raises the epoch once all marked partitions can be renumbered; tells whether it did.

        With the epoch used up the identity becomes invalid: the owner must fetch a new producer id and `adopt` it.
        """
        if not self.to_renumber or not self.identity.is_valid:
            return False
        for topic_partition in self.to_renumber:
            if topic_partition in self._partitions:
                _settle_doubts(self._partitions[topic_partition])
        if not all(self._can_renumber(topic_partition) for topic_partition in self.to_renumber):
            return False
        if self.identity.producer_epoch >= PRODUCER_EPOCH_MAX:
            self.identity = NO_IDENTITY
            return True
        self.adopt(ProducerIdentity(self.identity.producer_id, self.identity.producer_epoch + 1))
        return True

    def adopt(self, identity: ProducerIdentity) -> None:
        """Takes a new identity; marked partitions restart under it, others when their old batches are done.

        One that was marked while a new producer id was fetched may have to wait for yet another epoch.
        """
        self._become(identity)
        for topic_partition in [key for key in self.to_renumber if self._can_renumber(key)]:
            self._restart(topic_partition)
            del self.to_renumber[topic_partition]

    def restart_all(self, identity: ProducerIdentity) -> None:
        """A new transaction epoch: every partition starts at 0. Nothing may be unacknowledged any more."""
        unsettled = [key for key, value in self._partitions.items() if value.unacked]
        if unsettled:
            raise LocalProtocolError(f"new producer epoch while batches of {unsettled[0]} are unsettled")
        self._partitions.clear()
        self.to_renumber.clear()
        self._become(identity)

    def restart_after_retention(self, topic_partition: TopicPartition) -> None:
        """The broker lost the state of this partition to retention: its batches start at 0 in the same epoch."""
        self._restart(topic_partition)

    def _become(self, identity: ProducerIdentity) -> None:
        if identity.producer_id != self.identity.producer_id:
            self._known_at.clear()
        self.identity = identity

    def _can_renumber(self, topic_partition: TopicPartition) -> bool:
        partition = self._partitions.get(topic_partition)
        return partition is None or not any(batch.is_on_wire or batch.may_be_in_log for batch in partition.unacked)

    def _restart(self, topic_partition: TopicPartition) -> None:
        old = self._partitions.get(topic_partition)
        fresh = PartitionSequences(self.identity)
        for batch in old.unacked if old is not None else ():
            batch.identity = self.identity
            batch.base_sequence = fresh.next_sequence
            batch.sequence_was_reset = True
            batch.on_denied()
            fresh.next_sequence = sequence_after(fresh.next_sequence, batch.record_count)
            fresh.unacked.append(batch)
        self._partitions[topic_partition] = fresh

    def _partition_of(self, batch: ProducerBatch) -> PartitionSequences:
        partition = self._partitions.get(batch.topic_partition)
        if partition is None or batch.base_sequence == NO_SEQUENCE:
            raise LocalProtocolError(f"batch of {batch.topic}-{batch.partition} has no sequence")
        return partition


def _next_in_doubt(partition: PartitionSequences) -> ProducerBatch | None:
    """Before new numbers the leader is asked about the first batch that may be in the log, and then about the next."""
    if any(batch.is_on_wire for batch in partition.unacked):
        return None
    in_doubt = [batch for batch in partition.unacked if batch.may_be_in_log]
    not_asked = [batch for batch in in_doubt if not batch.is_out_of_order]
    return next(iter(not_asked or in_doubt), None)


def _settle_doubts(partition: PartitionSequences) -> None:
    """Takes the doubt from batches that were refused as out of order, from the last one backwards; see above."""
    for batch in reversed(partition.unacked):
        if batch.is_on_wire:
            return
        if batch.may_be_in_log:
            if not batch.is_out_of_order or batch.whole_may_be_in_log or partition.is_overtaken(batch):
                return
            batch.on_denied()


def _is_later(sequence: int, than: int) -> bool:
    return than == NO_SEQUENCE or 0 < (sequence - than) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2
