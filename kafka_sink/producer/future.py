"""Outcomes of rows: futures for the user, backed by arrays.

A future per record with a result, a lock and a state would cost more than sending the record. So records that are
encoded together form one `PendingBatch` with the outcomes of all its rows in arrays, written by column; a
`RecordFuture` is a row number in it. `ArrowFuture` (arrow_future.py) is one future for a whole append call, with ranges
of offsets instead of rows.

The sender thread updates both under the mailbox's lock. Callbacks are only collected there; the sender runs them after
releasing the lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from kafka_sink.errors import KafkaSinkError, OperationTimeout, copy_error
from kafka_sink.formats.records.batch import Share
from kafka_sink.formats.records.varint import Array
from kafka_sink.producer.engine.commands import Failed
from kafka_sink.producer.engine.producer_batch import UNKNOWN_OFFSET, ProducerBatch
from kafka_sink.producer.interceptors import Interceptors
from kafka_sink.producer.mailbox import Callbacks, Mailbox, deadline_of
from kafka_sink.producer.thread_log import log

UNKNOWN_PARTITION = -1
NULL_SIZE = -1


class RecordMetadata(NamedTuple):
    """Where a record is. `offset` is -1 if the broker does not return it (acks=0); sizes are -1 for null."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    serialized_key_size: int
    serialized_value_size: int


OnDelivery = Callable[[RecordMetadata | None, KafkaSinkError | None], object]
DoneCallback = Callable[["RecordFuture"], object]


class _Outcome(NamedTuple):
    partition: int
    log_append_time_ms: int
    error: KafkaSinkError | None


class PendingBatch:
    """The records of one topic that are encoded together. Rows are numbered in the order of sending."""

    def __init__(self, mailbox: Mailbox, topic: str, interceptors: Interceptors | None) -> None:
        self.mailbox = mailbox
        self.topic = topic
        self.interceptors = interceptors
        # Set when no unfinished row will ever be delivered.
        self.error: KafkaSinkError | None = None
        self.open_count = 0
        # For rows that fail before they are sealed.
        self.row_count = 0
        self._outcomes: list[_Outcome] = []
        # Index into the outcomes; -1: none yet. None: rows are still being added.
        self._outcome_of: Array | None = None
        self.on_delivery: dict[int, OnDelivery] = {}
        self._callbacks: dict[int, list[DoneCallback]] = {}

    # ---- from the appender, under its lock ----

    def seal(self, timestamps: Array, key_sizes: Array | None, value_sizes: Array | None) -> None:
        """No row may follow. Sizes of None: null in all rows."""
        count = len(timestamps)
        self._timestamps = timestamps
        self._key_sizes = key_sizes
        self._value_sizes = value_sizes
        self._offsets = np.full(count, UNKNOWN_OFFSET, np.int64)
        self.open_count = count
        self._outcome_of = np.full(count, -1, np.int32)

    # ---- from the sender, under the mailbox's lock ----

    def on_delivered(self, share: Share, batch: ProducerBatch, callbacks: Callbacks) -> None:
        rows = share.rows
        if batch.base_offset >= 0:
            first = batch.base_offset + share.first_record
            self._offsets[rows] = np.arange(first, first + len(rows))
        self._settle(rows, _Outcome(batch.partition, batch.log_append_time_ms, None), callbacks)

    def on_failed(self, share: Share, failed: Failed, callbacks: Callbacks) -> None:
        partition, rows = failed.batch.partition, share.rows
        for position, text in failed.record_errors.items():
            index = position - share.first_record
            if 0 <= index < len(rows):
                error = copy_error(failed.error, f"{failed.error}. This record: {text or 'refused'}")
                self._settle(rows[index : index + 1], _Outcome(partition, -1, error), callbacks)
        if failed.record_errors:
            assert self._outcome_of is not None
            rows = rows[self._outcome_of[rows] < 0]
        self._settle(rows, _Outcome(partition, -1, failed.error), callbacks)

    def fail_rest(self, error: KafkaSinkError, callbacks: Callbacks) -> None:
        """Fails all rows without an outcome, and all later ones."""
        self.error = error
        if self._outcome_of is None:
            self._collect_callbacks(np.arange(self.row_count), callbacks)
        else:
            self._settle(np.flatnonzero(self._outcome_of < 0), _Outcome(UNKNOWN_PARTITION, -1, error), callbacks)

    def _settle(self, rows: Array, outcome: _Outcome, callbacks: Callbacks) -> None:
        assert self._outcome_of is not None
        self._outcomes.append(outcome)
        self._outcome_of[rows] = len(self._outcomes) - 1
        self.open_count -= len(rows)
        self._collect_callbacks(rows, callbacks)

    def _collect_callbacks(self, rows: Array, callbacks: Callbacks) -> None:
        if self.interceptors is not None:
            callbacks.extend(partial(self._call_back, row) for row in rows.tolist())
        elif self.on_delivery or self._callbacks:
            waited_for = (row for row in rows.tolist() if row in self.on_delivery or row in self._callbacks)
            callbacks.extend(partial(self._call_back, row) for row in waited_for)

    # ---- queries ----

    def is_done(self, row: int) -> bool:
        return self.error is not None or (self._outcome_of is not None and bool(self._outcome_of[row] >= 0))

    def result_of(self, row: int) -> tuple[RecordMetadata | None, KafkaSinkError | None]:
        if self._outcome_of is not None and self._outcome_of[row] >= 0:
            outcome = self._outcomes[self._outcome_of[row]]
            return (self._metadata(row, outcome), None) if outcome.error is None else (None, outcome.error)
        return None, self.error

    def _metadata(self, row: int, outcome: _Outcome) -> RecordMetadata:
        log_append_time_ms = outcome.log_append_time_ms
        return RecordMetadata(
            self.topic,
            outcome.partition,
            int(self._offsets[row]),
            log_append_time_ms if log_append_time_ms >= 0 else int(self._timestamps[row]),
            NULL_SIZE if self._key_sizes is None else int(self._key_sizes[row]),
            NULL_SIZE if self._value_sizes is None else int(self._value_sizes[row]),
        )

    # ---- callbacks ----

    def add_callback(self, row: int, callback: DoneCallback) -> bool:
        """False if the row is done: the callback would never be called."""
        with self.mailbox.lock:
            if self.is_done(row):
                return False
            self._callbacks.setdefault(row, []).append(callback)
        return True

    def _call_back(self, row: int) -> None:
        """Interceptors first, as in Java."""
        metadata, error = self.result_of(row)
        if self.interceptors is not None:
            run_callback(self.interceptors.on_acknowledgement, self.topic, metadata, error)
        on_delivery = self.on_delivery.pop(row, None)
        if on_delivery is not None:
            run_callback(on_delivery, metadata, error)
        for callback in self._callbacks.pop(row, []):
            run_callback(callback, RecordFuture(self, row))


