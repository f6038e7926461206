"""Metrics: the same figures as the Java client's for the same events, under the same names."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.formats.records.batch import HEADER_BYTES, EncodedBatch
from kafka_sink.kafka.client.commands import RequestObserved
from kafka_sink.kafka.wire.apis import METADATA, PRODUCE
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.engine.producer_batch import ProducerBatch
from kafka_sink.producer.metric_window import MetricWindow
from kafka_sink.producer.metrics import SETTLE_MS, TIMED_CALLS, ProducerMetrics

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "metric_windows_4.3.1.json").read_text())
CLIENT = (("client-id", "producer-7"),)


def same(measured: float, java: float | None) -> bool:
    return math.isnan(measured) if java is None else math.isclose(measured, java, rel_tol=1e-12, abs_tol=1e-12)


@pytest.mark.parametrize("run", GOLDEN["runs"], ids=lambda run: f"{run['samples']} samples")
def test_windows_measure_what_the_java_client_measures(run: dict[str, Any]) -> None:
    window = MetricWindow(run["samples"], GOLDEN["window_ms"])
    assert len(run["rows"]) == 120
    for now_ms, value, average, maximum, rate, count_rate, total in run["rows"]:
        if value is not None:
            window.record(value, now_ms)
        assert same(window.average(now_ms), average)
        assert same(window.maximum(now_ms), maximum)
        assert same(window.rate(now_ms), rate)
        assert same(window.count_rate(now_ms), count_rate)
        assert window.total == total


def test_values_that_were_put_aside_measure_what_each_alone_does() -> None:
    together, alone = MetricWindow(2, 1000), MetricWindow(2, 1000)
    for now_ms, values in ((0, [3.0, -1.0, 7.5]), (900, [0.0]), (1500, [2.0, 9.0]), (3100, [4.0])):
        together.pending.extend(values)
        together.settle(now_ms)
        together.settle(now_ms + 1)
        for value in values:
            alone.record(value, now_ms)
        for measure in (MetricWindow.average, MetricWindow.maximum, MetricWindow.rate, MetricWindow.count_rate):
            assert measure(together, now_ms) == measure(alone, now_ms)
        assert (together.total, together.total_count) == (alone.total, alone.total_count)


@pytest.mark.parametrize(
    "measure", [MetricWindow.maximum, MetricWindow.rate, MetricWindow.count_rate, MetricWindow.average]
)
def test_a_value_is_gone_after_the_window_whatever_is_asked_for_first(measure: Any) -> None:
    window = MetricWindow(2, 1000)
    window.record(5.0, 0)
    assert measure(window, 100) > 0
    assert not measure(window, 100_000) > 0


def metrics(**options: Any) -> ProducerMetrics:
    return ProducerMetrics(ProducerOptions(bootstrap_servers=(("b", 1),), client_id="producer-7", **options))


def drained(topic: str, records: int, batch_bytes: int, records_bytes: int, *, opened_ms: int) -> ProducerBatch:
    payload = bytes(batch_bytes - HEADER_BYTES)
    return ProducerBatch(topic, 0, EncodedBatch(0, payload, records, 0, 0, records_bytes), opened_ms)


def failing(records: int) -> ProducerBatch:
    return drained("a", records, 500, 1000, opened_ms=0)


def of_producer(subject: ProducerMetrics, now_ms: int) -> dict[str, float]:
    return {name: value for (group, name, tags), value in subject.snapshot(now_ms).items() if tags == CLIENT}


def tagged(subject: ProducerMetrics, key: str, value: str, now_ms: int) -> dict[str, float]:
    wanted = (*CLIENT, (key, value))
    return {name: found for (group, name, tags), found in subject.snapshot(now_ms).items() if tags == wanted}


def test_a_fresh_producer_has_nan_averages_zero_rates_and_zero_totals() -> None:
    for name, value in of_producer(metrics(), 1000).items():
        assert math.isnan(value) if name.endswith(("-avg", "-max")) else value == 0.0


def test_names_are_those_of_the_java_client() -> None:
    subject = metrics()
    subject.on_drained([drained("t", 1, 70, 9, opened_ms=0)])
    subject.on_request(1, request_bytes=100)
    names = {(group, name) for group, name, _ in subject.snapshot(0)}
    totals_of_calls = {f"{call}-time-ns-total" for call in TIMED_CALLS}
    assert totals_of_calls <= {name for _, name in names}
    for group, expected in {
        "producer-metrics": "batch-size-avg batch-size-max compression-rate-avg record-queue-time-avg "
        "record-queue-time-max request-latency-avg request-latency-max record-send-rate record-send-total "
        "records-per-request-avg record-retry-rate record-retry-total record-error-rate record-error-total "
        "record-size-avg batch-split-rate batch-split-total produce-throttle-time-avg produce-throttle-time-max "
        "bufferpool-wait-ratio bufferpool-wait-time-ns-total buffer-exhausted-rate buffer-exhausted-total "
        "connection-creation-rate connection-creation-total connection-close-rate connection-close-total "
        "network-io-rate network-io-total outgoing-byte-rate outgoing-byte-total request-rate request-total "
        "request-size-avg request-size-max incoming-byte-rate incoming-byte-total response-rate response-total "
        "select-rate select-total io-wait-time-ns-avg io-wait-ratio io-wait-time-ns-total io-time-ns-avg io-ratio "
        "io-time-ns-total",
        "producer-topic-metrics": "record-send-rate record-send-total byte-rate byte-total compression-rate "
        "record-retry-rate record-retry-total record-error-rate record-error-total",
        "producer-node-metrics": "request-rate request-total request-size-avg request-size-max outgoing-byte-rate "
        "outgoing-byte-total incoming-byte-rate incoming-byte-total response-rate response-total "
        "request-latency-avg request-latency-max",
    }.items():
        found = {name for found_group, name in names if found_group == group}
        assert found - totals_of_calls == set(expected.split())


@pytest.mark.parametrize("in_one_turn", [True, False])
def test_drained_batches_count_for_producer_and_topic(in_one_turn: bool) -> None:
    subject = metrics()
    a = drained("a", 10, 500, 1000, opened_ms=996)
    b = drained("b", 30, 3000, 3000, opened_ms=992 if in_one_turn else 1492)
    subject.on_turn(1000)
    if in_one_turn:
        subject.on_drained([a, b])
    else:
        subject.on_drained([a])
        subject.on_turn(1500)
        subject.on_drained([b])
    subject.on_turn(1600)
    subject.on_answer(RequestObserved(1, PRODUCE.key, 5, 0))
    found = of_producer(subject, 2000)
    assert (found["record-send-total"], found["record-size-avg"], found["records-per-request-avg"]) == (40, 100, 40)
    assert (found["batch-size-avg"], found["batch-size-max"]) == (1750, 3000)
    assert (found["record-queue-time-avg"], found["record-queue-time-max"]) == (6, 8)
    assert found["compression-rate-avg"] == 0.75
    assert found["record-send-rate"] == pytest.approx(40 / 31)
    topic = tagged(subject, "topic", "a", 2000)
    assert (topic["record-send-total"], topic["byte-total"], topic["compression-rate"]) == (10, 500, 0.5)


def test_retries_errors_and_splits_are_counted() -> None:
    subject = metrics()
    subject.on_retried(failing(3), None)
    subject.on_failed(failing(2))
    subject.on_split()
    found = of_producer(subject, 10)
    assert (found["record-retry-total"], found["record-error-total"], found["batch-split-total"]) == (3, 2, 1)
    topic = tagged(subject, "topic", "a", 10)
    assert (topic["record-retry-total"], topic["record-error-total"]) == (3, 2)


def test_latency_is_that_of_produce_requests_and_throttling_that_of_all() -> None:
    subject = metrics()
    subject.on_answer(RequestObserved(-2, METADATA.key, 900, 30))
    subject.on_answer(RequestObserved(1, PRODUCE.key, 5, 10))
    found = of_producer(subject, 10)
    assert (found["request-latency-max"], found["produce-throttle-time-avg"]) == (5, 20)
    assert (found["response-total"], found["network-io-total"]) == (2, 2)
    assert math.isnan(tagged(subject, "node-id", "node--2", 10)["request-latency-max"])
    node = tagged(subject, "node-id", "node-1", 10)
    assert (node["request-latency-avg"], node["response-total"]) == (5, 1)


def test_bytes_and_requests_are_counted_per_node() -> None:
    subject = metrics()
    subject.on_request(1, request_bytes=100)
    subject.on_request(1, request_bytes=300)
    subject.on_bytes_in(1, byte_count=50)
    node = tagged(subject, "node-id", "node-1", 10)
    assert (node["request-total"], node["request-size-avg"], node["request-size-max"]) == (2, 200, 300)
    assert (node["outgoing-byte-total"], node["incoming-byte-total"]) == (400, 50)
    found = of_producer(subject, 10)
    assert (found["outgoing-byte-total"], found["incoming-byte-total"], found["network-io-total"]) == (400, 50, 2)


def test_ratios_are_shares_of_the_window() -> None:
    subject = metrics(metrics_num_samples=1, metrics_sample_window_ms=10_000)
    subject.on_turn(0)
    subject.on_turn(1000, wait_ns=500_000_000, io_ns=100_000_000)
    subject.on_buffer_wait(wait_ns=0, now_ms=0)
    subject.on_buffer_wait(wait_ns=250_000_000, now_ms=1000)
    found = of_producer(subject, 1000)
    assert found["io-wait-ratio"] == pytest.approx(0.5)
    assert found["io-ratio"] == pytest.approx(0.1)
    assert found["bufferpool-wait-ratio"] == pytest.approx(0.25)
    assert (found["io-wait-time-ns-total"], found["select-total"]) == (500_000_000, 2)


def test_what_was_put_aside_counts_for_the_time_at_which_it_was() -> None:
    subject = metrics(metrics_num_samples=2, metrics_sample_window_ms=1000)
    subject.on_turn(0)
    subject.on_request(1, request_bytes=100)
    subject.on_turn(SETTLE_MS - 1)
    subject.on_request(1, request_bytes=200)
    found = of_producer(subject, 60_000)
    assert (found["request-total"], found["outgoing-byte-total"], found["request-rate"]) == (2, 300, 0)
    subject.on_turn(60_000)
    subject.on_request(1, request_bytes=300)
    assert of_producer(subject, 60_000)["request-size-avg"] == 300


def test_waiting_calls_and_connections_add_up() -> None:
    subject = metrics()
    subject.on_call("flush", duration_ns=5)
    subject.on_call("flush", duration_ns=6)
    subject.on_buffer_exhausted(records=4, now_ms=0)
    subject.on_connection_opened()
    subject.on_connection_opened()
    subject.on_connection_closed()
    found = of_producer(subject, 10)
    assert (found["flush-time-ns-total"], found["buffer-exhausted-total"]) == (11, 4)
    assert (found["connection-creation-total"], found["connection-close-total"]) == (2, 1)


def test_an_unknown_timed_call_is_an_error() -> None:
    with pytest.raises(KeyError):
        metrics().on_call("flash", duration_ns=5)


def test_gauges_are_asked_at_each_snapshot_and_may_feed_the_metrics_themselves() -> None:
    subject = metrics()
    level = [1]

    def read() -> float:
        # A gauge takes the producer's lock, which other threads hold when they update metrics. So a snapshot must not
        # hold the lock of the metrics while it reads a gauge.
        subject.on_call("flush", duration_ns=1)
        return level[0]

    subject.gauges["waiting-threads"] = read
    assert of_producer(subject, 0)["waiting-threads"] == 1.0
    level[0] = 5
    assert of_producer(subject, 0)["waiting-threads"] == 5.0


def test_totals_are_the_counters_of_a_snapshot_and_name_the_errors_of_retries() -> None:
    subject = metrics()
    subject.on_retried(failing(3), 6)
    subject.on_retried(failing(1), None)
    subject.on_retried(failing(1), None)
    subject.on_request(1, request_bytes=500)
    subject.on_call("flush", duration_ns=7)
    totals, sums, retried = subject.totals(5)
    snapshot = {name: value for (group, name, _), value in subject.snapshot(5).items() if group == "producer-metrics"}
    assert totals == {name: value for name, value in snapshot.items() if name.endswith("-total")}
    assert (totals["record-retry-total"], totals["outgoing-byte-total"]) == (5, 500)
    assert retried == {6: 3, None: 2} and subject.retried_record_count == 5 and set(sums.values()) == {0}
