"""One attempt of one Spark task: Arrow batches in, a receipt out.

    read_ahead -> select_columns -> gather_batches -> RowEncoding.encode, where there is a format
        -> Producer.send_arrow -> ... -> flush: every record is acknowledged -> receipt

Rows are sent as they arrive, by column; unacknowledged data is limited by buffer.memory, and the task blocks when that
is used up. Acknowledged records are only counted, so the memory does not grow with the length of the task. The first
failure ends the task: Spark retries it, as an attempt with its own transactional id.

For exactly-once the attempt has a transactional id that no other one uses until the batch is over, and at its end the
transaction is prepared: complete but not committed. Only the driver commits, with the receipt. An attempt that fails
aborts its own transaction before it raises.

Producer and id come from the process's pools and are returned only by a successful task. A killed task gets no clean-up
call; nothing here relies on one. A task that Spark no longer waits for begins no transaction (task_context.py).
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from kafka_sink.commit.identity import TaskIdentity
from kafka_sink.commit.identity_pool import Last, next_identity
from kafka_sink.commit.receipt import PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.errors import (
    DataError,
    KafkaSinkError,
    OperationTimeout,
    TransactionAborted,
    copy_error,
)
from kafka_sink.formats.records.digest import RowDigest
from kafka_sink.kafka.client.producer_identity import ProducerIdentity
from kafka_sink.options import ProducerOptions
from kafka_sink.options.host.functions import load_user_function
from kafka_sink.options.sink_options import ATTRIBUTE_COLUMN, BEFORE, FAIL, OPERATION, ROW_ID, TRACEPARENT, SinkOptions
from kafka_sink.producer.arrow_future import ArrowFuture, ArrowMetadata
from kafka_sink.producer.engine.commands import TransactionReceipt
from kafka_sink.producer.pool import POOL
from kafka_sink.producer.producer import Producer
from kafka_sink.spark.client_id import client_id_of
from kafka_sink.spark.columns import WrittenColumns
from kafka_sink.spark.files import look_in_spark_files
from kafka_sink.spark.first_line import exhaustion_error
from kafka_sink.spark.identities import IDENTITIES
from kafka_sink.spark.ledger_rows import check_values, ledger_names, ledger_row_error
from kafka_sink.spark.process_memory import keep_freed_memory
from kafka_sink.spark.read_ahead import gather_batches, read_ahead
from kafka_sink.spark.task_context import TaskPlace, is_spark_waiting

if TYPE_CHECKING:
    from kafka_sink.formats.records.varint import Array
    from kafka_sink.spark.changes import ChangeRows
    from kafka_sink.spark.encoding import RowEncoding
    from kafka_sink.spark.envelope import Envelope
    from kafka_sink.spark.formats import SidePlan
    from kafka_sink.spark.unsendable import Unsendable
    from kafka_sink.telemetry.metrics.figures import TaskMeter

look_in_spark_files()
_LOGGER = logging.getLogger("kafka_sink")

# A failing attempt aborts its transaction if the coordinator answers soon; if not, the driver's sweep does.
ABORT_TIMEOUT_S = 10.0
# Batches of which a task says that smaller ones are faster.
LARGE_ARROW_BYTES = 32_000_000
# How many transactional ids an attempt tries.
IDENTITIES_MAX = 8
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
    task: Task | None = None
    try:
        for rows in gather_batches(select_columns(arrow_batch, columns) for arrow_batch in read_ahead(arrow_batches)):
            # Created only now: a task without rows must not contact a broker.
            task = task or Task(options, place, columns.sides, meter)
            task.append(rows)
        if task is None:
            return TaskReceipt(place.key, place.run, place.spark_partition, place.attempt)
        return task.finish()
    except BaseException as error:
        if task is not None:
            task.give_up()
        named = exhaustion_error(error) or error
        if isinstance(named, KafkaSinkError):
            if task is not None:
                named = task.explain_length(named)
            # For Spark's log and the job's error message.
            raise copy_error(named, f"{named} ({place})") from error
        raise


class Sent(NamedTuple):
    """A call of the producer's. `are_letters`: about rows that could not be sent."""

    future: ArrowFuture
    are_letters: bool = False


