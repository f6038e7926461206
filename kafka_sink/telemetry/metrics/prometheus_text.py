"""Metrics in Prometheus' text format 0.0.4, each family once, with the samples of all streams.

Counters with the Java client's names get the names of Prometheus' JMX exporter, so that dashboards for Java producers
work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kafka_sink.telemetry.metrics.definitions import BUCKETS_S, METRICS, Metric, MetricKind
from kafka_sink.telemetry.metrics.stream_figures import StreamFigures

PREFIX = "pykafka_sink_"
JAVA_PREFIX = "kafka_producer_producer_metrics_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def family_name(metric: Metric) -> str:
    return PREFIX + metric.name + ("_total" if metric.kind is MetricKind.COUNTER else "")


def java_family_name(name: str) -> str:
    return JAVA_PREFIX + name.replace("-", "_")


def prometheus_text(streams: Sequence[StreamFigures]) -> str:
    lines: list[str] = []
    for metric in METRICS:
        samples = [line for stream in streams for line in _samples(metric, stream)]
        if samples:
            lines += [*heading(family_name(metric), metric.kind, metric.meaning), *samples]
    for name in sorted({name for stream in streams for name in stream.java}):
        family = java_family_name(name)
        lines += heading(family, MetricKind.COUNTER, f"{name} of the Java client, summed over the tasks.")
        for stream in streams:
            if name in stream.java:
                labels = {**stream.labels, "client_id": stream.client_id}
                lines.append(f"{family}{labels_text(labels)} {number_text(stream.java[name])}")
    return "\n".join(lines) + "\n"


def heading(family: str, kind: MetricKind, meaning: str) -> Iterable[str]:
    escaped = meaning.replace("\\", "\\\\").replace("\n", "\\n")
    return (f"# HELP {family} {escaped}", f"# TYPE {family} {kind.value}")


def _samples(metric: Metric, stream: StreamFigures) -> Iterator[str]:
    family = family_name(metric)
    if metric.kind is MetricKind.HISTOGRAM:
        yield from _histogram(family, metric.name, stream)
        return
    for label, value in sorted(stream.values.get(metric.name, {}).items()):
        labels = {**stream.labels, metric.label: label} if metric.label else stream.labels
        yield f"{family}{labels_text(labels)} {number_text(value)}"


def _histogram(family: str, name: str, stream: StreamFigures) -> Iterator[str]:
    if name not in stream.histograms:
        return
    counts, total = stream.histograms[name]
    count = 0
    for bound, more in zip((*BUCKETS_S, math.inf), counts, strict=True):
        count += more
        yield f"{family}_bucket{labels_text({**stream.labels, 'le': number_text(bound)})} {count}"
    yield f"{family}_sum{labels_text(stream.labels)} {number_text(total)}"
    yield f"{family}_count{labels_text(stream.labels)} {count}"


def labels_text(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number_text(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
