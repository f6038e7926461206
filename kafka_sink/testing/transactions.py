"""The transaction coordinator: the allowed transitions, time-outs, expiry, and markers written later.

One object serves all partitions of the transaction log; the cluster knows which broker coordinates an id. Every
transition is appended to the log first (`delay_ms("transaction_log")`), and until then the id is pending and returns
CONCURRENT_TRANSACTIONS. The client gets its response after Prepare*; the markers follow (`delay_ms("marker")` each),
then Complete*. The id is pending all this time, too, but not while there is no coordinator: then no request may be
accepted here.

When the coordinator moves, a transition being appended is either in the log or not
(`chance("transaction_log_survives")`), the client gets NOT_COORDINATOR in both cases, and the new coordinator resends
the markers of Prepare* with its higher epoch.

A partition that has no leader when its marker is queued gets none, from Kafka 4.3 on (`Markers.is_dropped`): the
transaction completes without it, and stays open in that partition until another marker of the producer id arrives.

Two rule sets for EndTxn: version 0/1 accepts the current epoch only; version 2 adds one to the epoch with every
decision and recognises a retry by the previous epoch. For a client the request's version selects; for aborts by the
coordinator (time-out, InitProducerId on an open transaction) `transaction.version` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kafka_sink.testing.batches import Marker
from kafka_sink.testing.cluster import Cluster
from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.markers import Markers
from kafka_sink.testing.topics import TRANSACTION_TOPIC, Partition
from kafka_sink.testing.transaction_state import (
    EPOCH_LAST,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    SETTLED,
    CoordinatorState,
    TopicPartition,
    TransactionRecord,
    complete,
    fence,
    is_own_producer_id,
    prepare,
    with_epoch,
    with_partitions,
)

Done = Callable[[Code], None]
Admitted = Callable[[Mapping[TopicPartition, Code]], None]
# Called with a code, and with producer id and epoch for if it succeeded.
DoneWithProducer = Callable[[Code, int, int], None]
MARKER_RETRY_MS = 20


@dataclass(slots=True)
class CoordinatedTransaction:
    """`pending` is the record that is being appended; during the markers it is the one that follows them."""

    transactional_id: str
    record: TransactionRecord
    pending: TransactionRecord | None = None
    is_appending: bool = False


class ProducerClaim(NamedTuple):
    """The producer identity in a request."""

    transactional_id: str
    producer_id: int
    epoch: int


class TransactionCoordinator:
    """`init_producer_id` and `end` raise immediate errors as Refused; all other results are passed to `done`."""

    def __init__(self, cluster: Cluster, markers: Markers) -> None:
        self._cluster = cluster
        self._schedule = cluster.schedule
        self._settings = cluster.settings
        self._markers = markers
        self.transactions: dict[str, CoordinatedTransaction] = {}
        # As brokers knew them that are not their coordinators any more, by broker and partition of the log.
        self._outdated: dict[tuple[int, int], dict[str, TransactionRecord]] = {}
        cluster.on_coordinator_deposed = self._on_coordinator_deposed
        cluster.on_coordinator_moved = self._on_coordinator_moved
        cluster.on_coordinator_loaded = self._on_coordinator_loaded

    # ---- InitProducerId ----

    def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, expected: tuple[int, int] | None, done: DoneWithProducer
    ) -> None:
        if transactional_id is None:
            done(Code.NONE, self._cluster.new_producer_id(), 0)
            return
        if not transactional_id:
            raise Refused(Code.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._settings.number("transaction.max.timeout.ms"):
            raise Refused(Code.INVALID_TRANSACTION_TIMEOUT)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            record = TransactionRecord(self._cluster.new_producer_id(), timeout_ms, self._schedule.now_ms)
            transaction = CoordinatedTransaction(transactional_id, record)
            self.transactions[transactional_id] = transaction
        if transaction.pending is not None:
            raise Refused(Code.CONCURRENT_TRANSACTIONS)
        record = transaction.record
        if expected is not None and not is_own_producer_id(record, expected):
            raise Refused(Code.PRODUCER_FENCED)
        if record.state is CoordinatorState.ONGOING:
            # Only the producer id is compared, not the epoch: a zombie with the right id aborts this transaction.
            later = Code.CONCURRENT_TRANSACTIONS
            self._decide(transaction, self._prepare_abort(record), lambda code, *ids: done(code or later, *ids))
            return
        after = self._after_init(record, timeout_ms, expected[1] if expected is not None else None)
        self._append(transaction, after, lambda code: done(code, after.producer_id, after.producer_epoch))

    def _after_init(self, record: TransactionRecord, timeout_ms: int, expected_epoch: int | None) -> TransactionRecord:
        """The next epoch, in a settled state; after the last one a new producer id."""
        producer_id, epoch, last_epoch = record.producer_id, record.producer_epoch + 1, NO_EPOCH
        if record.is_epoch_exhausted:
            if expected_epoch not in (None, record.producer_epoch):
                raise Refused(Code.UNKNOWN_SERVER_ERROR)
            producer_id, epoch = self._cluster.new_producer_id(), 0
            last_epoch = NO_EPOCH if expected_epoch is None else record.producer_epoch
        elif expected_epoch is not None:
            if record.producer_epoch in (NO_EPOCH, expected_epoch):
                last_epoch = record.producer_epoch
            elif expected_epoch == record.last_epoch:
                # A retry of an answered call: the same response again (KIP-360).
                epoch, last_epoch = record.producer_epoch, record.last_epoch
            else:
                raise Refused(Code.PRODUCER_FENCED)
        now_ms = self._schedule.now_ms
        return with_epoch(record, producer_id, epoch, last_epoch=last_epoch, timeout_ms=timeout_ms, now_ms=now_ms)

    # ---- partitions ----

    def add_partitions(
        self, claim: ProducerClaim, partitions: tuple[TopicPartition, ...], version: int, done: Done
    ) -> None:
        transaction = self.transactions.get(claim.transactional_id)
        if transaction is None:
            done(Code.INVALID_PRODUCER_ID_MAPPING if claim.transactional_id else Code.INVALID_REQUEST)
            return
        record = transaction.record
        if transaction.pending is not None or record.state in PREPARED:
            done(Code.CONCURRENT_TRANSACTIONS)
        elif record.producer_id != claim.producer_id:
            done(Code.INVALID_PRODUCER_ID_MAPPING)
        elif record.producer_epoch != claim.epoch:
            done(Code.PRODUCER_FENCED)
        elif record.state is CoordinatorState.ONGOING and set(partitions) <= set(record.partitions):
            done(Code.NONE)
        else:
            after = with_partitions(record, partitions, version=version, now_ms=self._schedule.now_ms)
            self._append(transaction, after, done)

    def admit(
        self, claim: ProducerClaim, partitions: tuple[TopicPartition, ...], *, adds: bool, done: Admitted
    ) -> None:
        """Asked by the leader of these partitions: it adds them, or for clients of version 0/1 verifies them."""
        trouble = self._cluster.coordinator_trouble(claim.transactional_id)
        if trouble is not Code.NONE:
            done(dict.fromkeys(partitions, trouble))
        elif adds:
            self.add_partitions(claim, partitions, 2, lambda code: done(dict.fromkeys(partitions, code)))
        else:
            done(self._verify(claim, partitions))

    def _verify(self, claim: ProducerClaim, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Code]:
        """Whether these partitions are in the open transaction."""
        transaction = self.transactions.get(claim.transactional_id)
        if transaction is None or transaction.record.producer_id != claim.producer_id:
            return dict.fromkeys(partitions, Code.INVALID_PRODUCER_ID_MAPPING)
        record = transaction.record
        if record.producer_epoch != claim.epoch:
            return dict.fromkeys(partitions, Code.PRODUCER_FENCED)
        if record.state in PREPARED:
            return dict.fromkeys(partitions, Code.CONCURRENT_TRANSACTIONS)
        return {one: Code.NONE if one in record.partitions else Code.TRANSACTION_ABORTABLE for one in partitions}

    # ---- EndTxn ----

    def end(self, claim: ProducerClaim, is_commit: bool, version: int, done: DoneWithProducer) -> None:
        transaction = self.transactions.get(claim.transactional_id)
        if transaction is None:
            raise Refused(Code.INVALID_PRODUCER_ID_MAPPING if claim.transactional_id else Code.INVALID_REQUEST)
        record = transaction.record
        may_end = self._may_end_with_bump if version >= 2 else self._may_end_without_bump
        if may_end(transaction, claim, is_commit):
            self._decide(transaction, self._prepare(record, is_commit, version), done)
        else:
            done(Code.NONE, record.producer_id, record.producer_epoch)

    @staticmethod
    def _may_end_without_bump(transaction: CoordinatedTransaction, claim: ProducerClaim, is_commit: bool) -> bool:
        """False: it has already ended like this."""
        record = transaction.record
        if record.producer_id != claim.producer_id:
            raise Refused(Code.INVALID_PRODUCER_ID_MAPPING)
        if record.producer_epoch != claim.epoch:
            raise Refused(Code.PRODUCER_FENCED)
        if transaction.pending is not None:
            raise Refused(Code.CONCURRENT_TRANSACTIONS)
        if record.state is CoordinatorState.ONGOING:
            return True
        _check_ended_so(record, is_commit)
        return False

    @staticmethod
    def _may_end_with_bump(transaction: CoordinatedTransaction, claim: ProducerClaim, is_commit: bool) -> bool:
        """False: it has already ended like this, and the claim has the previous epoch."""
        record = transaction.record
        is_repeat_over_new_id = (
            record.previous_producer_id == claim.producer_id
            and claim.epoch == EPOCH_LAST
            and record.producer_epoch == 0
        )
        if transaction.pending is not None:
            raise Refused(Code.CONCURRENT_TRANSACTIONS)
        if record.producer_id != claim.producer_id and not is_repeat_over_new_id:
            raise Refused(Code.INVALID_PRODUCER_ID_MAPPING)
        is_settled_by_marker = record.state in (CoordinatorState.COMPLETE_COMMIT, CoordinatorState.COMPLETE_ABORT)
        is_epoch_before = record.producer_epoch == claim.epoch + 1
        is_repeat = is_settled_by_marker and (is_epoch_before or is_repeat_over_new_id)
        if claim.epoch != record.producer_epoch and not is_repeat:
            raise Refused(Code.PRODUCER_FENCED)
        if record.state is CoordinatorState.ONGOING:
            return True
        if is_repeat:
            _check_ended_so(record, is_commit)
            return False
        # An abort without a transaction is allowed, and bumps the epoch too; a commit is not.
        if is_commit:
            raise Refused(Code.INVALID_TXN_STATE)
        return True

    def _prepare(self, record: TransactionRecord, is_commit: bool, version: int) -> TransactionRecord:
        needs_new_id, now_ms = version >= 2 and record.is_epoch_exhausted, self._schedule.now_ms
        next_id = self._cluster.new_producer_id() if needs_new_id else NO_PRODUCER_ID
        return prepare(record, is_commit=is_commit, version=version, next_producer_id=next_id, now_ms=now_ms)

    def _prepare_abort(self, record: TransactionRecord) -> TransactionRecord:
        version = self._settings.number("transaction.version")
        return self._prepare(record if version >= 2 else fence(record), False, version)

    def _decide(self, transaction: CoordinatedTransaction, after: TransactionRecord, done: DoneWithProducer) -> None:
        def on_appended(code: Code) -> None:
            following = self._send_markers(transaction) if code is Code.NONE else after
            done(code, following.producer_id, following.producer_epoch)

        self._append(transaction, after, on_appended)

    # ---- the log and the markers ----

    def _append(self, transaction: CoordinatedTransaction, after: TransactionRecord, done: Done) -> None:
        epoch = self._coordinator(transaction).leader_epoch
        transaction.pending = after
        transaction.is_appending = True
        if after.version >= 2 and self._settings.number("transaction.version") == 0:
            # The log's format cannot store it. Kafka fails in the same way, and the id stays pending until its
            # coordinator moves; only a client that ignores the cluster's features gets here.
            done(Code.UNSUPPORTED_VERSION)
            return

        def on_appended() -> None:
            if self._coordinator(transaction).leader_epoch != epoch:
                done(Code.NOT_COORDINATOR)
                return
            transaction.record = after
            transaction.pending = None
            transaction.is_appending = False
            done(Code.NONE)

        self._schedule.after(self._settings.delay_ms("transaction_log"), on_appended)

    def _coordinator(self, transaction: CoordinatedTransaction) -> Partition:
        return self._cluster.coordinator_partition(TRANSACTION_TOPIC, transaction.transactional_id)

    def _send_markers(self, transaction: CoordinatedTransaction) -> TransactionRecord:
        """Returns the next record, for when all are written."""
        record = transaction.record
        epoch = self._coordinator(transaction).leader_epoch
        following = transaction.pending = complete(record, now_ms=self._schedule.now_ms)
        waiting = dict.fromkeys(record.partitions)
        is_commit = record.state is CoordinatorState.PREPARE_COMMIT
        # With version 2 the producer's epoch in Prepare* is above that of the data.
        marker = Marker(record.producer_id, record.producer_epoch, is_commit, epoch)

        def is_current() -> bool:
            is_known = self.transactions.get(transaction.transactional_id) is transaction
            return is_known and self._coordinator(transaction).leader_epoch == epoch

        def finish() -> None:
            if is_current():
                self._append(transaction, following, lambda _code: None)

        def queue(partition: TopicPartition) -> None:
            """Looks for the leader, also before each retry; the marker arrives a little later."""
            if not is_current():
                return
            follow = partial(write, partition)
            if self._markers.is_dropped(partition, self._coordinator(transaction).leader_id):
                self._markers.on_dropped(partition, marker)
                follow = partial(on_written, partition, True)
            self._schedule.after(max(self._settings.delay_ms("marker"), 1), follow)

        def write(partition: TopicPartition) -> None:
            if is_current():
                done = partial(on_written, partition)
                self._markers.write(partition, marker, is_strict=record.version >= 2, done=done)

        def on_written(partition: TopicPartition, is_written: bool) -> None:
            if not is_written:
                delay_ms = max(self._settings.delay_ms("marker_retry"), MARKER_RETRY_MS)
                self._schedule.after(delay_ms, lambda: queue(partition))
                return
            del waiting[partition]
            if not waiting:
                finish()

        for partition in record.partitions:
            queue(partition)
        if not record.partitions:
            self._schedule.after(max(self._settings.delay_ms("marker"), 1), finish)
        return following

    # ---- what is told ----

    def record_told_by(self, broker_id: int, transactional_id: str) -> TransactionRecord | None:
        """Raises Refused if this broker does not believe to be the coordinator."""
        cluster = self._cluster
        if TRANSACTION_TOPIC in cluster.topics:
            partition = cluster.coordinator_partition(TRANSACTION_TOPIC, transactional_id)
            if cluster.is_deposed(*partition.key, broker_id):
                return self._outdated[broker_id, partition.index].get(transactional_id)
        cluster.check_coordinator(TRANSACTION_TOPIC, transactional_id, broker_id)
        known = self.transactions.get(transactional_id)
        return None if known is None else known.record

    def _on_coordinator_deposed(self, partition: Partition) -> None:
        names = self._cluster.keys_coordinated_by(partition, self.transactions)
        self._outdated[partition.leader_id, partition.index] = {name: self.transactions[name].record for name in names}

    # ---- background work ----

    def abort_timed_out(self) -> None:
        now_ms = self._schedule.now_ms
        for transaction in list(self.transactions.values()):
            record = transaction.record
            is_open = transaction.pending is None and record.state is CoordinatorState.ONGOING
            if is_open and record.start_ms + record.timeout_ms < now_ms:
                self._decide(transaction, self._prepare_abort(record), lambda *_: None)

    def expire_ids(self) -> None:
        oldest_ms = self._schedule.now_ms - self._settings.number("transactional.id.expiration.ms")
        for transactional_id, transaction in list(self.transactions.items()):
            record = transaction.record
            if transaction.pending is None and record.state in SETTLED and record.updated_ms <= oldest_ms:
                del self.transactions[transactional_id]

    def _on_coordinator_moved(self, partition: Partition) -> None:
        """A transition being appended may or may not be in the log that the new coordinator reads."""
        if partition.topic != TRANSACTION_TOPIC:
            return
        for transactional_id in self._cluster.keys_coordinated_by(partition, self.transactions):
            transaction = self.transactions[transactional_id]
            if transaction.is_appending and self._settings.chance("transaction_log_survives"):
                transaction.record = transaction.pending or transaction.record
            transaction.pending = None
            transaction.is_appending = False

    def _on_coordinator_loaded(self, partition: Partition) -> None:
        if partition.topic == TRANSACTION_TOPIC:
            self.finish_prepared(self._cluster.keys_coordinated_by(partition, self.transactions))

    def finish_prepared(self, transactional_ids: Iterable[str]) -> None:
        """Prepared transactions from before this coordinator: their markers are sent again."""
        for transactional_id in transactional_ids:
            transaction = self.transactions[transactional_id]
            if transaction.record.state in PREPARED and transaction.pending is None:
                self._send_markers(transaction)


def _check_ended_so(record: TransactionRecord, is_commit: bool) -> None:
    if record.state is not (CoordinatorState.COMPLETE_COMMIT if is_commit else CoordinatorState.COMPLETE_ABORT):
        raise Refused(Code.INVALID_TXN_STATE)
