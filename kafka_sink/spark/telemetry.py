"""Metrics and lineage of commits and aborts, and the exporter. Imported only if an option enables them.

Errors here are logged once and have no other effect: no batch fails because its report could not be sent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_sink.commit.session import Conclusion
from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.brokers import NOT_TOLD
from kafka_sink.errors.table.writes import CREDENTIALS_IN_CLEAR
from kafka_sink.kafka.io.warn_once import warn_once
from kafka_sink.options.host.operator_rules import check_file_is_allowed, check_variable_is_allowed
from kafka_sink.options.sink_options import TelemetryOptions
from kafka_sink.security.this_host import is_url_of_this_host
from kafka_sink.spark.client_id import client_id_of
from kafka_sink.spark.driver import FinishedBatch, abort_batch, commit_batch
from kafka_sink.spark.files import application_folder
from kafka_sink.spark.process import own_jvm
from kafka_sink.telemetry.metrics.figures import ABORTED, ALREADY_DELIVERED, DELIVERED, FAILED, LEFT_OPEN, BatchReport
from kafka_sink.telemetry.metrics.store import newest_in_turn, note, told_before
from kafka_sink.telemetry.metrics.trace_ids import instance_of, sink_name

_HEADERS = (
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kafka_sink.spark.columns import WrittenColumns
    from kafka_sink.telemetry.metrics.stream_figures import StreamFigures


def begin_telemetry(telemetry: TelemetryOptions, columns: WrittenColumns, schema: StructType) -> TelemetryOptions:
    """At planning: starts the exporter, and passes the written columns to lineage."""
    if telemetry.prometheus_port is not None:
        with _log_failure("the Prometheus endpoint"):
            from kafka_sink.telemetry.metrics.launch import ensure_exporter

            folder = application_folder()
            if folder is None:
                warn_once("Spark names no folder of this application here, so no figures can be kept and served")
            elif problem := ensure_exporter(folder, telemetry.prometheus_address, telemetry.prometheus_port, own_jvm()):
                warn_once(f"figures are not served: {problem}")
    if telemetry.otlp_endpoint is not None:
        _check_collector(telemetry.otlp_endpoint)
    if not telemetry.wants_lineage:
        return telemetry
    if telemetry.lineage_file is not None:
        check_file_is_allowed("lineage.file", Path(telemetry.lineage_file))
    places = [*zip(columns.names, columns.indices, strict=True), *columns.record]
    fields = tuple((name, schema.fields[index].dataType.simpleString()) for name, index in places)
    return replace(telemetry, lineage_fields=fields)


def _check_collector(endpoint: str) -> None:
    """OpenTelemetry's exporters send what these variables of the driver hold, such as an API key, wherever an option
    says."""
    for name in (each for each in _HEADERS if os.environ.get(each)):
        check_variable_is_allowed("metrics.otlp.endpoint", name)
        if not endpoint.lower().startswith("https://") and not is_url_of_this_host(endpoint):
            raise ConfigError(
                f"what {name} of the driver's environment holds would cross the network in clear to "
                "metrics.otlp.endpoint: give an address with https://, or a collector on this host",
                CREDENTIALS_IN_CLEAR,
            )


def commit_and_report(batch: FinishedBatch) -> Conclusion:
    """Raises the commit's error after publishing it."""
    began = _now()
    _send_lineage(batch, _make_report(batch, FAILED, began), "START")
    try:
        conclusion = commit_batch(batch)
    except Exception as error:
        # The abort, which Spark calls next, reports the end of the lineage run.
        _publish(batch, _make_report(batch, FAILED, began, error=type(error).__name__, error_text=str(error)))
        raise
    outcome = ALREADY_DELIVERED if conclusion is Conclusion.ALREADY_DELIVERED else DELIVERED
    report = _make_report(batch, outcome, began)
    _publish(batch, report)
    _send_lineage(batch, report, "COMPLETE")
    return conclusion


