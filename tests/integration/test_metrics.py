"""Metrics and lineage of real writes, as Spark's processes create them, against the embedded broker.

prometheus-client's parser reads what the exporter serves, OpenTelemetry's own messages decode what a collector gets,
openlineage-python checks lineage, and confluent-kafka offsets. PYKAFKA_SINK_OPENLINEAGE_SPEC names a folder with
OpenLineage's JSON schemas (the folder spec of its repository); with it events are validated against them as well.

Assumption: all Python processes of an application on the driver see one SPARK_LOCAL_DIRS.
"""

from __future__ import annotations

import base64
import fcntl
import json
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator
from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
from openlineage.client.generated.schema_dataset import SchemaDatasetFacet
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructType
from referencing import Registry, Resource

from kafka_sink import sink_metrics
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import CommitAborted, TransportError
from kafka_sink.producer.pool import POOL
from kafka_sink.spark import driver
from kafka_sink.spark.files import application_folder
from kafka_sink.spark.task_context import BATCH_ID, JOB_GROUP, QUERY_ID
from kafka_sink.spark.writers import CommitMessage
from kafka_sink.telemetry.metrics import breaker, launch, store
from kafka_sink.telemetry.metrics.definitions import METRICS
from kafka_sink.telemetry.metrics.figures import ABORTED, DELIVERED, FAILED, BatchReport
from kafka_sink.telemetry.metrics.prometheus_text import family_name, prometheus_text
from kafka_sink.telemetry.metrics.store import figures_folder, note, read_streams
from kafka_sink.telemetry.metrics.stream_figures import RECENT_MAX
from kafka_sink.telemetry.metrics.trace_ids import instance_of
from kafka_sink.testing import EmbeddedBroker, Fault
from pyspark_pykafka_sink import DefaultSource
from tests.integration.hostile_peer import HostilePeer, web_drips
from tests.support.local_server import LocalServer, QuietHandler
from tests.support.served_figures import answers, exporter_of, labels_asked, samples, served, value
from tools.foreign_reader import read_topic
from tools.kafka_node import free_port
from tools.waiting import wait_until
from tools.worker_environment import worker_environment

ROOT = Path(__file__).parents[2]
NOT_LEADER = 6
SCHEMA = StructType().add("value", StringType()).add("topic", StringType())
SPEC = os.environ.get("PYKAFKA_SINK_OPENLINEAGE_SPEC")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The folder of a separate application; the application's exporters end with it."""
    for name, text in worker_environment(tmp_path / "local").items():
        monkeypatch.setenv(name, text)
    (tmp_path / "local").mkdir()
    breaker.PAUSES.renew()
    found = application_folder()
    assert found is not None
    yield found
    shutil.rmtree(found, ignore_errors=True)
    for exporter in launch.STARTED.value:
        exporter.wait(30)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1, topics={"rows": 2, "others": 1, "bad": 1}) as broker:
        yield broker
        driver.CLOSINGS.value.wait()
    POOL.close()
    driver.CLIENTS.value.close()


class Receiver:
    """Accepts whatever is sent to it."""

    def __init__(self, status: int = 200) -> None:
        self.got: list[tuple[str, str, bytes, Mapping[str, str]]] = []
        got = self.got

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                got.append((self.command, self.path, body, dict(self.headers)))
                self.send(status, b"")

            do_PUT = do_POST

        self.server = LocalServer(Handler)

    def bodies(self, path: str) -> list[bytes]:
        return [body for _, asked, body, _ in self.got if asked == path]


def in_a_task(attempt: int, properties: Mapping[str, str] | None = None) -> None:
    context = TaskContext._getOrCreate()
    context._partitionId, context._taskAttemptId, context._attemptNumber = 0, attempt, 1
    context._localProperties = dict(properties or {})
    TaskContext._setTaskContext(context)


