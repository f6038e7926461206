"""What receivers are told of a stream: Prometheus, a Pushgateway, OpenTelemetry, OpenLineage, a notebook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import Gauge, Histogram, MetricExportResult, Sum
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanKind
from opentelemetry.trace.status import StatusCode

from kafka_sink.commit.receipt import BatchKey, PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.errors import TransportError
from kafka_sink.kafka.io.shelf import Shelf
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.telemetry.lineage.events import namespace_of, run_event
from kafka_sink.telemetry.metrics import figures as figures_module
from kafka_sink.telemetry.metrics import otlp
from kafka_sink.telemetry.metrics.definitions import BUCKETS_S
from kafka_sink.telemetry.metrics.figures import (
    ABORTED,
    ALREADY_DELIVERED,
    DELIVERED,
    FAILED,
    LEFT_OPEN,
    BatchReport,
    ProducerTotals,
    TaskFigures,
    TaskMeter,
)
from kafka_sink.telemetry.metrics.notebook import SinkMetrics
from kafka_sink.telemetry.metrics.otlp import metrics_of, spans_of
from kafka_sink.telemetry.metrics.prometheus_text import number_text, prometheus_text
from kafka_sink.telemetry.metrics.push import group_path
from kafka_sink.telemetry.metrics.stream_figures import StreamFigures, stream_of
from kafka_sink.telemetry.metrics.trace_ids import TraceIds, instance_of, sink_name
from tests.support.counted_name import CountedName, written_names

NS = 1_000_000
KEY = BatchKey("q-1", 4)
FIRST = TaskReceipt(
    KEY, "run", 0, 11, transaction=PreparedTransaction("s-run-0-11", 1, 0, 2), timeout_ms=1000, remaining_ms=900,
    written=(WrittenPartition("a", 3, 3, 0, 2),), row_count=3, bytes=30, retry_count=2,
)  # fmt: skip
SECOND = replace(
    FIRST, spark_partition=1, attempt=12, transaction=None, row_count=5, bytes=10,
    written=(WrittenPartition("a", 0, 1, 7, 7), WrittenPartition("b", 0, 4, 1, 4)),
)  # fmt: skip
TOTALS = ProducerTotals({"record-send-total": 6.0}, {"record_batches": 3}, {"NO_ANSWER": 2})
OF_FIRST = TaskFigures(1, 5_000, 30.0, 2.5, True, TOTALS)
REPORT = BatchReport(
    "s", 'or"d\\ers', KEY, "run", "c-1", DELIVERED, (FIRST, SECOND), (OF_FIRST, None), 6_000, 6_100, 100.25
)
OPTIONS = parse_producer_options({"bootstrap.servers": "h:9092,i:9093"})
RESOURCE = Resource({"service.name": otlp.SERVICE})


def stream(*reports: BatchReport) -> StreamFigures:
    found = stream_of(reports[0])
    for each in reports:
        found.take(each)
    return found


# ---- tasks -----------------------------------------------------------------------------------------------------------


class Busy:
    """A producer whose every counter grows by one with each question, from different numbers on."""

    def __init__(self) -> None:
        self.asked = 0

    def totals(self) -> tuple[dict[str, float], dict[str, float], dict[int | None, int]]:
        self.asked += 1
        n = self.asked
        java = {"bufferpool-wait-time-ns-total": 1e9 * n, "batch-split-total": 20 + 2 * n, "record-send-total": 7 * n}
        names = ("batches", "batch-bytes", "produce-answers", "produce-latency-ms", "throttle-ms")
        sums = {name: float(1000 * (place + 1) * n) for place, name in enumerate(names)}
        return java, sums, {None: 3 * n, 6: 5 * n, 7: 1}


def test_a_tasks_figures_are_what_its_producer_did_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([50.0, 50.25, 50.75])
    monkeypatch.setattr(figures_module, "time", SimpleNamespace(time=lambda: 1.5, monotonic=lambda: next(clock)))
    meter, producer = TaskMeter(2), Busy()
    assert meter.figures is None
    meter.begin(producer)  # type: ignore[arg-type]
    meter.on_sent()
    meter.end(producer, has_new_id=True)  # type: ignore[arg-type]
    java = {"bufferpool-wait-time-ns-total": 1e9, "batch-split-total": 2, "record-send-total": 7}
    own = {
        "record_batches": 1000, "record_batch_bytes": 2000, "produce_requests": 3000, "produce_request_seconds": 4.0,
        "throttle_seconds": 5.0, "buffer_wait_seconds": 1.0, "split_batches": 2,
    }  # fmt: skip
    totals = ProducerTotals(java, own, {"NO_ANSWER": 3, "NOT_LEADER_OR_FOLLOWER": 5})
    assert meter.figures == TaskFigures(2, 1_500, 250.0, 500.0, True, totals)


def test_a_value_at_the_bound_of_a_bucket_is_in_it() -> None:
    found = stream_of(REPORT)
    for value in (0.0, 0.005, 0.0051, 1.0, 300.0, 300.5):
        found.observe("commit_seconds", value)
    counts, total = found.histograms["commit_seconds"]
    assert {index: count for index, count in enumerate(counts) if count} == {
        0: 2, 1: 1, BUCKETS_S.index(1.0): 1, BUCKETS_S.index(300.0): 1, len(BUCKETS_S): 1,
    }  # fmt: skip
    assert total == pytest.approx(601.5101)


def test_the_newest_batches_are_told_one_by_one() -> None:
    assert stream(REPORT).recent == [
        {
            "batch_id": 4, "run": "run", "outcome": "delivered", "rows": 8, "topics": {"a": 4, "b": 4}, "tasks": 2,
            "ended_ms": 6_100, "commit_ms": 100.25, "batch_ms": 1_100, "error": "", "error_text": "",
        }
    ]  # fmt: skip


# ---- Prometheus ------------------------------------------------------------------------------------------------------


def test_a_stream_is_told_in_prometheus_format_with_every_label_escaped() -> None:
    text = prometheus_text([stream(REPORT), stream(replace(REPORT, sink="t", query="", receipts=(), figures=()))])
    own, other = 'sink="s",query="or\\"d\\\\ers",query_id="q-1"', 'sink="t",query="",query_id="q-1"'
    lines = text.splitlines()
    for line in (
        f'pykafka_sink_batches_total{{{own},outcome="delivered"}} 1',
        f'pykafka_sink_rows_total{{{own},topic="a"}} 4',
        f"pykafka_sink_tasks_total{{{own}}} 2",
        f'pykafka_sink_retried_records_total{{{own},error="NO_ANSWER"}} 2',
        f'pykafka_sink_transactions_total{{{own},id="new"}} 1',
        f"pykafka_sink_bytes_total{{{own}}} 40",
        f"pykafka_sink_last_batch_id{{{own}}} 4",
        f"pykafka_sink_last_batch_timestamp_seconds{{{own}}} 6.1",
        f'pykafka_sink_commit_seconds_bucket{{{own},le="0.1"}} 0',
        f'pykafka_sink_commit_seconds_bucket{{{own},le="0.25"}} 1',
        f'pykafka_sink_commit_seconds_bucket{{{own},le="300"}} 1',
        f'pykafka_sink_commit_seconds_bucket{{{own},le="+Inf"}} 1',
        f"pykafka_sink_commit_seconds_sum{{{own}}} 0.10025",
        f"pykafka_sink_commit_seconds_count{{{own}}} 1",
        f"pykafka_sink_task_prepare_seconds_sum{{{own}}} 0.0025",
        f'kafka_producer_producer_metrics_record_send_total{{{own},client_id="c-1"}} 6',
        f"pykafka_sink_tasks_total{{{other}}} 0",
    ):
        assert line in lines
    assert lines.count("# TYPE pykafka_sink_tasks_total counter") == 1
    assert "# TYPE pykafka_sink_last_batch_id gauge" in lines
    assert "# TYPE pykafka_sink_commit_seconds histogram" in lines
    assert "# HELP pykafka_sink_bytes_total Bytes of keys and values delivered, before compression." in lines
    assert text.endswith("\n") and not any("dead_letters" in line for line in lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (3.0, "3"),
        (2**53, "9007199254740992"),
        (0.5, "0.5"),
        (-1.25, "-1.25"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
    ],
)
def test_numbers_are_whole_where_they_can_be(value: float, text: str) -> None:
    assert number_text(value) == text


def test_a_pushed_group_has_names_that_a_path_cannot_have() -> None:
    found = StreamFigures("s/1", "", "ü?", "c", 0)
    assert group_path(found) == ("/metrics/job/pykafka-sink/sink@base64/cy8x/query@base64/=/query_id@base64/w7w_")


# ---- OpenTelemetry ---------------------------------------------------------------------------------------------------


def test_a_collector_is_told_sums_and_distributions_since_the_stream_began() -> None:
    told = metrics_of(stream(REPORT), 7_000 * NS, RESOURCE)
    metrics = {each.name: each for each in told.resource_metrics[0].scope_metrics[0].metrics}
    common = {"pykafka_sink.sink": "s", "pykafka_sink.query": 'or"d\\ers', "pykafka_sink.query_id": "q-1"}
    sent = metrics["messaging.client.sent.messages"]
    kafka = {"messaging.system": "kafka", "messaging.operation.name": "send", "messaging.operation.type": "send"}
    assert isinstance(sent.data, Sum) and sent.data.is_monotonic and sent.unit == "{row}"
    assert [(point.value, point.attributes) for point in sent.data.data_points] == [
        (4.0, {**common, **kafka, "messaging.destination.name": topic}) for topic in ("a", "b")
    ]
    (point,) = metrics["pykafka_sink.retried_records"].data.data_points
    assert (point.value, point.attributes) == (2.0, {**common, "error.type": "NO_ANSWER"})  # type: ignore[union-attr]
    (point,) = metrics["pykafka_sink.batches"].data.data_points
    assert point.attributes == {**common, "pykafka_sink.outcome": "delivered"}
    assert (point.start_time_unix_nano, point.time_unix_nano) == (6_000 * NS, 7_000 * NS)
    last = metrics["pykafka_sink.last_batch_id"].data
    assert isinstance(last, Gauge) and last.data_points[0].value == 4.0
    commits = metrics["pykafka_sink.commit_seconds"].data
    assert isinstance(commits, Histogram)
    (spread,) = commits.data_points
    assert (spread.count, spread.sum, spread.explicit_bounds) == (1, 0.10025, BUCKETS_S)
    assert list(spread.bucket_counts) == [int(bound == 0.25) for bound in (*BUCKETS_S, None)]
    assert spread.attributes == common and (spread.start_time_unix_nano, spread.time_unix_nano) == (
        6_000 * NS,
        7_000 * NS,
    )
    assert metrics["messaging.client.operation.duration"].data.data_points[0].attributes == {**common, **kafka}
    assert "pykafka_sink.dead_letters" not in metrics


def test_a_batch_is_a_span_with_one_of_each_task_that_has_told_its_times() -> None:
    batch, task = spans_of(REPORT, OPTIONS, RESOURCE)
    common = {
        "messaging.system": "kafka", "server.address": "h", "server.port": 9092, "pykafka_sink.run": "run",
        "pykafka_sink.sink": "s", "pykafka_sink.query": 'or"d\\ers', "pykafka_sink.query_id": "q-1",
        "pykafka_sink.batch_id": "4",
    }  # fmt: skip
    assert (batch.name, batch.kind, batch.parent, batch.status.status_code) == (
        'micro-batch or"d\\ers', SpanKind.INTERNAL, None, StatusCode.UNSET,
    )  # fmt: skip
    assert (batch.start_time, batch.end_time) == (5_000 * NS, 6_100 * NS)
    assert batch.attributes == {
        **common, "pykafka_sink.outcome": "delivered", "pykafka_sink.commit_ms": 100.25,
        "messaging.batch.message_count": 8,
    }  # fmt: skip
    assert (task.name, task.kind, task.parent) == ("send a", SpanKind.PRODUCER, batch.context)
    assert (task.start_time, task.end_time) == (5_000 * NS, 5_032 * NS + NS // 2)
    assert task.attributes == {
        **common, "messaging.operation.name": "send", "messaging.operation.type": "send",
        "messaging.batch.message_count": 3, "messaging.client.id": "c-1", "pykafka_sink.spark_partition": 0,
        "pykafka_sink.task_attempt_id": 11, "pykafka_sink.prepare_ms": 2.5, "pykafka_sink.retried_records": 2,
        "messaging.destination.name": "a", "messaging.destination.partition.id": "3",
    }  # fmt: skip
    ids = TraceIds("s", 'or"d\\ers', KEY, "run")
    assert (batch.context.trace_id, batch.context.span_id) == (ids.trace_id, ids.span_of_batch)
    assert (task.context.trace_id, task.context.span_id) == (ids.trace_id, ids.span_of_task(0, 11))
    assert batch.context.trace_flags.sampled and not batch.context.is_remote


def test_a_task_that_wrote_to_several_topics_names_none() -> None:
    (_, task) = spans_of(replace(REPORT, figures=(None, OF_FIRST)), OPTIONS, RESOURCE)
    assert task.name == "send" and task.attributes is not None
    assert not [name for name in task.attributes if "destination" in name]
    two = replace(FIRST, written=(WrittenPartition("a", 0, 1, 0, 0), WrittenPartition("a", 1, 1, 0, 0)))
    (_, task) = spans_of(replace(REPORT, receipts=(two,), figures=(OF_FIRST,)), OPTIONS, RESOURCE)
    assert task.attributes is not None and task.attributes["messaging.destination.name"] == "a"
    assert "messaging.destination.partition.id" not in task.attributes


@pytest.mark.parametrize(
    ("outcome", "is_error"),
    [(DELIVERED, False), (ALREADY_DELIVERED, False), (ABORTED, True), (LEFT_OPEN, True), (FAILED, True)],
)
def test_a_span_is_an_error_unless_the_rows_are_there(outcome: str, is_error: bool) -> None:
    report = replace(REPORT, outcome=outcome, error="CommitPending", error_text="why", figures=(None, None))
    (span,) = spans_of(report, OPTIONS, RESOURCE)
    assert (span.status.status_code is StatusCode.ERROR, span.status.description) == (
        is_error,
        "why" if is_error else None,
    )
    assert span.attributes is not None and span.attributes["error.type"] == "CommitPending"


def test_the_abort_after_a_failed_commit_is_a_span_of_its_own() -> None:
    batch = spans_of(REPORT, OPTIONS, RESOURCE)[0]
    (abort,) = spans_of(replace(REPORT, outcome=ABORTED, follows_commit=True, query=""), OPTIONS, RESOURCE)
    assert (abort.name, abort.start_time, abort.end_time) == ("abort s", 6_000 * NS, 6_100 * NS)
    of_batch = TraceIds("s", "", KEY, "run")
    assert abort.parent is not None and abort.parent.span_id == of_batch.span_of_batch
    assert abort.context.span_id == of_batch.span_of_abort != batch.context.span_id


def test_a_batch_that_its_abort_finished_is_a_span_of_its_own_without_an_error() -> None:
    (recovery,) = spans_of(replace(REPORT, follows_commit=True), OPTIONS, RESOURCE)
    of_batch = TraceIds("s", REPORT.query, KEY, "run")
    assert (recovery.name, recovery.context.span_id) == ('recovery or"d\\ers', of_batch.span_of_abort)
    assert recovery.status.status_code is StatusCode.UNSET and recovery.attributes is not None
    assert recovery.attributes["pykafka_sink.outcome"] == "delivered"


def test_ids_of_traces_and_spans_differ_with_each_part_of_their_names() -> None:
    one = TraceIds("s", "q", KEY, "run")
    others = [
        one, one._replace(sink="t"), one._replace(query="r"), one._replace(run="later"),
        one._replace(key=BatchKey("q-2", 4)), one._replace(key=BatchKey("q-1", 5)),
    ]  # fmt: skip
    spans = {
        number for each in others
        for number in (each.span_of_batch, each.span_of_abort, each.span_of_task(0, 1), each.span_of_task(1, 0),
                       each.span_of_task(0, 2))
    }  # fmt: skip
    assert len({each.trace_id for each in others}) == 6 and len(spans) == 30
    assert all(number >> 64 == 0 for number in spans) and one.trace_id >> 64 != 0
    text = one.traceparent_of_task(3, 9).decode()
    assert text == f"00-{one.trace_id:032x}-{one.span_of_task(3, 9):016x}-01"


def test_a_sink_is_called_by_its_id_where_that_was_chosen() -> None:
    options = SimpleNamespace(sink_id="chosen")
    unnamed = SimpleNamespace(sink_id=None)
    assert sink_name("made", KEY, options) == "made"  # type: ignore[arg-type]
    assert sink_name("made", BatchKey("", ""), options) == "chosen"  # type: ignore[arg-type]
    assert sink_name(None, KEY, unnamed) == sink_name("made", BatchKey("", ""), unnamed) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spans", "metrics", "is_taken"),
    [
        (SpanExportResult.SUCCESS, MetricExportResult.SUCCESS, True),
        (SpanExportResult.FAILURE, MetricExportResult.SUCCESS, False),
        (SpanExportResult.SUCCESS, MetricExportResult.FAILURE, False),
    ],
)
def test_a_collector_gets_both_within_the_time_and_exporters_stay_if_it_took_them(
    monkeypatch: pytest.MonkeyPatch, spans: SpanExportResult, metrics: MetricExportResult, is_taken: bool
) -> None:
    told: list[object] = []

    class Exporter:
        def __init__(self, result: object) -> None:
            self.result = result

        def export(self, content: object, *limit: int) -> object:
            told.append((type(content).__name__, limit))
            return self.result

    def call(exports: Sequence[Callable[[], bool]], limit_s: float) -> list[bool]:
        told.append(limit_s)
        return [export() for export in exports]

    made = Exporter(spans), Exporter(metrics)
    # The SDK looks for what describes the process in threads.
    monkeypatch.setattr(otlp, "_resource", lambda instance: Resource({"service.instance.id": instance}))
    shelf: Shelf[tuple[str, float], Any] = Shelf(1)
    monkeypatch.setattr(otlp, "EXPORTERS", SimpleNamespace(value=shelf))
    monkeypatch.setattr(otlp, "_make_exporters", lambda endpoint, timeout_s: told.append((endpoint, timeout_s)) or made)
    monkeypatch.setattr(otlp, "call_side_by_side", call)
    monkeypatch.setattr(otlp, "circuit_breaker", lambda endpoint: nullcontext(enter_result=True))
    refused = pytest.raises(TransportError, match=r"http://c did not take .* within 250 ms")
    for _ in range(2):
        with nullcontext() if is_taken else refused:
            otlp.export("http://c", stream(REPORT), REPORT, OPTIONS, 250, "i-1")
    once = [0.25, ("list", ()), ("MetricsData", (250,))]
    assert told == [("http://c", 0.25), *once, *([] if is_taken else [("http://c", 0.25)]), *once]
    monkeypatch.setattr(otlp, "circuit_breaker", lambda endpoint: nullcontext(enter_result=False))
    otlp.export("http://c", stream(REPORT), REPORT, OPTIONS, 250, "i-1")
    assert len(told) == (7 if is_taken else 8)


def test_a_batch_whose_figures_were_sent_with_newer_ones_sends_its_spans_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    spans = SimpleNamespace(export=lambda content: told.append("spans") or SpanExportResult.SUCCESS)
    monkeypatch.setattr(otlp, "EXPORTERS", SimpleNamespace(value=Shelf(1)))
    monkeypatch.setattr(otlp, "_make_exporters", lambda *_: (spans, None))
    monkeypatch.setattr(otlp, "_resource", lambda instance: RESOURCE)
    monkeypatch.setattr(otlp, "call_side_by_side", lambda exports, _: [export() for export in exports])
    monkeypatch.setattr(otlp, "circuit_breaker", lambda endpoint: nullcontext(enter_result=True))
    otlp.export("http://c", None, REPORT, OPTIONS, 250, "i-1")
    assert told == ["spans"]


@pytest.mark.parametrize(
    ("environment", "own"),
    [
        ({}, {"service.name", "service.instance.id"}),
        ({"OTEL_SERVICE_NAME": "mine"}, {"service.instance.id"}),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b,service.name=mine"}, {"service.instance.id"}),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=7"}, {"service.name"}),
    ],
)
def test_two_applications_that_write_to_one_sink_are_two_resources(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], own: set[str]
) -> None:
    """As one, each would reset the counters of the other, and rates would be made up."""
    monkeypatch.setattr(otlp, "os", SimpleNamespace(environ=environment))
    monkeypatch.setattr(otlp, "Resource", SimpleNamespace(create=dict))
    first, second = (otlp._resource.__wrapped__(instance_of(folder)) for folder in ("/tmp/one", "/tmp/two"))
    assert set(first) == set(second) == own
    assert (first != second) is ("service.instance.id" in own) and instance_of("/tmp/one") == instance_of("/tmp/one")


# ---- OpenLineage -----------------------------------------------------------------------------------------------------

LINEAGE = {"timeout_ms": 1, "lineage_namespace": "team", "lineage_job": None, "lineage_fields": (("id", "bigint"),)}


def event(kind: str, report: BatchReport = REPORT, **more: Any) -> dict[str, Any]:
    return run_event(kind, report, SimpleNamespace(**{**LINEAGE, **more}), OPTIONS)  # type: ignore[arg-type]


def test_an_event_of_lineage_tells_what_was_written_at_the_end_alone() -> None:
    begin, end = event("START"), event("COMPLETE")
    assert (begin["eventTime"], end["eventTime"]) == ("1970-01-01T00:00:05.000+00:00", "1970-01-01T00:00:06.100+00:00")
    assert begin["run"] == end["run"] and begin["run"]["facets"] == {} and begin["inputs"] == []
    assert (begin["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert (end["job"]["namespace"], end["job"]["name"]) == ("team", 'or"d\\ers')
    kind = end["job"]["facets"]["jobType"]
    assert (kind["processingType"], kind["integration"], kind["jobType"]) == ("STREAMING", "SPARK", "MICRO_BATCH")
    assert [(each["namespace"], each["name"], each["outputFacets"]) for each in begin["outputs"]] == [
        ("kafka://h:9092", "a", {}), ("kafka://h:9092", "b", {}),
    ]  # fmt: skip
    of_a, of_b = (each["outputFacets"] for each in end["outputs"])
    assert of_a["pykafkaSink_offsets"]["partitions"] == [
        {"partition": 0, "firstOffset": 7, "lastOffset": 7, "rowCount": 1},
        {"partition": 3, "firstOffset": 0, "lastOffset": 2, "rowCount": 3},
    ]
    assert (of_a["outputStatistics"]["rowCount"], of_b["outputStatistics"]["rowCount"]) == (4, 4)
    assert "size" not in of_a["outputStatistics"], "bytes are not counted by topic"
    assert end["outputs"][0]["facets"]["schema"]["fields"] == [{"name": "id", "type": "bigint"}]
    assert event("COMPLETE", lineage_fields=())["outputs"][0]["facets"] == {}


def test_of_many_topics_each_partition_is_looked_at_a_few_times_alone() -> None:
    written = tuple(WrittenPartition(*where, 1, 0, 0) for where in written_names(300, 4))
    told = event("COMPLETE", replace(REPORT, receipts=(replace(FIRST, written=written),), figures=(None,)))
    assert len(told["outputs"]) == 300
    assert CountedName.compared <= 10 * len(written)


def test_an_event_of_a_batch_that_was_not_delivered_tells_no_rows() -> None:
    failed = event("FAIL", replace(REPORT, outcome=FAILED, error_text="why"))
    error = failed["run"]["facets"]["errorMessage"]
    assert (error["message"], error["programmingLanguage"]) == ("why", "PYTHON")
    assert error["_schemaURL"].endswith("facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet")
    assert all(each["outputFacets"] == {} for each in failed["outputs"])
    again = event("COMPLETE", replace(REPORT, outcome=ALREADY_DELIVERED))
    assert all(each["outputFacets"] == {} for each in again["outputs"])


def test_an_export_is_a_batch_job_and_is_called_by_what_is_known() -> None:
    export = replace(REPORT, key=BatchKey("", "monday"), query="", receipts=(FIRST,), figures=(None,))
    told = event("COMPLETE", export)
    kind = told["job"]["facets"]["jobType"]
    assert (kind["processingType"], kind["jobType"], told["job"]["name"]) == ("BATCH", "JOB", "s")
    assert told["outputs"][0]["outputFacets"]["outputStatistics"]["size"] == 30
    assert event("START", replace(export, sink=""))["job"]["name"] == "batch"
    assert event("START", export, lineage_job="own")["job"]["name"] == "own"
    runs = [REPORT, export, replace(REPORT, run="later"), replace(REPORT, sink="t"), replace(REPORT, query="q")]
    runs += [replace(REPORT, key=BatchKey("q-2", 4)), replace(REPORT, key=BatchKey("q-1", 5))]
    assert len({event("START", each)["run"]["runId"] for each in runs}) == len(runs)


def test_brokers_with_an_address_of_ipv6_are_a_namespace_too() -> None:
    assert namespace_of(parse_producer_options({"bootstrap.servers": "[::1]:9092"})) == "kafka://[::1]:9092"


# ---- a notebook ------------------------------------------------------------------------------------------------------


def test_a_notebook_shows_a_row_for_each_stream() -> None:
    lost = replace(REPORT, query="", outcome=ABORTED, commit_ms=0.0)
    shown = SinkMetrics((stream(REPORT, REPORT), stream(lost)))
    assert shown.rows() == [("s", 'or"d\\ers', 2, 16, 80, 4, "0.100", 0), ("s", "q-1", 0, 0, 0, 0, "0.000", 0)]
    page = shown._repr_html_()
    assert page.startswith("<table><tr><th>sink</th><th>query</th><th>batches</th><th>rows</th>")
    assert "<tr><td>s</td><td>or&quot;d\\ers</td><td>2</td><td>16</td>" in page and page.count("<tr>") == 3
    with pytest.raises(KeyError, match=r"there are figures of: or.*, s'"):
        shown.of("other")
    assert [each.query for each in shown] == ['or"d\\ers', ""]