class Task:
    def __init__(
        self,
        options: SinkOptions,
        place: TaskPlace,
        sides: Sequence[SidePlan] = (),
        meter: TaskMeter | None = None,
    ) -> None:
        self._options = options
        self._place = place
        self._meter = meter
        self._encoding: RowEncoding | None = None
        if sides:
            from kafka_sink.spark.encoding import RowEncoding

            self._encoding = RowEncoding(sides)
        self._changes: ChangeRows | None = None
        if options.changes is not None:
            from kafka_sink.spark.changes import ChangeRows

            self._changes = ChangeRows(options.changes)
        self._envelope = _make_envelope(options, place)
        self._producer_options = _producer_options(options)
        # The last transaction under the id, if the next one need not ask for its epoch.
        self._last: Last | None = None
        self._identity = self._choose_identity()
        # Without transactions it is a topic like others, which may be copied to another cluster.
        self._ledgers = ledger_names(options)
        self._producer, has_begun = self._borrow(self._identity, next_identity(self._last, self._producer_options))
        self._started_s = time.monotonic()
        self._pending: deque[Sent] = deque()
        self._written: dict[tuple[str, int], WrittenPartition] = {}
        # Those of which some rows are in an unknown place.
        self._unknown: set[tuple[str, int]] = set()
        # Of `_written`.
        self._dead_letters: dict[tuple[str, int], WrittenPartition] = {}
        self._row_count = 0
        self._delivered_count = 0
        self._byte_count = 0
        self._errors: Counter[str] = Counter()
        self._digest = RowDigest()
        if self._identity is not None and not has_begun:
            self._begin(self._identity)

    def _choose_identity(self) -> TaskIdentity | None:
        place, own = self._place, self._place.own_identity
        if own is None:
            return None
        used = IDENTITIES.pool.take_used(own.sink_id, own.run, place.key)
        if used is None:
            return own
        last, options = used.last, self._producer_options
        if place.errors_may_be_caught and last and not IDENTITIES.ask_if_ended(options, last.transaction):
            return own
        # While markers cannot be written, only a task that asks for its epoch can leave the id for another one.
        self._last = None if place.attempt_number else last
        return used.identity

    def _borrow(self, identity: TaskIdentity | None, expected: ProducerIdentity | None = None) -> tuple[Producer, bool]:
        """And whether it has begun a transaction with the expected identity, of which no broker knows yet."""
        producer, has_begun = POOL.borrow_to_go_on(self._producer_options, _transactional_id(identity), expected)
        if self._options.topic is not None:
            producer.look_ahead(self._options.topic)
        self._retries_before = producer.retried_record_count
        if self._meter is not None:
            self._meter.begin(producer)
        return producer, has_begun

    def _begin(self, identity: TaskIdentity) -> None:
        try:
            self._check_that_spark_waits()
            self._identity = self._init_transactions(identity)
            self._producer.begin_transaction()
        except BaseException:
            self._producer.close(0)
            raise

    def _check_that_spark_waits(self) -> None:
        if self._identity is not None and not is_spark_waiting():
            raise TransactionAborted(
                f"Spark no longer waits for this task, so it begins no transaction ({self._place})"
            )

    def _init_transactions(self, identity: TaskIdentity) -> TaskIdentity:
        """An InitProducerId without a response may arrive when the transaction is prepared or decided, and would abort
        it. So this attempt abandons that id."""
        own = self._place.own_identity
        assert own is not None
        for _ in range(IDENTITIES_MAX):
            is_own = identity.attempt == own.attempt
            try:
                if self._producer.init_transactions():
                    return identity
            except OperationTimeout:
                if is_own:
                    raise
                # Its last transaction is committed, but some partition cannot write the marker, which may take long.
                self._producer.close(0)
                self._producer, _ = self._borrow(own)
                identity = own
                continue
            identity = identity.another() if is_own else own
            self._producer.start_over(_transactional_id(identity))
        raise OperationTimeout(f"the coordinator did not answer InitProducerId at once in {IDENTITIES_MAX} tries")

    def append(self, rows: pa.RecordBatch) -> None:
        misfits: Mapping[int, DataError] = {}
        is_second: Array | None = None
        if not self._row_count:
            if warning := unit_warning(rows):
                _LOGGER.warning(warning)
            if rows.nbytes >= LARGE_ARROW_BYTES:
                # The first row waits for each module.
                from kafka_sink.kafka.io.warn_once import warn_once
                from kafka_sink.spark.arrow_batches import LARGE_ARROW_BATCHES

                warn_once(LARGE_ARROW_BATCHES)
        if self._changes is not None:
            rows, misfits, is_second = self._changes.apply(rows)
        count = rows.num_rows
        given = rows
        if self._encoding is not None:
            rows, unfit = self._encoding.encode(rows)
            misfits = {**unfit, **misfits}
        if self._identity is not None:
            self._digest.add(rows)
        if self._envelope is not None:
            rows, incomplete = self._envelope.apply(rows, self._row_count, is_second)
            misfits = {**incomplete, **misfits}
        if misfits and self._options.record_errors == FAIL:
            raise _count_from_task_start(misfits[min(misfits)], self._row_count)
        if not self._row_count:
            # The first record begins the transaction, which may be long after the brokers were asked for the id.
            self._check_that_spark_waits()
        if self._options.record_errors != FAIL:
            self._send_what_can_be_sent(rows, given, misfits, is_second)
        else:
            try:
                if self._options.topic is None:
                    check_values(rows)
                self._pending.append(Sent(self._producer.send_arrow(rows, self._options.topic)))
            except DataError as error:
                raise _count_from_task_start(error, self._row_count) from error
        self._row_count += count
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
        if self._meter is not None:
            self._meter.on_sent()
        prepared = self._producer.prepare_transaction() if self._identity is not None else None
        transaction = None
        if prepared is not None and prepared.is_started:  # not if every row was dropped
            transaction = PreparedTransaction(
                prepared.transactional_id, prepared.producer_id, prepared.producer_epoch, prepared.transaction_version
            )
        if self._meter is not None:
            is_new = self._identity is not None and self._identity.attempt == self._place.attempt
            self._meter.end(self._producer, has_new_id=is_new)
        retry_count = self._producer.retried_record_count - self._retries_before
        POOL.give_back(self._producer_options, self._producer)
        if self._identity is not None:
            IDENTITIES.pool.give_back(self._identity, self._place.key, self._last_transaction(prepared, transaction))
        timeout_ms = self._options.producer.transaction_timeout_ms
        return TaskReceipt(
            self._place.key,
            self._place.run,
            self._place.spark_partition,
            self._place.attempt,
            transaction=transaction,
            timeout_ms=timeout_ms,
            remaining_ms=max(0, timeout_ms - self._age_ms()),
            written=tuple(self._written[where] for where in sorted(self._written)),
            unknown=tuple(sorted(self._unknown)),
            dead_letters=tuple(self._dead_letters[where] for where in sorted(self._dead_letters)),
            topic_ids=prepared.topic_ids if prepared is not None else {},
            row_count=self._delivered_count,
            bytes=self._byte_count,
            retry_count=retry_count,
            send_ms=self._age_ms(),
            record_errors=dict(self._errors),
            digest=self._digest.value,
        )

    def _last_transaction(
        self, prepared: TransactionReceipt | None, transaction: PreparedTransaction | None
    ) -> Last | None:
        """Under the id. An attempt that wrote nothing leaves it as it was, unless it asked for another epoch."""
        if transaction is not None:
            return Last(transaction, self._producer_options)
        expected = next_identity(self._last, self._producer_options)
        is_used = prepared is None or expected != (prepared.producer_id, prepared.producer_epoch)
        return None if is_used else self._last

    def _age_ms(self) -> int:
        return int((time.monotonic() - self._started_s) * 1000)

    def explain_length(self, error: KafkaSinkError) -> KafkaSinkError:
        """Brokers may have ended the transaction because of its time-out."""
        timeout_ms = self._options.producer.transaction_timeout_ms
        if self._identity is None or self._age_ms() < timeout_ms:
            return error
        from kafka_sink.spark.write_length import explain_task

        return explain_task(error, self._place.key, timeout_ms)

    def give_up(self) -> None:
        """Nothing more is sent. The transaction is aborted; without one, records that were sent remain."""
        # If that fails, too, the original error is reported, and the driver's sweep aborts the transaction; not if the
        # permission for its id was revoked: then only the time-out ends it.
        with suppress(KafkaSinkError, MemoryError):
            self._producer.close(ABORT_TIMEOUT_S if self._identity is not None else 0)

    def _send_what_can_be_sent(
        self, rows: pa.RecordBatch, given: pa.RecordBatch, misfits: Mapping[int, DataError], is_second: Array | None
    ) -> None:
        """The slow path is only for an Arrow batch with an unsendable row; others are checked and sent as usual."""
        from kafka_sink.spark.unsendable import split_misfits, split_unsendable

        places = None
        if misfits:
            rows, places, unfit = split_misfits(rows, given, misfits, self._encoding, is_second)
            is_second = None if is_second is None else is_second[places]
            self._leave_out(unfit)
        sendable, unsendable = split_unsendable(
            rows, self._options.topic, self._producer, self._producer_options, self._ledgers, is_second
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
        letters = unsendable.make_letters(
            place={
                "spark.partition": str(self._place.spark_partition),
                "query.id": self._place.key.query_id,
                "batch.id": str(self._place.key.batch_id),
            },
            topic=self._options.topic,
            first_row=self._row_count,
            bytes_max=min(self._producer_options.max_request_size, self._producer_options.buffer_memory),
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


def _make_envelope(options: SinkOptions, place: TaskPlace) -> Envelope | None:
    if options.envelope is None:
        return None
    from kafka_sink.spark.envelope import Envelope

    query_id, batch_id = place.key.query_id, str(place.key.batch_id)
    # A batch write without a label is identified by its run. Labels, and several writes of one micro-batch, are told
    # apart by their sink.
    prefix = "-".join(part for part in (query_id, batch_id) if part) or place.run
    if place.named_sink_id:
        prefix = f"{place.named_sink_id}/{prefix}"
    known = {"query.id": query_id, "batch.id": batch_id}
    span = None
    if options.envelope.has_traceparent_of_task:
        from kafka_sink.telemetry.metrics.trace_ids import TraceIds, sink_name

        sink = sink_name(place.named_sink_id, place.key, options)
        ids = TraceIds(sink, options.query_name or "", place.key, place.run)
        span = ids.traceparent_of_task(place.spark_partition, place.attempt)
    return Envelope(options.envelope, known, f"{prefix}-{place.spark_partition}", span)


def _transactional_id(identity: TaskIdentity | None) -> str | None:
    return None if identity is None else identity.transactional_id


def _producer_options(options: SinkOptions) -> ProducerOptions:
    producer = replace(options.producer, client_id=client_id_of(options))
    if options.partitioner is None:
        return producer
    return replace(producer, partitioner=load_user_function(options.partitioner, "kafka.partitioner.class"))


def _count_from_task_start(error: DataError, rows_before: int) -> DataError:
    """Renumbers rows from the start of the task instead of the Arrow batch."""
    if error.row is None:
        return error
    text = str(error).replace(f"row {error.row}", f"row {rows_before + error.row}", 1)
    return DataError(text, error.entry, row=rows_before + error.row, column=error.column)
