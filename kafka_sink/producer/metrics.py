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
from collections.abc import Callable, Iterator, Mapping, Sequence

from kafka_sink.kafka.client.commands import RequestObserved
from kafka_sink.kafka.wire.apis import PRODUCE
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.engine.producer_batch import ProducerBatch
from kafka_sink.producer.metric_window import MetricWindow

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

# What the names of a window's figures end in, and how each is measured. Of values; of their number, whatever they are;
# of nanoseconds, with their share of the window.
_Kind = Mapping[str, Callable[[MetricWindow, int], float]]
_METER: _Kind = {"-rate": MetricWindow.rate, "-total": lambda window, _: window.total}
_COUNTER: _Kind = {"-rate": MetricWindow.count_rate, "-total": lambda window, _: window.total_count}
_SPREAD: _Kind = {"-avg": MetricWindow.average, "-max": MetricWindow.maximum}
_AVERAGE: _Kind = {"": MetricWindow.average}
_SHARE: _Kind = {
    "-ratio": lambda window, now_ms: window.rate(now_ms) / 1e9,
    "-time-ns-total": lambda window, _: window.total,
}
# Java's names, and the windows that they are about.
_Figures = Sequence[tuple[str, _Kind, str]]
_OF_PRODUCER: _Figures = (
    ("record-send", _METER, "records"),
    ("record-retry", _METER, "retries"),
    ("record-error", _METER, "errors"),
    ("outgoing-byte", _METER, "requests"),
    ("incoming-byte", _METER, "bytes_in"),
    ("buffer-exhausted", _METER, "buffer_exhausted"),
    ("batch-split", _COUNTER, "splits"),
    ("request", _COUNTER, "requests"),
    ("response", _COUNTER, "responses"),
    ("network-io", _COUNTER, "network_operations"),
    ("connection-creation", _COUNTER, "connections_opened"),
    ("connection-close", _COUNTER, "connections_closed"),
    ("select", _COUNTER, "select_ns"),
    ("batch-size", _SPREAD, "bytes"),
    ("record-queue-time", _SPREAD, "queue_ms"),
    ("request-latency", _SPREAD, "latency"),
    ("produce-throttle-time", _SPREAD, "throttle_ms"),
    ("request-size", _SPREAD, "requests"),
    ("io-wait", _SHARE, "select_ns"),
    ("io", _SHARE, "io_ns"),
    ("bufferpool-wait", _SHARE, "buffer_wait_ns"),
    ("compression-rate-avg", _AVERAGE, "compression"),
    ("io-wait-time-ns-avg", _AVERAGE, "select_ns"),
    ("io-time-ns-avg", _AVERAGE, "io_ns"),
)
_OF_TOPIC: _Figures = (
    ("record-send", _METER, "records"),
    ("byte", _METER, "bytes"),
    ("compression-rate", _AVERAGE, "compression"),
    ("record-retry", _METER, "retries"),
    ("record-error", _METER, "errors"),
)
_OF_NODE: _Figures = (
    ("request", _COUNTER, "requests"),
    ("request-size", _SPREAD, "requests"),
    ("outgoing-byte", _METER, "requests"),
    ("incoming-byte", _METER, "bytes_in"),
    ("response", _COUNTER, "responses"),
    ("request-latency", _SPREAD, "latency"),
)


class _Windows(dict[str, MetricWindow]):
    """The windows of these figures, and `more` of them."""

    def __init__(self, figures: _Figures, options: ProducerOptions, *more: str) -> None:
        samples, sample_ms = options.metrics_num_samples, options.metrics_sample_window_ms
        names = (*(window for _, _, window in figures), *more)
        super().__init__({name: MetricWindow(samples, sample_ms) for name in names})
        self._figures = figures

    def read(self, now_ms: int, ending: str = "") -> Iterator[tuple[str, float]]:
        """The figures whose names end like this."""
        for name, kind, window in self._figures:
            for suffix, measure in kind.items():
                if suffix.endswith(ending):
                    yield f"{name}{suffix}", measure(self[window], now_ms)


def _quotient(dividend: float, divisor: float) -> float:
    return dividend / divisor if divisor else math.nan


