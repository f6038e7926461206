"""The coordinator's record of one transactional id, and every transition from one record to the next.

States: Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ..., the same with Abort; Empty again after
InitProducerId. Each function below is one transition; none of them decides whether it is allowed (that is
`transactions.py`). Version 2 of the protocol adds one to the epoch in Prepare*, and changes an exhausted producer id in
Complete*; version 0/1 changes neither.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 32767
# The last epoch of a client: one more is reserved, so that the coordinator can always fence.
EPOCH_LAST = EPOCH_MAX - 1

TopicPartition = tuple[str, int]


class CoordinatorState(Enum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


PREPARED = (CoordinatorState.PREPARE_COMMIT, CoordinatorState.PREPARE_ABORT)
SETTLED = (CoordinatorState.EMPTY, CoordinatorState.COMPLETE_COMMIT, CoordinatorState.COMPLETE_ABORT)


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """`version` is the transaction version of the current transaction.

    `previous_producer_id` is the id before the last step, which matters only right after a change of ids.
    """

    producer_id: int
    timeout_ms: int
    updated_ms: int
    producer_epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    state: CoordinatorState = CoordinatorState.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    start_ms: int = -1
    version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_LAST


def _step(record: TransactionRecord, now_ms: int, **changes: Any) -> TransactionRecord:
    return replace(record, previous_producer_id=record.producer_id, updated_ms=now_ms, **changes)


def with_epoch(
    record: TransactionRecord, producer_id: int, epoch: int, *, last_epoch: int, timeout_ms: int, now_ms: int
) -> TransactionRecord:
    """InitProducerId in a settled state."""
    return _step(
        record,
        now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        state=CoordinatorState.EMPTY,
        partitions=(),
        start_ms=-1,
    )


def with_partitions(
    record: TransactionRecord, partitions: tuple[TopicPartition, ...], *, version: int, now_ms: int
) -> TransactionRecord:
    """The time-out counts from the first partition; later ones do not extend it."""
    added = tuple(partition for partition in partitions if partition not in record.partitions)
    return _step(
        record,
        now_ms,
        state=CoordinatorState.ONGOING,
        partitions=record.partitions + added,
        start_ms=record.start_ms if record.state is CoordinatorState.ONGOING else now_ms,
        version=version,
    )


def fence(record: TransactionRecord) -> TransactionRecord:
    """Version 0/1: the coordinator bumps the producer's epoch before it aborts the transaction."""
    return replace(record, producer_epoch=min(record.producer_epoch + 1, EPOCH_MAX), last_epoch=NO_EPOCH)


def prepare(
    record: TransactionRecord, *, is_commit: bool, version: int, next_producer_id: int, now_ms: int
) -> TransactionRecord:
    epoch, last_epoch = record.producer_epoch, record.last_epoch
    if version >= 2:
        epoch, last_epoch = min(epoch + 1, EPOCH_MAX), epoch
    return _step(
        record,
        now_ms,
        producer_epoch=epoch,
        last_epoch=last_epoch,
        next_producer_id=next_producer_id,
        state=CoordinatorState.PREPARE_COMMIT if is_commit else CoordinatorState.PREPARE_ABORT,
        # An abort without a transaction starts and ends now.
        start_ms=record.start_ms if record.state is CoordinatorState.ONGOING else now_ms,
        version=version,
    )


def complete(record: TransactionRecord, *, now_ms: int) -> TransactionRecord:
    """All markers are written. `last_epoch` is kept: a client that retries its EndTxn has it."""
    producer_id, epoch = record.producer_id, record.producer_epoch
    if record.version >= 2 and record.next_producer_id != NO_PRODUCER_ID:
        producer_id, epoch = record.next_producer_id, 0
    is_commit = record.state is CoordinatorState.PREPARE_COMMIT
    return _step(
        record,
        now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        next_producer_id=NO_PRODUCER_ID,
        state=CoordinatorState.COMPLETE_COMMIT if is_commit else CoordinatorState.COMPLETE_ABORT,
        partitions=(),
    )


def is_own_producer_id(record: TransactionRecord, expected: tuple[int, int]) -> bool:
    producer_id, epoch = expected
    return (
        record.producer_epoch == NO_EPOCH
        or producer_id == record.producer_id
        or (producer_id == record.previous_producer_id and epoch >= EPOCH_LAST)
    )