class Export:
    """One batch write as Spark does it: planned, run in a task, committed; what these steps hand over is pickled."""

    def __init__(self, broker: EmbeddedBroker, label: str | None, **options: str) -> None:
        named = {name.replace("_", "."): value for name, value in options.items()}
        settings = {"kafka.bootstrap.servers": broker.bootstrap_servers, **named}
        if label is not None:
            settings = {"sink.id": "exports", "batch.id": label, **settings}
        self.writer = pickle.loads(pickle.dumps(DefaultSource(settings).writer(SCHEMA, False)))

    def run(
        self, topics: Sequence[str], attempt: int = 7, properties: Mapping[str, str] | None = None
    ) -> list[CommitMessage]:
        in_a_task(attempt, properties)
        arrays = [pa.array([f"row {number}" for number in range(len(topics))]), pa.array(topics)]
        rows = pa.RecordBatch.from_arrays(arrays, ["value", "topic"])
        return [pickle.loads(pickle.dumps(self.writer.write(iter([rows]))))]

    def deliver(self, topics: Sequence[str], attempt: int = 7) -> None:
        self.writer.commit(self.run(topics, attempt))

    def fail_commit(self, topics: Sequence[str], attempt: int = 8) -> CommitMessage:
        """The transaction has no time left, so the commit refuses."""
        (message,) = self.run(topics, attempt)
        assert message.receipt.transaction is not None
        late = replace(message.receipt, remaining_ms=0)
        with pytest.raises(CommitAborted):
            self.writer.commit([CommitMessage(late, message.figures)])
        return message

    def fail(self, topics: Sequence[str], attempt: int = 8) -> None:
        """Spark calls abort after a commit that failed."""
        self.writer.abort([self.fail_commit(topics, attempt)])


def busy_text(broker: EmbeddedBroker, folder: str, **options: str) -> str:
    """The text after deliveries with retries and dead letters, dropped rows, and a commit that failed."""
    letters = {"record_errors": "dead-letter", "dead_letter_topic": "bad"}
    broker.inject(Fault("Produce", error_code=NOT_LEADER, topic="rows"))
    Export(broker, "a", metrics_enabled="true", **letters, **options).deliver(["rows"] * 40 + ["no such topic"] * 3)
    Export(broker, "b", metrics_enabled="true", record_errors="drop").deliver(["others"] * 5 + ["?"] * 2, attempt=9)
    Export(broker, "c", metrics_enabled="true").fail(["rows"] * 4)
    return prometheus_text(read_streams(folder))


# ---- Prometheus ------------------------------------------------------------------------------------------------------


def test_what_is_served_is_what_was_written(broker: EmbeddedBroker, folder: str) -> None:
    port = free_port()
    Export(broker, "z", metrics_prometheus_port=str(port), metrics_prometheus_address="127.0.0.1").deliver(["rows"])
    busy_text(broker, folder)
    text = served(port)
    assert (
        value(text, "pykafka_sink_rows_total", topic="rows") == 41 == len(read_topic(broker.bootstrap_servers, "rows"))
    )
    assert value(text, "pykafka_sink_rows_total", topic="others") == 5
    assert value(text, "pykafka_sink_dead_letters_total") == 3 == len(read_topic(broker.bootstrap_servers, "bad"))
    assert value(text, "pykafka_sink_dropped_rows_total") == 2
    assert value(text, "pykafka_sink_retried_records_total", error="NOT_LEADER_OR_FOLLOWER") > 0
    assert value(text, "pykafka_sink_commit_errors_total", error="CommitAborted") == 1
    assert {found["outcome"]: count for found, count in samples(text)["pykafka_sink_batches_total"]} == {
        "delivered": 3, "aborted": 1,
    }  # fmt: skip
    assert value(text, "pykafka_sink_task_retries_total") == 3
    assert value(text, "pykafka_sink_tasks_total") == value(text, "pykafka_sink_commit_seconds_count") == 3
    assert value(text, "pykafka_sink_open_decisions") == 0  # the abort of the commit that failed has seen to it
    sent = value(text, "kafka_producer_producer_metrics_record_send_total", client_id="exports")
    assert sent >= 41 + 5 + 3
    (stream,) = sink_metrics(f"http://127.0.0.1:{port}")
    assert (stream.sink, stream.value("rows"), stream.recent[-1]["outcome"]) == ("exports", 49, "aborted")
    assert "too little time is left" in stream.recent[-2]["error_text"]