class ProducerMetrics:
    def __init__(self, options: ProducerOptions) -> None:
        # Reentrant: a signal handler that calls the producer may interrupt its holder.
        self.lock = threading.RLock()
        self._client_tag: Tags = (("client-id", options.client_id),)
        self._totals = _Windows(_OF_PRODUCER, options, "record_bytes")
        self._call_ns = dict.fromkeys(TIMED_CALLS, 0.0)
        self._topics: defaultdict[str, _Windows] = defaultdict(lambda: _Windows(_OF_TOPIC, options))
        self._nodes: defaultdict[int, _Windows] = defaultdict(lambda: _Windows(_OF_NODE, options))
        # Read at each snapshot.
        self.gauges: dict[str, Callable[[], float]] = {}
        # Records by the broker's error code; None: there was no response.
        self._retried: dict[int | None, int] = {}
        # When the stored values came, and when they are to be counted.
        self._turn_ms = 0
        self._settle_at_ms = 0

    # ---- from the sender -------------------------------------------------------------------------------------------

    def on_turn(self, now_ms: int, *, wait_ns: int = 0, io_ns: int = 0) -> None:
        """A turn of the sender begins: what is reported until the next one happened at this time. Before it the sender
        was in select, and then it read and wrote."""
        if now_ms >= self._settle_at_ms:
            self._settle(now_ms)
        self._turn_ms = now_ms
        self._totals["select_ns"].pending.append(wait_ns)
        self._totals["io_ns"].pending.append(io_ns)

    def on_drained(self, batches: Sequence[ProducerBatch]) -> None:
        """Batches are drained into a request for the first time."""
        totals, now_ms = self._totals, self._turn_ms
        for batch in batches:
            topic = self._topics[batch.topic]
            records_bytes = batch.encoded.records_bytes
            compression = batch.size / records_bytes if records_bytes else 1.0
            totals["records"].pending.append(batch.record_count)
            totals["bytes"].pending.append(batch.size)
            totals["record_bytes"].pending.append(records_bytes)
            totals["compression"].pending.append(compression)
            totals["queue_ms"].pending.append(now_ms - batch.opened_ms)
            topic["records"].pending.append(batch.record_count)
            topic["bytes"].pending.append(batch.size)
            topic["compression"].pending.append(compression)

    def on_retried(self, batch: ProducerBatch, error_code: int | None) -> None:
        self._retried[error_code] = self._retried.get(error_code, 0) + batch.record_count
        self._totals["retries"].pending.append(batch.record_count)
        self._topics[batch.topic]["retries"].pending.append(batch.record_count)

    def on_failed(self, batch: ProducerBatch) -> None:
        self._totals["errors"].pending.append(batch.record_count)
        self._topics[batch.topic]["errors"].pending.append(batch.record_count)

    def on_split(self) -> None:
        self._totals["splits"].pending.append(1)

    def on_request(self, node_id: int, *, request_bytes: int) -> None:
        self._totals["requests"].pending.append(request_bytes)
        self._totals["network_operations"].pending.append(1)
        self._nodes[node_id]["requests"].pending.append(request_bytes)

    def on_bytes_in(self, node_id: int, *, byte_count: int) -> None:
        self._totals["bytes_in"].pending.append(byte_count)
        self._nodes[node_id]["bytes_in"].pending.append(byte_count)

    def on_answer(self, seen: RequestObserved) -> None:
        totals, node = self._totals, self._nodes[seen.node_id]
        totals["responses"].pending.append(1)
        totals["network_operations"].pending.append(1)
        totals["throttle_ms"].pending.append(seen.throttle_ms)
        node["responses"].pending.append(1)
        if seen.api_key == PRODUCE.key:
            totals["latency"].pending.append(seen.latency_ms)
            node["latency"].pending.append(seen.latency_ms)

    def on_connection_opened(self) -> None:
        self._totals["connections_opened"].pending.append(1)

    def on_connection_closed(self) -> None:
        self._totals["connections_closed"].pending.append(1)

    def _settle(self, now_ms: int) -> None:
        """Counts the stored values, with the time at which they were stored."""
        with self.lock:
            self._settle_at_ms = now_ms + SETTLE_MS
            for windows in [self._totals, *self._topics.values(), *self._nodes.values()]:
                for window in windows.values():
                    window.settle(self._turn_ms)

    # ---- callers that wait -------------------------------------------------------------------------------------

    def on_buffer_wait(self, *, wait_ns: int, now_ms: int) -> None:
        with self.lock:
            self._totals["buffer_wait_ns"].record(wait_ns, now_ms)

    def on_buffer_exhausted(self, *, records: int, now_ms: int) -> None:
        with self.lock:
            self._totals["buffer_exhausted"].record(records, now_ms)

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
            java = dict(totals.read(now_ms, "-total"))
            for name, duration_ns in self._call_ns.items():
                java[_CALL_TOTALS[name]] = duration_ns
            sums = {
                "batches": totals["bytes"].total_count,
                "batch-bytes": totals["bytes"].total,
                "produce-answers": totals["latency"].total_count,
                "produce-latency-ms": totals["latency"].total,
                "throttle-ms": totals["throttle_ms"].total,
            }
            return java, sums, self._retried.copy()

    def snapshot(self, now_ms: int) -> dict[MetricName, float]:
        """All current values; NaN for an average or maximum without values, as in Java."""
        self._settle(now_ms)
        found: dict[MetricName, float] = {}
        tags = self._client_tag
        with self.lock:
            for name, total_ns in self._call_ns.items():
                found[PRODUCER_GROUP, _CALL_TOTALS[name], tags] = total_ns
            records = self._totals["records"].window_sum(now_ms)
            per_request = _quotient(records, self._totals["latency"].window_count(now_ms))
            found[PRODUCER_GROUP, "records-per-request-avg", tags] = per_request
            size = _quotient(self._totals["record_bytes"].window_sum(now_ms), records)
            found[PRODUCER_GROUP, "record-size-avg", tags] = size
            groups: list[tuple[str, Tags, _Windows]] = [(PRODUCER_GROUP, tags, self._totals)]
            for topic, of_topic in list(self._topics.items()):
                groups.append((TOPIC_GROUP, (*tags, ("topic", topic)), of_topic))
            for node_id, of_node in list(self._nodes.items()):
                groups.append((NODE_GROUP, (*tags, ("node-id", f"node-{node_id}")), of_node))
            for group, group_tags, windows in groups:
                for name, value in windows.read(now_ms):
                    found[group, name, group_tags] = float(value)
        for name, read in self.gauges.items():
            found[PRODUCER_GROUP, name, tags] = float(read())
        return found
