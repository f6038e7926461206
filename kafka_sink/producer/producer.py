"""The public producer: checks and passes on the user's calls. No decision about delivery is made here.

Threads: any number may call any method. Each producer has one sender thread, a daemon. Methods that wait (`send` for
metadata or room, `flush`, `close`, transactions) can be interrupted by Ctrl-C; none may be called from a delivery
callback, where they would deadlock; there `send` fails rather than waits.

`send` raises for records that it cannot accept; later errors are in the future. A producer that is dropped without
`close` warns (ResourceWarning), sends what it has and ends its thread. At interpreter exit there is no time for that:
unsent records are lost, and a warning says how many.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn

from kafka_sink.errors import DataError, KafkaSinkError, LocalProtocolError, OperationTimeout, copy_error
from kafka_sink.errors.table.brokers import GIVEN_UP_AT_CLOSE
from kafka_sink.errors.table.writes import ROW_PARTITION
from kafka_sink.formats.records.batch import HEADER_BYTES
from kafka_sink.formats.records.columns import RECORD_OVERHEAD_BYTES_MAX, ArrowData, RecordColumns, columns_by_topic
from kafka_sink.kafka.client.cluster import PartitionInfo
from kafka_sink.kafka.client.producer_identity import ProducerIdentity
from kafka_sink.options import ProducerOptions
from kafka_sink.options.producer_options import LONG_MAX
from kafka_sink.producer.arrow_future import ArrowFuture
from kafka_sink.producer.collector import Collector, HeaderPairs
from kafka_sink.producer.core import Core
from kafka_sink.producer.engine import commands as c
from kafka_sink.producer.engine import failure
from kafka_sink.producer.engine.commands import ConsumerGroup, TransactionEvent, TransactionReceipt
from kafka_sink.producer.engine.failure import CLOSED
from kafka_sink.producer.future import OnDelivery, RecordFuture
from kafka_sink.producer.interceptors import HeaderList, ProducerRecord
from kafka_sink.producer.mailbox import CLOSE, COMMIT, deadline_of, refuse_reentry
from kafka_sink.producer.metrics import MetricName
from kafka_sink.producer.offsets import OffsetAndMetadata, read_offsets
from kafka_sink.producer.operations import OFFSETS, Operations
from kafka_sink.producer.serialize import (
    ROW_OVERHEAD_BYTES,
    check_row,
    check_size,
    check_string,
    read_headers,
    serialize,
)
from kafka_sink.producer.topic_wait import wait_for_topic


class Producer:
    """Options by their Java names, or parsed `ProducerOptions`."""

    def __init__(self, config: Mapping[str, object] | ProducerOptions) -> None:
        options = config if isinstance(config, ProducerOptions) else _parse_options(config)
        # First: an interrupt below leaves a producer that ends its thread when it is collected.
        self._core = core = Core(options)
        self._options = options = core.options
        self._mailbox = core.mailbox
        self._appender = core.appender
        self._clock = core.mailbox.clock
        self._interceptors = core.interceptors
        self._key_serializer = options.key_serializer
        self._value_serializer = options.value_serializer
        self._timestamp_ms = core.mailbox.clock.timestamp_ms
        self._is_synchronous = options.producer_type == "sync"
        # Above this the encoder's own measure decides; it is too expensive for every record.
        self._unchecked_bytes_max = options.max_request_size - HEADER_BYTES - RECORD_OVERHEAD_BYTES_MAX - 5
        self._metrics = core.metrics
        self._operations = Operations(core.mailbox, core.appender, core.metrics, options.max_block_ms)

    # ---- sending ---------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: HeaderList | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordFuture:
        """Sends a record asynchronously. Waits at most max.block.ms, for the topic's metadata and for buffer memory."""
        # Hot path of every record: no avoidable call.
        if self._interceptors is not None:
            record = self._interceptors.on_send(ProducerRecord(topic, value, key, headers, timestamp_ms, partition))
            topic, value, key = record.topic, record.value, record.key
            headers, timestamp_ms, partition = record.headers, record.timestamp_ms, record.partition
        try:
            if type(value) is not bytes or self._value_serializer is not None:
                value = serialize("value", topic, value, self._value_serializer)
            byte_count = ROW_OVERHEAD_BYTES if value is None else ROW_OVERHEAD_BYTES + len(value)
            if key is not None or self._key_serializer is not None:
                key = serialize("key", topic, key, self._key_serializer)
                if key is not None:
                    byte_count += len(key)
            pairs: HeaderPairs | None = None
            if headers:
                pairs, header_bytes = read_headers(topic, headers)
                byte_count += header_bytes
            if timestamp_ms is None:
                timestamp_ms = self._timestamp_ms()
            elif type(timestamp_ms) is not int or not 0 <= timestamp_ms <= LONG_MAX:
                check_row(topic, timestamp_ms, partition)
            if byte_count > self._unchecked_bytes_max:
                check_size(topic, key, value, pairs, self._options.max_request_size)
            collector = self._appender.collectors.get(topic)
            waited_ms = 0
            if (
                collector is None
                or collector.cluster is not self._mailbox.cluster
                or collector.slow_node_ids is not self._mailbox.slow_node_ids
                or (
                    partition is not None
                    and not (type(partition) is int and 0 <= partition < collector.view.partition_count)
                )
            ):
                check_row(topic, timestamp_ms, partition)
                collector, waited_ms = self._find_collector(topic, -1 if partition is None else partition)
            future = self._appender.collect(
                collector, (key, value, pairs, timestamp_ms, partition), byte_count, on_delivery, waited_ms
            )
        except KafkaSinkError as error:
            if self._interceptors is not None:
                self._interceptors.on_acknowledgement(str(topic), None, error)
            raise
        if self._is_synchronous:
            future.result()
        return future

    def send_arrow(self, data: ArrowData, topic: str | None = None) -> ArrowFuture:
        """Sends all rows of an Arrow record batch or table: columns value, and optionally key, topic, partition,
        headers, timestamp. Serializers do not apply: bytes are sent as they are, text as UTF-8. `topic` is for all
        rows, whatever their column topic says.

        Raises if no row was accepted. If the buffer stays full in the middle of a call, the future says so.
        """
        if self._interceptors is not None:
            raise LocalProtocolError("interceptors see single records: use send(), or a producer without interceptors")
        if topic is not None:
            check_row(topic, None, None)
        options, mailbox = self._options, self._mailbox
        by_topic = [(name, columns) for name, columns in columns_by_topic(data, topic=topic) if columns.row_count]
        for _, columns in by_topic:
            columns.check_record_sizes(options.max_request_size, options.buffer_memory)
        if by_topic[1:]:
            self._ask_for_new_topics([name for name, _ in by_topic])
        wanted = [(self._find_collector_of(name, columns), columns) for name, columns in by_topic]
        future = ArrowFuture(mailbox, data.num_rows, sum(_byte_count(columns) for _, columns in by_topic))
        if not wanted:
            return future
        mailbox.add_pending(future)
        try:
            self._appender.send_columns(wanted, future)
        except BaseException:
            mailbox.drop_pending(future)
            raise
        if self._is_synchronous:
            future.result()
        return future

    def _find_collector(self, topic: str, partition: int) -> tuple[Collector, int]:
        """And how many milliseconds of max.block.ms that took."""
        mailbox, waited_ns = self._mailbox, 0
        while True:
            collector = self._appender.refresh_collector(topic)
            if collector is not None and partition < collector.view.partition_count:
                return collector, waited_ns // 1_000_000
            started_ns = self._clock.monotonic_ns()
            try:
                wait_for_topic(mailbox, topic, partition, self._options.max_block_ms, lambda: mailbox.refusal)
            finally:
                duration_ns = self._clock.monotonic_ns() - started_ns
                self._metrics.on_call("metadata-wait", duration_ns=duration_ns)
            waited_ns += duration_ns

    def _ask_for_new_topics(self, topics: list[str]) -> None:
        """For all at once: whoever waits for them one after the other waits a round trip for each."""
        known = self._mailbox.cluster.topics
        new = [topic for topic in topics if topic not in known]
        for topic in new:
            check_string("the name of a topic", topic, "topic")
        if new:
            self._mailbox.post(*[c.WantTopic(topic) for topic in new])
            self._mailbox.wake()

    def _find_collector_of(self, topic: str, columns: RecordColumns) -> Collector:
        if columns.partitions is None:
            return self._find_collector(topic, -1)[0]
        index = int(columns.partitions.argmax())
        highest = int(columns.partitions[index])
        try:
            return self._find_collector(topic, highest)[0]
        except DataError as error:
            row = int(columns.row_ids[index])
            raise DataError(
                f"row {row} names partition {highest}; {error}", ROW_PARTITION, row=row, column="partition"
            ) from None

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def flush(self, timeout_s: float | None = None) -> None:
        """Sends everything without linger and waits until each record sent before has an outcome. Failures are in the
        futures; flush does not raise them."""
        self._operations.flush(timeout_s)

    def look_ahead(self, topic: str, partition_count: int = 0) -> None:
        """Requests the topic's partitions in advance, so that the first row need not wait for them. If fewer are known,
        waits for news."""
        check_row(topic, None, None)
        check_string("the name of a topic", topic, "topic")
        known_count = self._mailbox.cluster.partition_count(topic)
        if known_count is None:
            self._mailbox.post(c.WantTopic(topic))
            self._mailbox.wake()
        elif known_count < partition_count:
            self.partitions_for(topic, anew=True)

    def partitions_for(self, topic: str, *, anew: bool = False) -> list[PartitionInfo]:
        """As they are known, which may be `metadata.max.age.ms` old. `anew`: the brokers are asked now."""
        check_row(topic, None, None)
        mailbox = self._mailbox
        seen = mailbox.cluster.topics.get(topic) if anew else None
        wait_for_topic(mailbox, topic, -1, self._options.max_block_ms, lambda: mailbox.closed_reason, seen=seen)
        return mailbox.cluster.partition_infos(topic)

    def metrics(self) -> dict[MetricName, float]:
        """Values by (group, name, tags), named as in the Java client."""
        if self._mailbox.is_forked:
            raise copy_error(self._mailbox.refusal or LocalProtocolError(CLOSED))
        return self._metrics.snapshot(self._clock.monotonic_ms())

    def totals(self) -> tuple[dict[str, float], dict[str, float], dict[int | None, int]]:
        """Since this object was created, across `start_over`: counters with Java's names, sums that Java lacks, and
        retried records by the broker's error code (None: no response)."""
        return self._metrics.totals(self._clock.monotonic_ms())

    def start_over(self, transactional_id: str | None = None, expected: ProducerIdentity | None = None) -> bool:
        """Becomes a new producer: new producer id, no transaction, no earlier state. Connections and cluster metadata
        are kept, which makes it cheaper than closing it and opening another one.

        Only while idle: every record has its outcome, every transaction is ended or prepared.

        True: a transaction has begun as `expected`, the producer id and epoch that the end of the last one under this
        transactional.id has given (commit/identity_pool.py). False: `init_transactions` comes next.
        """
        return bool(self._operations.step("start_over()", c.StartOver, transactional_id, expected))

    @property
    def retried_record_count(self) -> int:
        """Since this object was created, across `start_over`; the metric record-retry-total."""
        return self._metrics.retried_record_count

    # ---- transactions ----------------------------------------------------------------------------------------------

    # Each waits at most max.block.ms and then raises `OperationTimeout`; the step itself goes on, and calling the same
    # method again waits for the same end. Only the engine knows which step may follow which.

    def init_transactions(self) -> bool:
        """Call once, before the first transaction: fences older producers with the same transactional.id.

        False: one of the tries got no response and may still arrive, which would fence this producer and abort its
        transaction, even a prepared one. This matters only if prepared transactions are passed to another process.
        """
        return bool(
            self._operations.step("init_transactions()", c.TransactionStep, TransactionEvent.INIT, metric="txn-init")
        )

    def begin_transaction(self) -> None:
        self._operations.step("begin_transaction()", c.TransactionStep, TransactionEvent.BEGIN, metric="txn-begin")

    def send_offsets_to_transaction(
        self, offsets: Mapping[tuple[str, int], int | OffsetAndMetadata], group: str | ConsumerGroup
    ) -> None:
        """Consumed offsets, by (topic, partition), become visible together with the records. Pass the next offset to
        read."""
        if not offsets:
            return
        self._operations.step(OFFSETS, c.SendOffsets, *read_offsets(offsets, group), metric="txn-send-offsets")

    def commit_transaction(self) -> None:
        """Sends what is queued, waits for it, and commits. Raises if any record of the transaction failed; then only
        `abort_transaction` is possible."""
        self._end(COMMIT, TransactionEvent.COMMIT, "txn-commit")

    def abort_transaction(self) -> None:
        self._end("abort_transaction()", TransactionEvent.ABORT, "txn-abort")

    def _end(self, name: str, event: TransactionEvent, metric: str) -> None:
        self._operations.step(
            name,
            c.TransactionStep,
            event,
            metric=metric,
            is_behind_rows=True,
            refusal=LocalProtocolError(f"no record can be sent: {name} is under way"),
        )

    def prepare_transaction(self) -> TransactionReceipt:
        """Waits until all records are acknowledged and detaches: the holder of the receipt ends the transaction."""
        receipt = self._operations.step(
            "prepare_transaction()",
            c.TransactionStep,
            TransactionEvent.PREPARE,
            is_behind_rows=True,
            refusal=LocalProtocolError("no record can be sent: the transaction is being prepared"),
        )
        assert isinstance(receipt, TransactionReceipt)
        return receipt

    def resume_transaction(self, receipt: TransactionReceipt) -> None:
        """Instead of `init_transactions`: takes over a prepared transaction, to commit or abort it."""
        _check_receipt(receipt)
        self._operations.step("resume_transaction()", c.ResumeTransaction, receipt)

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        """Begins a transaction; commits it at the end of the block, aborts it if the block or the commit fails.

        A commit that timed out is not aborted: it may still succeed, and is left to the caller.
        """
        self.begin_transaction()
        try:
            yield self
        except BaseException as error:
            self._abort_because_of(error)
            raise
        try:
            self.commit_transaction()
        except OperationTimeout:
            raise
        except BaseException as error:
            self._abort_because_of(error)
            raise

    def _abort_because_of(self, error: BaseException) -> None:
        """The original error is to be raised, not that aborting failed as well."""
        try:
            self.abort_transaction()
        except KafkaSinkError as failure:
            if error.__context__ is None:
                error.__context__ = failure

    # ---- closing ---------------------------------------------------------------------------------------------------

    def close(self, timeout_s: float | None = None) -> None:
        """Sends what is queued, aborts an open transaction, ends the thread. May be called again.

        A transaction with a partition that has no leader stays open: brokers from Kafka 4.3 on would not end it there.

        With a timeout: what is not done by then fails, and `OperationTimeout` is raised. With 0, or from a delivery
        callback, nothing more is sent. An interrupted close gives up at once, too.
        """
        if timeout_s is not None and timeout_s < 0:
            raise LocalProtocolError(f"close(timeout_s={timeout_s}): a time-out cannot be negative")
        core, mailbox = self._core, self._mailbox
        if mailbox.is_ended or mailbox.is_abandoned:
            core.join()
            return
        refuse_reentry(*mailbox.locks)
        deadline_ms = deadline_of(self._clock, timeout_s)
        operation = c.PendingOperation(CLOSE)
        try:
            mailbox.begin_closing()
            if timeout_s == 0 or mailbox.is_sender_thread:
                core.abandon("the producer was closed without waiting")
                core.join()
                return
            self._appender.post_behind(c.Close(operation))
            mailbox.wait_for_operation(operation, deadline_ms, f"{timeout_s} s")
        except OperationTimeout:
            unsent = self._appender.buffer_pool.used_records
            given_up = f"{unsent} records were given up, see their futures" if unsent else "no record was waiting"
            text = f"close() did not end within {timeout_s} s: {given_up}"
            error = OperationTimeout(mailbox.with_trouble(text), GIVEN_UP_AT_CLOSE)
            commits = mailbox.open_commits
            core.abandon(f"close() did not end within {timeout_s} s")
            core.join()
            is_unknown = any(failure.is_commit_unknown(commit) for commit in commits)
            raise (failure.commit_unknown(error) if is_unknown else error) from None
        except BaseException:
            core.abandon("close() was interrupted")
            raise
        core.join()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # By then every record has its outcome. Only the abort of a transaction whose coordinator is unreachable may be
        # pending: the broker times it out by itself, and it must not delay the error inside the block.
        limit_s = None if error is None else self._options.delivery_timeout_ms / 1000
        try:
            self.close(limit_s)
        except KafkaSinkError:
            # The error inside the block is the one that matters.
            if error is None:
                raise

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and not core.mailbox.is_ended:
            core.close_orphaned()
            # Last: with warnings as errors it raises.
            warnings.warn(f"producer {core.options.client_id} was not closed", ResourceWarning, stacklevel=2)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Producer holds a thread and sockets and cannot be pickled: make it where it is used")

    def __repr__(self) -> str:
        state = "closed" if self._mailbox.is_ended else "open"
        return f"<Producer {self._options.client_id} {state}>"


def _byte_count(columns: RecordColumns) -> int:
    sizes = columns.sizes
    return sizes * columns.row_count if isinstance(sizes, int) else int(sizes.sum())


def _parse_options(config: Mapping[str, object]) -> ProducerOptions:
    """Imported here: a Spark task has parsed options already, and the tables take longer to load than a batch to
    send."""
    from kafka_sink.options.parse import parse_producer_options

    return parse_producer_options(config)


def _check_receipt(given: object) -> None:
    if not isinstance(given, TransactionReceipt):
        kind = type(given).__name__
        raise LocalProtocolError(f"resume_transaction() takes what prepare_transaction() returned, not {kind}")
