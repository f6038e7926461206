"""One future for all rows of a `send_arrow` call: counts and ranges of offsets, nothing per row.

The call may span topics, slices and hundreds of batches; this object is the token that all of them carry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import NamedTuple

from kafka_sink.errors import KafkaSinkError, copy_error
from kafka_sink.formats.records.batch import Share
from kafka_sink.frozen import frozen
from kafka_sink.producer.engine.commands import Failed
from kafka_sink.producer.engine.producer_batch import UNKNOWN_OFFSET, ProducerBatch
from kafka_sink.producer.future import run_callback, wait_until_done
from kafka_sink.producer.mailbox import Callbacks, Mailbox

# A broker may name every record of a batch, and an error is read by people.
ROWS_NAMED_MAX = 10


@frozen
class PartitionRange:
    """`record_count` records from the first to the last offset; other producers' records may lie between them. -1: a
    broker recognised records that were sent again, and did not say where they are."""

    first_offset: int
    last_offset: int
    record_count: int


class Extent(NamedTuple):
    """Offsets of the records of a partition whose place is known; -1 if there are none. `unknown_count`: of the
    others."""

    first_offset: int
    last_offset: int
    record_count: int
    unknown_count: int

    @property
    def range(self) -> PartitionRange:
        first, last = (UNKNOWN_OFFSET, UNKNOWN_OFFSET) if self.unknown_count else self[:2]
        return PartitionRange(first, last, self.record_count)


NOTHING = UNKNOWN_OFFSET, UNKNOWN_OFFSET, 0, 0


@frozen
class ArrowMetadata:
    """`byte_count`: encoded keys, values and headers, before compression."""

    row_count: int
    byte_count: int
    partitions: Mapping[tuple[str, int], PartitionRange]


class ArrowFuture:
    def __init__(self, mailbox: Mailbox, row_count: int, byte_count: int) -> None:
        self.mailbox = mailbox
        self.open_count = row_count
        self._row_count = row_count
        self._byte_count = byte_count
        self._failed_count = 0
        self._error: KafkaSinkError | None = None
        # Of any of its rows.
        self._is_ambiguous = False
        self._extents: dict[tuple[str, int], tuple[int, int, int, int]] = {}
        self._callbacks: list[Callable[[ArrowFuture], object]] = []

    # ---- from the sender, under the mailbox's lock ----

    def on_delivered(self, share: Share, batch: ProducerBatch, callbacks: Callbacks) -> None:
        count = len(share.rows)
        first = last = UNKNOWN_OFFSET
        if batch.base_offset >= 0:
            first = batch.base_offset + share.first_record
            last = first + count - 1
        unknown_count = count if first == UNKNOWN_OFFSET else 0
        before_first, before_last, before_count, before_unknown = self._extents.get(batch.topic_partition, NOTHING)
        if before_first != UNKNOWN_OFFSET and (first == UNKNOWN_OFFSET or before_first < first):
            first = before_first
        totals = before_count + count, before_unknown + unknown_count
        self._extents[batch.topic_partition] = first, max(last, before_last), *totals
        self.open_count -= count
        if not self.open_count:
            self._call_back(callbacks)

    def on_failed(self, share: Share, failed: Failed, callbacks: Callbacks) -> None:
        error, first, count = failed.error, share.first_record, len(share.rows)
        own = ((at - first, text) for at, text in failed.record_errors.items() if 0 <= at - first < count)
        named = [f". Row {int(share.rows[index])}: {text or 'refused'}" for index, text in islice(own, ROWS_NAMED_MAX)]
        if named:
            error = copy_error(error, f"{error}{''.join(named)}")
        self.fail(count, error, callbacks)

    def fail_rest(self, error: KafkaSinkError, callbacks: Callbacks) -> None:
        if self.open_count:
            self.fail(self.open_count, error, callbacks)

    def fail(self, row_count: int, error: KafkaSinkError, callbacks: Callbacks) -> None:
        self._error = self._error or error
        self._is_ambiguous |= error.ambiguous
        self._failed_count += row_count
        self.open_count -= row_count
        if not self.open_count:
            self._call_back(callbacks)

    def _call_back(self, callbacks: Callbacks) -> None:
        callbacks.extend(partial(run_callback, callback, self) for callback in self._callbacks)
        self._callbacks = []

    # ---- for the sink's tasks ----

    def extents(self) -> dict[tuple[str, int], Extent]:
        """What is known, also where the range of a partition is not: of rows that are all delivered."""
        return {key: Extent(*extent) for key, extent in sorted(self._extents.items())}

    # ---- for the user ----

    def done(self) -> bool:
        return self.open_count == 0

    def result(self, timeout: float | None = None) -> ArrowMetadata:
        """Waits at most `timeout` seconds. Raises the first error if any row failed; its text says how many did."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        ranges = {key: extent.range for key, extent in self.extents().items()}
        return ArrowMetadata(self._row_count, self._byte_count, ranges)

    def exception(self, timeout: float | None = None) -> KafkaSinkError | None:
        if self.open_count:
            wait_until_done(self.mailbox, self.done, timeout, f"{self._row_count} rows")
        return self.failure

    @property
    def failure(self) -> KafkaSinkError | None:
        """The first error so far, even if other rows are not done."""
        if self._error is None:
            return None
        text = f"{self._failed_count} of {self._row_count} rows failed, first: {self._error}"
        failure = copy_error(self._error, text)
        failure.ambiguous = self._is_ambiguous
        return failure

    def add_done_callback(self, callback: Callable[[ArrowFuture], object]) -> None:
        """The sender thread calls it with this future; if it is done already, the caller does so at once."""
        with self.mailbox.lock:
            is_pending = self.open_count > 0
            if is_pending:
                self._callbacks.append(callback)
        if not is_pending:
            callback(self)

    def __repr__(self) -> str:
        return f"<ArrowFuture of {self._row_count} rows, {self.open_count} open, {self._failed_count} failed>"
