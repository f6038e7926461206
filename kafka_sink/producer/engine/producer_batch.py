"""One closed record batch and the state of its delivery.

The content (`encoded`) never changes. The rest is state: how often it was sent, under which producer id, epoch and
sequence, and whether an earlier send may have appended it to the log. The last is the most important: `unknown_sends`
counts the sends without a definite response. As long as it is not zero, the batch may be in the log.
"""

from __future__ import annotations

from dataclasses import replace

from kafka_sink.errors import LocalProtocolError
from kafka_sink.formats.records.batch import (
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    EncodedBatch,
    Share,
)
from kafka_sink.kafka.client.cluster import PartitionLeader
from kafka_sink.kafka.client.producer_identity import ProducerIdentity as ProducerIdentity

TopicPartition = tuple[str, int]
UNKNOWN_OFFSET = -1


NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class ProducerBatch:
    """Not a dataclass: one is made for every batch, and this costs one call instead of two."""

    __slots__ = (
        "attempts", "base_offset", "base_sequence", "encoded", "identity", "is_done", "is_on_wire", "is_out_of_order",
        "last_trouble", "log_append_time_ms", "may_arrive_late", "memory_bytes", "number", "opened_ms",
        "partition", "record_count", "retry_at_ms", "sent_to", "shares", "size", "split_from", "topic",
        "topic_partition", "unknown_sends", "whole_may_be_in_log",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        encoded: EncodedBatch,
        opened_ms: int,
        shares: tuple[Share, ...] = (),
        share_bytes: int = 0,
        split_from: ProducerBatch | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_partition: TopicPartition = (topic, partition)
        self.encoded = encoded
        self.opened_ms = opened_ms
        self.shares = shares
        self.record_count = encoded.record_count
        # Size in a request, including the header.
        self.size = HEADER_BYTES + len(encoded.payload)
        # What it takes of buffer.memory.
        self.memory_bytes = self.size + share_bytes
        # Consecutive number of appended batches; parts of a split batch have that of the whole.
        self.number = 0

        self.identity = NO_IDENTITY
        self.base_sequence = NO_SEQUENCE

        self.attempts = 0
        # Why the last try failed, for the text of a timeout error.
        self.last_trouble = ""
        self.retry_at_ms = 0
        # The leader of the last send: if the leader has changed since, the batch skips its back-off (KIP-951).
        self.sent_to: PartitionLeader | None = None
        self.is_on_wire = False
        self.unknown_sends = 0
        # The last response was "out of order". Its meaning for earlier sends depends on later batches (sequences.py).
        self.is_out_of_order = False
        self.is_done = False
        # Set once it is delivered; -1 if the broker did not return it (acks=0, or an old duplicate).
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time_ms = -1

        self.split_from = split_from
        # It is part of a split batch that was sent without a definite response. A leader that has the whole does not
        # recognise the part's sequences as a duplicate, so no response about the part says anything about the whole.
        self.whole_may_be_in_log = False
        # A send was lost with its connection. A response on another connection does not settle it: its bytes may still
        # be in a socket buffer of a broker that was frozen.
        self.may_arrive_late = False

    def __repr__(self) -> str:
        return (
            f"<ProducerBatch {self.number} of {self.topic}-{self.partition}, {self.record_count} records, "
            f"{self.identity.producer_id}/{self.identity.producer_epoch}/{self.base_sequence}, "
            f"{self.attempts} attempts, {self.unknown_sends} unknown>"
        )

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def may_be_in_log(self) -> bool:
        return self.unknown_sends > 0 or self.whole_may_be_in_log

    @property
    def is_surely_not_in_log(self) -> bool:
        """Neither now nor through a late arrival."""
        return not (self.may_be_in_log or self.may_arrive_late)

    @property
    def is_bound_to_its_number(self) -> bool:
        """Bytes sent before may be in the log, or may still arrive, and no response of a leader rules that out.

        With a new sequence the records could be written twice. One case stays open: late bytes are accepted by a leader
        that forgets the producer just then.
        """
        return self.whole_may_be_in_log or self.may_arrive_late

    def on_sent(self, leader: PartitionLeader) -> None:
        self.attempts += 1
        self.sent_to = leader
        self.is_on_wire = True
        self.is_out_of_order = False
        self.unknown_sends += 1

    def on_answered(self, *, is_definite: bool) -> None:
        """A response arrived. A definite error settles this send, but not earlier ones."""
        self.is_on_wire = False
        if is_definite:
            self.unknown_sends -= 1

    def on_lost(self) -> None:
        """The connection was lost before the response."""
        self.is_on_wire = False
        self.may_arrive_late = True

    def on_denied(self) -> None:
        """The leader does not have this sequence: no send was appended."""
        self.unknown_sends = int(self.is_on_wire)
        self.whole_may_be_in_log = False

    def on_released(self) -> None:
        """No send was appended, and none will be: it may go out under any number."""
        self.identity, self.base_sequence = NO_IDENTITY, NO_SEQUENCE
        self.retry_at_ms = 0

    def finish(self) -> None:
        if self.is_done:
            raise LocalProtocolError(f"batch of {self.topic}-{self.partition} completed twice")
        self.is_done = True

    def split(self, parts: list[EncodedBatch]) -> list[ProducerBatch]:
        """Batches for `parts` of the same records, each with its shares and the unknown sends of the whole."""
        children = []
        first_record = 0
        for part in parts:
            shares = _shares_between(self.shares, first_record, first_record + part.record_count)
            child = ProducerBatch(self.topic, self.partition, part, self.opened_ms, shares, split_from=self)
            child.number = self.number
            child.whole_may_be_in_log = self.may_be_in_log
            child.may_arrive_late = self.may_arrive_late
            children.append(child)
            first_record += part.record_count
        return children


def _shares_between(shares: tuple[Share, ...], start: int, stop: int) -> tuple[Share, ...]:
    """The shares of the records [start, stop), with positions counted from `start`."""
    pieces = []
    for share in shares:
        low = max(share.first_record, start)
        high = min(share.first_record + len(share.rows), stop)
        if low < high:
            rows = share.rows[low - share.first_record : high - share.first_record]
            pieces.append(replace(share, rows=rows, first_record=low - start))
    return tuple(pieces)
