"""The producer's metrics, with the names, groups and tags of the Java client.

Fed by plain calls from the sender thread (per turn, request or rare event, never per record) and, rarely, from waiting
threads. What the sender tells is only stored, without a lock, and counted every `SETTLE_MS` or on a read: the windows
are seconds long. One lock guards the windows; gauges are read outside of it, because they may take the producer's own
lock.

As in Java, records count as sent when their batch is drained, retries included, and latency is that of produce
requests. Different from Java: `record-size-avg` is the true average (Java averages the largest record of each batch,
and `record-size-max` needs that largest one, which a closed batch does not know), and `records-per-request-avg` is
the records drained divided by the produce requests answered in the window.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

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


class _Windows:
    """A window for each annotation of the class."""

    def __init__(self, new_window: Callable[[], MetricWindow]) -> None:
        for name in type(self).__annotations__:
            setattr(self, name, new_window())

    def settle(self, now_ms: int) -> None:
        for window in vars(self).values():
            window.settle(now_ms)


class _Topic(_Windows):
    records: MetricWindow
    bytes: MetricWindow
    compression: MetricWindow
    retries: MetricWindow
    errors: MetricWindow

    def values(self, now_ms: int) -> _Values:
        yield from _meter("record-send", self.records, now_ms)
        yield from _meter("byte", self.bytes, now_ms)
        yield "compression-rate", self.compression.average(now_ms)
        yield from _meter("record-retry", self.retries, now_ms)
        yield from _meter("record-error", self.errors, now_ms)


class _Node(_Windows):
    requests: MetricWindow
    bytes_in: MetricWindow
    responses: MetricWindow
    latency: MetricWindow

    def values(self, now_ms: int) -> _Values:
        yield from _counter("request", self.requests, now_ms)
        yield from _spread("request-size", self.requests, now_ms)
        yield from _meter("outgoing-byte", self.requests, now_ms)
        yield from _meter("incoming-byte", self.bytes_in, now_ms)
        yield from _counter("response", self.responses, now_ms)
        yield from _spread("request-latency", self.latency, now_ms)


class _Totals(_Windows):
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

    def counters(self) -> dict[str, float]:
        """Those of `values` that only grow."""
        found: dict[str, float] = {f"{name}-total": getattr(self, window).total for name, window in _METERS.items()}
        for name, window in _COUNTERS.items():
            found[f"{name}-total"] = getattr(self, window).total_count
        for name, window in _SHARES.items():
            found[f"{name}-time-ns-total"] = getattr(self, window).total
        return found

    def values(self, now_ms: int) -> _Values:
        for name, window in _METERS.items():
            yield from _meter(name, getattr(self, window), now_ms)
        for name, window in _COUNTERS.items():
            yield from _counter(name, getattr(self, window), now_ms)
        for name, window in _SPREADS.items():
            yield from _spread(name, getattr(self, window), now_ms)
        for name, window in _SHARES.items():
            yield f"{name}-ratio", getattr(self, window).rate(now_ms) / 1e9
            yield f"{name}-time-ns-total", getattr(self, window).total
        yield "compression-rate-avg", self.compression.average(now_ms)
        records = self.records.window_sum(now_ms)
        yield "records-per-request-avg", _quotient(records, self.produce_latency.window_count(now_ms))
        yield "record-size-avg", _quotient(self.record_bytes.window_sum(now_ms), records)
        yield "io-wait-time-ns-avg", self.select_ns.average(now_ms)
        yield "io-time-ns-avg", self.io_ns.average(now_ms)


# Java's names, and the windows of the whole producer that they are about.
_METERS = {
    "record-send": "records", "record-retry": "retries", "record-error": "errors", "outgoing-byte": "requests",
    "incoming-byte": "bytes_in", "buffer-exhausted": "buffer_exhausted",
}  # fmt: skip
_COUNTERS = {
    "batch-split": "splits", "request": "requests", "response": "responses", "network-io": "network_operations",
    "connection-creation": "connections_opened", "connection-close": "connections_closed", "select": "select_ns",
}  # fmt: skip
_SPREADS = {
    "batch-size": "batch_bytes", "record-queue-time": "queue_ms", "request-latency": "produce_latency",
    "produce-throttle-time": "throttle_ms", "request-size": "requests",
}  # fmt: skip
# Nanoseconds, and their share of the window.
_SHARES = {"io-wait": "select_ns", "io": "io_ns", "bufferpool-wait": "buffer_wait_ns"}


def _quotient(dividend: float, divisor: float) -> float:
    return dividend / divisor if divisor else math.nan


class ProducerMetrics:
    def __init__(self, options: ProducerOptions) -> None:
        def new() -> MetricWindow:
            return MetricWindow(options.metrics_num_samples, options.metrics_sample_window_ms)

        # Reentrant: a signal handler that calls the producer may interrupt its holder.
        self.lock = threading.RLock()
        self._client_tag: Tags = (("client-id", options.client_id),)
        self._totals = _Totals(new)
        self._call_ns = dict.fromkeys(TIMED_CALLS, 0.0)
        self._topics: defaultdict[str, _Topic] = defaultdict(lambda: _Topic(new))
        self._nodes: defaultdict[int, _Node] = defaultdict(lambda: _Node(new))
        # Read at each snapshot.
        self.gauges: dict[str, Callable[[], float]] = {}
        # Records by the broker's error code; None: there was no response.
        self._retried: dict[int | None, int] = {}
        # When the stored values came, and when they are to be counted.
        self._turn_ms = 0
        self._settle_at_ms = 0

    # ---- from the sender -------------------------------------------------------------------------------------------

    def on_turn(self, now_ms: int, *, wait_ns: int = 0, io_ns: int = 0) -> None:
        """A turn of the sender begins: all that is told until the next one came at this time. Before it the sender was
        in select, and then it read and wrote."""
        if now_ms >= self._settle_at_ms:
            self._settle(now_ms)
        self._turn_ms = now_ms
        self._totals.select_ns.pending.append(wait_ns)
        self._totals.io_ns.pending.append(io_ns)

    def on_drained(self, batches: Sequence[ProducerBatch]) -> None:
        """Batches are drained into a request for the first time."""
        totals, now_ms = self._totals, self._turn_ms
        for batch in batches:
            topic = self._topics[batch.topic]
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

    def on_retried(self, topic: str, *, records: int, error_code: int | None = None) -> None:
        self._retried[error_code] = self._retried.get(error_code, 0) + records
        self._totals.retries.pending.append(records)
        self._topics[topic].retries.pending.append(records)

    def on_failed(self, topic: str, *, records: int) -> None:
        self._totals.errors.pending.append(records)
        self._topics[topic].errors.pending.append(records)

    def on_split(self) -> None:
        self._totals.splits.pending.append(1)

    def on_request(self, node_id: int, *, request_bytes: int) -> None:
        self._totals.requests.pending.append(request_bytes)
        self._totals.network_operations.pending.append(1)
        self._nodes[node_id].requests.pending.append(request_bytes)

    def on_bytes_in(self, node_id: int, *, byte_count: int) -> None:
        self._totals.bytes_in.pending.append(byte_count)
        self._nodes[node_id].bytes_in.pending.append(byte_count)

    def on_answer(self, node_id: int, *, api_key: int, latency_ms: int, throttle_ms: int) -> None:
        totals, node = self._totals, self._nodes[node_id]
        totals.responses.pending.append(1)
        totals.network_operations.pending.append(1)
        totals.throttle_ms.pending.append(throttle_ms)
        node.responses.pending.append(1)
        if api_key == PRODUCE.key:
            totals.produce_latency.pending.append(latency_ms)
            node.latency.pending.append(latency_ms)

    def on_connection_opened(self) -> None:
        self._totals.connections_opened.pending.append(1)

    def on_connection_closed(self) -> None:
        self._totals.connections_closed.pending.append(1)

    def _settle(self, now_ms: int) -> None:
        """Counts the stored values, with the time at which they were stored."""
        with self.lock:
            self._settle_at_ms = now_ms + SETTLE_MS
            for windows in [self._totals, *self._topics.values(), *self._nodes.values()]:
                windows.settle(self._turn_ms)

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
        return sum(self._retried.copy().values())

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
            return java, sums, self._retried.copy()

    def snapshot(self, now_ms: int) -> dict[MetricName, float]:
        """All current values; NaN for an average or maximum without values, as in Java."""
        self._settle(now_ms)
        found: dict[MetricName, float] = {}
        tags = self._client_tag
        with self.lock:
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
        for name, read in self.gauges.items():
            found[PRODUCER_GROUP, name, tags] = float(read())
        return found
