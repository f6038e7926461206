"""The transaction coordinator: which step a request may take, time-outs, expiry, and markers written later.

One object serves all partitions of the transaction log; which broker may answer for an id is the cluster's question.
Every step is appended to the log first (`delay_ms("transaction_log")`), and until then the id is pending and answers
CONCURRENT_TRANSACTIONS. After Prepare* the client has its answer; the markers follow (`delay_ms("marker")` each), then
Complete*. All this time the id is pending too, but not while there is no coordinator: then nobody may be let in here.

When the coordinator moves, a step that was being appended either made it into the log or not
(`chance("transaction_log_survives")`), the client hears NOT_COORDINATOR in both cases, and the new coordinator sends
the markers of Prepare* again with its higher epoch.

Two rule sets for EndTxn: version 0/1 accepts the current epoch only; version 2 adds one to the epoch with every
decision and knows a repeat by the epoch before. The request's version chooses, for a client; `transaction.version`
chooses when the coordinator aborts by itself (time-out, InitProducerId on an open transaction).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kafka_sink.testing.errors import Code
from kafka_sink.testing.schedule import Schedule
from kafka_sink.testing.settings import Settings
from kafka_sink.testing.transaction_state import (
    EPOCH_LAST,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    SETTLED,
    TWO_PHASE_TIMEOUT_MS,
    CoordinatorState,
    TopicPartition,
    TransactionRecord,
    completed,
    fenced,
    is_own_producer_id,
    prepared,
    with_new_producer_id,
    with_next_epoch,
    with_partitions,
)

Done = Callable[[Code], None]
DoneWithProducer = Callable[[Code, int, int], None]
MARKER_RETRY_MS = 20


class Surroundings(Protocol):
    """What the coordinator needs of the cluster."""

    def new_producer_id(self) -> int: ...

    def coordinator_epoch(self, transactional_id: str) -> int: ...

    def write_marker(
        self,
        partition: TopicPartition,
        record: TransactionRecord,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        done: Callable[[bool], None],
    ) -> None:
        """`done(False)`: no leader now, try again. `done(True)`: replicated, or there is nowhere left to write it."""
        ...


@dataclass(slots=True)
class CoordinatedTransaction:
    """`pending` is the record that is being appended; during the markers it is the one that will follow them."""

    record: TransactionRecord
    pending: TransactionRecord | None = None
    is_appending: bool = False


class TransactionCoordinator:
    def __init__(self, schedule: Schedule, settings: Settings, surroundings: Surroundings) -> None:
        self._schedule = schedule
        self._settings = settings
        self._surroundings = surroundings
        self.transactions: dict[str, CoordinatedTransaction] = {}

    # ---- InitProducerId ----

    def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        done: DoneWithProducer,
        *,
        is_two_phase: bool = False,
    ) -> None:
        if transactional_id is None:
            done(Code.NONE, self._surroundings.new_producer_id(), 0)
            return
        if not transactional_id:
            done(Code.INVALID_REQUEST, NO_PRODUCER_ID, NO_EPOCH)
            return
        if is_two_phase:
            timeout_ms = TWO_PHASE_TIMEOUT_MS
        elif not 0 < timeout_ms <= self._settings.number("transaction.max.timeout.ms"):
            done(Code.INVALID_TRANSACTION_TIMEOUT, NO_PRODUCER_ID, NO_EPOCH)
            return
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            record = TransactionRecord(self._surroundings.new_producer_id(), timeout_ms, self._schedule.now_ms)
            transaction = self.transactions[transactional_id] = CoordinatedTransaction(record)
        code, after = self._init_step(transaction, timeout_ms, expected)
        if after is None:
            done(code, NO_PRODUCER_ID, NO_EPOCH)
        elif transaction.record.state is CoordinatorState.ONGOING:
            self._decide(
                transactional_id,
                transaction,
                after,
                lambda code, _id, _epoch: done(code or Code.CONCURRENT_TRANSACTIONS, NO_PRODUCER_ID, NO_EPOCH),
            )
        else:
            self._append(transactional_id, transaction, after, _answer_with(after, done))

    def _init_step(
        self, transaction: CoordinatedTransaction, timeout_ms: int, expected: tuple[int, int] | None
    ) -> tuple[Code, TransactionRecord | None]:
        record = transaction.record
        if transaction.pending is not None:
            return Code.CONCURRENT_TRANSACTIONS, None
        if expected is not None and not is_own_producer_id(record, expected):
            return Code.PRODUCER_FENCED, None
        if record.state is CoordinatorState.ONGOING:
            # Only the producer id was compared, not the epoch: a zombie with the right id aborts this transaction.
            return Code.NONE, self._own_abort(record)
        expected_epoch = expected[1] if expected is not None else None
        now_ms = self._schedule.now_ms
        if record.is_epoch_exhausted and expected_epoch in (None, record.producer_epoch):
            return Code.NONE, with_new_producer_id(
                record,
                self._surroundings.new_producer_id(),
                timeout_ms=timeout_ms,
                keep_last_epoch=expected is not None,
                now_ms=now_ms,
            )
        if record.is_epoch_exhausted:
            return Code.UNKNOWN_SERVER_ERROR, None
        after = with_next_epoch(record, timeout_ms=timeout_ms, expected_epoch=expected_epoch, now_ms=now_ms)
        return (Code.NONE, after) if after is not None else (Code.PRODUCER_FENCED, None)

    # ---- partitions ----

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: tuple[TopicPartition, ...],
        version: int,
        done: Done,
    ) -> None:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            done(Code.INVALID_REQUEST if not transactional_id else Code.INVALID_PRODUCER_ID_MAPPING)
            return
        record = transaction.record
        if transaction.pending is not None or record.state in PREPARED:
            done(Code.CONCURRENT_TRANSACTIONS)
        elif record.producer_id != producer_id:
            done(Code.INVALID_PRODUCER_ID_MAPPING)
        elif record.producer_epoch != epoch:
            done(Code.PRODUCER_FENCED)
        elif record.state is CoordinatorState.ONGOING and set(partitions) <= set(record.partitions):
            done(Code.NONE)
        else:
            after = with_partitions(record, partitions, version=version, now_ms=self._schedule.now_ms)
            self._append(transactional_id, transaction, after, done)

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Code]:
        """Are these partitions in the open transaction? Asked by leaders for clients of version 0/1."""
        transaction = self.transactions.get(transactional_id)
        code = Code.NONE
        known: tuple[TopicPartition, ...] = ()
        if transaction is None or transaction.record.producer_id != producer_id:
            code = Code.INVALID_PRODUCER_ID_MAPPING
        elif transaction.record.producer_epoch != epoch:
            code = Code.PRODUCER_FENCED
        elif transaction.record.state in PREPARED:
            code = Code.CONCURRENT_TRANSACTIONS
        else:
            known = transaction.record.partitions
        if code is not Code.NONE:
            return dict.fromkeys(partitions, code)
        return {one: Code.NONE if one in known else Code.TRANSACTION_ABORTABLE for one in partitions}

    # ---- EndTxn ----

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        is_commit: bool,
        version: int,
        done: DoneWithProducer,
    ) -> None:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            code = Code.INVALID_REQUEST if not transactional_id else Code.INVALID_PRODUCER_ID_MAPPING
            done(code, NO_PRODUCER_ID, NO_EPOCH)
            return
        judge = self._end_with_bump if version >= 2 else self._end_without_bump
        code, is_accepted = judge(transaction, producer_id, epoch, is_commit)
        record = transaction.record
        if not is_accepted:
            current = (record.producer_id, record.producer_epoch) if code is Code.NONE and version >= 2 else None
            done(code, *(current or (NO_PRODUCER_ID, NO_EPOCH)))
            return
        self._decide(transactional_id, transaction, self._prepared(record, is_commit, version), done)

    @staticmethod
    def _end_without_bump(
        transaction: CoordinatedTransaction, producer_id: int, epoch: int, is_commit: bool
    ) -> tuple[Code, bool]:
        record = transaction.record
        if record.producer_id != producer_id:
            return Code.INVALID_PRODUCER_ID_MAPPING, False
        if record.producer_epoch != epoch:
            return Code.PRODUCER_FENCED, False
        if transaction.pending is not None:
            return Code.CONCURRENT_TRANSACTIONS, False
        if record.state is CoordinatorState.ONGOING:
            return Code.NONE, True
        ended = CoordinatorState.COMPLETE_COMMIT if is_commit else CoordinatorState.COMPLETE_ABORT
        return (Code.NONE if record.state is ended else Code.INVALID_TXN_STATE), False

    @staticmethod
    def _end_with_bump(
        transaction: CoordinatedTransaction, producer_id: int, epoch: int, is_commit: bool
    ) -> tuple[Code, bool]:
        record = transaction.record
        is_repeat = record.producer_epoch == epoch + 1
        is_repeat_over_new_id = (
            record.previous_producer_id == producer_id and epoch == EPOCH_LAST and record.producer_epoch == 0
        )
        if transaction.pending is not None:
            return Code.CONCURRENT_TRANSACTIONS, False
        if record.producer_id != producer_id and not is_repeat_over_new_id:
            return Code.INVALID_PRODUCER_ID_MAPPING, False
        is_settled_by_marker = record.state in (CoordinatorState.COMPLETE_COMMIT, CoordinatorState.COMPLETE_ABORT)
        is_repeat = is_settled_by_marker and (is_repeat or is_repeat_over_new_id)
        if epoch != record.producer_epoch and not is_repeat:
            return Code.PRODUCER_FENCED, False
        if record.state is CoordinatorState.ONGOING:
            return Code.NONE, True
        if is_repeat:
            ended = CoordinatorState.COMPLETE_COMMIT if is_commit else CoordinatorState.COMPLETE_ABORT
            return (Code.NONE if record.state is ended else Code.INVALID_TXN_STATE), False
        # Aborting nothing is allowed, and takes an epoch too; committing nothing is not.
        return (Code.INVALID_TXN_STATE, False) if is_commit else (Code.NONE, True)

    def _prepared(self, record: TransactionRecord, is_commit: bool, version: int) -> TransactionRecord:
        next_producer_id = NO_PRODUCER_ID
        if version >= 2 and record.is_epoch_exhausted:
            next_producer_id = self._surroundings.new_producer_id()
        return prepared(
            record,
            is_commit=is_commit,
            version=version,
            next_producer_id=next_producer_id,
            now_ms=self._schedule.now_ms,
        )

    def _own_abort(self, record: TransactionRecord) -> TransactionRecord:
        version = self._settings.number("transaction.version")
        return self._prepared(record if version >= 2 else fenced(record), False, version)

    def _decide(
        self,
        transactional_id: str,
        transaction: CoordinatedTransaction,
        after: TransactionRecord,
        done: DoneWithProducer,
    ) -> None:
        def on_appended(code: Code) -> None:
            if code is not Code.NONE:
                done(code, NO_PRODUCER_ID, NO_EPOCH)
                return
            following = self._send_markers(transactional_id, transaction)
            if after.version >= 2:
                done(Code.NONE, following.producer_id, following.producer_epoch)
            else:
                done(Code.NONE, NO_PRODUCER_ID, NO_EPOCH)

        self._append(transactional_id, transaction, after, on_appended)

    # ---- the log and the markers ----

    def _append(
        self, transactional_id: str, transaction: CoordinatedTransaction, after: TransactionRecord, done: Done
    ) -> None:
        epoch = self._surroundings.coordinator_epoch(transactional_id)
        transaction.pending = after
        transaction.is_appending = True
        if after.version >= 2 and self._settings.number("transaction.version") == 0:
            # The log's format has no room for it. Kafka fails in the same way, and the id stays pending until its
            # coordinator moves; only a client that ignores the cluster's features gets here.
            done(Code.UNSUPPORTED_VERSION)
            return

        def on_appended() -> None:
            if self._surroundings.coordinator_epoch(transactional_id) != epoch:
                done(Code.NOT_COORDINATOR)
                return
            transaction.record = after
            transaction.pending = None
            transaction.is_appending = False
            done(Code.NONE)

        self._schedule.after(self._settings.delay_ms("transaction_log"), on_appended)

    def _send_markers(self, transactional_id: str, transaction: CoordinatedTransaction) -> TransactionRecord:
        """Returns the record that will follow when all are written."""
        record = transaction.record
        epoch = self._surroundings.coordinator_epoch(transactional_id)
        following = transaction.pending = completed(record, now_ms=self._schedule.now_ms)
        waiting = dict.fromkeys(record.partitions)
        is_commit = record.state is CoordinatorState.PREPARE_COMMIT

        def is_current() -> bool:
            return (
                self.transactions.get(transactional_id) is transaction
                and self._surroundings.coordinator_epoch(transactional_id) == epoch
            )

        def finish() -> None:
            if is_current():
                self._append(transactional_id, transaction, following, lambda _code: None)

        def write(partition: TopicPartition) -> None:
            if is_current():
                self._surroundings.write_marker(
                    partition,
                    record,
                    is_commit=is_commit,
                    coordinator_epoch=epoch,
                    done=lambda is_written: on_written(partition, is_written),
                )

        def on_written(partition: TopicPartition, is_written: bool) -> None:
            if not is_written:
                delay_ms = max(self._settings.delay_ms("marker_retry"), MARKER_RETRY_MS)
                self._schedule.after(delay_ms, lambda: write(partition))
                return
            del waiting[partition]
            if not waiting:
                finish()

        for partition in record.partitions:
            self._schedule.after(max(self._settings.delay_ms("marker"), 1), partial(write, partition))
        if not record.partitions:
            self._schedule.after(max(self._settings.delay_ms("marker"), 1), finish)
        return following

    # ---- by itself ----

    def abort_timed_out(self) -> None:
        """A two-phase transaction is never aborted by time."""
        now_ms = self._schedule.now_ms
        for transactional_id, transaction in list(self.transactions.items()):
            record = transaction.record
            if transaction.pending is not None or record.state is not CoordinatorState.ONGOING:
                continue
            if record.timeout_ms != TWO_PHASE_TIMEOUT_MS and record.start_ms + record.timeout_ms < now_ms:
                self._decide(transactional_id, transaction, self._own_abort(record), lambda _code, _id, _epoch: None)

    def expire_ids(self) -> None:
        oldest_ms = self._schedule.now_ms - self._settings.number("transactional.id.expiration.ms")
        for transactional_id, transaction in list(self.transactions.items()):
            record = transaction.record
            if transaction.pending is None and record.state in SETTLED and record.updated_ms <= oldest_ms:
                del self.transactions[transactional_id]

    def on_coordinator_moved(self, transactional_ids: Iterable[str]) -> None:
        """A step whose append was under way may or may not be in the log that the new coordinator reads."""
        for transactional_id in transactional_ids:
            transaction = self.transactions[transactional_id]
            if transaction.is_appending and self._settings.chance("transaction_log_survives"):
                transaction.record = transaction.pending or transaction.record
            transaction.pending = None
            transaction.is_appending = False

    def on_coordinator_loaded(self, transactional_ids: Iterable[str]) -> None:
        for transactional_id in transactional_ids:
            transaction = self.transactions[transactional_id]
            if transaction.record.state in PREPARED and transaction.pending is None:
                self._send_markers(transactional_id, transaction)


def _answer_with(after: TransactionRecord, done: DoneWithProducer) -> Done:
    def answer(code: Code) -> None:
        if code is Code.NONE:
            done(code, after.producer_id, after.producer_epoch)
        else:
            done(code, NO_PRODUCER_ID, NO_EPOCH)

    return answer