def test_a_commit_that_failed_is_an_open_decision_also_of_a_write_without_a_name(
    broker: EmbeddedBroker, folder: str
) -> None:
    Export(broker, "a", metrics_enabled="true").deliver(["rows"])
    unnamed = Export(broker, None, metrics_enabled="true")
    message = unnamed.fail_commit(["rows"])
    text = prometheus_text(read_streams(folder))
    assert value(text, "pykafka_sink_open_decisions", sink="") == 1
    assert value(text, "pykafka_sink_open_decisions", sink="exports") == 0
    unnamed.writer.abort([message])
    assert value(prometheus_text(read_streams(folder)), "pykafka_sink_open_decisions", sink="") == 0


def test_every_metric_is_served_with_type_and_meaning(broker: EmbeddedBroker, folder: str) -> None:
    text = busy_text(broker, folder)
    stream_only = {"last_batch_id"}
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for metric in METRICS:
        if metric.name in stream_only:
            continue
        family = families[family_name(metric).removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind.value, metric.meaning)
        assert all(not metric.label or metric.label in sample.labels for sample in family.samples)


def test_a_topic_or_a_query_of_any_characters_is_read_back_as_it_was(folder: str) -> None:
    query = 'a "query" of\ntwo lines \\ and {more}, é'
    report = BatchReport("s", query, BatchKey("q-1", 3), "run", "c", DELIVERED, (), (), 0, 10, 5.0)
    note(folder, report)
    ((labels, found),) = samples(prometheus_text(read_streams(folder)))["pykafka_sink_last_batch_id"]
    assert (labels["query"], found) == (query, 3)


# ---- the exporter ----------------------------------------------------------------------------------------------------


def is_free(lock: Path) -> bool:
    with lock.open() as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_the_port_is_opened_at_the_address_of_the_option_alone(broker: EmbeddedBroker, folder: str) -> None:
    port = free_port()
    Export(broker, "a", metrics_prometheus_port=str(port), metrics_prometheus_address="127.0.0.2").deliver(["rows"])
    served(port, "127.0.0.2")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()


def test_an_exporter_that_is_killed_comes_back_with_the_next_planning_and_knows_all(
    broker: EmbeddedBroker, folder: str
) -> None:
    port = free_port()
    options = {"metrics_prometheus_port": str(port), "metrics_prometheus_address": "127.0.0.1"}
    Export(broker, "a", **options).deliver(["rows"] * 3)
    assert value(served(port), "pykafka_sink_rows_total") == 3
    first = exporter_of(folder)
    os.kill(first, signal.SIGKILL)
    # Its threads do not end all at once, and the last one releases the lock.
    wait_until(lambda: is_free(figures_folder(folder) / f"exporter-{port}.lock"), "the exporter to end")
    Export(broker, "b", **options).deliver(["rows"] * 4)
    assert value(served(port), "pykafka_sink_rows_total") == 7
    assert exporter_of(folder) != first


def test_an_exporter_ends_with_its_application(broker: EmbeddedBroker, folder: str) -> None:
    """Spark removes the folder when it ends normally. A killed JVM leaves it; then its process is missing."""
    port = free_port()
    Export(broker, "a", metrics_prometheus_port=str(port)).deliver(["rows"])
    served(port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port))  # unless metrics.prometheus.address says so, only this address
    os.rename(folder, f"{folder}-gone")
    wait_until(lambda: not answers(port), "the exporter to end")
    assert Path(f"{folder}-gone", "metrics", launch.LOG).read_text() == ""


def test_an_exporter_ends_when_the_jvm_is_gone_although_its_folder_stays(tmp_path: Path, folder: str) -> None:
    (tmp_path / "java").symlink_to(sys.executable)
    start = (
        "import sys; from kafka_sink.telemetry.metrics.launch import ensure_exporter\n"
        "assert ensure_exporter(sys.argv[1], '127.0.0.1', int(sys.argv[2])) == ''"
    )
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {start!r}, *sys.argv[1:]]); input()"
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [tmp_path / "java", "-c", program, folder, str(port)], stdin=subprocess.PIPE, env=environment
    ) as jvm:
        wait_until(lambda: answers(port), "the exporter to serve")
        jvm.kill()
    wait_until(lambda: not answers(port), "the exporter to end")
    assert figures_folder(folder).is_dir()


