"""The search of one partition's log for the markers of transactions whose rows do not tell how these ended.

It reads on from the first of their rows, once for all of them. The first control record of a transaction behind its
last row decides. Records of others are skipped without being decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kafka_sink.commit.ledger import TransactionOutcome
from kafka_sink.commit.log_scan import RawBatch, raw_batches
from kafka_sink.commit.receipt import PreparedTransaction
from kafka_sink.commit.verdict import Witness
from kafka_sink.kafka.client.ask import Leader


@dataclass(slots=True)
class MarkerSearch:
    """Its asks have its `number`, that of the transaction with which it began."""

    log: Leader
    number: int
    began_ms: int
    # The log was read below this.
    offset: int
    # By number.
    sought: dict[int, tuple[PreparedTransaction, Witness]] = field(default_factory=dict)
    # As the log has last told it: below it every transaction has ended.
    last_stable_offset: int = -1
    # Since when the log has ended below this search.
    short_since_ms: int | None = None
    # Since when brokers have said, without a word to the contrary, that there is no such topic.
    gone_since_ms: int | None = None
    # Since when answers have had no records.
    empty_since_ms: int | None = None
    # Up to where a log without markers is believed; None: that was not asked yet.
    end_offset: int | None = None

    def read(self, records: bytes, fence_raises_max: int) -> Iterator[tuple[int, TransactionOutcome]]:
        """Goes on with these records; gives the numbers whose outcome a marker in them tells."""
        by_producer: dict[int, list[int]] = {}
        for number, (transaction, _) in self.sought.items():
            by_producer.setdefault(transaction.producer_id, []).append(number)
        for raw in raw_batches(records):
            if raw.next_offset <= self.offset:
                continue
            self.offset = raw.next_offset
            for number in by_producer.get(raw.producer_id, ()) if raw.is_control else ():
                outcome = _outcome(raw, *self.sought[number], fence_raises_max) if number in self.sought else None
                if outcome is not None:
                    del self.sought[number]
                    yield number, outcome

    def has_ended(self, number: int) -> bool:
        """With an unknown offset (-1) the last stable offset says nothing about it."""
        _, witness = self.sought[number]
        return self.last_stable_offset > witness.last_offset >= 0


def _outcome(
    raw: RawBatch, transaction: PreparedTransaction, witness: Witness, fence_raises_max: int
) -> TransactionOutcome | None:
    if raw.next_offset <= witness.last_offset + 1:
        return None
    marker = raw.decode_marker()
    if marker.is_commit_marker and can_end(raw, transaction, 1):
        return TransactionOutcome.COMMITTED
    if marker.is_abort_marker and can_end(raw, transaction, fence_raises_max):
        return TransactionOutcome.LOST
    return None


def can_end(raw: RawBatch, transaction: PreparedTransaction, raises_max: int) -> bool:
    """Is this marker of the same producer the end of this transaction, and not that of a later one under the same id?

    Its epoch is that of the transaction or, after a time-out or a fence and always in transaction version 2, the next
    one. A later transaction begins with a new epoch: in version 2 its marker is at least two above. In version 1 it may
    be one above, but then it comes after the marker that is searched for. So it does where a time-out or a fence may
    raise the epoch twice (`raises_max`): there no marker is lost.
    """
    return 0 <= raw.producer_epoch - transaction.producer_epoch <= raises_max
