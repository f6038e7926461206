"""Pushes metrics to a Prometheus Pushgateway: those of one stream, as one group that replaces the previous one."""

from __future__ import annotations

import base64
from functools import partial

from kafka_sink.errors import TransportError, foreign_text
from kafka_sink.kafka.io.tls import endpoint_context
from kafka_sink.kafka.io.web import ask, redact_url
from kafka_sink.options import SecurityOptions
from kafka_sink.telemetry.metrics.breaker import circuit_breaker
from kafka_sink.telemetry.metrics.prometheus_text import CONTENT_TYPE, prometheus_text
from kafka_sink.telemetry.metrics.stream_figures import StreamFigures

JOB = "pykafka-sink"
ANSWER_BYTES_MAX = 64 * 1024


def push(url: str, figures: StreamFigures, options: SecurityOptions, timeout_ms: int) -> None:
    with circuit_breaker(url) as is_wanted:
        if not is_wanted:
            return
        answer = ask(
            f"the Pushgateway {redact_url(url)}", partial(endpoint_context, options), url + group_path(figures),
            method="PUT", headers={"Content-Type": CONTENT_TYPE}, body=prometheus_text([figures]).encode(),
            bytes_max=ANSWER_BYTES_MAX, timeouts_ms=(timeout_ms, timeout_ms),
        )  # fmt: skip
        if not answer.is_good:
            text = foreign_text(answer.body.decode(errors="replace").strip())
            raise TransportError(f"the Pushgateway {redact_url(url)} answered {answer.status}: {text}")


def group_path(figures: StreamFigures) -> str:
    """Values in base64, since a path cannot contain a slash or an empty value."""
    path = f"/metrics/job/{JOB}"
    for name, value in figures.labels.items():
        path += f"/{name}@base64/{base64.urlsafe_b64encode(value.encode()).decode().rstrip('=') or '='}"
    return path