def test_a_port_that_is_taken_is_told_and_harms_no_batch(
    broker: EmbeddedBroker, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        Export(broker, "a", metrics_prometheus_port=str(port)).deliver(["rows"])
    assert f"figures are not served: 127.0.0.1:{port} cannot be listened at" in caplog.text
    assert read_streams(folder)[0].value("rows") == 1


def test_an_address_where_nothing_serves_figures_is_an_error_that_names_it() -> None:
    with pytest.raises(TransportError, match=r"no figures at http://127\.0\.0\.1:1/metrics\.json"):
        sink_metrics("http://127.0.0.1:1")


# ---- stored metrics --------------------------------------------------------------------------------------------------

NOTES = 40


def note_many(folder: str) -> None:
    for number in range(NOTES):
        note(folder, BatchReport("s", "", BatchKey("", f"{number}"), "run", "c", DELIVERED, (), (), 0, 10, 5.0))


def test_processes_that_note_at_the_same_time_lose_no_batch(folder: str) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=note_many, args=(folder,)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    (stream,) = read_streams(folder)
    assert stream.value("batches") == 4 * NOTES
    assert len(stream.recent) == RECENT_MAX


def test_a_note_that_was_not_written_to_its_end_leaves_the_one_before(folder: str) -> None:
    for number in range(3):
        note(folder, BatchReport("s", "", BatchKey("", f"{number}"), "run", "c", DELIVERED, (), (), 0, 10, 5.0))
    newest = max(figures_folder(folder).iterdir(), key=lambda path: path.read_bytes()[:20])
    content = newest.read_bytes()
    for cut in (content[:-1], content[:30], b"", content[:-9] + b"!" + content[-8:]):
        newest.write_bytes(cut)
        assert read_streams(folder)[0].value("batches") == 2
    store.NOTED.renew()  # another process continues from there
    note(folder, BatchReport("s", "", BatchKey("", "3"), "run", "c", DELIVERED, (), (), 0, 10, 5.0))
    assert read_streams(folder)[0].value("batches") == 3


def test_a_process_that_is_stopped_during_its_note_stops_no_commit(
    broker: EmbeddedBroker, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Export(broker, "a", metrics_enabled="true").deliver(["rows"])
    monkeypatch.setattr(store, "LOCK_TIMEOUT_S", 0.05)
    (first,) = figures_folder(folder).glob(f"*{store.SLOTS[0]}")
    with first.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        Export(broker, "b", metrics_enabled="true").deliver(["rows"], attempt=8)
        assert len(broker.records("rows")) == 2
    assert read_streams(folder)[0].value("batches") == 1
    Export(broker, "c", metrics_enabled="true").deliver(["rows"], attempt=9)
    assert read_streams(folder)[0].value("batches") == 2


def test_figures_of_very_many_topics_are_read_again(folder: str) -> None:
    for label in ("a", "b"):
        store.NOTED.renew()  # by another process
        report = BatchReport("s", "", BatchKey("", label), "run", "c", ABORTED, (), (), 0, 10, 5.0)
        note(folder, replace(report, error_text="x" * 17_000_000))  # in place of names
    assert read_streams(folder)[0].value("batches") == 2


def test_an_abort_finds_the_error_of_its_commit_behind_other_writes_of_the_same_sink(folder: str) -> None:
    def report(label: str, outcome: str, text: str = "") -> BatchReport:
        return BatchReport("s", "", BatchKey("", label), "run", "c", outcome, (), (), 0, 10, 5.0, error_text=text)

    note(folder, report("a", FAILED, "because"))
    note(folder, report("b", DELIVERED))
    assert store.told_before(folder, report("a", ABORTED)) == (FAILED, "because")
    assert store.told_before(folder, report("b", ABORTED)) == (DELIVERED, "")
    note(folder, report("a", ABORTED))
    # foreachBatch may write it again in the same run.
    assert store.told_before(folder, report("a", ABORTED)) == (ABORTED, "")
    assert store.told_before(folder, report("c", ABORTED)) == ("", "")


def test_a_message_of_the_release_before_is_committed_and_its_rows_are_counted(
    broker: EmbeddedBroker, folder: str
) -> None:
    export = Export(broker, "a", metrics_enabled="true")
    (message,) = export.run(["rows"] * 6)
    del message.figures  # as pickle creates it from a message that had one field
    export.writer.commit([pickle.loads(pickle.dumps(message))])
    (stream,) = read_streams(folder)
    assert (stream.value("rows"), stream.value("tasks"), stream.value("record_batches")) == (6, 1, 0)


def test_without_an_option_nothing_is_kept(broker: EmbeddedBroker, folder: str) -> None:
    Export(broker, "a").deliver(["rows"] * 6)
    assert read_streams(folder) == []


# ---- dashboard and alerts --------------------------------------------------------------------------------------------


def expressions() -> dict[str, str]:
    """Every query of the dashboard and every alert rule, by title."""
    import yaml

    dashboard = json.loads((ROOT / "conf/grafana/pykafka-sink.json").read_text())
    found = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in dashboard["panels"] for target in panel["targets"]
    }  # fmt: skip
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            found[f"variable {variable['name']}"] = variable["query"]["query"]
    rules = yaml.safe_load((ROOT / "conf/prometheus/alerts.yml").read_text())
    for group in rules["groups"]:
        found |= {rule["alert"]: rule["expr"] for rule in group["rules"]}
    return found


def test_every_expression_of_dashboard_and_alerts_is_answered(broker: EmbeddedBroker, folder: str) -> None:
    found = samples(busy_text(broker, folder))
    asked = expressions()
    assert len(asked) > 25
    for title, expression in asked.items():
        names = re.findall(r"\b(?:pykafka_sink|kafka_producer)_\w+", expression)
        assert names, title
        for name in names:
            assert name in found, f"{title}: {name} is not served"
        # Labels such as `le` belong to one metric of the expression, so to at least one.
        known = {label for name in names for labels, _ in found[name] for label in labels}
        assert labels_asked(expression) <= known, title


# With the metrics of `busy_text`; the other alerts must not fire.
FIRING = {"KafkaSinkCommitsFail", "KafkaSinkRowsLeftOut", "KafkaSinkManyRetries"}


def test_prometheus_itself_evaluates_every_expression(broker: EmbeddedBroker, folder: str, tmp_path: Path) -> None:
    """promtool loads each expression as a rule that fires if it has no result. The series grow each minute by the
    values that were served."""
    import yaml

    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (apt install prometheus)")
    rules, series = tmp_path / "rules.yml", []
    checks: list[dict[str, str]] = []
    for title, expression in expressions().items():
        if title.startswith("variable "):
            continue  # Grafana's own language
        query = expression.replace("$sink", ".*").replace("$query", ".*").replace("$__rate_interval", "5m")
        is_silent = title.startswith("KafkaSink") and title not in FIRING
        checks.append({"alert": title, "expr": query if is_silent else f"absent({query})"})
    rules.write_text(yaml.safe_dump({"groups": [{"name": "answers", "rules": checks}]}))
    for name, found in samples(busy_text(broker, folder)).items():
        for labels, number in found:
            named = ",".join(f"{label}={json.dumps(text)}" for label, text in labels.items())
            series.append({"series": f"{name}{{{named}}}", "values": f"{number:f}+{number:f}x20"})
    silent = [{"eval_time": "10m", "alertname": each["alert"], "exp_alerts": []} for each in checks]
    test = {"interval": "1m", "input_series": series, "alert_rule_test": silent}
    cases = tmp_path / "cases.yml"
    cases.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}))
    assert len(checks) > 25 and len(series) > 100
    alerts = ROOT / "conf/prometheus/alerts.yml"
    for words in (["check", "rules", str(alerts)], ["test", "rules", str(cases)]):
        said = subprocess.run([promtool, *words], capture_output=True, text=True)
        assert said.returncode == 0, said.stdout + said.stderr


