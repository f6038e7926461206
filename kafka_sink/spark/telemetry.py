"""Metrics and lineage of commits and aborts, and the exporter. Imported only if an option enables them.

Errors here are logged once and have no other effect: no batch fails because its report could not be sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_sink.error_table.brokers import NOT_TOLD
from kafka_sink.exactly_once.session import Conclusion
from kafka_sink.metrics.figures import ABORTED, ALREADY_DELIVERED, DELIVERED, FAILED, LEFT_OPEN, BatchReport
from kafka_sink.metrics.store import add_open_decisions, commit_error, note
from kafka_sink.metrics.trace_ids import sink_name
from kafka_sink.options.sink_options import TelemetryOptions
from kafka_sink.spark.driver import FinishedBatch, abort_batch, commit_batch
from kafka_sink.spark.files import application_folder
from kafka_sink.spark.log import warn_once

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kafka_sink.spark.columns import WrittenColumns


def begin_telemetry(telemetry: TelemetryOptions, columns: WrittenColumns, schema: StructType) -> TelemetryOptions:
    """At planning: starts the exporter, and passes the written columns to lineage."""
    folder = application_folder()
    if telemetry.prometheus_port is not None:
        with _log_failure("the Prometheus endpoint"):
            _serve(telemetry, folder)
    if not telemetry.wants_lineage:
        return telemetry
    places = [*zip(columns.names, columns.indices, strict=True), *columns.record]
    fields = tuple((name, schema.fields[index].dataType.simpleString()) for name, index in places)
    return replace(telemetry, lineage_fields=fields)


def _serve(telemetry: TelemetryOptions, folder: str | None) -> None:
    from kafka_sink.metrics.launch import ensure_exporter

    if folder is None:
        warn_once("Spark names no folder of this application here, so no figures can be kept and served")
        return
    problem = ensure_exporter(folder, telemetry.prometheus_address, telemetry.prometheus_port or 0)
    if problem:
        warn_once(f"figures are not served: {problem}")


def commit_and_report(batch: FinishedBatch) -> Conclusion:
    """Raises the commit's error after publishing it."""
    began_ms, began_s = _wall_ms(), time.monotonic()
    report = _make_report(batch, FAILED, began_ms)
    _send_lineage(batch, report, "START")
    try:
        conclusion = commit_batch(batch)
    except Exception as error:
        # The abort, which Spark calls next, reports the end of the lineage run.
        _publish(batch, _end_report(report, began_s, error=type(error).__name__, error_text=str(error)))
        raise
    outcome = ALREADY_DELIVERED if conclusion is Conclusion.ALREADY_DELIVERED else DELIVERED
    report = replace(_end_report(report, began_s), outcome=outcome)
    _publish(batch, report)
    _send_lineage(batch, report, "COMPLETE")
    return conclusion


def abort_and_report(batch: FinishedBatch) -> Conclusion | None:
    began_ms, began_s = _wall_ms(), time.monotonic()
    conclusion = abort_batch(batch)
    outcome = LEFT_OPEN if conclusion is Conclusion.LEFT_ALONE else ABORTED
    report = _end_report(_make_report(batch, outcome, began_ms), began_s)
    folder = application_folder()
    reason = "" if folder is None else commit_error(folder, report)
    if not reason:
        _send_lineage(batch, report, "START")  # there was no commit
    text = reason or "a task of the batch failed, or the process that committed it"
    report = replace(report, error_text=text, follows_commit=bool(reason))
    _publish(batch, report)
    _send_lineage(batch, report, "FAIL")
    return conclusion


def _make_report(batch: FinishedBatch, outcome: str, began_ms: int) -> BatchReport:
    options = batch.options
    return BatchReport(
        sink=sink_name(batch.sink_id, batch.key, options),
        query=options.query_name or "",
        key=batch.key,
        run=batch.run,
        client_id=options.producer.client_id or "pykafka-sink",
        outcome=outcome,
        receipts=batch.receipts,
        figures=batch.figures,
        began_ms=began_ms,
        ended_ms=began_ms,
        commit_ms=0.0,
        has_dead_letters=options.dead_letter_topic is not None,
    )


def _end_report(report: BatchReport, began_s: float, *, error: str = "", error_text: str = "") -> BatchReport:
    commit_ms = (time.monotonic() - began_s) * 1000
    ended_ms = report.began_ms + int(commit_ms)
    return replace(report, ended_ms=ended_ms, commit_ms=commit_ms, error=error, error_text=error_text)


def _publish(batch: FinishedBatch, report: BatchReport) -> None:
    telemetry, folder = batch.options.telemetry, application_folder()
    assert telemetry is not None
    if folder is None:
        warn_once("Spark names no folder of this application here, so no figures are kept")
        return
    with _log_failure("figures"):
        figures = note(folder, report)
        if telemetry.pushgateway_url is None and telemetry.otlp_endpoint is None:
            return
        figures = add_open_decisions(folder, figures)
        if telemetry.pushgateway_url is not None:
            with _log_failure("the Pushgateway"):
                from kafka_sink.metrics.push import push

                push(telemetry.pushgateway_url, figures, batch.options.producer, telemetry.timeout_ms)
        if telemetry.otlp_endpoint is not None:
            with _log_failure("the OpenTelemetry collector"):
                from kafka_sink.metrics.otlp import export  # its packages may be missing

                export(telemetry.otlp_endpoint, figures, report, batch.options.producer, telemetry.timeout_ms)


def _send_lineage(batch: FinishedBatch, report: BatchReport, event_type: str) -> None:
    telemetry = batch.options.telemetry
    if telemetry is None or not telemetry.wants_lineage or not any(each.written for each in batch.receipts):
        return
    from kafka_sink.lineage.send import send

    with _log_failure("lineage"):
        send(telemetry, report, event_type, batch.options.producer)


@contextmanager
def _log_failure(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        warn_once(f"{NOT_TOLD.name} {what}: {type(error).__name__}: {error}. Batches go on")


def _wall_ms() -> int:
    return int(time.time() * 1000)
