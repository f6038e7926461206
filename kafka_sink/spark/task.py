"""One attempt of one Spark task: Arrow batches in, a receipt out.

    read_ahead -> select_columns -> gather_batches -> RowPath.apply
        -> Producer.send_arrow -> ... -> flush: every record is acknowledged -> receipt

Rows are sent as they arrive, by column; unacknowledged data is limited by buffer.memory, and the task blocks when that
is used up. Acknowledged records are only counted, so the memory does not grow with the length of the task. The first
failure ends the task: Spark retries it, as an attempt with its own transactional id.

For exactly-once the attempt has a transactional id that no other one uses until the batch is over, and at its end the
transaction is prepared: complete but not committed. Only the driver commits, with the receipt. An attempt that fails
aborts its own transaction before it raises.

Producer and id are those of its `Attempt` (attempt.py); what happens to rows on their way is a `RowPath` (row_path.py).
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from kafka_sink.commit.receipt import PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.errors import (
    DataError,
    KafkaSinkError,
    copy_error,
)
from kafka_sink.options.sink_options import ATTRIBUTE_COLUMN, BEFORE, FAIL, OPERATION, ROW_ID, TRACEPARENT, SinkOptions
from kafka_sink.producer.arrow_future import ArrowFuture, ArrowMetadata
from kafka_sink.spark.attempt import Attempt, begin_attempt
from kafka_sink.spark.columns import WrittenColumns
from kafka_sink.spark.files import look_in_spark_files
from kafka_sink.spark.first_line import exhaustion_error
from kafka_sink.spark.ledger_rows import check_values, ledger_names, ledger_row_error
from kafka_sink.spark.process_memory import keep_freed_memory
from kafka_sink.spark.read_ahead import gather_batches, read_ahead
from kafka_sink.spark.row_path import OutgoingRows, RowPath
from kafka_sink.spark.task_context import TaskPlace

if TYPE_CHECKING:
    from kafka_sink.spark.unsendable import Unsendable
    from kafka_sink.telemetry.metrics.figures import TaskMeter

look_in_spark_files()
_LOGGER = logging.getLogger("kafka_sink")

# Batches of which a task says that smaller ones are faster.
LARGE_ARROW_BYTES = 32_000_000
# Seconds since 1970 are below the first until the year 5138, milliseconds were until March 1973. Milliseconds are below
# the second until the year 5138, microseconds were until March 1973.
SECONDS_BELOW, MICROSECONDS_FROM = 10**11, 10**14
SECONDS = (
    "column timestamp begins with a time before March 1973: a bigint there is milliseconds since 1970. If it is "
    "seconds, write timestamp * 1000, or CAST(timestamp AS TIMESTAMP)"
)
MICROSECONDS = (
    "column timestamp begins with a time after the year 5138: a bigint there is milliseconds since 1970. If it is "
    "microseconds, write timestamp_micros(timestamp)"
)


def write_task(
    options: SinkOptions,
    columns: WrittenColumns,
    arrow_batches: Iterable[pa.RecordBatch],
    place: TaskPlace,
    meter: TaskMeter | None = None,
) -> TaskReceipt:
    keep_freed_memory()
    attempt: Attempt | None = None
    task: Task | None = None
    try:
        for rows in gather_batches(select_columns(arrow_batch, columns) for arrow_batch in read_ahead(arrow_batches)):
            if task is None:
                # What can fail without a broker comes first; a task without rows must not contact one.
                path = RowPath(options, place, columns.sides)
                attempt = begin_attempt(options, place, meter)
                task = Task(attempt, path)
            task.append(rows)
        if task is None:
            return TaskReceipt(place.key, place.run, place.spark_partition, place.attempt)
        return task.finish()
    except BaseException as error:
        if attempt is not None:
            attempt.give_up()
        named = exhaustion_error(error) or error
        if isinstance(named, KafkaSinkError):
            if attempt is not None:
                named = attempt.explain_length(named)
            # For Spark's log and the job's error message.
            raise copy_error(named, f"{named} ({place})") from error
        raise


class Sent(NamedTuple):
    """One call of `send_arrow`. `are_letters`: it sends dead letters."""

    future: ArrowFuture
    are_letters: bool = False


class Task:
    """The rows of an attempt: sends them, and counts what was acknowledged."""

    def __init__(self, attempt: Attempt, path: RowPath) -> None:
        self._attempt = attempt
        self._path = path
        self._options = attempt.options
        self._producer = attempt.producer
        # Without transactions it is a topic like others, which may be copied to another cluster.
        self._ledgers = ledger_names(attempt.options)
        self._pending: deque[Sent] = deque()
        self._written: dict[tuple[str, int], WrittenPartition] = {}
        # Partitions in which the place of some rows is unknown.
        self._unknown: set[tuple[str, int]] = set()
        # The part of `_written` that is dead letters.
        self._dead_letters: dict[tuple[str, int], WrittenPartition] = {}
        self._row_count = 0
        self._delivered_count = 0
        self._byte_count = 0
        self._errors: Counter[str] = Counter()

    def append(self, rows: pa.RecordBatch) -> None:
        if not self._row_count:
            if warning := unit_warning(rows):
                _LOGGER.warning(warning)
            if rows.nbytes >= LARGE_ARROW_BYTES:
                # The first row waits for each module.
                from kafka_sink.kafka.io.warn_once import warn_once
                from kafka_sink.spark.arrow_batches import LARGE_ARROW_BATCHES

                warn_once(LARGE_ARROW_BATCHES)
        outgoing = self._path.apply(rows, self._row_count)
        if outgoing.misfits and self._options.record_errors == FAIL:
            raise _count_from_task_start(outgoing.misfits[min(outgoing.misfits)], self._row_count)
        if not self._row_count:
            # The first record begins the transaction, which may be long after the brokers were asked for the id.
            self._attempt.check_that_spark_waits()
        if self._options.record_errors != FAIL:
            self._send_what_can_be_sent(outgoing)
        else:
            try:
                if self._options.topic is None:
                    check_values(outgoing.rows)
                self._pending.append(Sent(self._producer.send_arrow(outgoing.rows, self._options.topic)))
            except DataError as error:
                raise _count_from_task_start(error, self._row_count) from error
        self._row_count += outgoing.given.num_rows
        # One failed row fails the attempt. Other rows may stay in delivery until delivery.timeout.ms.
        for sent in self._pending:
            if (failure := sent.future.failure) is not None:
                raise failure
        while self._pending and self._pending[0].future.done():
            self._take_result(self._pending.popleft())

    def finish(self) -> TaskReceipt:
        self._producer.flush()
        for sent in self._pending:
            self._take_result(sent)
        attempt, place = self._attempt, self._attempt.place
        if attempt.meter is not None:
            attempt.meter.on_sent()
        prepared = self._producer.prepare_transaction() if attempt.identity is not None else None
        transaction = None
        if prepared is not None and prepared.is_started:  # not if every row was dropped
            transaction = PreparedTransaction(
                prepared.transactional_id, prepared.producer_id, prepared.producer_epoch, prepared.transaction_version
            )
        retry_count = attempt.retry_count
        attempt.give_back(prepared, transaction)
        timeout_ms = self._options.producer.transaction_timeout_ms
        return TaskReceipt(
            place.key,
            place.run,
            place.spark_partition,
            place.attempt,
            transaction=transaction,
            timeout_ms=timeout_ms,
            remaining_ms=max(0, timeout_ms - attempt.age_ms),
            written=tuple(self._written[where] for where in sorted(self._written)),
            unknown=tuple(sorted(self._unknown)),
            dead_letters=tuple(self._dead_letters[where] for where in sorted(self._dead_letters)),
            topic_ids=prepared.topic_ids if prepared is not None else {},
            row_count=self._delivered_count,
            bytes=self._byte_count,
            retry_count=retry_count,
            send_ms=attempt.age_ms,
            record_errors=dict(self._errors),
            digest=self._path.digest,
        )

    def _send_what_can_be_sent(self, outgoing: OutgoingRows) -> None:
        """The slow path is only for an Arrow batch with an unsendable row; others are checked and sent as usual."""
        from kafka_sink.spark.unsendable import split_misfits, split_unsendable

        rows, given, misfits, is_second = outgoing
        places = None
        if misfits:
            rows, places, unfit = split_misfits(rows, given, misfits, self._path.encoding, is_second)
            is_second = None if is_second is None else is_second[places]
            self._leave_out(unfit)
        sendable, unsendable = split_unsendable(
            rows, self._options.topic, self._producer, self._attempt.producer_options, self._ledgers, is_second
        )
        if sendable.num_rows:
            self._pending.append(Sent(self._producer.send_arrow(sendable, self._options.topic)))
        if unsendable is not None:
            self._leave_out(unsendable if places is None else unsendable.renumber(places))

    def _leave_out(self, unsendable: Unsendable) -> None:
        self._errors.update(unsendable.counts())
        if self._options.dead_letter_topic is not None:
            self._send_dead_letters(unsendable, self._options.dead_letter_topic)

    def _send_dead_letters(self, unsendable: Unsendable, topic: str) -> None:
        place, producer_options = self._attempt.place, self._attempt.producer_options
        letters = unsendable.make_letters(
            place={
                "spark.partition": str(place.spark_partition),
                "query.id": place.key.query_id,
                "batch.id": str(place.key.batch_id),
            },
            topic=self._options.topic,
            first_row=self._row_count,
            bytes_max=min(producer_options.max_request_size, producer_options.buffer_memory),
        )
        self._pending.append(Sent(self._producer.send_arrow(letters, topic), are_letters=True))

    def _take_result(self, sent: Sent) -> None:
        metadata: ArrowMetadata = sent.future.result()
        self._delivered_count += metadata.row_count
        self._byte_count += metadata.byte_count
        for (topic, partition), extent in sent.future.extents().items():
            if topic in self._ledgers:
                # Nothing of this task becomes visible. Names are not compared before: that would cost time per row.
                raise ledger_row_error(topic)
            if extent.unknown_count:
                self._unknown.add((topic, partition))
            added = WrittenPartition(topic, partition, extent.record_count, extent.first_offset, extent.last_offset)
            for book in (self._written, self._dead_letters) if sent.are_letters else (self._written,):
                known = book.get((topic, partition))
                book[topic, partition] = added if known is None else known.merge(added)


def select_columns(arrow_batch: pa.RecordBatch, columns: WrittenColumns) -> pa.RecordBatch:
    """The columns to write, by index: names may occur twice."""
    arrays = [arrow_batch.column(index) for index in columns.indices]
    names = list(columns.names)
    if columns.record:
        parts = [arrow_batch.column(index) for _, index in columns.record]
        arrays.append(pa.StructArray.from_arrays(parts, [name for name, _ in columns.record]))
        names.append("value")
    for attribute, index in columns.attributes:
        arrays.append(arrow_batch.column(index))
        names.append(ATTRIBUTE_COLUMN + attribute)
    for name, place in ((OPERATION, columns.operation), (BEFORE, columns.before), (ROW_ID, columns.row_id)):
        if place is not None:
            arrays.append(arrow_batch.column(place))
            names.append(name)
    if columns.traceparent is not None:
        arrays.append(arrow_batch.column(columns.traceparent))
        names.append(TRACEPARENT)
    return pa.RecordBatch.from_arrays(arrays, names)


def unit_warning(rows: pa.RecordBatch) -> str:
    """Seconds in place of milliseconds make records of January 1970, which retention deletes at once; microseconds make
    records that brokers refuse, or which retention never deletes. Empty: neither."""
    if "timestamp" not in rows.schema.names or not pa.types.is_int64(rows.schema.field("timestamp").type):
        return ""
    first = rows.column("timestamp")[0].as_py() or 0
    if first >= MICROSECONDS_FROM:
        return MICROSECONDS
    return SECONDS if 0 < first < SECONDS_BELOW else ""


def _count_from_task_start(error: DataError, rows_before: int) -> DataError:
    """Renumbers rows from the start of the task instead of the Arrow batch."""
    if error.row is None:
        return error
    text = str(error).replace(f"row {error.row}", f"row {rows_before + error.row}", 1)
    return DataError(text, error.entry, row=rows_before + error.row, column=error.column)