# ---- OTLP and Pushgateway --------------------------------------------------------------------------------------------


def attributes(found: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in found.attributes}


def test_a_collector_gets_the_figures_and_a_span_for_the_batch_and_each_task(
    broker: EmbeddedBroker, folder: str
) -> None:
    receiver = Receiver()
    with receiver.server as server:
        Export(broker, "a", metrics_otlp_endpoint=server.url).deliver(["rows"] * 8)
        Export(broker, "b", metrics_otlp_endpoint=server.url).fail(["rows"] * 2)
    spans = [
        span
        for body in receiver.bodies("/v1/traces")
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans for span in scope.spans
    ]  # fmt: skip
    batch, task = spans[:2]
    assert (batch.name, task.name, task.kind) == ("micro-batch exports", "send rows", 4)  # PRODUCER
    assert (task.trace_id, task.parent_span_id, batch.parent_span_id) == (batch.trace_id, batch.span_id, b"")
    assert batch.start_time_unix_nano <= task.start_time_unix_nano <= task.end_time_unix_nano
    assert task.end_time_unix_nano <= batch.end_time_unix_nano + 2_000_000  # two clocks, each rounded
    said = attributes(task)
    assert said["messaging.system"] == "kafka" and said["messaging.destination.name"] == "rows"
    assert (said["messaging.operation.type"], said["messaging.batch.message_count"]) == ("send", 8)
    failed = [span for span in spans if span.status.code == 2]
    commit, abort = failed
    assert [attributes(span)["pykafka_sink.outcome"] for span in failed] == ["failed", "aborted"]
    assert (abort.name, abort.trace_id, abort.parent_span_id) == ("abort exports", commit.trace_id, commit.span_id)
    assert len({(span.trace_id, span.span_id) for span in spans}) == len(spans), "no span is told twice"
    request = ExportMetricsServiceRequest.FromString(receiver.bodies("/v1/metrics")[0])
    metrics = {each.name: each for each in request.resource_metrics[0].scope_metrics[0].metrics}
    described = attributes(request.resource_metrics[0].resource)
    assert (described["service.name"], described["service.instance.id"]) == ("pykafka-sink", instance_of(folder))
    (point,) = metrics["messaging.client.sent.messages"].sum.data_points
    assert (point.as_double, attributes(point)["messaging.destination.name"]) == (8, "rows")
    duration = metrics["messaging.client.operation.duration"]
    assert (duration.unit, duration.histogram.data_points[0].count) == ("s", 1)
    assert point.start_time_unix_nano < point.time_unix_nano


