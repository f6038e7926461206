"""The options of metrics, traces and lineage as rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafka_sink.error_table.writes import TELLING_OPTION
from kafka_sink.errors import ConfigError
from kafka_sink.frozen import frozen
from kafka_sink.options.option import own_option
from kafka_sink.options.values import Flag, Text, Whole, refuse

if TYPE_CHECKING:
    from kafka_sink.options.telemetry_options import TelemetryOptions

_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#@]*)?")
ENABLED = "metrics.enabled"
_TEXT = Text(empty_allowed=False)


@frozen
class PlainUrl:
    """Neither a user nor a query: what is secret does not belong into an option that Spark hands on."""

    valid: str = "an http:// or https:// address without user and query"

    def parse(self, name: str, value: object) -> str:
        text = value.strip() if isinstance(value, str) else ""
        if not _URL.fullmatch(text):
            raise refuse(name, "***@" + text.rpartition("@")[2] if "@" in text else value, self.valid)
        return text.rstrip("/")


_own = own_option


TELEMETRY_ROWS = (
    _own(ENABLED, False, Flag(), "Count rows, bytes, retries and times of each task and micro-batch, for "
         "kafka_sink.sink_metrics(spark) in a notebook. Every other option that begins with metrics. turns this on."),
    _own("metrics.prometheus.port", None, Whole(1, 65535), "Serve the figures of all streams of this application as "
         "Prometheus text on this port of the driver's host, at /metrics."),
    _own("metrics.prometheus.address", "0.0.0.0", _TEXT, "The address that the port listens at."),
    _own("metrics.pushgateway.url", None, PlainUrl(), "Push the figures to a Prometheus Pushgateway after each batch: "
         "for jobs that are over before anybody scrapes them."),
    _own("metrics.otlp.endpoint", None, PlainUrl(), "Send figures and spans (one for each micro-batch, one for each "
         "task) after each batch to an OpenTelemetry collector by OTLP over HTTP, such as http://collector:4318. Needs "
         "pykafka-sink[otlp] on the driver; headers and attributes come from the environment (OTEL_*)."),
    _own("metrics.timeout.ms", 2_000, Whole(1, 2**31 - 1), "How long a commit waits for a Pushgateway, a collector or "
         "lineage.url. One that does not answer is left out for 30 seconds; no batch fails for it."),
    _own("traceparent.column", None, _TEXT, "The string column whose text is the header traceparent of its record, as "
         "W3C Trace Context has it. It takes the place of such a header in the column headers. A null, and a text that "
         "is no traceparent, leave the row as it is. The column is part of the value all the same, unless "
         "value.columns leaves it out."),
    _own("traceparent.task", False, Flag(), "Records that have no header traceparent otherwise get one that points to "
         "the span of their task. Needs metrics.otlp.endpoint, where that span goes."),
    _own("lineage.file", None, _TEXT, "Append OpenLineage events to this file on the driver, one JSON object a line."),
    _own("lineage.url", None, PlainUrl(), "Send OpenLineage events there, such as http://marquez:5000; /api/v1/lineage "
         "is put behind an address without a path."),
    _own("lineage.api.key.file", None, _TEXT, "A file on the driver with the key that lineage.url wants as a bearer "
         "token. Read for each event, so it may be replaced."),
    _own("lineage.namespace", "pykafka-sink", _TEXT, "The namespace of the job in lineage events."),
    _own("lineage.job", None, _TEXT, "The name of the job in lineage events; without it the query's name, or the sink "
         "id."),
)  # fmt: skip


# Of these one has to be there for the other to mean anything.
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "metrics.prometheus.address": ("metrics.prometheus.port",),
    "metrics.timeout.ms": ("metrics.pushgateway.url", "metrics.otlp.endpoint", "lineage.url"),
    "traceparent.task": ("metrics.otlp.endpoint",),
    "lineage.api.key.file": ("lineage.url",),
    "lineage.namespace": ("lineage.file", "lineage.url"),
    "lineage.job": ("lineage.file", "lineage.url"),
}
_ASKING = ("metrics.prometheus.port", "metrics.pushgateway.url", "metrics.otlp.endpoint", "lineage.file", "lineage.url")
_LOCAL = re.compile(r"http://(localhost|127\.[0-9.]+|\[::1\])([:/]|$)")


def check_telemetry(own: Mapping[str, Any]) -> None:
    defaults = {row.name: row.default for row in TELEMETRY_ROWS}
    for name, needed in _NEEDS.items():
        if own[name] != defaults[name] and all(own[each] is None for each in needed):
            raise ConfigError(f"{name} is set, and nothing uses it without {' or '.join(needed)}", TELLING_OPTION)
    url = own["lineage.url"] or ""
    if own["lineage.api.key.file"] is not None and not url.startswith("https:") and not _LOCAL.match(url):
        raise ConfigError("lineage.api.key.file needs a lineage.url with https://: a key is sent there", TELLING_OPTION)


def wanted_telemetry(own: Mapping[str, Any]) -> TelemetryOptions | None:
    """`TelemetryOptions`, or None if no option asks for figures or lineage."""
    if not own[ENABLED] and all(own[name] is None for name in _ASKING):
        return None
    from kafka_sink.options.telemetry_options import TelemetryOptions

    return TelemetryOptions(
        prometheus_port=own["metrics.prometheus.port"],
        prometheus_address=own["metrics.prometheus.address"],
        pushgateway_url=own["metrics.pushgateway.url"],
        otlp_endpoint=own["metrics.otlp.endpoint"],
        lineage_file=own["lineage.file"],
        lineage_url=own["lineage.url"],
        lineage_api_key_file=own["lineage.api.key.file"],
        lineage_namespace=own["lineage.namespace"],
        lineage_job=own["lineage.job"],
        timeout_ms=own["metrics.timeout.ms"],
    )
