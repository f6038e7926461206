"""The transaction of one producer: its state, what may happen next, what to request from the coordinator.

It knows neither sockets nor queues. Its inputs: calls of the application (`start`, `begin`, ...), events of the
produce side (a batch was appended, sent, given up), and responses of coordinators. The state changes only through
`_move`, by the table TRANSITIONS; anything that is not in the table raises and changes nothing.

A record that `send` refuses was never part of the transaction; one that fails later is, and prevents the commit. In
Java both do.

The next request is derived from the state each time (transaction_requests.py), not queued: first the coordinator, then
the producer id, then partitions to register, then offsets, then EndTxn. One request is in flight at a time, so a
response always belongs to the current state.

Two transaction versions (KIP-890), chosen when a transaction begins and kept until it has ended:
 1  partitions are registered before the first produce to them; the epoch stays the same over many transactions;
 2  the leader registers a partition with the first batch; ending a transaction bumps the epoch.
In version 1 a delayed request of one transaction can hit the next one, since both have the same epoch. The remedy is a
new epoch (InitProducerId) whenever a request to a coordinator got no definite response, and after each abort: the state
RENEWING.

In version 2 the markers of the last transaction have the epoch of the next one, and leaders before Kafka 4.2 take one
that arrives a second time for the end of that one (KAFKA-19446). There, too, a transaction begins with a new epoch.

In version 2 a producer that knows the end of the last transaction under its id can begin the next one without asking
for an identity (`begin_expected`). This one is expected until a record is acknowledged: the leader has asked the
coordinator, which accepts only the epoch that it has itself. If a leader refuses it before that, and every send was
refused for sure, nothing of the transaction is in any log: the state REPLACING, in which the coordinator is asked for
an identity and the batches wait. After an acknowledged record, or a send without a definite answer, a refusal is what
it always is: somebody has ended the transaction.

A prepared transaction (PREPARED) has all its records in the log and belongs to the holder of its receipt. Nothing here
ends it, not even closing the producer. A producer that resumes a receipt may end that transaction and then has no
identity: a new epoch under the id would change the response to another process's retried EndTxn from "done" to
"fenced".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kafka_sink.errors import KafkaSinkError, LocalProtocolError, TransactionAborted
from kafka_sink.producer.engine import failure
from kafka_sink.producer.engine.commands import (
    Finished,
    PendingOperation,
    SendOffsets,
    TransactionEvent,
    TransactionReceipt,
)
from kafka_sink.producer.engine.producer_batch import NO_IDENTITY, ProducerIdentity, TopicPartition


class TransactionState(Enum):
    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    REPLACING = "replacing its identity"
    PREPARING = "preparing"
    PREPARED = "prepared"
    COMMITTING = "committing"
    ABORTING = "aborting"
    RENEWING = "renewing"
    ABORTABLE = "abortable error"
    FATAL = "fatal error"


TRANSITIONS: Mapping[tuple[TransactionState, TransactionEvent], TransactionState] = {
    (TransactionState.UNINITIALIZED, TransactionEvent.INIT): TransactionState.INITIALIZING,
    (TransactionState.UNINITIALIZED, TransactionEvent.RESUME): TransactionState.PREPARED,
    (TransactionState.INITIALIZING, TransactionEvent.INITIALIZED): TransactionState.READY,
    (TransactionState.READY, TransactionEvent.BEGIN): TransactionState.IN_TRANSACTION,
    (TransactionState.READY, TransactionEvent.RENEW): TransactionState.RENEWING,
    (TransactionState.IN_TRANSACTION, TransactionEvent.PREPARE): TransactionState.PREPARING,
    (TransactionState.IN_TRANSACTION, TransactionEvent.COMMIT): TransactionState.COMMITTING,
    (TransactionState.IN_TRANSACTION, TransactionEvent.ABORT): TransactionState.ABORTING,
    (TransactionState.IN_TRANSACTION, TransactionEvent.ERROR): TransactionState.ABORTABLE,
    (TransactionState.IN_TRANSACTION, TransactionEvent.IDENTITY_REFUSED): TransactionState.REPLACING,
    (TransactionState.REPLACING, TransactionEvent.INITIALIZED): TransactionState.IN_TRANSACTION,
    (TransactionState.REPLACING, TransactionEvent.ABORT): TransactionState.ABORTING,
    (TransactionState.REPLACING, TransactionEvent.ERROR): TransactionState.ABORTABLE,
    (TransactionState.PREPARING, TransactionEvent.PREPARED): TransactionState.PREPARED,
    (TransactionState.PREPARING, TransactionEvent.ABORT): TransactionState.ABORTING,
    (TransactionState.PREPARING, TransactionEvent.ERROR): TransactionState.ABORTABLE,
    (TransactionState.PREPARED, TransactionEvent.COMMIT): TransactionState.COMMITTING,
    (TransactionState.PREPARED, TransactionEvent.ABORT): TransactionState.ABORTING,
    (TransactionState.COMMITTING, TransactionEvent.ENDED): TransactionState.READY,
    (TransactionState.COMMITTING, TransactionEvent.ENDED_STALE): TransactionState.RENEWING,
    (TransactionState.COMMITTING, TransactionEvent.ENDED_RESUMED): TransactionState.UNINITIALIZED,
    (TransactionState.COMMITTING, TransactionEvent.ERROR): TransactionState.ABORTABLE,
    (TransactionState.ABORTING, TransactionEvent.ENDED): TransactionState.READY,
    (TransactionState.ABORTING, TransactionEvent.ENDED_STALE): TransactionState.RENEWING,
    (TransactionState.ABORTING, TransactionEvent.ENDED_RESUMED): TransactionState.UNINITIALIZED,
    (TransactionState.RENEWING, TransactionEvent.INITIALIZED): TransactionState.READY,
    (TransactionState.ABORTABLE, TransactionEvent.ABORT): TransactionState.ABORTING,
    **{
        (state, TransactionEvent.FATAL_ERROR): TransactionState.FATAL
        for state in TransactionState
        if state is not TransactionState.FATAL
    },
}

# What the callers wait for who asked for a step that takes time, and the state until then.
LASTING: Mapping[TransactionEvent, tuple[str, TransactionState]] = {
    TransactionEvent.INIT: ("init", TransactionState.INITIALIZING),
    TransactionEvent.PREPARE: ("prepare", TransactionState.PREPARING),
    TransactionEvent.COMMIT: ("end", TransactionState.COMMITTING),
    TransactionEvent.ABORT: ("end", TransactionState.ABORTING),
}

# Queued batches are still sent.
WRITING = (TransactionState.IN_TRANSACTION, TransactionState.PREPARING, TransactionState.COMMITTING)

RECREATED = (
    "topic {} was deleted and created again while the transaction wrote to it: records that were acknowledged before "
    "are gone. Write them again in a new transaction"
)

# The call that is missing before a call in the wrong state.
_ADVICE = {
    TransactionState.UNINITIALIZED: "call init_transactions() first",
    TransactionState.INITIALIZING: "init_transactions() has not finished",
    TransactionState.READY: "call begin_transaction() first",
    TransactionState.PREPARING: "the transaction is being prepared",
    TransactionState.PREPARED: "the transaction is prepared: it can only be ended",
    TransactionState.COMMITTING: "the transaction is being committed",
    TransactionState.ABORTING: "the transaction is being aborted",
    TransactionState.RENEWING: "call begin_transaction() first",
    TransactionState.IN_TRANSACTION: "a transaction is open: commit or abort it first",
    TransactionState.REPLACING: "the coordinator is being asked for another epoch",
}


class Transaction:
    """See the module. `transaction_requests.TransactionRequests` asks it what to send and passes it the responses."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.transaction_version = 1
        self.identity = NO_IDENTITY
        self.error: KafkaSinkError | None = None
        self.fatal_error: KafkaSinkError | None = None

        # Partitions of this transaction. `registered` matters only in version 1, `written` are acknowledged offsets.
        self.unregistered: dict[TopicPartition, None] = {}
        self.registered: set[TopicPartition] = set()
        self.written: dict[TopicPartition, int] = {}
        # The id of the topic that acknowledged records are in, where it is known.
        self.topic_ids: dict[str, bytes] = {}
        self.offsets: SendOffsets | None = None
        self.registered_groups: set[str] = set()
        # The coordinator may know this transaction, so it needs an EndTxn.
        self.is_started = False
        # A registration was sent and its outcome is unknown: EndTxn could be refused, a new epoch cannot.
        self.has_unknown_start = False
        # A request with this epoch may still arrive late; see the module on transaction version 1.
        self.epoch_is_stale = False
        self.has_epoch_of_end = False  # the end of the last transaction gave it
        self.is_resumed = False  # the epoch comes from a receipt
        # No broker has confirmed the identity yet.
        self.is_expected = False
        # No InitProducerId without a response can arrive late and fence this producer.
        self.is_alone = True
        # An EndTxn that commits was sent and not refused for sure.
        self.commit_may_be_done = False

        self._waiting: dict[str, list[PendingOperation]] = {"init": [], "begin": [], "prepare": [], "end": []}
        self._version_to_begin = 1
        # The ends of calls, until the engine takes them.
        self.finished: list[Finished] = []

    # ---- queries ----

    @property
    def refusal(self) -> KafkaSinkError | None:
        """Why a record would not be accepted now."""
        if self.state in (TransactionState.IN_TRANSACTION, TransactionState.REPLACING):
            return None
        if self.state in (TransactionState.ABORTABLE, TransactionState.FATAL):
            return self._current_error()
        return LocalProtocolError(f"no record can be sent: {_ADVICE[self.state]}")

    def may_send(self, topic_partition: TopicPartition) -> bool:
        return self.state in WRITING and (self.transaction_version >= 2 or topic_partition in self.registered)

    @property
    def must_drop_identity(self) -> bool:
        return self.state is TransactionState.REPLACING and self.identity != NO_IDENTITY

    @property
    def must_ask_identity(self) -> bool:
        is_dropped = self.state is TransactionState.REPLACING and self.identity == NO_IDENTITY
        return is_dropped or self.state in (TransactionState.INITIALIZING, TransactionState.RENEWING)

    @property
    def drops_unsent(self) -> bool:
        """Batches that are not in flight are pointless: the transaction will be aborted."""
        return self.state in (TransactionState.ABORTABLE, TransactionState.ABORTING)

    @property
    def is_settled(self) -> bool:
        """Closing the producer would have nothing to end."""
        return not self.drops_unsent and self.state not in (*WRITING, TransactionState.REPLACING)

    def receipt(self) -> TransactionReceipt:
        return TransactionReceipt(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            transaction_version=self.transaction_version,
            is_started=self.is_started,
            last_offsets=dict(self.written),
            topic_ids=dict(self.topic_ids),
        )

    # ---- requests of the application ----

    def start(self, operation: PendingOperation, event: TransactionEvent) -> None:
        """A step that takes time. The same call again (after a time-out) waits for the same end."""
        kind, running = LASTING[event]
        if self.state is not running:
            refusal = self._refusal_of(event)
            if refusal is not None:
                self._refuse(operation, refusal)
                return
            self._move(event)
        self._waiting[kind].append(operation)
        if event is TransactionEvent.ABORT:
            error = TransactionAborted("the transaction was aborted")
            self._finish("prepare", error)
            self.finish_offsets(error)

    def begin_expected(self, identity: ProducerIdentity) -> None:
        """Instead of an init and a begin; see the module."""
        self._move(TransactionEvent.INIT)
        self.transaction_version = 2
        self.on_initialized(identity)
        self.is_expected = True
        self._move(TransactionEvent.BEGIN)

    def begin(self, operation: PendingOperation, transaction_version: int, *, epoch_of_end_is_safe: bool) -> None:
        """`epoch_of_end_is_safe`: the transaction may have the epoch that the end of the last one gave (`NodeSet`)."""
        if self.state is TransactionState.RENEWING:
            self._waiting["begin"].append(operation)
            self._version_to_begin = transaction_version
            return
        is_changed = transaction_version != self.transaction_version
        has_unsafe_epoch = self.has_epoch_of_end and not epoch_of_end_is_safe
        if self.state is TransactionState.READY and (is_changed or has_unsafe_epoch):
            # After a change of the transaction version, too, the id continues with a new epoch.
            self._move(TransactionEvent.RENEW)
            self.begin(operation, transaction_version, epoch_of_end_is_safe=epoch_of_end_is_safe)
            return
        refusal = self._refusal_of(TransactionEvent.BEGIN)
        if refusal is None:
            self._move(TransactionEvent.BEGIN)
        self.finished.append(Finished(operation, refusal))

    def send_offsets(self, call: SendOffsets) -> None:
        if self.state is not TransactionState.IN_TRANSACTION or self.offsets is not None:
            is_replacing = self.state is TransactionState.REPLACING
            why = f"no offsets can be sent: {_ADVICE[self.state]}" if is_replacing else "offsets are already being sent"
            self._refuse(call.operation, self.refusal or LocalProtocolError(why))
            return
        self.offsets = call

    def resume(self, operation: PendingOperation, receipt: TransactionReceipt) -> None:
        if receipt.transactional_id != self.transactional_id:
            text = f"the receipt is of {receipt.transactional_id!r}, this producer is {self.transactional_id!r}"
            self._refuse(operation, LocalProtocolError(text))
            return
        refusal = self._refusal_of(TransactionEvent.RESUME)
        if refusal is not None:
            self._refuse(operation, refusal)
            return
        self._move(TransactionEvent.RESUME)
        self.identity = ProducerIdentity(receipt.producer_id, receipt.producer_epoch)
        self.transaction_version = receipt.transaction_version
        self.is_started = receipt.is_started
        self.is_resumed = True
        self.finished.append(Finished(operation))

    def abort_before_close(self) -> None:
        """A graceful close aborts an open transaction; a prepared one belongs to the holder of the receipt."""
        if (self.state, TransactionEvent.ABORT) in TRANSITIONS and self.state is not TransactionState.PREPARED:
            self.error = self.error or TransactionAborted("the producer was closed")
            self._finish_all(self._current_error())
            self._move(TransactionEvent.ABORT)
        elif self.state in (TransactionState.INITIALIZING, TransactionState.RENEWING):
            self._finish_all(LocalProtocolError("the producer was closed"))

    # ---- events of the produce side ----

    def on_appended(self, topic_partition: TopicPartition) -> None:
        if self.transaction_version == 1 and topic_partition not in self.registered:
            self.unregistered[topic_partition] = None

    def on_acked(self, topic_partition: TopicPartition, last_offset: int, topic_id: bytes | None) -> None:
        self.written[topic_partition] = max(last_offset, self.written.get(topic_partition, -1))
        self.is_expected = False
        topic, _ = topic_partition
        if topic_id is not None and self.topic_ids.setdefault(topic, topic_id) != topic_id:
            self.on_error(TransactionAborted(RECREATED.format(topic)))

    def on_identity_refused(self, error: KafkaSinkError) -> bool:
        """Whether another identity will do: it was only expected, and no record of the transaction is acknowledged."""
        if self.is_expected and self.state is TransactionState.IN_TRANSACTION:
            self._move(TransactionEvent.IDENTITY_REFUSED)
            self.error = error
        return self.is_expected and self.state is TransactionState.REPLACING

    def drop_identity(self) -> None:
        """Nothing was written under it, and nothing will be."""
        self.identity = NO_IDENTITY
        self.is_started = False

    def on_error(self, error: KafkaSinkError) -> bool:
        """This transaction can no longer be committed; the first error is reported. False: there was nothing to
        commit."""
        if (self.state, TransactionEvent.ERROR) not in TRANSITIONS:
            return False
        self._move(TransactionEvent.ERROR)
        self.error = error
        self._finish_all(self._current_error())
        return True

    def on_fatal(self, error: KafkaSinkError) -> None:
        """Nothing more is sent. Whoever waits for a commit that may have been carried out is told so."""
        if self.state is TransactionState.FATAL:
            return
        if self.commit_may_be_done:
            self._finish("end", failure.commit_unknown(error))
        self._move(TransactionEvent.FATAL_ERROR)
        self.error = self.fatal_error = error
        self._finish_all(error)

    # ---- events of the coordinator, from TransactionRequests ----

    def on_initialized(self, identity: ProducerIdentity) -> None:
        if self.drops_unsent:
            return  # the transaction was given up while its identity was being replaced
        self._move(TransactionEvent.INITIALIZED)
        self.identity = identity
        self.is_expected = False
        self.error = None
        self.epoch_is_stale = self.has_epoch_of_end = False
        self._finish("init", None, self.is_alone)
        if self._waiting["begin"]:
            self.transaction_version = self._version_to_begin
            self._move(TransactionEvent.BEGIN)
            self._finish("begin", None)

    def on_begun(self) -> None:
        """The coordinator has registered something."""
        self.is_started = True
        self.has_unknown_start = False

    def on_prepared(self) -> None:
        self._move(TransactionEvent.PREPARED)
        # From now on another process may end this transaction, with retries: no later one may have its epoch.
        self.epoch_is_stale = self.transaction_version == 1
        self._finish("prepare", None, self.receipt())

    def on_ended(self, next_identity: ProducerIdentity | None) -> None:
        """The end is certain. `next_identity`: in transaction version 2, for the next transaction."""
        was_started = self.is_started
        was_aborted = self.state is TransactionState.ABORTING and was_started
        if self.is_resumed or self.identity == NO_IDENTITY:
            self._move(TransactionEvent.ENDED_RESUMED)
            next_identity = NO_IDENTITY
        elif next_identity is None and (self.epoch_is_stale or was_aborted):
            self._move(TransactionEvent.ENDED_STALE)
        else:
            self._move(TransactionEvent.ENDED)
        self.has_epoch_of_end = next_identity is not None
        self.identity = next_identity or self.identity
        self.epoch_is_stale = self.is_resumed = False
        self.is_expected = self.is_expected and not was_started
        self.error = None
        self._clear_touched()
        self._finish("end", None)

    # ---- inside ----

    def _move(self, event: TransactionEvent) -> None:
        target = TRANSITIONS.get((self.state, event))
        if target is None:
            raise LocalProtocolError(f"{event.value} is not possible: {_ADVICE.get(self.state, self.state.value)}")
        self.state = target

    def _refusal_of(self, event: TransactionEvent) -> KafkaSinkError | None:
        """Why the application may not ask for this now."""
        if (self.state, event) in TRANSITIONS:
            return None
        if self.state in (TransactionState.ABORTABLE, TransactionState.FATAL):
            return self._current_error()
        return LocalProtocolError(f"cannot {event.value}: {_ADVICE[self.state]}")

    def _current_error(self) -> KafkaSinkError:
        if self.state is TransactionState.FATAL and self.error is not None:
            return self.error
        error = TransactionAborted(f"the transaction must be aborted: {self.error}")
        error.__cause__ = self.error
        return error

    def _refuse(self, operation: PendingOperation, error: KafkaSinkError) -> None:
        self.finished.append(Finished(operation, error))

    def _finish(self, kind: str, error: KafkaSinkError | None, result: object = None) -> None:
        waiting, self._waiting[kind] = self._waiting[kind], []
        self.finished.extend(Finished(operation, error, result) for operation in waiting)

    def _finish_all(self, error: KafkaSinkError) -> None:
        for kind in self._waiting:
            self._finish(kind, error)
        self.finish_offsets(error)

    def finish_offsets(self, error: KafkaSinkError | None = None) -> None:
        if self.offsets is not None:
            self.finished.append(Finished(self.offsets.operation, error))
            self.offsets = None

    def _clear_touched(self) -> None:
        self.unregistered.clear()
        self.registered.clear()
        self.written.clear()
        self.topic_ids.clear()
        self.registered_groups.clear()
        self.is_started = False
        self.has_unknown_start = False
        self.commit_may_be_done = False