class RecordFuture:
    """The outcome of one `send`. It holds no lock and no thread, and may be kept, dropped or read again."""

    __slots__ = ("_pending", "_row")

    def __init__(self, pending: PendingBatch, row: int) -> None:
        self._pending = pending
        self._row = row

    def done(self) -> bool:
        return self._pending.is_done(self._row)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits at most `timeout` seconds. Raises the record's error, or `OperationTimeout`."""
        metadata, error = self._wait_for_result(timeout)
        if error is not None:
            raise copy_error(error)
        assert metadata is not None
        return metadata

    def exception(self, timeout: float | None = None) -> KafkaSinkError | None:
        return self._wait_for_result(timeout)[1]

    def add_done_callback(self, callback: DoneCallback) -> None:
        """The sender thread calls it with this future; if it is done already, the caller does so at once."""
        if not self._pending.add_callback(self._row, callback):
            callback(self)

    def _wait_for_result(self, timeout: float | None) -> tuple[RecordMetadata | None, KafkaSinkError | None]:
        pending, row = self._pending, self._row
        if not pending.is_done(row):
            wait_until_done(pending.mailbox, self.done, timeout, f"the record for {pending.topic}")
        return pending.result_of(row)

    def __repr__(self) -> str:
        if not self.done():
            return f"<RecordFuture for {self._pending.topic} pending>"
        metadata, error = self._pending.result_of(self._row)
        return f"<RecordFuture {metadata if error is None else repr(error)}>"


def wait_until_done(mailbox: Mailbox, is_done: Callable[[], bool], timeout: float | None, what: str) -> None:
    if not mailbox.wait_for(is_done, deadline_of(mailbox.clock, timeout), "waiting for a result"):
        raise OperationTimeout(mailbox.with_trouble(f"no result for {what} within {timeout} s; it may still come"))


def run_callback(callback: Callable[..., object], *arguments: object) -> None:
    """Runs user code on the sender thread. Whatever it raises is logged and affects nothing else."""
    try:
        callback(*arguments)
    except BaseException:  # sys.exit() in a callback must not end the sender thread
        # Not its repr: a partial shows its arguments.
        name = getattr(callback, "__qualname__", type(callback).__name__)
        log(logging.ERROR, "callback %s raised", name, exc_info=True)
