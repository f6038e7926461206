"""What application threads and the sender thread share: one lock, and everything that passes under it.

Towards the sender go inputs of the engine, in the order in which they were posted. Back come the results of operations
and of rows, the room that finished batches give back, and the engine's state as others may read it (cluster view,
refusal), exchanged as a whole when it is another one. The sender tells everybody who waits that something
changed; whoever waits looks for himself whether it was his.

Attributes are written under the lock and may be read without it: each is replaced as a whole, and an old value is
merely old. The lock is held for bookkeeping only, never during a system call, user code or encoding. Whoever needs the
appender's lock as well takes that one first.

A signal handler or a finalizer may interrupt a thread that holds one of these locks, and call the producer again. It
would wait for a lock that only the code below it can give back. So they are reentrant, and whoever may block, or could
disturb what is half done, asks first whether its own thread holds one (`refuse_reentry`).
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kafka_sink.client.cluster import ClusterView
from kafka_sink.engine.commands import Failed, Input
from kafka_sink.engine.producer_batch import ProducerBatch
from kafka_sink.errors import KafkaSinkError, LocalProtocolError, OperationTimeout
from kafka_sink.frozen import frozen
from kafka_sink.io.clock import Clock
from kafka_sink.io.error_copy import copy_error
from kafka_sink.records.batch import Share

if TYPE_CHECKING:
    from kafka_sink.producer.buffer_pool import BufferWaiter

# Longer waits are cut into pieces: a signal that comes a moment before the thread goes to sleep does not wake it, and
# Ctrl-C would be noticed at the end of the wait only.
WAIT_S_MAX = 1.0
CLOSED = "the producer is closed"
FORKED = (
    "this producer belongs to the process that made it: its sender thread did not come along through fork(). "
    "Make a producer in the child process"
)
REENTERED = (
    "this call came in the middle of another one of the same thread and producer (from a signal handler, a finalizer "
    "or a partitioner) and would wait for itself. Have a signal handler set a flag, and flush or close where it is seen"
)


# What is to be called once the lock is free: callbacks of the user.
Calls = list[Callable[[], None]]


class PendingRecords(Protocol):
    """Rows somebody waits for; the token of their shares."""

    open_count: int

    def on_delivered(self, share: Share, batch: ProducerBatch, calls: Calls) -> None: ...

    def on_failed(self, share: Share, failed: Failed, calls: Calls) -> None: ...

    def fail_rest(self, error: KafkaSinkError, calls: Calls) -> None: ...


def refuse_reentry(lock: threading.RLock) -> None:
    """Before the lock is taken. `threading.Condition` asks the same way."""
    if lock._is_owned():  # type: ignore[attr-defined]  # its stubs leave it out
        raise LocalProtocolError(REENTERED)


def deadline_of(clock: Clock, timeout_s: float | None) -> int | None:
    """None, and infinity, wait for ever."""
    return None if timeout_s is None or timeout_s == math.inf else clock.monotonic_ms() + int(timeout_s * 1000)


@dataclass(slots=True, eq=False)
class PendingOperation:
    """A wish that ends: flush, close, a step of a transaction."""

    name: str
    operation_id: int
    is_over: bool = False
    error: KafkaSinkError | None = None
    result: object = None


@frozen
class TopicReport:
    """What the engine knows of a topic somebody waits for: why waiting is pointless, or what is in the way."""

    error: KafkaSinkError | None
    trouble: str


class Mailbox:
    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self.clock = clock
        self.wake = wake
        # The condition's own lock: taken without it where nobody is told anything, which is cheaper.
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.waiting_count = 0
        # Moved on at every change, for those who wait for any.
        self.change_count = 0
        self.sender_ident: int | None = None
        self.is_forked = False

        # Published by the sender.
        self.cluster = ClusterView()
        self.refusal: KafkaSinkError | None = None
        # The engine's own books, which change while they are read: a copy of one entry is true of one moment.
        self.queue_loads: Mapping[str, dict[int, int]] = {}
        self.slow_node_ids: frozenset[int] = frozenset()
        self.topic_reports: Mapping[str, TopicReport] = {}
        # What keeps those waiting who wait for records or operations.
        self.trouble = ""
        self.completed_bytes = 0
        self.completed_records = 0
        self.is_closing = False
        self.is_ended = False
        # Nobody holds the producer any more; it has to close by itself.
        self.is_orphaned = False
        # Set by whoever finds that nobody can know any more what is in which batch.
        self.broken: KafkaSinkError | None = None
        # Callbacks that are due; the sender runs them.
        self.calls: Calls = []

        # Who waits for room in the buffer, in order of arrival.
        self.waiters: deque[BufferWaiter] = deque()
        self.wanted_topics: dict[str, int] = {}
        self.pending_records: set[PendingRecords] = set()
        self._inputs: list[Input] = []
        self._is_refused_in_advance = False
        self._operations: dict[int, PendingOperation] = {}
        self._next_operation_id = 1

    @property
    def closed_reason(self) -> KafkaSinkError | None:
        """Why nothing is possible any more; a refusal may pass, this does not."""
        return self.refusal if self.is_closing or self.is_ended else None

    @property
    def is_sender_thread(self) -> bool:
        return threading.get_ident() == self.sender_ident

    # ---- towards the sender ----------------------------------------------------------------------------------------

    def post(self, *inputs: Input) -> None:
        with self.lock:
            self._inputs.extend(inputs)

    def post_operation(
        self, name: str, wish: Callable[[int], Input], *, refusal: KafkaSinkError | None = None
    ) -> PendingOperation:
        """Ends at once, with the reason, when nobody would carry it out any more.

        `refusal` is valid from now on, before the sender has seen the wish: nothing may slip in behind it.
        """
        refuse_reentry(self.lock)
        with self.changed:
            operation = PendingOperation(name, self._next_operation_id)
            self._next_operation_id += 1
            if self.is_ended:
                operation.is_over = True
                operation.error = self.refusal
                return operation
            self._operations[operation.operation_id] = operation
            self._inputs.append(wish(operation.operation_id))
            if refusal is not None:
                self.refusal = self.refusal or refusal
                self._is_refused_in_advance = True
        return operation

    def take_inputs(self) -> list[Input]:
        if not self._inputs:
            return []  # whoever posts something now wakes the sender after it
        with self.lock:
            taken, self._inputs = self._inputs, []
            self._is_refused_in_advance = False
        return taken

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def wait_for(self, is_over: Callable[[], bool], deadline_ms: int | None, what: str) -> bool:
        """False when the deadline passed. Ctrl-C interrupts it; nothing is left behind then."""
        refuse_reentry(self.lock)
        with self.changed:
            while not is_over():
                if self.is_forked:
                    raise LocalProtocolError(FORKED)
                self.refuse_to_block(what)
                wait_s = WAIT_S_MAX
                if deadline_ms is not None:
                    wait_s = min(wait_s, (deadline_ms - self.clock.monotonic_ms()) / 1000)
                    if wait_s <= 0:
                        return False
                self.waiting_count += 1
                try:
                    self.changed.wait(wait_s)
                finally:
                    self.waiting_count -= 1
        return True

    def refuse_to_block(self, what: str) -> None:
        if self.is_sender_thread:
            raise LocalProtocolError(
                f"{what} inside a delivery callback would wait for ever: callbacks run on the sender thread, "
                "which is the one that delivers"
            )

    def wait_for_operation(self, operation: PendingOperation, deadline_ms: int | None, limit: str) -> object:
        if not self.wait_for(lambda: operation.is_over, deadline_ms, operation.name):
            text = f"{operation.name} did not end within {limit}; it goes on and may be called again"
            raise OperationTimeout(self.with_trouble(text))
        if operation.error is not None:
            raise copy_error(operation.error)
        return operation.result

    def with_trouble(self, text: str) -> str:
        """The text of a time-out, and what stood in the way if anything is known."""
        return f"{text}. What is in the way: {self.trouble}" if self.trouble else text

    def notify_change(self) -> None:
        """Under the lock: whoever waits has to look again."""
        self.change_count += 1
        if self.waiting_count:
            self.changed.notify_all()

    def reject(self, pending: PendingRecords, error: KafkaSinkError) -> None:
        """Rows that never get to the sender."""
        with self.changed:
            pending.fail_rest(error, self.calls)
            self.pending_records.discard(pending)
            self.notify_change()
        self.wake()

    def add_pending(self, pending: PendingRecords) -> None:
        with self.lock:
            self.pending_records.add(pending)

    def drop_pending(self, pending: PendingRecords) -> None:
        with self.changed:
            self.pending_records.discard(pending)

    def begin_closing(self) -> None:
        """Nothing is accepted from now on."""
        with self.changed:
            self.is_closing = True
            self.refusal = self.broken or LocalProtocolError(CLOSED)
            self.notify_change()

    def break_down(self, error: KafkaSinkError) -> None:
        """The sender ends with this error; nothing is accepted meanwhile."""
        with self.changed:
            self.broken = self.broken or error
            self.refusal = self.broken
            self.notify_change()
        self.wake()

    # ---- from the sender -------------------------------------------------------------------------------------------

    def finish(self, operation_id: int, error: KafkaSinkError | None, result: object) -> None:
        """Under the lock."""
        operation = self._operations.pop(operation_id, None)
        if operation is not None:
            operation.error, operation.result, operation.is_over = error, result, True

    def publish_refusal(self, refusal: KafkaSinkError | None) -> None:
        """Under the lock. What was refused in advance stays refused until the sender has seen why."""
        if self.broken is None and not self.is_closing and (refusal is not None or not self._is_refused_in_advance):
            self.refusal = refusal

    def end(self, error: KafkaSinkError, refusal: KafkaSinkError) -> None:
        """Nobody will carry out anything any more: whatever still waits gets `error`, whoever comes later `refusal`.

        The caller holds the appender's lock, so that no row comes in behind this.
        """
        with self.changed:
            self.refusal = refusal
            self.is_ended = True
            self._inputs.clear()
            for operation_id in list(self._operations):
                self.finish(operation_id, error, None)
            for pending in self.pending_records:
                pending.fail_rest(error, self.calls)
            self.pending_records.clear()
            self.notify_change()

    def after_fork_in_child(self) -> None:
        """The child's one thread may have come away from between a lock and its release, taken by another thread."""
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.refusal = LocalProtocolError(FORKED)
        self.is_forked = self.is_ended = True