IN_A_BATCH_OF_A_QUERY = {QUERY_ID: "q-1", BATCH_ID: "0", JOB_GROUP: "0c1f3c2e-5b0a-4d7e-9b53-3a0b8f6f9a10"}


@pytest.mark.parametrize(
    ("label", "properties", "options"),
    [
        ("a", {}, {}),
        ("0", IN_A_BATCH_OF_A_QUERY, {}),  # inside foreachBatch
        ("a", {}, {"delivery_guarantee": "at-least-once"}),
    ],
)
def test_records_point_to_the_span_of_their_task_that_the_collector_gets(
    broker: EmbeddedBroker, label: str, properties: dict[str, str], options: dict[str, str]
) -> None:
    receiver = Receiver()
    with receiver.server as server:
        export = Export(broker, label, metrics_otlp_endpoint=server.url, traceparent_task="true", **options)
        export.writer.commit(export.run(["rows"] * 3, properties=properties))
    body = ExportTraceServiceRequest.FromString(receiver.bodies("/v1/traces")[0])
    _, task = body.resource_spans[0].scope_spans[0].spans
    expected = f"00-{task.trace_id.hex()}-{task.span_id.hex()}-01".encode()
    headers = [record.headers for record in read_topic(broker.bootstrap_servers, "rows")]
    assert headers == [(("traceparent", expected),)] * 3


