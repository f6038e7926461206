"""The producer state of one partition: epoch, last five batches, open transaction; and its checks.

Rules, in the order in which they are applied to a batch with a producer id:
1. Same first and last sequence as one of the last five batches of this epoch: a duplicate, answered with the old
   offset. This comes first, before any check of epochs or transactions.
2. An older epoch: INVALID_PRODUCER_EPOCH.
3. A transactional batch with no transaction open here: the coordinator must have verified this append (`guard`),
   else INVALID_TXN_STATE.
4. The sequence: for a new epoch it must be 0, within an epoch the next one (0 follows 2147483647). A partition that
   has no state of the producer accepts any first sequence, except in a transaction of version 2, which starts at 0.
5. A batch that is not transactional while the producer's transaction is open here: INVALID_TXN_STATE.

A marker with a new epoch clears the list of batches, so a retried batch of the ended transaction is no longer a
duplicate: it is refused by rule 2 or 3. That is the difference between the two transaction versions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_sink.testing.batches import Batch, Marker
from kafka_sink.testing.errors import Code, Refused

BATCHES_RETAINED = 5
SEQUENCE_MAX = (1 << 31) - 1
NO_EPOCH = -1


@dataclass(slots=True)
class ProducerEntry:
    epoch: int = NO_EPOCH
    batches: list[Batch] = field(default_factory=list)
    coordinator_epoch: int = -1
    transaction_first_offset: int | None = None
    last_timestamp_ms: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def move_to_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


@dataclass(slots=True)
class Guard:
    """Verification with the coordinator, pending or done, of a transaction's first batch in this partition."""

    epoch: int
    lowest_sequence: int
    starts_at_zero: bool


class ProducerStates:
    """Keyed by producer id; iteration order is the order of first appearance."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self._guards: dict[int, Guard] = {}

    # ---- transactions: is the first batch allowed? ----

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self.entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset is not None and entry.epoch == epoch

    def refuse_stale(self, batch: Batch) -> None:
        entry = self.entries.get(batch.producer_id)
        if entry is not None and batch.producer_epoch < entry.epoch:
            raise Refused(Code.INVALID_PRODUCER_EPOCH)

    def new_guard(self, batch: Batch, *, starts_at_zero: bool) -> Guard:
        """Created before the coordinator is asked; invalidated if the transaction ends meanwhile."""
        guard = self._guards.get(batch.producer_id)
        if guard is None or batch.producer_epoch > guard.epoch:
            guard = Guard(batch.producer_epoch, batch.base_sequence, starts_at_zero)
            self._guards[batch.producer_id] = guard
        elif batch.producer_epoch == guard.epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, batch.base_sequence)
        return guard

    # ---- data ----

    def duplicate_of(self, batch: Batch) -> Batch | None:
        entry = self.entries.get(batch.producer_id)
        if entry is None or entry.epoch != batch.producer_epoch:
            return None
        for old in entry.batches:
            if old.base_sequence == batch.base_sequence and old.last_sequence == batch.last_sequence:
                return old
        return None

    def check(self, batch: Batch, guard: Guard | None, *, verification: bool) -> None:
        """Raises the partition's error; changes nothing."""
        entry = self.entries.get(batch.producer_id)
        known_guard = self._guards.get(batch.producer_id)
        is_open = self.has_open_transaction(batch.producer_id, batch.producer_epoch)
        self.refuse_stale(batch)
        is_verified = guard is not None and known_guard is guard
        if batch.is_transactional and not is_open and verification and not is_verified:
            raise Refused(Code.INVALID_TXN_STATE, "record was not part of an ongoing transaction")
        self._check_sequence(batch, entry, known_guard)
        if entry is not None and entry.transaction_first_offset is not None and not batch.is_transactional:
            raise Refused(Code.INVALID_TXN_STATE, "expected a transactional write")

    @staticmethod
    def _check_sequence(batch: Batch, entry: ProducerEntry | None, guard: Guard | None) -> None:
        refusal = Refused(Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if guard is not None:
            if batch.base_sequence > guard.lowest_sequence:
                raise refusal
            if guard.starts_at_zero and batch.base_sequence != 0 and (entry is None or not entry.batches):
                raise refusal
        if entry is None or entry.epoch == NO_EPOCH:
            return
        if batch.producer_epoch != entry.epoch:
            if batch.base_sequence != 0:
                raise refusal
        elif batch.base_sequence != (entry.last_sequence + 1) & SEQUENCE_MAX:
            raise refusal

    def append(self, batch: Batch) -> None:
        """After it was stored: with its offset and its largest timestamp."""
        entry = self.entries.setdefault(batch.producer_id, ProducerEntry())
        entry.move_to_epoch(batch.producer_epoch)
        entry.batches.append(batch._replace(data=b""))  # the header is enough, for as long as the producer lives
        del entry.batches[:-BATCHES_RETAINED]
        entry.last_timestamp_ms = batch.max_timestamp_ms
        if batch.is_transactional and entry.transaction_first_offset is None:
            entry.transaction_first_offset = batch.base_offset
        self._guards.pop(batch.producer_id, None)

    # ---- markers ----

    def check_marker(self, marker: Marker, *, strict: bool) -> None:
        """`strict` (transactions of version 2, Kafka 4.2): the marker's epoch must be above that of the data."""
        entry = self.entries.get(marker.producer_id, ProducerEntry())
        lowest = entry.epoch + 1 if strict and entry.transaction_first_offset is not None else entry.epoch
        if marker.producer_epoch < lowest:
            raise Refused(Code.INVALID_PRODUCER_EPOCH)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise Refused(Code.NOT_COORDINATOR, "a newer coordinator has written here")

    def end_transaction(self, marker: Marker, timestamp_ms: int) -> int | None:
        """Returns the first offset of the transaction that ended, None if nothing was open."""
        entry = self.entries.setdefault(marker.producer_id, ProducerEntry())
        first_offset = entry.transaction_first_offset
        entry.transaction_first_offset = None
        entry.move_to_epoch(marker.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = timestamp_ms
        self._guards.pop(marker.producer_id, None)
        return first_offset

    def first_open_offset(self) -> int | None:
        offsets = (entry.transaction_first_offset for entry in self.entries.values())
        return min((one for one in offsets if one is not None), default=None)

    def expire(self, is_expired: Callable[[ProducerEntry], bool]) -> None:
        """A producer with an open transaction is kept, however old."""
        for producer_id, entry in list(self.entries.items()):
            if entry.transaction_first_offset is None and is_expired(entry):
                del self.entries[producer_id]
