"""The transaction of one producer: where it stands, what may happen next, what the coordinator has to be asked.

It knows neither sockets nor queues. Three kinds of callers: wishes of the user (`init`, `begin`, `end`, ...), facts
from the produce side (a batch was appended, sent, given up), and answers of coordinators. The state moves only through
`_move`, by the table TRANSITIONS; anything that is not in the table raises and changes nothing.

What is asked next is derived from the state each time (transaction_requests.py), not kept in a queue: first the
coordinator, then the producer id, then partitions to register, then offsets, then the end. One request is out at a
time, so an answer always belongs to the state it meets.

Two transaction versions (KIP-890), chosen when a transaction begins and kept until it has ended:
 1  partitions are registered before the first produce to them; the epoch stays the same over many transactions;
 2  the leader registers a partition with the first batch; ending a transaction raises the epoch.
In version 1 a delayed request of one transaction can hit the next one, since both have the same epoch. The remedy
is a new epoch (InitProducerId) whenever a request to a coordinator stayed without a definite answer, and after each
abort: that is the state RENEWING.

A prepared transaction (PREPARED) has all its records in the log and belongs to whoever holds its receipt. Nothing here
ends it by itself, not even closing the producer. Whoever resumes a receipt may end that transaction and, after that,
has no identity: a new epoch under the id would turn the answer to somebody's repeated end from "done" into "fenced".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kafka_sink.engine.commands import Finished, SendOffsets
from kafka_sink.engine.producer_batch import NO_IDENTITY, ProducerIdentity, TopicPartition
from kafka_sink.errors import KafkaSinkError, LocalProtocolError, TransactionAborted
from kafka_sink.frozen import frozen


class TransactionState(Enum):
    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    PREPARING = "preparing"
    PREPARED = "prepared"
    COMMITTING = "committing"
    ABORTING = "aborting"
    RENEWING = "renewing"
    ABORTABLE = "abortable error"
    FATAL = "fatal error"


class TransactionEvent(Enum):
    INIT = "init"
    INITIALIZED = "initialized"
    BEGIN = "begin"
    RENEW = "renew"
    PREPARE = "prepare"
    PREPARED = "prepared"
    RESUME = "resume"
    COMMIT = "commit"
    ABORT = "abort"
    ENDED = "ended"
    ENDED_STALE = "ended, epoch is stale"
    ENDED_RESUMED = "ended, epoch is somebody else's"
    ERROR = "error"
    FATAL_ERROR = "fatal error"


TRANSITIONS: Mapping[TransactionState, Mapping[TransactionEvent, TransactionState]] = {
    TransactionState.UNINITIALIZED: {
        TransactionEvent.INIT: TransactionState.INITIALIZING,
        TransactionEvent.RESUME: TransactionState.PREPARED,
        TransactionEvent.FATAL_ERROR: TransactionState.FATAL,
    },
    TransactionState.INITIALIZING: {
        TransactionEvent.INITIALIZED: TransactionState.READY,
        TransactionEvent.FATAL_ERROR: TransactionState.FATAL,
    },
    TransactionState.READY: {
        TransactionEvent.BEGIN: TransactionState.IN_TRANSACTION,
        TransactionEvent.RENEW: TransactionState.RENEWING,
        TransactionEvent.FATAL_ERROR: TransactionState.FATAL,
    },
    TransactionState.IN_TRANSACTION: {
        TransactionEvent.PREPARE: TransactionState.PREPARING,
        TransactionEvent.COMMIT: TransactionState.COMMITTING,
        TransactionEvent.ABORT: TransactionState.ABORTING,
        TransactionEvent.ERROR: TransactionState.ABORTABLE,
        TransactionEvent.FATAL_ERROR: TransactionState.FATAL,
    },
    TransactionState.PREPARING: {
        TransactionEvent.PREPARED: TransactionState.PREPARED,
        TransactionEvent.ABORT: TransactionState.ABORTING,
        TransactionEvent.ERROR: TransactionState.ABORTABLE,
        TransactionEvent.FATAL_ERROR: TransactionState.FATAL,
    },
    TransactionState.PREPARED: {
        TransactionEvent.COMMIT: TransactionState.COMMITTING,
        TransactionEvent.ABORT: TransactionState.ABORTING,
        TransactionEvent.FATAL_ERROR: TransactionState.FATAL,
    },
    TransactionState.COMMITTING: {
        TransactionEvent.ENDED: TransactionState.READY,
        TransactionEvent.ENDED_STALE: TransactionState.RENEWING,
        TransactionEvent.ENDED_RESUMED: TransactionState.UNINITIALIZED,
        TransactionEvent.ERROR: TransactionState.ABORTABLE,
        TransactionEvent.FATAL_ERROR: TransactionState.FATAL,
    },
    TransactionState.ABORTING: {
        TransactionEvent.ENDED: TransactionState.READY,
        TransactionEvent.ENDED_STALE: TransactionState.RENEWING,
        TransactionEvent.ENDED_RESUMED: TransactionState.UNINITIALIZED,
        TransactionEvent.FATAL_ERROR: TransactionState.FATAL,
    },
    TransactionState.RENEWING: {
        TransactionEvent.INITIALIZED: TransactionState.READY,
        TransactionEvent.FATAL_ERROR: TransactionState.FATAL,
    },
    TransactionState.ABORTABLE: {
        TransactionEvent.ABORT: TransactionState.ABORTING,
        TransactionEvent.FATAL_ERROR: TransactionState.FATAL,
    },
    TransactionState.FATAL: {},
}

# What a call in the wrong state should have been preceded by.
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
}


@frozen
class TransactionReceipt:
    """All that is needed to end a prepared transaction from anywhere: another process, another host.

    `transaction_version` is part of it: a repeated end by the rules of the other version gets a wrong answer.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int
    # False: nothing was written. Kafka cannot end such a transaction, and there is nothing to end.
    is_started: bool
    last_offsets: Mapping[TopicPartition, int]


