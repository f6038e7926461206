"""State shared by application threads and the sender thread, under one lock.

To the sender: calls of the application, in the order posted. From the sender: results of operations and rows, memory
freed by finished batches, and the published state of the engine (cluster view, refusal), replaced as a whole when it
changes. Whoever waits has a bell, which rings at any change; then it checks its own condition.

Attributes that change together are written under the lock; single flags may be set without it. All may be read without
it: each is replaced as a whole, so a reader sees at worst an old value. The lock is held for bookkeeping only, never
during a system call, user code or encoding. Lock order: the appender's lock first.

A signal handler or a finalizer may interrupt a thread that holds one of the producer's locks, and call the producer
again. It would wait for a lock held by its own thread, or for the sender, which waits for that lock. So they are
reentrant, and code that may block, or must not see a half-done change, first checks whether its own thread holds one
(`refuse_reentry`).

A handler that raises (Ctrl-C) can break off any function that is written in Python, but no single step of C. So the
locks are plain ones of `threading`, taken by `with`. The methods of `threading.Condition` are written in Python: after
an interrupt inside one of them its lock could stay held.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from kafka_sink.errors import KafkaSinkError, LocalProtocolError, OperationTimeout, copy_error
from kafka_sink.formats.records.batch import Share
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.cluster import ClusterView
from kafka_sink.kafka.io.clock import WAIT_PIECE_S, Clock
from kafka_sink.producer.engine import failure
from kafka_sink.producer.engine.batch_sender import RefusedSize
from kafka_sink.producer.engine.commands import Call, Failed, OperationCall, PendingOperation
from kafka_sink.producer.engine.producer_batch import ProducerBatch

CLOSE, COMMIT = "close()", "commit_transaction()"
FORKED = (
    "this producer belongs to the process that made it: its sender thread did not come along through fork(). "
    "Make a producer in the child process"
)
REENTERED = (
    "this call came in the middle of another one of the same thread and producer (from a signal handler, a finalizer "
    "or a partitioner) and would wait for itself. Have a signal handler set a flag, and flush or close where it is seen"
)


# User callbacks to run after the lock is released.
Callbacks = list[Callable[[], None]]


class PendingRecords(Protocol):
    """Rows with futures; the token of their shares."""

    open_count: int

    def on_delivered(self, share: Share, batch: ProducerBatch, callbacks: Callbacks) -> None: ...

    def on_failed(self, share: Share, failed: Failed, callbacks: Callbacks) -> None: ...

    def fail_rest(self, error: KafkaSinkError, callbacks: Callbacks) -> None: ...


def refuse_reentry(*locks: threading.RLock) -> None:
    """`threading.Condition` checks the same way."""
    for lock in locks:
        if lock._is_owned():  # type: ignore[attr-defined]  # its stubs leave it out
            raise LocalProtocolError(REENTERED)


def deadline_of(clock: Clock, timeout_s: float | None) -> int | None:
    """None and infinity: no deadline."""
    return None if timeout_s is None or timeout_s == math.inf else clock.monotonic_ms() + int(timeout_s * 1000)


@frozen
class TopicReport:
    """The state of a topic that a thread waits for: why waiting is pointless, or what the problem is."""

    error: KafkaSinkError | None
    trouble: str


class Mailbox:
    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self.clock = clock
        self.wake = wake
        self.lock = threading.RLock()
        # Every lock of the producer that the sender takes: whoever holds one must not wait for the sender.
        self.locks: tuple[threading.RLock, ...] = (self.lock,)
        # One for each thread that waits: a lock that it takes a second time, and that any change releases.
        self.bells: set[threading.Lock] = set()
        # Incremented at every change.
        self.change_count = 0
        self.sender_ident: int | None = None
        # The sender's thread is over. If memory ran out while it ended, it has not told everybody: whoever waits makes
        # up for that. A flag of our own, as after a signal `Thread.is_alive` may call a living thread dead.
        self.is_sender_gone = False
        self.end_for_sender: Callable[[], None] = lambda: None
        self.is_forked = False

        # Published by the sender.
        self.cluster = ClusterView()
        self.refusal: KafkaSinkError | None = None
        # The engine's own dictionaries, updated concurrently: a copy of one entry is consistent.
        self.queue_loads: Mapping[str, dict[int, int]] = {}
        self.refused_sizes: Mapping[str, RefusedSize] = {}
        self.slow_node_ids: frozenset[int] = frozenset()
        self.topic_reports: Mapping[str, TopicReport] = {}
        # Why records or operations are delayed.
        self.trouble = ""
        self.completed_bytes = 0
        self.completed_records = 0
        self.is_closing = False
        self.is_ended = False
        # It will end at once: another close has nothing left to do.
        self.is_abandoned = False
        # The producer is unreferenced; it must close itself.
        self.is_orphaned = False
        # Set if the content of batches has become unknown.
        self.broken: KafkaSinkError | None = None
        # Callbacks to run by the sender.
        self.callbacks: Callbacks = []

        self.wanted_topics: dict[str, int] = {}
        self.pending_records: set[PendingRecords] = set()
        self._calls: list[Call] = []
        self._is_refused_in_advance = False
        self._operations: dict[PendingOperation, None] = {}

    @property
    def closed_reason(self) -> KafkaSinkError | None:
        """Why the producer is unusable; a refusal may be temporary, this is not."""
        return self.refusal if self.is_closing or self.is_ended else None

    @property
    def open_commits(self) -> list[PendingOperation]:
        """Asked for, also by a call that timed out, and without an outcome."""
        return [operation for operation in list(self._operations) if operation.name == COMMIT]

    @property
    def is_sender_thread(self) -> bool:
        return threading.get_ident() == self.sender_ident

    # ---- to the sender ---------------------------------------------------------------------------------------------

    def post(self, *calls: Call) -> None:
        with self.lock:
            self._calls.extend(calls)

    def post_operation(self, call: OperationCall, *, refusal: KafkaSinkError | None = None) -> None:
        """Finishes at once, with the reason, if the producer is closed.

        `refusal` applies from now on, before the sender has seen the operation: no record may follow it.
        """
        operation = call.operation
        with self.lock:
            # Until the end without a call, where an interrupt may come: all of this, or nothing.
            operation.is_posted = True
            if self.is_ended:
                operation.error, operation.is_over = self.refusal, True
            else:
                if refusal is not None:
                    self.refusal = self.refusal or refusal
                    self._is_refused_in_advance = True
                self._operations[operation] = None
                self._calls += (call,)

    def take_calls(self) -> list[Call]:
        if not self._calls:
            return []  # a later post wakes the sender
        with self.lock:
            taken, self._calls = self._calls, []
            self._is_refused_in_advance = False
        return taken

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def wait_for(self, is_over: Callable[[], bool], deadline_ms: int | None, what: str) -> bool:
        """False if the deadline has passed. Ctrl-C interrupts it without leaving state behind."""
        bell = threading.Lock()
        bell.acquire()
        try:
            self.bells.add(bell)  # before the first check: no change is missed
            while not is_over():
                if self.is_forked:
                    raise LocalProtocolError(FORKED)
                self.refuse_to_block(what)
                if self.is_sender_gone:
                    self._end_waiting(is_over)
                    break
                wait_s = WAIT_PIECE_S
                if deadline_ms is not None:
                    wait_s = min(wait_s, (deadline_ms - self.clock.monotonic_ms()) / 1000)
                    if wait_s <= 0:
                        return False
                bell.acquire(timeout=wait_s)
        finally:
            self.bells.discard(bell)
        return True

    def _end_waiting(self, is_over: Callable[[], bool]) -> None:
        if not is_over():  # now, as the sender may have told it last of all
            self.end_for_sender()
            if not is_over():
                raise failure.stopped_error("its thread ended without a word")

    def refuse_to_block(self, what: str) -> None:
        refuse_reentry(*self.locks)
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
        """The text of a timeout error, with the known cause, if any."""
        return f"{text}. What is in the way: {self.trouble}" if self.trouble else text

    def notify_change(self) -> None:
        """Call under the lock: wakes all waiters to check again."""
        self.change_count += 1
        for bell in self.bells.copy():
            with suppress(RuntimeError):  # it rings already
                bell.release()

    def reject(self, pending: PendingRecords, error: KafkaSinkError) -> None:
        """Fails rows that never reach the sender."""
        with self.lock:
            pending.fail_rest(error, self.callbacks)
            self.pending_records.discard(pending)
            self.notify_change()
        self.wake()

    def add_pending(self, pending: PendingRecords) -> None:
        with self.lock:
            self.pending_records.add(pending)

    def drop_pending(self, pending: PendingRecords) -> None:
        with self.lock:
            self.pending_records.discard(pending)

    def begin_closing(self) -> None:
        """From now on nothing is accepted."""
        with self.lock:
            self.is_closing = True
            self.refusal = self.broken or LocalProtocolError(failure.CLOSED)
            self.notify_change()

    def break_down(self, error: KafkaSinkError) -> None:
        """Ends the sender with this error; nothing is accepted meanwhile."""
        with self.lock:
            self.broken = self.broken or error
            self.refusal = self.broken
            self.notify_change()
        self.wake()

    # ---- from the sender -------------------------------------------------------------------------------------------

    def finish(self, operation: PendingOperation, error: KafkaSinkError | None, result: object) -> None:
        """Call under the lock."""
        operation.error, operation.result, operation.is_over = error, result, True
        # Last: whoever has been told is no longer waiting, even if memory runs out here.
        self._operations.pop(operation, None)

    def publish_refusal(self, refusal: KafkaSinkError | None) -> None:
        """Call under the lock. A refusal set in advance stays until the sender has processed its operation."""
        if self.broken is None and not self.is_closing and (refusal is not None or not self._is_refused_in_advance):
            self.refusal = refusal

    def end(self, error: KafkaSinkError, refusal: KafkaSinkError, *, is_closed: bool) -> None:
        """The sender has ended: everything pending fails with `error`, later calls with `refusal`. `is_closed`: after a
        close that did all that it was asked for; another one that came meanwhile has nothing left to do.

        The caller holds the appender's lock, so that no row can be added afterwards.
        """
        with self.lock:
            self.refusal = refusal
            self.is_ended = True
            unseen = {call.operation for call in self._calls if isinstance(call, OperationCall)}
            self._calls.clear()
            for operation in [each for each in self._operations if not each.is_over]:
                is_done = is_closed and operation.name == CLOSE
                # The engine has reported the end of every call that it knew, unless it failed itself.
                is_in_doubt = operation.name == COMMIT and operation not in unseen
                end = failure.commit_unknown(error) if is_in_doubt else error
                self.finish(operation, None if is_done else end, None)
            for pending in self.pending_records:
                with suppress(Exception):  # no memory: it has its error by then, and nobody may wait for the others
                    pending.fail_rest(error, self.callbacks)
            self.pending_records.clear()
            self.notify_change()

    def after_fork_in_child(self) -> None:
        """In the child a lock may be held by a thread that does not exist there."""
        self.lock = threading.RLock()
        self.refusal = LocalProtocolError(FORKED)
        self.is_forked = self.is_ended = True
