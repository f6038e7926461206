"""Pushes metrics to a Prometheus Pushgateway: those of one stream, as one group that replaces the previous one."""

from __future__ import annotations

import base64

from kafka_sink.errors import TransportError, foreign_text
from kafka_sink.kafka.io.web import HttpAnswer, redact_url
from kafka_sink.options import SecurityOptions
from kafka_sink.telemetry.metrics.breaker import circuit_breaker
from kafka_sink.telemetry.metrics.prometheus_text import CONTENT_TYPE, prometheus_text
from kafka_sink.telemetry.metrics.receiver import ILL_FROM, certificates_for, send_to_receiver
from kafka_sink.telemetry.metrics.stream_figures import StreamFigures

JOB = "pykafka-sink"


def push(url: str, figures: StreamFigures, options: SecurityOptions, timeout_ms: int) -> None:
    with circuit_breaker(url, certificates_for(url, options)) as is_wanted:
        if not is_wanted:
            return
        text = prometheus_text([figures]).encode()
        receiver, headers = f"the Pushgateway {redact_url(url)}", {"Content-Type": CONTENT_TYPE}
        answer = send_to_receiver(receiver, "PUT", url + group_path(figures), headers, text, options, timeout_ms)
        refusal = None if answer.is_good else _refusal_error(receiver, answer)
        if refusal is not None and answer.status >= ILL_FROM:
            raise refusal
    if refusal is not None:
        raise refusal


def _refusal_error(receiver: str, answer: HttpAnswer) -> TransportError:
    said = foreign_text(answer.body.decode(errors="replace").strip())
    return TransportError(f"{receiver} answered {answer.status}: {said}")


def group_path(figures: StreamFigures) -> str:
    """Values in base64, since a path cannot contain a slash or an empty value."""
    path = f"/metrics/job/{JOB}"
    for name, value in figures.labels.items():
        path += f"/{name}@base64/{base64.urlsafe_b64encode(value.encode()).decode().rstrip('=') or '='}"
    return path