def abort_and_report(batch: FinishedBatch) -> Conclusion | None:
    """The abort of a batch write may have finished its decision, so that all of its rows are visible."""
    began = _now()
    conclusion = abort_batch(batch)
    outcome = DELIVERED if conclusion is Conclusion.RECOVERED else ABORTED
    report = _make_report(batch, LEFT_OPEN if conclusion is Conclusion.LEFT_ALONE else outcome, began)
    folder = application_folder()
    told, reason = ("", "") if folder is None else told_before(folder, report)
    if conclusion is Conclusion.RECOVERED and told in (DELIVERED, ALREADY_DELIVERED):
        return conclusion  # by its commit, which was interrupted after that
    follows_commit = told == FAILED
    if not follows_commit:
        _send_lineage(batch, report, "START")  # there was no commit, or it told nothing
    text = reason if follows_commit else "a task of the batch failed, or the process that committed it"
    report = replace(report, error_text="" if report.outcome == DELIVERED else text, follows_commit=follows_commit)
    _publish(batch, report)
    _send_lineage(batch, report, "COMPLETE" if report.outcome == DELIVERED else "FAIL")
    return conclusion


def _now() -> tuple[int, float]:
    """Milliseconds of the clock, and seconds that no change of the clock affects."""
    return int(time.time() * 1000), time.monotonic()


def _make_report(
    batch: FinishedBatch, outcome: str, began: tuple[int, float], *, error: str = "", error_text: str = ""
) -> BatchReport:
    """Of a commit or an abort that began then and ends now."""
    options, began_ms = batch.options, began[0]
    commit_ms = (time.monotonic() - began[1]) * 1000
    return BatchReport(
        sink=sink_name(batch.sink_id, batch.key, options),
        query=options.query_name or "",
        key=batch.key,
        run=batch.run,
        client_id=client_id_of(options),
        outcome=outcome,
        receipts=batch.receipts,
        figures=batch.figures,
        began_ms=began_ms,
        ended_ms=began_ms + int(commit_ms),
        commit_ms=commit_ms,
        has_dead_letters=options.dead_letter_topic is not None,
        error=error,
        error_text=error_text,
    )


def _publish(batch: FinishedBatch, report: BatchReport) -> None:
    telemetry, folder = batch.options.telemetry, application_folder()
    assert telemetry is not None
    if folder is None:
        warn_once("Spark names no folder of this application here, so no figures are kept")
        return
    with _log_failure("figures"):
        number = note(folder, report)
        if telemetry.pushgateway_url is None and telemetry.otlp_endpoint is None:
            return
        with newest_in_turn(folder, report, number, 2 * telemetry.timeout_ms / 1000) as figures:
            _send_figures(batch, report, figures, instance_of(folder))


def _send_figures(batch: FinishedBatch, report: BatchReport, figures: StreamFigures | None, instance: str) -> None:
    """None: only the spans of this batch are left to be sent."""
    telemetry, security = batch.options.telemetry, batch.options.producer
    assert telemetry is not None
    if telemetry.pushgateway_url is not None and figures is not None:
        with _log_failure("the Pushgateway"):
            from kafka_sink.telemetry.metrics.push import push

            push(telemetry.pushgateway_url, figures, security, telemetry.timeout_ms)
    if telemetry.otlp_endpoint is not None:
        with _log_failure("the OpenTelemetry collector"):
            from kafka_sink.telemetry.metrics.otlp import export  # its packages may be missing

            export(telemetry.otlp_endpoint, figures, report, security, telemetry.timeout_ms, instance)


def _send_lineage(batch: FinishedBatch, report: BatchReport, event_type: str) -> None:
    telemetry = batch.options.telemetry
    if telemetry is None or not telemetry.wants_lineage or not any(each.written for each in batch.receipts):
        return
    from kafka_sink.telemetry.lineage.send import send

    with _log_failure("lineage"):
        send(telemetry, report, event_type, batch.options.producer)


@contextmanager
def _log_failure(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        warn_once(f"{NOT_TOLD.name} {what}: {type(error).__name__}: {error}. Batches go on")