def test_the_pushgateway_gets_the_figures_of_the_stream_as_one_group(broker: EmbeddedBroker) -> None:
    receiver = Receiver()
    with receiver.server as server:
        Export(broker, "a", metrics_pushgateway_url=server.url).deliver(["rows"] * 8)
    ((method, path, body, headers),) = receiver.got
    assert (method, headers["Content-Type"]) == ("PUT", "text/plain; version=0.0.4; charset=utf-8")
    words = path.removeprefix("/metrics/job/pykafka-sink/").split("/")
    group = {
        name.removesuffix("@base64"): base64.urlsafe_b64decode(coded + "==").decode() if coded != "=" else ""
        for name, coded in zip(words[::2], words[1::2], strict=True)
    }
    assert group == {"sink": "exports", "query": "", "query_id": ""}
    assert value(body.decode(), "pykafka_sink_rows_total", **group) == 8


def test_receivers_that_fail_are_told_once_and_left_alone_and_no_batch_fails(
    broker: EmbeddedBroker, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = Receiver(status=500)
    with receiver.server as server:
        options = {"metrics_pushgateway_url": server.url, "lineage_url": server.url}
        for label in ("a", "b", "c"):
            Export(broker, label, **options).deliver(["rows"] * 2)
    assert [path for _, path, _, _ in receiver.got] == ["/api/v1/lineage", receiver.got[1][1]]
    assert caplog.text.count("Batches go on") == caplog.text.count("PKS-3013 ") == 2
    assert read_streams(folder)[0].value("rows") == 6


def test_a_collector_whose_package_is_missing_fails_no_batch_that_is_committed(
    broker: EmbeddedBroker, folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "kafka_sink.telemetry.metrics.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    Export(broker, "a", metrics_otlp_endpoint="http://127.0.0.1:9").deliver(["rows"] * 2)
    assert "PKS-3013 the OpenTelemetry collector: ModuleNotFoundError" in caplog.text
    assert read_streams(folder)[0].value("rows") == 2


def test_receivers_that_never_come_to_an_end_hold_no_commit_up(broker: EmbeddedBroker, folder: str) -> None:
    with HostilePeer(web_drips["header"]) as peer:
        url = f"http://{peer.address}"
        receivers = {"metrics_pushgateway_url": url, "metrics_otlp_endpoint": f"{url}/otlp", "lineage_url": url}
        Export(broker, "a", metrics_timeout_ms="200", **receivers).deliver(["rows"] * 2)
        assert peer.connection_count == 4
    assert read_streams(folder)[0].value("rows") == 2


def test_a_name_server_that_is_silent_holds_no_commit_up(
    broker: EmbeddedBroker, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking up a name has no time limit of its own."""
    asked, goes_on = [], threading.Event()

    def connect(address: tuple[str, int], *_: Any, **__: Any) -> socket.socket:
        asked.append(address[0])
        goes_on.wait()
        raise socket.gaierror("no answer")

    known = {name: getattr(socket, name) for name in dir(socket)}
    monkeypatch.setattr("http.client.socket", SimpleNamespace(**{**known, "create_connection": connect}))
    url = "http://silent.invalid:1"
    receivers = {"metrics_pushgateway_url": url, "lineage_url": url}
    export = Export(broker, "a", metrics_timeout_ms="100", **receivers)
    committed = threading.Thread(target=lambda: export.deliver(["rows"] * 2), daemon=True)
    committed.start()
    try:
        committed.join(60)
        assert not committed.is_alive() and asked == ["silent.invalid"] * 2
    finally:
        goes_on.set()
    committed.join()
    assert read_streams(folder)[0].value("rows") == 2


# ---- lineage ---------------------------------------------------------------------------------------------------------

FACETS: Mapping[str, type] = {
    "schema": SchemaDatasetFacet,
    "outputStatistics": OutputStatisticsOutputDatasetFacet,
    "jobType": JobTypeJobFacet,
    "errorMessage": ErrorMessageRunFacet,
}


def facets_of(event: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from event["run"]["facets"].items()
    yield from event["job"]["facets"].items()
    for output in event["outputs"]:
        yield from output["facets"].items()
        yield from output["outputFacets"].items()


def check_facet(name: str, facet: Mapping[str, Any]) -> None:
    """OpenLineage's own class of that version has each field, and no required field is missing."""
    kind = FACETS[name]
    said = {field: content for field, content in facet.items() if not field.startswith("_")}
    assert facet["_schemaURL"] == kind._get_schema()
    kind(**said)


def check_by_schemas(event: Mapping[str, Any], spec: Path) -> None:
    schemas = [json.loads(path.read_text()) for path in (spec / "OpenLineage.json", *(spec / "facets").glob("*.json"))]
    registry: Registry[Any] = Registry().with_resources(
        (schema["$id"], Resource.from_contents(schema)) for schema in schemas
    )
    checker = Draft202012Validator.FORMAT_CHECKER
    whole = {"$ref": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"}
    Draft202012Validator(whole, registry=registry, format_checker=checker).validate(event)
    for name, facet in facets_of(event):
        if name in FACETS:
            Draft202012Validator({"$ref": facet["_schemaURL"]}, registry=registry).validate(facet)


def test_lineage_tells_begin_and_end_and_exactly_what_a_foreign_reader_finds(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    path = tmp_path / "lineage.jsonl"
    options = {"lineage_file": str(path), "lineage_namespace": "team", "lineage_job": "export"}
    Export(broker, "a", **options).deliver(["rows"] * 30 + ["others"])
    Export(broker, "b", **options).deliver(["rows"] * 30)
    Export(broker, "c", **options).fail(["rows"])
    Export(broker, "b", **options).deliver(["rows"] * 30, attempt=12)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = [event["eventType"] for event in events]
    assert kinds == ["START", "COMPLETE", "START", "COMPLETE", "START", "FAIL", "START", "COMPLETE"]
    assert all(events[at]["run"]["runId"] == events[at + 1]["run"]["runId"] for at in range(0, 8, 2))
    assert len({event["run"]["runId"] for event in events}) == 4
    told: dict[tuple[str, int], set[int]] = {}
    for event in events:
        assert (event["job"]["namespace"], event["job"]["name"]) == ("team", "export")
        for name, facet in facets_of(event):
            if name in FACETS:
                check_facet(name, facet)
        if SPEC is not None:
            check_by_schemas(event, Path(SPEC))
        for output in event["outputs"]:
            assert output["namespace"] == f"kafka://{broker.bootstrap_servers}"
            for each in output["outputFacets"].get("pykafkaSink_offsets", {}).get("partitions", ()):
                offsets = set(range(each["firstOffset"], each["lastOffset"] + 1))
                assert len(offsets) == each["rowCount"]
                told.setdefault((output["name"], each["partition"]), set()).update(offsets)
    found: dict[tuple[str, int], set[int]] = {}
    for topic in ("rows", "others"):
        for record in read_topic(broker.bootstrap_servers, topic):
            found.setdefault((topic, record.partition), set()).add(record.offset)
    assert told == found
    assert events[1]["outputs"][0]["facets"]["schema"]["fields"] == [
        {"name": "value", "type": "string"}, {"name": "topic", "type": "string"},
    ]  # fmt: skip
    assert "too little time is left" in events[5]["run"]["facets"]["errorMessage"]["message"]


def test_lineage_goes_to_an_address_with_the_key_of_a_file(broker: EmbeddedBroker, tmp_path: Path) -> None:
    receiver, key = Receiver(), tmp_path / "key"
    with receiver.server as server:
        for label in ("first", "second"):
            key.write_text(f"{label}-key\n")
            Export(broker, label, lineage_url=server.url, lineage_api_key_file=str(key)).deliver(["rows"])
    assert [headers["Authorization"] for _, _, _, headers in receiver.got] == [
        "Bearer first-key", "Bearer first-key", "Bearer second-key", "Bearer second-key",
    ]  # fmt: skip
    assert [json.loads(body)["eventType"] for body in receiver.bodies("/api/v1/lineage")] == ["START", "COMPLETE"] * 2


def test_a_key_that_no_header_can_hold_is_not_logged(
    broker: EmbeddedBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "key").write_text("hunter2\nof the second line\n")
    receiver = Receiver()
    with receiver.server as server:
        Export(broker, "x", lineage_url=server.url, lineage_api_key_file=str(tmp_path / "key")).deliver(["rows"])
    assert receiver.got == [] and "PKS-3013 lineage: ConfigError" in caplog.text and "hunter2" not in caplog.text
