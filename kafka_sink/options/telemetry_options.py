"""What leaves a job beside its rows: figures and lineage. Part of `SinkOptions` only where an option asks for any."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """`lineage_fields`: names and types of what is written, which planning knows and a commit does not."""

    prometheus_port: int | None = None
    prometheus_address: str = "0.0.0.0"
    pushgateway_url: str | None = None
    otlp_endpoint: str | None = None
    lineage_file: str | None = None
    lineage_url: str | None = None
    lineage_api_key_file: str | None = None
    lineage_namespace: str = "pykafka-sink"
    lineage_job: str | None = None
    timeout_ms: int = 2_000
    lineage_fields: tuple[tuple[str, str], ...] = ()

    @property
    def wants_lineage(self) -> bool:
        return self.lineage_file is not None or self.lineage_url is not None
