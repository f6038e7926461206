"""From rows to closed batches, on the application's threads: collect, route, assemble, post to the sender.

One lock lets one thread in at a time. Under it: rows wait in collectors (one per topic) until there are enough, they
are old, or a flush needs them; then they are routed and encoded by column in the assembler, whose closed batches go to
the sender. `send_columns` bypasses the collector, but empties it first, so that all records of a thread keep their
order.

The sender thread takes the lock as well, to close batches whose linger has passed. It never waits for it: if it is
taken, the sender retries a millisecond later. No thread blocks on anything else while holding it. It must not be taken
twice (`refuse_reentry`).

A thread that finds the buffer full (buffer_pool.py) closes all open batches, so that they drain, joins the queue of
waiting threads, and waits outside the lock for batches to finish.

An exception in the middle of assembling (Ctrl-C, or no memory) leaves batches in an unknown state. Then the producer
fails: every unfinished record fails, rather than some being lost silently.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from kafka_sink.errors import DataError, KafkaSinkError, LocalProtocolError, copy_error
from kafka_sink.errors.table.writes import ROW_TOO_LARGE
from kafka_sink.formats.records.assembler import Assembler
from kafka_sink.formats.records.columns import RecordColumns
from kafka_sink.formats.records.compression import Compressor, make_compressor
from kafka_sink.formats.records.cutting import cut_rows
from kafka_sink.formats.records.routing import Router
from kafka_sink.formats.records.varint import Array
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.arrow_future import ArrowFuture
from kafka_sink.producer.buffer_pool import BufferPool, BufferWaiter
from kafka_sink.producer.collector import Collector, Row
from kafka_sink.producer.engine.commands import Append, OperationCall, RowsRejected
from kafka_sink.producer.engine.producer_batch import ProducerBatch
from kafka_sink.producer.future import OnDelivery, PendingBatch, RecordFuture
from kafka_sink.producer.interceptors import Interceptors
from kafka_sink.producer.mailbox import Mailbox, refuse_reentry
from kafka_sink.producer.metrics import ProducerMetrics
from kafka_sink.producer.topic_wait import partition_view

# Columns pay off from a few hundred rows on; more than this only costs memory and delays the first row.
COLLECTED_ROWS_MAX = 4096
COLLECTED_BYTES_MAX = 1024 * 1024
# Fraction (1/n) of buffer.memory for the collected rows of one topic, and for one piece of an Arrow batch. If less than
# that is in delivery when the memory is full, open batches do not wait for it.
PORTION = 8
# Fraction of buffer.memory for open batches, above which batches that compress well are kept smaller: the rest is for
# batches in delivery.
OPEN_SHARE = 2
# While this many batches are queued, a longer linger makes fuller batches and delays nothing.
BACKLOG_MAX = 64
BUSY_LINGER_MS = 50

T = TypeVar("T")


class Appender:
    def __init__(
        self,
        options: ProducerOptions,
        mailbox: Mailbox,
        metrics: ProducerMetrics,
        *,
        random_number: Callable[[], float],
        interceptors: Interceptors | None,
    ) -> None:
        self.lock = threading.RLock()
        self.buffer_pool = BufferPool(options, mailbox, metrics)
        self._mailbox = mailbox
        self._interceptors = interceptors
        self._linger_ms = options.linger_ms
        self._batch_bytes_max = options.batch_size
        self._collected_bytes_max = min(COLLECTED_BYTES_MAX, max(1, options.buffer_memory // PORTION))
        self._is_adaptive = options.partitioner_adaptive_partitioning_enable
        is_rack_aware = options.partitioner_rack_aware and options.partitioner == "default"
        self._rack = options.client_rack if is_rack_aware else ""
        self._options = options
        self._compressors: dict[tuple[str, int | None], Compressor] = {}
        self._compressor_of("")  # a missing codec is an error now, not during a send
        self._router = Router(
            sticky_bytes=options.batch_size,
            random_number=random_number,
            partitioner=options.partitioner,
            ignores_keys=options.partitioner_ignore_keys,
        )
        self._assembler: Assembler[ProducerBatch] = Assembler(
            new_batch=ProducerBatch,
            batch_bytes_max=options.batch_size,
            request_bytes_max=options.max_request_size,
            batch_records_max=options.batch_num_messages,
            open_bytes_max=options.buffer_memory // OPEN_SHARE,
            compression=self._compressor_of,
        )
        self.collectors: dict[str, Collector] = {}
        # Collectors with rows, in the order of their first row.
        self._collecting: dict[str, Collector] = {}
        # Arrival of the oldest row that is not in a closed batch; the sender reads it without the lock.
        self.oldest_ms: int | None = None
        self._has_full_collector = False
        # Records in closed batches, done or not.
        self._posted_records = 0
        self._wants_wake = False
        # Made while there is memory.
        self._torn_for_want_of_memory = LocalProtocolError(_torn_text(MemoryError.__name__))

    # ---- collecting, for `send` ------------------------------------------------------------------------------------

    def refresh_collector(self, topic: str) -> Collector | None:
        """The topic's collector, updated to the current cluster view. None: the topic is not known (yet)."""
        mailbox = self._mailbox
        refuse_reentry(self.lock)
        with self.lock:
            cluster, slow_node_ids = mailbox.cluster, mailbox.slow_node_ids
            view = partition_view(cluster, topic, slow_node_ids, self._rack)
            if view is None:
                return None
            collector = self.collectors.get(topic)
            if collector is None:
                collector = self.collectors[topic] = Collector(topic, self._new_pending_batch(topic))
            collector.cluster, collector.slow_node_ids, collector.view = cluster, slow_node_ids, view
        return collector

    def collect(
        self, collector: Collector, row: Row, byte_count: int, on_delivery: OnDelivery | None, waited_ms: int = 0
    ) -> RecordFuture:
        """Hot path of every record: one lock, no avoidable call. `waited_ms` of max.block.ms are over."""
        pool, mailbox, lock = self.buffer_pool, self._mailbox, self.lock
        if lock._is_owned():  # type: ignore[attr-defined]  # asked here, as a call of ours would cost more
            refuse_reentry(lock)
        with lock:
            if byte_count <= pool.free_bytes and pool.free_records > 0 and mailbox.refusal is None and not pool.waiters:
                future = self._take_row(collector, row, byte_count, on_delivery)
            else:
                future = None
        if future is None:
            take = partial(self._take_row, collector, row, byte_count, on_delivery)
            return self.admit(byte_count, 1, take, waited_ms)
        if self._wants_wake:
            self._wake()
        return future

    def _take_row(
        self, collector: Collector, row: Row, byte_count: int, on_delivery: OnDelivery | None
    ) -> RecordFuture:
        rows = collector.rows
        index = len(rows)
        if not index:
            # First: an interrupt may leave an empty collector registered, but never a row in an unregistered one.
            self._on_first_row(collector)
        future = RecordFuture(collector.pending, index)
        if on_delivery is not None:
            collector.pending.on_delivery[index] = on_delivery
        pool = self.buffer_pool
        pool.free_bytes -= byte_count
        pool.free_records -= 1
        collected_bytes = collector.byte_count = collector.byte_count + byte_count
        rows.append(row)  # last: an interrupt may follow
        if collected_bytes >= self._batch_bytes_max and (
            not self._has_full_collector or index >= COLLECTED_ROWS_MAX or collected_bytes >= self._collected_bytes_max
        ):
            self._on_full(collector)
        return future

    def _on_first_row(self, collector: Collector) -> None:
        collector.opened_ms = self._mailbox.clock.monotonic_ms()
        self._collecting[collector.topic] = collector
        if self.oldest_ms is None:
            self.oldest_ms = collector.opened_ms
            self._wants_wake = True

    def _on_full(self, collector: Collector) -> None:
        """Enough for a batch: wakes the sender. Enough for an efficient column: converts it here."""
        if collector.byte_count >= self._collected_bytes_max or len(collector.rows) >= COLLECTED_ROWS_MAX:
            self._convert(collector)
        elif not self._has_full_collector:
            self._has_full_collector = True
            self._wants_wake = True

    # ---- columns, for `send_arrow` ---------------------------------------------------------------------------------

    def send_columns(self, by_collector: list[tuple[Collector, RecordColumns]], future: ArrowFuture) -> None:
        """Appends in pieces, each when there is room. Raises only if no piece was appended."""
        pool, mailbox = self.buffer_pool, self._mailbox
        wanted_bytes = max(COLLECTED_BYTES_MAX, pool.total_bytes // PORTION)
        left = sum(columns.row_count for _, columns in by_collector)
        is_any_accepted = False
        try:
            for collector, columns in by_collector:
                pieces = cut_rows(columns, wanted_bytes, bytes_max=pool.total_bytes, rows_max=pool.total_records)
                for start, stop in pieces:
                    piece = columns.slice(start, stop)
                    self.admit(piece.bytes_max, piece.row_count, partial(self._take_columns, collector, piece, future))
                    is_any_accepted = True
                    left -= piece.row_count
        except (KafkaSinkError, MemoryError) as error:
            if not is_any_accepted:
                raise
            failure = error if isinstance(error, KafkaSinkError) else _memory_error(collector.topic, error)
            mailbox.post(RowsRejected(failure))
            with mailbox.lock:
                if not future.done():  # the end of the sender has failed these rows, too
                    future.fail(left, failure, mailbox.callbacks)
                if future.done():  # the pieces before it are, too: the sender does not see it any more
                    mailbox.pending_records.discard(future)
            mailbox.wake()

    def _take_columns(self, collector: Collector, columns: RecordColumns, future: ArrowFuture) -> None:
        self._convert(collector)
        clock = self._mailbox.clock
        if self._mailbox.refused_sizes:
            self._limit_batches(collector.topic)
        partitions = self._route(collector, columns)
        append = partial(self._assembler.append, collector.topic, columns, partitions, token=future)
        self._post(
            lambda: append(now_ms=clock.monotonic_ms(), timestamp_ms=clock.timestamp_ms()),
            new_records=columns.row_count,
        )

    # ---- waiting for memory ------------------------------------------------------------------------------------------

    def admit(self, byte_count: int, record_count: int, take: Callable[[], T], waited_ms: int = 0) -> T:
        """Runs `take` under the lock as soon as there is room and no earlier thread is waiting."""
        pool, mailbox, lock = self.buffer_pool, self._mailbox, self.lock
        if lock._is_owned():  # type: ignore[attr-defined]
            refuse_reentry(lock)
        if byte_count > pool.total_bytes:
            raise DataError(
                f"a record that takes up to {byte_count} bytes never fits into buffer.memory={pool.total_bytes}",
                ROW_TOO_LARGE,
            )
        most_bytes = pool.total_bytes - pool.total_bytes // PORTION
        waiter = BufferWaiter(pool, waited_ms)
        try:
            while True:
                with self.lock:
                    if mailbox.refusal is not None:
                        raise copy_error(mailbox.refusal)
                    seen_change_count = mailbox.change_count
                    pool.credit()
                    if pool.has_room(byte_count, record_count, waiter):
                        taken = take()
                        break
                    # An open batch is never sent and so never frees memory. But while batches are in delivery their
                    # memory will be freed; if each waiting thread closed the open batches at each check, batches would
                    # have one record. A few that cannot be delivered must not keep all the others back.
                    if self._posted_records <= mailbox.completed_records or self._open_bytes() > most_bytes:
                        self._close_open()
                self._wake()
                if not waiter.wait(seen_change_count):
                    now_ms = mailbox.clock.monotonic_ms()
                    pool.metrics.on_buffer_exhausted(records=record_count, now_ms=now_ms)
                    raise pool.exhausted_error(byte_count, record_count)
        finally:
            # Here, and without the lock: an interrupt at the beginning of a function, or while waiting, would leave
            # this thread in the queue, before all others.
            if waiter in pool.waiters:
                pool.waiters.remove(waiter)
            waiter.leave()
        self._wake()
        return taken

    # ---- closing ---------------------------------------------------------------------------------------------------

    def close_due(self, now_ms: int, backlog: int) -> None:
        """For the sender: closes batches whose linger has passed, converts collectors with a batch's rows."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            self._has_full_collector = False
            opened_before_ms = now_ms - self._linger_now_ms(backlog)
            for collector in list(self._collecting.values()):
                if collector.opened_ms <= opened_before_ms or collector.byte_count >= self._batch_bytes_max:
                    self._convert(collector)
            self._post(lambda: self._assembler.close_due(opened_before_ms=opened_before_ms))
            self._wants_wake = False
        finally:
            self.lock.release()

    def next_due_ms(self, backlog: int) -> int | None:
        if self._has_full_collector:
            return 0
        if self.oldest_ms is None:
            return None
        # The usual case without a call, as this is asked twice in every turn (tests/integration/test_calls.py).
        return self.oldest_ms + (self._linger_ms if backlog < BACKLOG_MAX else self._linger_now_ms(backlog))

    def _linger_now_ms(self, backlog: int) -> int:
        return self._linger_ms if backlog < BACKLOG_MAX else max(self._linger_ms, BUSY_LINGER_MS)

    def post_behind(self, call: OperationCall, *, refusal: KafkaSinkError | None = None) -> None:
        """Posts an operation after everything that was sent so far."""
        with self.lock:
            if not self._mailbox.is_ended:
                self._close_open()
            self._mailbox.post_operation(call, refusal=refusal)
            self._wants_wake = True
        self._wake()

    def end(self, error: KafkaSinkError, refusal: KafkaSinkError, *, is_closed: bool = False) -> None:
        with self.lock:
            for collector in self._collecting.values():
                collector.pending.row_count = len(collector.rows)
            self._mailbox.end(error, refusal, is_closed=is_closed)

    # ---- inside, under the lock ------------------------------------------------------------------------------------

    def _open_bytes(self) -> int:
        """The memory of rows that are not in a closed batch."""
        return self._assembler.open_bytes + sum(collector.byte_count for collector in self._collecting.values())

    def _close_open(self) -> None:
        for collector in list(self._collecting.values()):
            self._convert(collector)
        self._post(self._assembler.close_all)
        self._has_full_collector = False

    def _convert(self, collector: Collector) -> None:
        """Converts collected rows to columns and appends them to batches. An unroutable row fails all of them."""
        if not collector.rows:
            self._collecting.pop(collector.topic, None)
            return
        topic, pending = collector.topic, collector.pending
        byte_count, row_count = collector.byte_count, len(collector.rows)
        try:
            columns = collector.columns()
            if self._mailbox.refused_sizes:
                self._limit_batches(topic)
            partitions = self._route(collector, columns)

            def assemble() -> list[ProducerBatch]:
                collector.seal(columns)
                closed = self._assembler.append(
                    topic, columns, partitions, now_ms=collector.opened_ms, timestamp_ms=0, token=pending
                )
                self._restart(collector)
                return closed

            self._post(assemble, freed_bytes=byte_count)
        except (DataError, MemoryError) as error:  # anything else is from a signal handler: the rows are unchanged
            if self._mailbox.broken is not None:
                raise
            pending.row_count = row_count
            self._restart(collector)
            self.buffer_pool.give(byte_count, row_count)
            failure = error if isinstance(error, DataError) else _memory_error(topic, error)
            self._mailbox.post(RowsRejected(failure))
            self._mailbox.reject(pending, failure)

    def _restart(self, collector: Collector) -> None:
        collector.restart(self._new_pending_batch(collector.topic))
        self._collecting.pop(collector.topic, None)

    def _new_pending_batch(self, topic: str) -> PendingBatch:
        pending = PendingBatch(self._mailbox, topic, self._interceptors)
        self._mailbox.add_pending(pending)
        return pending

    def _route(self, collector: Collector, columns: RecordColumns) -> Array:
        of_topic = self._mailbox.queue_loads.get(collector.topic) if self._is_adaptive else None
        # An atomic copy: the sender updates it concurrently.
        loads = None if of_topic is None else of_topic.copy()
        return self._router.route(collector.topic, columns, collector.view, loads)

    def _limit_batches(self, topic: str) -> None:
        """To half of what the topic has refused: what it takes is between the two, or less."""
        mailbox = self._mailbox
        refused = mailbox.refused_sizes.get(topic)
        if refused is None or mailbox.clock.monotonic_ms() >= refused.known_until_ms:
            self._assembler.limit_batches(topic, None)
        else:
            self._assembler.limit_batches(topic, refused.bytes // 2)

    def _post(self, assemble: Callable[[], list[ProducerBatch]], *, freed_bytes: int = 0, new_records: int = 0) -> None:
        """Runs the assembler, accounts for the memory it takes, and posts the batches it closed. `freed_bytes` were
        held by its rows before, `new_records` of them were not counted yet."""
        assembler, pool = self._assembler, self.buffer_pool
        open_bytes = assembler.open_bytes
        try:
            batches = assemble()
            taken_bytes = assembler.open_bytes - open_bytes + sum([batch.memory_bytes for batch in batches])
            pool.give(freed_bytes - taken_bytes, -new_records)
            if batches:
                self._posted_records += sum([batch.record_count for batch in batches])
                self._mailbox.post(Append(batches))
                self._wants_wake = True
            self._note_oldest()
        except DataError:
            raise  # before anything was appended
        except BaseException as error:
            self._mailbox.break_down(self._torn_error(error))
            raise

    def _torn_error(self, error: BaseException) -> LocalProtocolError:
        """Never without one: rows that are in a batch must not be told as not sent."""
        try:
            torn = LocalProtocolError(_torn_text(type(error).__name__))
            torn.__cause__ = error
        except MemoryError:
            return self._torn_for_want_of_memory
        return torn

    def _note_oldest(self) -> None:
        collector = next(iter(self._collecting.values()), None)
        opened_ms = self._assembler.oldest_opened_ms
        if collector is not None and (opened_ms is None or collector.opened_ms < opened_ms):
            opened_ms = collector.opened_ms
        if self.oldest_ms is None and opened_ms is not None:
            self._wants_wake = True
        self.oldest_ms = opened_ms

    def _wake(self) -> None:
        """Call without the lock: the sender could not take it."""
        if self._wants_wake:
            self._wants_wake = False
            try:
                self._mailbox.wake()
            except BaseException:  # an interrupt: the next call does it
                self._wants_wake = True
                raise

    def _compressor_of(self, topic: str) -> Compressor:
        wanted = self._options.compression_of(topic)
        found = self._compressors.get(wanted)
        if found is None:
            found = self._compressors[wanted] = make_compressor(*wanted)
        return found


def _torn_text(came: str) -> str:
    return f"records were being put into batches when {came} came: nobody knows which are in. This producer is finished"


def _memory_error(topic: str, error: MemoryError) -> DataError:
    failure = DataError(f"there was not enough memory to put records of topic {topic} into batches")
    failure.__cause__ = error
    return failure
