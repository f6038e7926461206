"""The producer's metrics, with the names, groups and tags of the Java client.

Fed by plain calls from the sender thread (per iteration, request or rare event, never per record) and, rarely, from
waiting threads. Values of every request are only stored, without a lock, and counted every `SETTLE_MS` or on a read:
the windows are seconds long. One lock guards the windows; gauges are read outside of it, because they may take the
producer's own lock.

As in Java, records count as sent when their batch is drained, retries included, and latency is that of produce
requests. Different from Java: `record-size-avg` is the true average (Java averages the largest record of each batch,
and `record-size-max` needs that largest one, which a closed batch does not know), and `records-per-request-avg` is
the records drained divided by the produce requests answered in the window.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

from kafka_sink.engine.producer_batch import ProducerBatch
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.metric_window import MetricWindow
from kafka_sink.wire.apis import PRODUCE

Tags = tuple[tuple[str, str], ...]
MetricName = tuple[str, str, Tags]

PRODUCER_GROUP = "producer-metrics"
TOPIC_GROUP = "producer-topic-metrics"
NODE_GROUP = "producer-node-metrics"

# Calls whose total duration Java reports as `<name>-time-ns-total`.
TIMED_CALLS = (
    "flush", "metadata-wait", "txn-init", "txn-begin", "txn-send-offsets", "txn-commit", "txn-abort",
)  # fmt: skip

_CALL_TOTALS = {name: f"{name}-time-ns-total" for name in TIMED_CALLS}

# How long values may be stored before they are counted.
SETTLE_MS = 100

_NewWindow = Callable[[], MetricWindow]
_Values = Iterator[tuple[str, float]]


def _meter(name: str, window: MetricWindow, now_ms: int) -> _Values:
    """Rate and total of values."""
    yield f"{name}-rate", window.rate(now_ms)
    yield f"{name}-total", window.total


def _counter(name: str, window: MetricWindow, now_ms: int) -> _Values:
    """Rate and total of the number of values, whatever they are."""
    yield f"{name}-rate", window.count_rate(now_ms)
    yield f"{name}-total", float(window.total_count)


def _spread(name: str, window: MetricWindow, now_ms: int) -> _Values:
    yield f"{name}-avg", window.average(now_ms)
    yield f"{name}-max", window.maximum(now_ms)


def _share_of_time(name: str, window: MetricWindow, now_ms: int) -> _Values:
    """The values are nanoseconds: their share of the window."""
    yield f"{name}-ratio", window.rate(now_ms) / 1e9
    yield f"{name}-time-ns-total", window.total


class _Topic:
    __slots__ = ("bytes", "compression", "errors", "records", "retries")

    def __init__(self, new: _NewWindow) -> None:
        self.records, self.bytes, self.compression, self.retries, self.errors = new(), new(), new(), new(), new()

    def settle(self, now_ms: int) -> None:
        for window in (self.records, self.bytes, self.compression):
            window.settle(now_ms)

    def values(self, now_ms: int) -> _Values:
        yield from _meter("record-send", self.records, now_ms)
        yield from _meter("byte", self.bytes, now_ms)
        yield "compression-rate", self.compression.average(now_ms)
        yield from _meter("record-retry", self.retries, now_ms)
        yield from _meter("record-error", self.errors, now_ms)


class _Node:
    __slots__ = ("bytes_in", "latency", "requests", "responses")

    def __init__(self, new: _NewWindow) -> None:
        self.requests, self.bytes_in, self.responses, self.latency = new(), new(), new(), new()

    def settle(self, now_ms: int) -> None:
        for window in (self.requests, self.bytes_in, self.responses, self.latency):
            window.settle(now_ms)

    def values(self, now_ms: int) -> _Values:
        yield from _counter("request", self.requests, now_ms)
        yield from _spread("request-size", self.requests, now_ms)
        yield from _meter("outgoing-byte", self.requests, now_ms)
        yield from _meter("incoming-byte", self.bytes_in, now_ms)
        yield from _counter("response", self.responses, now_ms)
        yield from _spread("request-latency", self.latency, now_ms)


@dataclass(slots=True)
class _Totals:
    """The windows of the whole producer."""

    batch_bytes: MetricWindow
    compression: MetricWindow
    queue_ms: MetricWindow
    records: MetricWindow
    record_bytes: MetricWindow
    retries: MetricWindow
    errors: MetricWindow
    splits: MetricWindow
    produce_latency: MetricWindow
    throttle_ms: MetricWindow
    requests: MetricWindow
    bytes_in: MetricWindow
    responses: MetricWindow
    network_operations: MetricWindow
    connections_opened: MetricWindow
    connections_closed: MetricWindow
    select_ns: MetricWindow
    io_ns: MetricWindow
    buffer_wait_ns: MetricWindow
    buffer_exhausted: MetricWindow

    def settle(self, now_ms: int) -> None:
        for window in (
            self.batch_bytes, self.compression, self.queue_ms, self.records, self.record_bytes, self.produce_latency,
            self.throttle_ms, self.requests, self.bytes_in, self.responses, self.network_operations, self.select_ns,
            self.io_ns,
        ):  # fmt: skip
            window.settle(now_ms)

    def counters(self) -> dict[str, float]:
        """Those of `values` that only grow."""
        found: dict[str, float] = {name: getattr(self, window).total for name, window in _COUNTED_VALUES.items()}
        for name, window in _COUNTED_EVENTS.items():
            found[name] = getattr(self, window).total_count
        return found

    def values(self, now_ms: int) -> _Values:
        yield from _spread("batch-size", self.batch_bytes, now_ms)
        yield "compression-rate-avg", self.compression.average(now_ms)
        yield from _spread("record-queue-time", self.queue_ms, now_ms)
        yield from _meter("record-send", self.records, now_ms)
        yield (
            "records-per-request-avg",
            _quotient(self.records.window_sum(now_ms), self.produce_latency.window_count(now_ms)),
        )
        yield "record-size-avg", _quotient(self.record_bytes.window_sum(now_ms), self.records.window_sum(now_ms))
        yield from _meter("record-retry", self.retries, now_ms)
        yield from _meter("record-error", self.errors, now_ms)
        yield from _counter("batch-split", self.splits, now_ms)
        yield from _spread("request-latency", self.produce_latency, now_ms)
        yield from _spread("produce-throttle-time", self.throttle_ms, now_ms)
        yield from _counter("request", self.requests, now_ms)
        yield from _spread("request-size", self.requests, now_ms)
        yield from _meter("outgoing-byte", self.requests, now_ms)
        yield from _meter("incoming-byte", self.bytes_in, now_ms)
        yield from _counter("response", self.responses, now_ms)
        yield from _counter("network-io", self.network_operations, now_ms)
        yield from _counter("connection-creation", self.connections_opened, now_ms)
        yield from _counter("connection-close", self.connections_closed, now_ms)
        yield from _counter("select", self.select_ns, now_ms)
        yield "io-wait-time-ns-avg", self.select_ns.average(now_ms)
        yield from _share_of_time("io-wait", self.select_ns, now_ms)
        yield "io-time-ns-avg", self.io_ns.average(now_ms)
        yield from _share_of_time("io", self.io_ns, now_ms)
        yield from _share_of_time("bufferpool-wait", self.buffer_wait_ns, now_ms)
        yield from _meter("buffer-exhausted", self.buffer_exhausted, now_ms)


_COUNTED_VALUES = {
    "record-send-total": "records", "record-retry-total": "retries", "record-error-total": "errors",
    "outgoing-byte-total": "requests", "incoming-byte-total": "bytes_in", "io-wait-time-ns-total": "select_ns",
    "io-time-ns-total": "io_ns", "bufferpool-wait-time-ns-total": "buffer_wait_ns",
    "buffer-exhausted-total": "buffer_exhausted",
}  # fmt: skip
_COUNTED_EVENTS = {
    "batch-split-total": "splits", "request-total": "requests", "response-total": "responses",
    "network-io-total": "network_operations", "connection-creation-total": "connections_opened",
    "connection-close-total": "connections_closed", "select-total": "select_ns",
}  # fmt: skip


def _quotient(dividend: float, divisor: float) -> float:
    return dividend / divisor if divisor else math.nan


class ProducerMetrics:
    """`gauges` are read at each snapshot: buffer-total-bytes, buffer-available-bytes, waiting-threads,
    requests-in-flight, connection-count, metadata-age (in seconds, as in Java).
    """

    def __init__(self, options: ProducerOptions, *, client_id: str) -> None:
        def new() -> MetricWindow:
            return MetricWindow(options.metrics_num_samples, options.metrics_sample_window_ms)

        self._new = new
        # Reentrant: a signal handler that calls the producer may interrupt its holder.
        self.lock = threading.RLock()
        self._client_tag: Tags = (("client-id", client_id),)
        self._totals = _Totals(*(new() for _ in fields(_Totals)))
        self._call_ns = dict.fromkeys(TIMED_CALLS, 0.0)
        self._topics: dict[str, _Topic] = {}
        self._nodes: dict[int, _Node] = {}
        self._gauges: dict[str, Callable[[], float]] = {}
        # Records by the broker's error code; None: there was no response.
        self._retried: dict[int | None, int] = {}
        # When a value was last stored, and when it is to be counted.
        self._pending_ms = 0
        self._settle_at_ms = 0

    def add_gauge(self, name: str, read: Callable[[], float]) -> None:
        with self.lock:
            self._gauges[name] = read

    # ---- batches -----------------------------------------------------------------------------------------------

    def on_drained(self, batches: Sequence[ProducerBatch], *, now_ms: int) -> None:
        """Batches are drained into a request for the first time."""
        if now_ms >= self._settle_at_ms:
            self._settle(now_ms)
        totals, topics = self._totals, self._topics
        for batch in batches:
            topic = topics.get(batch.topic) or self._topic(batch.topic)
            records_bytes = batch.encoded.records_bytes
            compression = batch.size / records_bytes if records_bytes else 1.0
            totals.records.pending.append(batch.record_count)
            totals.batch_bytes.pending.append(batch.size)
            totals.record_bytes.pending.append(records_bytes)
            totals.compression.pending.append(compression)
            totals.queue_ms.pending.append(now_ms - batch.opened_ms)
            topic.records.pending.append(batch.record_count)
            topic.bytes.pending.append(batch.size)
            topic.compression.pending.append(compression)
        self._pending_ms = now_ms

    def on_retried(self, topic: str, *, records: int, now_ms: int, error_code: int | None = None) -> None:
        with self.lock:
            self._retried[error_code] = self._retried.get(error_code, 0) + records
            self._totals.retries.record(records, now_ms)
            self._topic(topic).retries.record(records, now_ms)

    def on_failed(self, topic: str, *, records: int, now_ms: int) -> None:
        with self.lock:
            self._totals.errors.record(records, now_ms)
            self._topic(topic).errors.record(records, now_ms)

    def on_split(self, *, now_ms: int) -> None:
        with self.lock:
            self._totals.splits.record(1, now_ms)

    # ---- network -----------------------------------------------------------------------------------------------

    def on_request(self, node_id: int, *, request_bytes: int, now_ms: int) -> None:
        if now_ms >= self._settle_at_ms:
            self._settle(now_ms)
        totals, node = self._totals, self._nodes.get(node_id) or self._node(node_id)
        totals.requests.pending.append(request_bytes)
        totals.network_operations.pending.append(1)
        node.requests.pending.append(request_bytes)
        self._pending_ms = now_ms

    def on_bytes_in(self, node_id: int, *, byte_count: int, now_ms: int) -> None:
        if now_ms >= self._settle_at_ms:
            self._settle(now_ms)
        node = self._nodes.get(node_id) or self._node(node_id)
        self._totals.bytes_in.pending.append(byte_count)
        node.bytes_in.pending.append(byte_count)
        self._pending_ms = now_ms

    def on_answer(self, node_id: int, *, api_key: int, latency_ms: int, throttle_ms: int, now_ms: int) -> None:
        if now_ms >= self._settle_at_ms:
            self._settle(now_ms)
        totals, node = self._totals, self._nodes.get(node_id) or self._node(node_id)
        totals.responses.pending.append(1)
        totals.network_operations.pending.append(1)
        totals.throttle_ms.pending.append(throttle_ms)
        node.responses.pending.append(1)
        if api_key == PRODUCE.key:
            totals.produce_latency.pending.append(latency_ms)
            node.latency.pending.append(latency_ms)
        self._pending_ms = now_ms

    def on_connection_opened(self, *, now_ms: int) -> None:
        with self.lock:
            self._totals.connections_opened.record(1, now_ms)

    def on_connection_closed(self, *, now_ms: int) -> None:
        with self.lock:
            self._totals.connections_closed.record(1, now_ms)

    def on_select(self, *, wait_ns: int, io_ns: int, now_ms: int) -> None:
        """One iteration of the sender: time in select, and time spent reading and writing before it."""
        if now_ms >= self._settle_at_ms:
            self._settle(now_ms)
        self._totals.select_ns.pending.append(wait_ns)
        self._totals.io_ns.pending.append(io_ns)
        self._pending_ms = now_ms

    def _settle(self, now_ms: int) -> None:
        """Counts the stored values, with the time at which they were stored."""
        with self.lock:
            self._settle_at_ms = now_ms + SETTLE_MS
            settled_ms = self._pending_ms
            self._totals.settle(settled_ms)
            for topic in list(self._topics.values()):
                topic.settle(settled_ms)
            for node in list(self._nodes.values()):
                node.settle(settled_ms)

    # ---- callers that wait -------------------------------------------------------------------------------------

    def on_buffer_wait(self, *, wait_ns: int, now_ms: int) -> None:
        with self.lock:
            self._totals.buffer_wait_ns.record(wait_ns, now_ms)

    def on_buffer_exhausted(self, *, records: int, now_ms: int) -> None:
        with self.lock:
            self._totals.buffer_exhausted.record(records, now_ms)

    def on_call(self, name: str, *, duration_ns: int) -> None:
        """One of `TIMED_CALLS` ended."""
        with self.lock:
            self._call_ns[name] += duration_ns

    # ---- reading -----------------------------------------------------------------------------------------------

    @property
    def retried_record_count(self) -> int:
        return int(self._totals.retries.total)

    def totals(self, now_ms: int) -> tuple[dict[str, float], dict[str, float], dict[int | None, int]]:
        """The counters of the whole producer: with Java's names; those that Java's client lacks (batches and their
        bytes, and times in milliseconds); retried records by the broker's error. For differences over time; cheaper
        than the windows of `snapshot`."""
        self._settle(now_ms)
        totals = self._totals
        with self.lock:
            java = totals.counters()
            for name, duration_ns in self._call_ns.items():
                java[_CALL_TOTALS[name]] = duration_ns
            sums = {
                "batches": totals.batch_bytes.total_count,
                "batch-bytes": totals.batch_bytes.total,
                "produce-answers": totals.produce_latency.total_count,
                "produce-latency-ms": totals.produce_latency.total,
                "throttle-ms": totals.throttle_ms.total,
            }
            return java, sums, dict(self._retried)

    def snapshot(self, now_ms: int) -> dict[MetricName, float]:
        """All current values; NaN for an average or maximum without values, as in Java."""
        self._settle(now_ms)
        found: dict[MetricName, float] = {}
        tags = self._client_tag
        with self.lock:
            gauges = dict(self._gauges)
            for name, value in self._totals.values(now_ms):
                found[PRODUCER_GROUP, name, tags] = value
            for name, total_ns in self._call_ns.items():
                found[PRODUCER_GROUP, _CALL_TOTALS[name], tags] = total_ns
            for topic, of_topic in list(self._topics.items()):
                for name, value in of_topic.values(now_ms):
                    found[TOPIC_GROUP, name, (*tags, ("topic", topic))] = value
            for node_id, of_node in list(self._nodes.items()):
                for name, value in of_node.values(now_ms):
                    found[NODE_GROUP, name, (*tags, ("node-id", f"node-{node_id}"))] = value
        for name, read in gauges.items():
            found[PRODUCER_GROUP, name, tags] = float(read())
        return found

    def _topic(self, topic: str) -> _Topic:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = _Topic(self._new)
        return found

    def _node(self, node_id: int) -> _Node:
        found = self._nodes.get(node_id)
        if found is None:
            found = self._nodes[node_id] = _Node(self._new)
        return found
