"""What the producer counts, under the names, groups and tags of the Java client.

Fed by plain calls from the sender thread (per turn, request or rare event, never per record) and, rarely, from threads
that wait. One lock guards all of it; gauges are asked outside of it, because they may take the producer's own lock.

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
from typing import NamedTuple

from kafka_sink.options import ProducerOptions
from kafka_sink.runtime.metric_window import MetricWindow
from kafka_sink.wire.apis import PRODUCE

Tags = tuple[tuple[str, str], ...]
MetricName = tuple[str, str, Tags]

PRODUCER_GROUP = "producer-metrics"
TOPIC_GROUP = "producer-topic-metrics"
NODE_GROUP = "producer-node-metrics"

# Calls whose whole duration Java adds up, each as `<name>-time-ns-total`.
TIMED_CALLS = (
    "flush", "metadata-wait", "txn-init", "txn-begin", "txn-send-offsets", "txn-commit", "txn-abort",
)  # fmt: skip

_NewWindow = Callable[[], MetricWindow]
_Values = Iterator[tuple[str, float]]


def _meter(name: str, window: MetricWindow, now_ms: int) -> _Values:
    """Rate and total of the values."""
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
    """The values are nanoseconds: how much of the window they fill."""
    yield f"{name}-ratio", window.rate(now_ms) / 1e9
    yield f"{name}-time-ns-total", window.total


class DrainedBatch(NamedTuple):
    """`batch_bytes` is its size on the wire, `records_bytes` that of its records before compression."""

    topic: str
    records: int
    batch_bytes: int
    records_bytes: int
    queue_ms: int

    @property
    def compression(self) -> float:
        return self.batch_bytes / self.records_bytes if self.records_bytes else 1.0


class _Topic:
    __slots__ = ("_compression", "bytes", "errors", "records", "retries")

    def __init__(self, new: _NewWindow) -> None:
        self.records, self.bytes, self._compression, self.retries, self.errors = new(), new(), new(), new(), new()

    def on_drained(self, batches: Sequence[DrainedBatch], now_ms: int) -> None:
        self.records.record_all([batch.records for batch in batches], now_ms)
        self.bytes.record_all([batch.batch_bytes for batch in batches], now_ms)
        self._compression.record_all([batch.compression for batch in batches], now_ms)

    def values(self, now_ms: int) -> _Values:
        yield from _meter("record-send", self.records, now_ms)
        yield from _meter("byte", self.bytes, now_ms)
        yield "compression-rate", self._compression.average(now_ms)
        yield from _meter("record-retry", self.retries, now_ms)
        yield from _meter("record-error", self.errors, now_ms)


class _Node:
    __slots__ = ("bytes_in", "latency", "requests", "responses")

    def __init__(self, new: _NewWindow) -> None:
        self.requests, self.bytes_in, self.responses, self.latency = new(), new(), new(), new()

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


def _quotient(dividend: float, divisor: float) -> float:
    return dividend / divisor if divisor else math.nan


class ProducerMetrics:
    """`gauges` are asked at each snapshot: buffer-total-bytes, buffer-available-bytes, waiting-threads,
    requests-in-flight, connection-count, metadata-age (in seconds, as in Java).
    """

    def __init__(self, options: ProducerOptions, *, client_id: str) -> None:
        def new() -> MetricWindow:
            return MetricWindow(options.metrics_num_samples, options.metrics_sample_window_ms)

        self._new = new
        self._lock = threading.Lock()
        self._client_tag: Tags = (("client-id", client_id),)
        self._totals = _Totals(*(new() for _ in fields(_Totals)))
        self._call_ns = dict.fromkeys(TIMED_CALLS, 0.0)
        self._topics: dict[str, _Topic] = {}
        self._nodes: dict[int, _Node] = {}
        self._gauges: dict[str, Callable[[], float]] = {}

    def add_gauge(self, name: str, read: Callable[[], float]) -> None:
        with self._lock:
            self._gauges[name] = read

    # ---- batches -----------------------------------------------------------------------------------------------

    def on_drained(self, batches: Sequence[DrainedBatch], *, now_ms: int) -> None:
        """Batches (at least one) go into requests: once per turn of the sender, because a turn has many of them."""
        totals = self._totals
        with self._lock:
            totals.records.record_all([batch.records for batch in batches], now_ms)
            totals.batch_bytes.record_all([batch.batch_bytes for batch in batches], now_ms)
            totals.record_bytes.record_all([batch.records_bytes for batch in batches], now_ms)
            totals.compression.record_all([batch.compression for batch in batches], now_ms)
            totals.queue_ms.record_all([batch.queue_ms for batch in batches], now_ms)
            for topic in {batch.topic for batch in batches}:
                self._topic(topic).on_drained([batch for batch in batches if batch.topic == topic], now_ms)

    def on_retried(self, topic: str, *, records: int, now_ms: int) -> None:
        with self._lock:
            self._totals.retries.record(records, now_ms)
            self._topic(topic).retries.record(records, now_ms)

    def on_failed(self, topic: str, *, records: int, now_ms: int) -> None:
        with self._lock:
            self._totals.errors.record(records, now_ms)
            self._topic(topic).errors.record(records, now_ms)

    def on_split(self, *, now_ms: int) -> None:
        with self._lock:
            self._totals.splits.record(1, now_ms)

    # ---- network -----------------------------------------------------------------------------------------------

    def on_request(self, node_id: int, *, request_bytes: int, now_ms: int) -> None:
        with self._lock:
            self._totals.requests.record(request_bytes, now_ms)
            self._totals.network_operations.record(1, now_ms)
            self._node(node_id).requests.record(request_bytes, now_ms)

    def on_bytes_in(self, node_id: int, *, byte_count: int, now_ms: int) -> None:
        with self._lock:
            self._totals.bytes_in.record(byte_count, now_ms)
            self._node(node_id).bytes_in.record(byte_count, now_ms)

    def on_answer(self, node_id: int, *, api_key: int, latency_ms: int, throttle_ms: int, now_ms: int) -> None:
        totals = self._totals
        with self._lock:
            node = self._node(node_id)
            totals.responses.record(1, now_ms)
            totals.network_operations.record(1, now_ms)
            totals.throttle_ms.record(throttle_ms, now_ms)
            node.responses.record(1, now_ms)
            if api_key == PRODUCE.key:
                totals.produce_latency.record(latency_ms, now_ms)
                node.latency.record(latency_ms, now_ms)

    def on_connection_opened(self, *, now_ms: int) -> None:
        with self._lock:
            self._totals.connections_opened.record(1, now_ms)

    def on_connection_closed(self, *, now_ms: int) -> None:
        with self._lock:
            self._totals.connections_closed.record(1, now_ms)

    def on_select(self, *, wait_ns: int, io_ns: int, now_ms: int) -> None:
        """One turn of the sender's loop: time in select, and time spent reading and writing before it."""
        with self._lock:
            self._totals.select_ns.record(wait_ns, now_ms)
            self._totals.io_ns.record(io_ns, now_ms)

    # ---- callers that wait -------------------------------------------------------------------------------------

    def on_buffer_wait(self, *, wait_ns: int, now_ms: int) -> None:
        with self._lock:
            self._totals.buffer_wait_ns.record(wait_ns, now_ms)

    def on_buffer_exhausted(self, *, records: int, now_ms: int) -> None:
        with self._lock:
            self._totals.buffer_exhausted.record(records, now_ms)

    def on_call(self, name: str, *, duration_ns: int) -> None:
        """One of `TIMED_CALLS` ended."""
        with self._lock:
            self._call_ns[name] += duration_ns

    # ---- reading -----------------------------------------------------------------------------------------------

    @property
    def retried_record_count(self) -> int:
        return int(self._totals.retries.total)

    def snapshot(self, now_ms: int) -> dict[MetricName, float]:
        """All values now; NaN where an average or maximum has nothing to stand on, as in Java."""
        found: dict[MetricName, float] = {}
        tags = self._client_tag
        with self._lock:
            gauges = dict(self._gauges)
            for name, value in self._totals.values(now_ms):
                found[PRODUCER_GROUP, name, tags] = value
            for name, total_ns in self._call_ns.items():
                found[PRODUCER_GROUP, f"{name}-time-ns-total", tags] = total_ns
            for topic, of_topic in self._topics.items():
                for name, value in of_topic.values(now_ms):
                    found[TOPIC_GROUP, name, (*tags, ("topic", topic))] = value
            for node_id, of_node in self._nodes.items():
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
