"""Sends metrics and spans to an OpenTelemetry collector, with its SDK's exporters (the extra `otlp`).

The metrics cover the stream since its application began, whichever process sends them, so they are sent as cumulative
values that start with the stream; meters of the SDK would restart in each of Spark's processes. Spans are made from the
reports of tasks and commit: one of the micro-batch, with one child per task. Names follow the semantic conventions of
messaging where there are any.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.errors import TransportError
from kafka_sink.kafka.io.per_process import PerProcess
from kafka_sink.kafka.io.shelf import Shelf
from kafka_sink.kafka.io.side_by_side import call_side_by_side
from kafka_sink.options import ProducerOptions
from kafka_sink.telemetry.metrics.breaker import circuit_breaker
from kafka_sink.telemetry.metrics.definitions import BUCKETS_S, METRICS, MetricKind
from kafka_sink.telemetry.metrics.definitions import Metric as Definition
from kafka_sink.telemetry.metrics.figures import BatchReport, TaskFigures
from kafka_sink.telemetry.metrics.stream_figures import StreamFigures
from kafka_sink.telemetry.metrics.trace_ids import TraceIds
from kafka_sink.version import VERSION

PREFIX = "pykafka_sink."
SERVICE = "pykafka-sink"
SCOPE = InstrumentationScope("kafka_sink", VERSION)
NS_PER_MS = 1_000_000
_CUMULATIVE = AggregationTemporality.CUMULATIVE
# They keep a connection; by endpoint and time limit.
Exporters = tuple[OTLPSpanExporter, OTLPMetricExporter]
IDLE_EXPORTERS_MAX = 8
EXPORTERS: PerProcess[Shelf[tuple[str, float], Exporters]] = PerProcess(lambda: Shelf(IDLE_EXPORTERS_MAX))


def export(
    endpoint: str, figures: StreamFigures | None, report: BatchReport, options: ProducerOptions, timeout_ms: int,
    instance: str,
) -> None:  # fmt: skip
    """`figures` None: they have been sent. `instance` is that of the application."""
    with circuit_breaker(endpoint) as is_wanted:
        if not is_wanted:
            return
        receiver = endpoint, timeout_ms / 1000
        spans, metrics = exporters = EXPORTERS.value.take(receiver) or _make_exporters(*receiver)
        resource = _resource(instance)
        of_batch = spans_of(report, options, resource)
        exports = [lambda: spans.export(of_batch) is SpanExportResult.SUCCESS]
        if figures is not None:
            # Newer batches of other threads may be among them.
            now_ms = max([report.ended_ms, *(each["ended_ms"] for each in figures.recent)])
            of_stream = metrics_of(figures, now_ms * NS_PER_MS, resource)
            exports.append(lambda: metrics.export(of_stream, timeout_ms) is MetricExportResult.SUCCESS)
        # The exporters' own timeout is per read.
        answers = call_side_by_side(exports, timeout_ms / 1000)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        if not all(answers):
            raise TransportError(f"{endpoint} did not take figures and spans within {timeout_ms} ms")
        EXPORTERS.value.put(receiver, exporters)


def _make_exporters(endpoint: str, timeout_s: float) -> Exporters:
    spans = OTLPSpanExporter(f"{endpoint}/v1/traces", timeout=timeout_s)
    return spans, OTLPMetricExporter(f"{endpoint}/v1/metrics", timeout=timeout_s)


@cache
def _resource(instance: str) -> Resource:
    """The environment (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) takes precedence."""
    own = {"service.instance.id": instance}
    if not os.environ.get("OTEL_SERVICE_NAME"):
        own["service.name"] = SERVICE
    chosen = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({name: value for name, value in own.items() if f"{name}=" not in chosen})


# ---- metrics ---------------------------------------------------------------------------------------------------------


def metrics_of(figures: StreamFigures, now_ns: int, resource: Resource) -> MetricsData:
    began_ns = figures.began_ms * NS_PER_MS
    found = [metric for each in METRICS if (metric := _metric(each, figures, began_ns, now_ns)) is not None]
    scopes = [ScopeMetrics(SCOPE, found, "")]
    return MetricsData([ResourceMetrics(resource, scopes, "")])


def _metric(each: Definition, figures: StreamFigures, began_ns: int, now_ns: int) -> Metric | None:
    data: Sum | Gauge | Histogram
    if each.kind is MetricKind.HISTOGRAM:
        if each.name not in figures.histograms:
            return None
        data = Histogram([_histogram(each, figures, began_ns, now_ns)], _CUMULATIVE)
    else:
        values = figures.values.get(each.name)
        if not values:
            return None
        points = [
            NumberDataPoint(_attributes(each, figures, label), began_ns, now_ns, float(value))
            for label, value in sorted(values.items())
        ]
        data = Sum(points, _CUMULATIVE, True) if each.kind is MetricKind.COUNTER else Gauge(points)
    return Metric(each.otel or PREFIX + each.name, each.meaning, each.unit, data)


def _histogram(each: Definition, figures: StreamFigures, began_ns: int, now_ns: int) -> HistogramDataPoint:
    counts, total = figures.histograms[each.name]
    unknown = cast(float, None)  # minimum and maximum are optional in the protocol
    return HistogramDataPoint(
        _attributes(each, figures, ""), began_ns, now_ns, sum(counts), total, counts, BUCKETS_S, unknown, unknown
    )


def _attributes(each: Definition, figures: StreamFigures, label: str) -> dict[str, str]:
    found = {f"pykafka_sink.{name}": value for name, value in figures.labels.items()}
    if each.otel:
        found |= {"messaging.system": "kafka", "messaging.operation.name": "send", "messaging.operation.type": "send"}
    if each.label == "topic":
        found["messaging.destination.name"] = label
    elif each.label:
        found["error.type" if each.label == "error" else f"pykafka_sink.{each.label}"] = label
    return found


# ---- spans -----------------------------------------------------------------------------------------------------------


def spans_of(report: BatchReport, options: ProducerOptions, resource: Resource) -> list[ReadableSpan]:
    """The micro-batch first. Its trace id is made from run and batch, so that a log line leads to it. The abort after a
    failed commit is a separate span: no span is sent twice."""
    ids = TraceIds(report.sink, report.query, report.key, report.run)
    of_batch = _context(ids.trace_id, ids.span_of_batch)
    if report.follows_commit:
        return [_span_of_batch(report, options, resource, _context(ids.trace_id, ids.span_of_abort), parent=of_batch)]
    spans = [_span_of_batch(report, options, resource, of_batch)]
    for receipt, figures in zip(report.receipts, report.figures, strict=True):
        if figures is not None:
            context = _context(ids.trace_id, ids.span_of_task(receipt.spark_partition, receipt.attempt))
            spans.append(_span_of_task(report, receipt, figures, options, resource, of_batch, context))
    return spans


def _span_of_batch(
    report: BatchReport, options: ProducerOptions, resource: Resource, context: SpanContext, *,
    parent: SpanContext | None = None,
) -> ReadableSpan:  # fmt: skip
    attributes = {
        **_broker(report, options),
        "pykafka_sink.outcome": report.outcome,
        "pykafka_sink.commit_ms": round(report.commit_ms, 3),
        "messaging.batch.message_count": sum(each.row_count for each in report.receipts),
        **({"error.type": report.error} if report.error else {}),
    }
    has_failed = report.outcome not in ("delivered", "already_delivered")
    after_commit = ("abort" if has_failed else "recovery", report.began_ms)
    kind, began_ms = ("micro-batch", report.first_task_ms) if parent is None else after_commit
    return ReadableSpan(
        f"{kind} {report.query or report.sink}".rstrip(), context, parent=parent, resource=resource,
        attributes=attributes, kind=SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, report.error_text) if has_failed else Status(),
        start_time=began_ms * NS_PER_MS, end_time=report.ended_ms * NS_PER_MS, instrumentation_scope=SCOPE,
    )  # fmt: skip


def _span_of_task(
    report: BatchReport, receipt: TaskReceipt, figures: TaskFigures, options: ProducerOptions, resource: Resource,
    parent: SpanContext, context: SpanContext,
) -> ReadableSpan:  # fmt: skip
    topics = sorted({written.topic for written in receipt.written})
    attributes: dict[str, Any] = {
        **_broker(report, options),
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": receipt.row_count,
        "messaging.client.id": report.client_id,
        "pykafka_sink.spark_partition": receipt.spark_partition,
        "pykafka_sink.task_attempt_id": receipt.attempt,
        "pykafka_sink.prepare_ms": round(figures.prepare_ms, 3),
        "pykafka_sink.retried_records": receipt.retry_count,
    }
    if len(topics) == 1:
        attributes["messaging.destination.name"] = topics[0]
        if len(receipt.written) == 1:
            attributes["messaging.destination.partition.id"] = str(receipt.written[0].partition)
    took_ms = figures.send_ms + figures.prepare_ms
    return ReadableSpan(
        f"send {topics[0]}" if len(topics) == 1 else "send", context, parent=parent, resource=resource,
        attributes=attributes, kind=SpanKind.PRODUCER, start_time=figures.began_ms * NS_PER_MS,
        end_time=figures.began_ms * NS_PER_MS + int(took_ms * NS_PER_MS), instrumentation_scope=SCOPE,
    )  # fmt: skip


def _broker(report: BatchReport, options: ProducerOptions) -> Mapping[str, Any]:
    host, port = options.bootstrap_servers[0]
    found: dict[str, Any] = {
        "messaging.system": "kafka", "server.address": host, "server.port": port, "pykafka_sink.run": report.run,
        "pykafka_sink.sink": report.sink, "pykafka_sink.query": report.query,
        "pykafka_sink.query_id": report.key.query_id, "pykafka_sink.batch_id": str(report.key.batch_id),
    }  # fmt: skip
    return found


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