class Transaction:
    """See the module. `transaction_requests.TransactionRequests` asks it what to send and tells it the answers."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.transaction_version = 1
        self.identity = NO_IDENTITY
        self.error: KafkaSinkError | None = None

        # What this transaction touched. `registered` counts only in version 1, `written` are acknowledged offsets.
        self.unregistered: dict[TopicPartition, None] = {}
        self.registered: set[TopicPartition] = set()
        self.written: dict[TopicPartition, int] = {}
        self.offsets: SendOffsets | None = None
        self.registered_groups: set[str] = set()
        # The coordinator may know of this transaction, so it has to be ended there.
        self.is_started = False
        # A registration went out and its fate is unknown: ending could be refused, a new epoch cannot.
        self.has_unknown_start = False
        # Some request of this epoch may still arrive late; see the module on transaction version 1.
        self.epoch_is_stale = False
        self.is_resumed = False  # the epoch is that of a receipt

        self._waiting: dict[str, list[int]] = {"init": [], "begin": [], "prepare": [], "end": []}
        self._version_to_begin = 1
        self._finished: list[Finished] = []

    # ---- questions ----

    @property
    def refusal(self) -> KafkaSinkError | None:
        """Why a record would not be accepted now."""
        if self.state is TransactionState.IN_TRANSACTION:
            return None
        if self.state in (TransactionState.ABORTABLE, TransactionState.FATAL):
            return self._current_error()
        return LocalProtocolError(f"no record can be sent: {_ADVICE[self.state]}")

    def may_send(self, topic_partition: TopicPartition) -> bool:
        if self.state not in (TransactionState.IN_TRANSACTION, TransactionState.PREPARING, TransactionState.COMMITTING):
            return False
        return self.transaction_version >= 2 or topic_partition in self.registered

    @property
    def drops_unsent(self) -> bool:
        """Batches that are not on the wire are pointless: the transaction will be aborted."""
        return self.state in (TransactionState.ABORTABLE, TransactionState.ABORTING)

    @property
    def is_settled(self) -> bool:
        """Nothing is open that closing the producer would have to end."""
        return not self.drops_unsent and self.state not in (
            TransactionState.IN_TRANSACTION,
            TransactionState.PREPARING,
            TransactionState.COMMITTING,
        )

    def receipt(self) -> TransactionReceipt:
        return TransactionReceipt(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            transaction_version=self.transaction_version,
            is_started=self.is_started,
            last_offsets=dict(self.written),
        )

    # ---- wishes ----

    def init(self, operation_id: int) -> None:
        if self.state is not TransactionState.INITIALIZING and not self._accepts(operation_id, TransactionEvent.INIT):
            return
        self._waiting["init"].append(operation_id)

    def begin(self, operation_id: int, transaction_version: int) -> None:
        if self.state is TransactionState.RENEWING:
            self._waiting["begin"].append(operation_id)
            self._version_to_begin = transaction_version
            return
        if self.state is TransactionState.READY and transaction_version != self.transaction_version:
            # An id that has written by the rules of one version starts the other one with an epoch of its own.
            self._move(TransactionEvent.RENEW)
            self.begin(operation_id, transaction_version)
            return
        if self._accepts(operation_id, TransactionEvent.BEGIN):
            self._finished.append(Finished(operation_id))

    def send_offsets(self, wish: SendOffsets) -> None:
        if self.state is not TransactionState.IN_TRANSACTION or self.offsets is not None:
            self._refuse(wish.operation_id, self.refusal or LocalProtocolError("offsets are already being sent"))
            return
        self.offsets = wish

    def prepare(self, operation_id: int) -> None:
        if self.state is not TransactionState.PREPARING and not self._accepts(operation_id, TransactionEvent.PREPARE):
            return
        self._waiting["prepare"].append(operation_id)

    def resume(self, operation_id: int, receipt: TransactionReceipt) -> None:
        if receipt.transactional_id != self.transactional_id:
            text = f"the receipt is of {receipt.transactional_id!r}, this producer is {self.transactional_id!r}"
            self._refuse(operation_id, LocalProtocolError(text))
            return
        if not self._accepts(operation_id, TransactionEvent.RESUME):
            return
        self.identity = ProducerIdentity(receipt.producer_id, receipt.producer_epoch)
        self.transaction_version = receipt.transaction_version
        self.written = dict(receipt.last_offsets)
        self.is_started = receipt.is_started
        self.is_resumed = True
        self._finished.append(Finished(operation_id))

    def end(self, operation_id: int, *, commit: bool) -> None:
        """Ends the transaction. Calling it again the same way (after a time-out) waits for the same end."""
        running = TransactionState.COMMITTING if commit else TransactionState.ABORTING
        if self.state is not running and not self._accepts(
            operation_id, TransactionEvent.COMMIT if commit else TransactionEvent.ABORT
        ):
            return
        self._waiting["end"].append(operation_id)
        if not commit:
            self.unregistered.clear()
            error = TransactionAborted("the transaction was aborted")
            self._finish("prepare", error)
            self._finish_offsets(error)

    def abort_before_close(self) -> None:
        """A graceful close ends what is open; what is prepared belongs to the holder of the receipt."""
        if self.state in (TransactionState.IN_TRANSACTION, TransactionState.PREPARING, TransactionState.ABORTABLE):
            self.error = self.error or TransactionAborted("the producer was closed")
            self._finish_all(self._current_error())
            self._move(TransactionEvent.ABORT)
            self.unregistered.clear()
        elif self.state in (TransactionState.INITIALIZING, TransactionState.RENEWING):
            self._finish_all(LocalProtocolError("the producer was closed"))

    # ---- facts from the produce side ----

    def on_appended(self, topic_partition: TopicPartition) -> None:
        if self.transaction_version == 1 and topic_partition not in self.registered:
            self.unregistered[topic_partition] = None

    def on_sent(self) -> None:
        self.is_started = True

    def on_acked(self, topic_partition: TopicPartition, last_offset: int) -> None:
        self.written[topic_partition] = max(last_offset, self.written.get(topic_partition, -1))

    def on_error(self, error: KafkaSinkError) -> bool:
        """This transaction cannot be committed any more; the first error is told. False: nothing could be committed."""
        if TransactionEvent.ERROR not in TRANSITIONS[self.state]:
            return False
        self._move(TransactionEvent.ERROR)
        self.error = error
        self._finish_all(self._current_error())
        return True

    def on_fatal(self, error: KafkaSinkError) -> None:
        if self.state is TransactionState.FATAL:
            return
        self._move(TransactionEvent.FATAL_ERROR)
        self.error = error
        self._finish_all(error)

    # ---- facts from the coordinator, told by TransactionRequests ----

    def on_initialized(self, identity: ProducerIdentity, *, is_alone: bool) -> None:
        self._move(TransactionEvent.INITIALIZED)
        self.identity = identity
        self.epoch_is_stale = False
        self._clear_touched()
        self._finish("init", None, is_alone)
        waiting = self._waiting["begin"]
        if waiting:
            self.transaction_version = self._version_to_begin
            self._move(TransactionEvent.BEGIN)
            self._finish("begin", None)

    def on_initial_version(self, transaction_version: int) -> None:
        """The first transaction has nothing before it that another version could have written."""
        self.transaction_version = transaction_version

    def on_prepared(self) -> None:
        self._move(TransactionEvent.PREPARED)
        # From now on somebody else may end this transaction, once or again: no other one may have its epoch.
        self.epoch_is_stale = self.transaction_version == 1
        self._finish("prepare", None, self.receipt())

    def on_ended(self, next_identity: ProducerIdentity | None) -> None:
        """The end is certain. `next_identity` is what transaction version 2 gives for the next transaction."""
        was_aborted_by_old_rules = (
            self.state is TransactionState.ABORTING and self.transaction_version == 1 and self.is_started
        )
        if self.is_resumed:
            self._move(TransactionEvent.ENDED_RESUMED)
            next_identity = NO_IDENTITY
        elif next_identity is None and (self.epoch_is_stale or was_aborted_by_old_rules):
            self._move(TransactionEvent.ENDED_STALE)
        else:
            self._move(TransactionEvent.ENDED)
        self.identity = next_identity or self.identity
        self.epoch_is_stale = self.is_resumed = False
        self.error = None
        self._clear_touched()
        self._finish("end", None)

    def on_offsets_sent(self) -> None:
        self._finish_offsets(None)

    # ---- results ----

    def take_finished(self) -> list[Finished]:
        finished, self._finished = self._finished, []
        return finished

    # ---- inside ----

    def _move(self, event: TransactionEvent) -> None:
        target = TRANSITIONS[self.state].get(event)
        if target is None:
            raise LocalProtocolError(f"{event.value} is not possible: {_ADVICE.get(self.state, self.state.value)}")
        self.state = target

    def _accepts(self, operation_id: int, event: TransactionEvent) -> bool:
        """Moves if the table allows it; otherwise the wish is refused and nothing changes."""
        if event in TRANSITIONS[self.state]:
            self._move(event)
            return True
        if self.state in (TransactionState.ABORTABLE, TransactionState.FATAL):
            self._refuse(operation_id, self._current_error())
        else:
            self._refuse(operation_id, LocalProtocolError(f"cannot {event.value}: {_ADVICE[self.state]}"))
        return False

    def _current_error(self) -> KafkaSinkError:
        if self.state is TransactionState.FATAL and self.error is not None:
            return self.error
        error = TransactionAborted(f"the transaction must be aborted: {self.error}")
        error.__cause__ = self.error
        return error

    def _refuse(self, operation_id: int, error: KafkaSinkError) -> None:
        self._finished.append(Finished(operation_id, error))

    def _finish(self, kind: str, error: KafkaSinkError | None, result: object = None) -> None:
        waiting, self._waiting[kind] = self._waiting[kind], []
        self._finished.extend(Finished(operation_id, error, result) for operation_id in waiting)

    def _finish_all(self, error: KafkaSinkError) -> None:
        for kind in self._waiting:
            self._finish(kind, error)
        self._finish_offsets(error)

    def _finish_offsets(self, error: KafkaSinkError | None) -> None:
        if self.offsets is not None:
            self._finished.append(Finished(self.offsets.operation_id, error))
            self.offsets = None

    def _clear_touched(self) -> None:
        self.unregistered.clear()
        self.registered.clear()
        self.written.clear()
        self.registered_groups.clear()
        self.is_started = False
        self.has_unknown_start = False
