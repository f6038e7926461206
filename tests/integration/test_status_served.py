"""`pykafka-sink status --serve`: what Prometheus is told, from a process that outlives jobs and brokers; its rules,
dashboard and units in conf/; and the drill with a real Prometheus server."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from kafka_sink.commit.command_texts import UNKNOWN_BROKERS
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import AuthenticationError
from kafka_sink.operate.cli.arguments import parse_arguments
from kafka_sink.operate.cli.status import _tell, describe
from kafka_sink.operate.status.collect import ClusterLook
from kafka_sink.operate.status.figures import STATUS_METRICS
from kafka_sink.operate.status.findings import Limits
from kafka_sink.operate.status.server import Watcher, serve
from kafka_sink.options.sink_options import DEFAULT_LEDGER
from kafka_sink.telemetry.metrics.prometheus_text import family_name
from kafka_sink.testing import EmbeddedBroker
from tests.integration.advising import record_loss
from tests.integration.statuses import FOREIGN, age, begin_foreign, delivered, record_all, wall_ms
from tests.support.asking import client_of
from tests.support.commanding import Sink
from tests.support.served_figures import labels_asked, samples, value
from tools.drill_picture import FIGURES, STEP_S, draw, points_of
from tools.waiting import wait_until

ROOT = Path(__file__).parents[2]
BATCH, NEXT = BatchKey("query-1", 0), BatchKey("query-1", 1)
FINDINGS = "pykafka_sink_status_findings"
RULES = ROOT / "conf/prometheus/status-alerts.yml"


# How old the last look is, minute after minute.
EVERY_FIVE_MINUTES = " ".join(["0+60x4"] * 8)


@pytest.fixture
def sink(broker: EmbeddedBroker) -> Sink:
    sink = Sink(broker.bootstrap_servers, "t", "orders", DEFAULT_LEDGER)
    sink.create()
    return sink


class Told(list[str]):
    """What a watcher says to people."""


@contextmanager
def watched(servers: str, silent_ms: int = 0, open_ms: int = 60_000) -> Iterator[tuple[Watcher, Told]]:
    told = Told()

    @contextmanager
    def connect() -> Iterator[ClusterLook]:
        with client_of(servers, max_block_ms=2_000) as client:
            yield ClusterLook(client, UNKNOWN_BROKERS, (), 2_000)

    with closing(Watcher(connect, Limits(open_ms, silent_ms), told.append, describe, 15)) as watcher:
        yield watcher, told


def make_busy(sink: Sink, broker: EmbeddedBroker) -> None:
    """Something of everything that is told."""
    sink.wall_ms = wall_ms()
    sink.deliver(BATCH)
    sink.task(NEXT, 7)
    record_all(sink.servers, DEFAULT_LEDGER, [delivered("silent", "t", age_ms=86_400_000)])
    other = Sink(sink.servers, "t", "late", DEFAULT_LEDGER, run="e" * 16)
    other.decide_and_die(BATCH)
    record_loss(Sink(sink.servers, "t", "lost", DEFAULT_LEDGER, run="d" * 16))
    begin_foreign(sink.servers, "t")
    age(broker, FOREIGN)


def busy_text(sink: Sink, broker: EmbeddedBroker) -> str:
    """After a look that failed, too."""
    make_busy(sink, broker)
    with watched(sink.servers, silent_ms=3_600_000) as (watcher, _):
        broker.stop_broker(1)
        watcher.look()
        broker.start_broker(1)
        watcher.look()
        return watcher.text


# ---- what is served --------------------------------------------------------------------------------------------------


def test_every_metric_is_served_with_type_meaning_and_its_labels(sink: Sink, broker: EmbeddedBroker) -> None:
    text = busy_text(sink, broker)
    found = samples(text)
    for metric in STATUS_METRICS:
        family = family_name(metric)
        assert f"# TYPE {family} {metric.kind.value}" in text and f"# HELP {family} {metric.meaning}" in text
        for labels, _ in found[family]:
            assert set(labels) == set(metric.label.split()), family
    assert {labels["kind"] for labels, _ in found[FINDINGS]} == {"open", "lost", "silent", "foreign"}
    assert value(text, FINDINGS, severity="act", kind="open", sink="late") == 1
    assert value(text, "pykafka_sink_status_severity") == 2
    assert 0 < value(text, "pykafka_sink_status_decision_left_seconds", sink="late") <= 300
    assert value(text, "pykafka_sink_status_lost_batches", sink="lost") == 1
    assert value(text, "pykafka_sink_status_open_transactions", sink="orders") == 1
    assert value(text, "pykafka_sink_status_open_transactions", sink="") == 1
    assert value(text, "pykafka_sink_status_look_failures_total") == 1
    assert value(text, "pykafka_sink_status_held_back_offsets", topic="t") > 0


def test_the_documented_metrics_are_those_that_are_served() -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    for metric in STATUS_METRICS:
        labels = ", ".join(f"`{name}`" for name in metric.label.split())
        assert f"| `{family_name(metric)}` | {metric.kind.value} | {labels} | {metric.meaning} |" in page


def test_brokers_may_go_and_come_and_that_is_a_metric(sink: Sink, broker: EmbeddedBroker) -> None:
    up, failures = "pykafka_sink_status_up", "pykafka_sink_status_look_failures_total"
    with watched(sink.servers) as (watcher, told):
        watcher.look()
        assert value(watcher.text, up) == 1 and failures not in samples(watcher.text)
        sink.deliver(BATCH)
        watcher.look()
        assert (value(watcher.text, up), value(watcher.text, "pykafka_sink_status_sinks")) == (1, 1)
        seen_s = value(watcher.text, "pykafka_sink_status_last_look_timestamp_seconds")
        ages_s = [value(watcher.text, "pykafka_sink_status_last_look_age_seconds") for _ in range(2)]
        assert 0 <= ages_s[0] < ages_s[1], "it goes on between two looks"
        broker.stop_broker(1)
        for _ in range(2):
            watcher.look()
        assert value(watcher.text, up) == 0
        assert value(watcher.text, failures) == 2
        assert value(watcher.text, "pykafka_sink_status_sinks") == 1, "as it was seen last"
        assert value(watcher.text, "pykafka_sink_status_last_look_timestamp_seconds") == seen_s
        broker.start_broker(1)
        watcher.look()
        assert value(watcher.text, up) == 1 and value(watcher.text, "pykafka_sink_status_looks_total") == 5
    assert [text.startswith("no broker has answered") for text in told[-2:]] == [True, False]
    assert told[-1] == "the cluster is seen again"


def test_a_cluster_without_a_ledger_and_a_mistake_of_the_program_are_failed_looks(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with watched(broker.bootstrap_servers) as (watcher, told):
        watcher.look()
        assert value(watcher.text, "pykafka_sink_status_look_failures_total", error="ConfigError") == 1
        assert "no ledger topic was found" in told[0]
        monkeypatch.setattr(ClusterLook, "look", lambda _: {}["mistake"])
        watcher.look()
        assert value(watcher.text, "pykafka_sink_status_look_failures_total", error="KeyError") == 1
        assert "Traceback" in capsys.readouterr().err


def test_a_login_that_was_refused_is_not_tried_at_every_look() -> None:
    now_s, tried, told = [0.0], list[float](), Told()

    @contextmanager
    def connect() -> Iterator[ClusterLook]:
        tried.append(now_s[0])
        raise AuthenticationError("broker b refused the credentials")
        yield

    watcher = Watcher(connect, Limits(0, 0), told.append, describe, 15, lambda: now_s[0])
    for second in range(0, 200, 15):
        now_s[0] = second
        watcher.look()
    assert tried == [0, 60, 180] and told == ["broker b refused the credentials"]
    assert value(watcher.text, "pykafka_sink_status_up") == 0


def test_a_driver_whose_clock_is_ahead_hides_nothing_from_a_process_that_goes_on_looking(sink: Sink) -> None:
    sink.wall_ms = wall_ms() + 3_600_000
    sink.decide_and_die(BATCH)
    with watched(sink.servers, open_ms=500) as (watcher, _):
        watcher.look()
        assert value(watcher.text, "pykafka_sink_status_severity") == 0, "just seen"
        time.sleep(0.6)
        watcher.look()
        assert value(watcher.text, FINDINGS, kind="open", sink="orders") == 1


def test_a_part_that_is_missing_is_told_and_what_was_seen_is_served(sink: Sink, broker: EmbeddedBroker) -> None:
    sink.deliver(BATCH)
    broker.do(lambda core: setattr(core.cluster.topics["t"].partitions[1], "leader_id", -1))
    with watched(sink.servers) as (watcher, told):
        watcher.look()
        assert value(watcher.text, "pykafka_sink_status_up") == 0
        assert value(watcher.text, "pykafka_sink_status_look_failures_total", error="Incomplete") == 1
        assert value(watcher.text, "pykafka_sink_status_sinks") == 1
        assert told == ["t-1 has no leader now"]


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def test_two_paths_are_served_while_looks_go_on(sink: Sink) -> None:
    sink.deliver(BATCH)
    go, looked = threading.Event(), threading.Event()

    def pauses() -> Iterator[float]:
        looked.set()
        go.wait(60)
        yield 0

    with watched(sink.servers) as (watcher, _):
        listener = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=serve, args=(watcher, listener, pauses()))
        thread.start()
        assert looked.wait(60)
        assert value(fetch(f"{url}/metrics"), "pykafka_sink_status_looks_total") == 1
        assert json.loads(fetch(f"{url}/status.json"))["state"] == "fine"
        with pytest.raises(urllib.error.HTTPError):
            fetch(url)
        go.set()
        thread.join(60)
        assert value(watcher.text, "pykafka_sink_status_looks_total") == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_listens_to_this_host_alone_and_ends_by_a_signal(sink: Sink, number: int) -> None:
    """A service and a container are stopped by SIGTERM."""
    sink.deliver(BATCH)
    words = [sys.executable, "-m", "kafka_sink", "status", "--serve", "0", "--bootstrap-server", sink.servers]
    with subprocess.Popen([*words, "--interval", "1"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"figures for Prometheus at (http://127\.0\.0\.1:\d+/metrics)\n", line)
        assert found, line
        wait_until(lambda: value(fetch(found[1]), "pykafka_sink_status_looks_total") >= 2, "a second look")
        process.send_signal(number)
        assert process.wait(60) == 0


def test_the_command_goes_on_though_nobody_reads_its_lines(sink: Sink, broker: EmbeddedBroker) -> None:
    words = [sys.executable, "-m", "kafka_sink", "status", "--serve", "0", "--bootstrap-server", sink.servers]
    with subprocess.Popen([*words, "--interval", "1"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        process.stdout.close()
        broker.stop_broker(1)  # which it tells
        wait_until(lambda: "pykafka_sink_status_look_failures_total{" in fetch(url), "a look that failed")
        before = value(fetch(url), "pykafka_sink_status_looks_total")
        wait_until(lambda: value(fetch(url), "pykafka_sink_status_looks_total") > before, "another look")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_full_disk_ends_no_watch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        for line in ("the first", "the second"):
            _tell(line)
    said = "standard output cannot be written: No space left on device. The figures are served all the same\n"
    assert capsys.readouterr().err == said


def test_a_port_that_is_taken_is_an_error_that_names_it(sink: Sink) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "kafka_sink", "status", "--serve", str(port), "--bootstrap-server", sink.servers],
            capture_output=True, text=True,
        )  # fmt: skip
    assert done.returncode == 2 and f"127.0.0.1:{port} cannot be listened to" in done.stderr


# ---- rules, dashboard, units -----------------------------------------------------------------------------------------


def expressions() -> dict[str, str]:
    dashboard = json.loads((ROOT / "conf/grafana/pykafka-sink-status.json").read_text())
    found = {
        f"{panel['title']} {one['refId']}": one["expr"] for panel in dashboard["panels"] for one in panel["targets"]
    }
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            found[f"variable {variable['name']}"] = variable["query"]["query"]
    rules = yaml.safe_load(RULES.read_text())
    return found | {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}


def test_every_expression_of_rules_and_dashboard_is_answered(sink: Sink, broker: EmbeddedBroker) -> None:
    found = samples(busy_text(sink, broker))
    asked = expressions()
    assert len(asked) > 15
    for title, expression in asked.items():
        names = re.findall(r"\bpykafka_sink_\w+", expression)
        assert names, title
        for name in names:
            assert name in found, f"{title}: {name} is not served"
        known = {label for name in names for labels, _ in found[name] for label in labels} | {"job"}
        assert labels_asked(expression) <= known, title


def test_prometheus_fires_the_rules_for_what_is_wrong_and_no_other(
    sink: Sink, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (apt install prometheus)")
    series = [
        {"series": f"{name}{{{','.join(f'{label}={json.dumps(text)}' for label, text in labels.items())}}}",
         "values": f"{number:f}+0x40"}
        for name, found in samples(busy_text(sink, broker)).items() for labels, number in found
        if "last_look" not in name
    ]  # fmt: skip
    seen = {"series": "pykafka_sink_status_last_look_age_seconds", "values": "3+0x40"}
    up = {"series": 'up{job="pykafka-sink-status"}', "values": "1+0x40"}
    blind = [{**one, "values": "0+0x40"} if one["series"] == "pykafka_sink_status_up{}" else one for one in series]
    interval = "pykafka_sink_status_interval_seconds{}"
    seldom = [{**one, "values": "300+0x40"} if one["series"] == interval else one for one in series]
    tests = [
        # Everything of `make_busy`.
        (
            [*series, seen, up],
            {"KafkaSinkActNow": 2, "KafkaSinkTransactionOpen": 1, "KafkaSinkLook": 0, "KafkaSinkSilent": 1,
             "KafkaSinkStatusDown": 0, "KafkaSinkStatusBlind": 0},
        ),
        ([*blind, seen, up], {"KafkaSinkStatusBlind": 1}),
        ([*series, {**seen, "values": "0+60x40"}, up], {"KafkaSinkStatusBlind": 1}),
        # A look every five minutes, and none any more.
        ([*seldom, {**seen, "values": EVERY_FIVE_MINUTES}, up], {"KafkaSinkStatusBlind": 0}),
        ([*seldom, {**seen, "values": "0+60x40"}, up], {"KafkaSinkStatusBlind": 1}),
        ([{**up, "values": "0+0x40"}], {"KafkaSinkStatusDown": 2, "KafkaSinkActNow": 0}),
        ([], {"KafkaSinkStatusDown": 1}),
    ]  # fmt: skip
    counted = [
        {"interval": "1m", "input_series": given, "promql_expr_test": [
            {"expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) or vector(0)', "eval_time": "20m",
             "exp_samples": [{"labels": "{}", "value": count}]}
            for name, count in expected.items()
        ]}
        for given, expected in tests
    ]  # fmt: skip
    cases = tmp_path / "cases.yml"
    cases.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": counted}))
    for words in (["check", "rules", str(RULES)], ["test", "rules", str(cases)]):
        done = subprocess.run([promtool, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_units_run_a_command_that_can_be_parsed() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign, assignment]
    unit.read(ROOT / "conf/systemd/pykafka-sink-status.service")
    deployment, service = yaml.safe_load_all((ROOT / "conf/kubernetes/pykafka-sink-status.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    commands = [shlex.split(unit["Service"]["ExecStart"])[1:], container["args"]]
    for words in commands:
        given = parse_arguments(words)
        assert (given.serve, given.properties) == (9464, "/etc/pykafka-sink/client.properties")
    assert [parse_arguments(words).host for words in commands] == ["127.0.0.1", "0.0.0.0"]
    assert container["command"] == ["pykafka-sink"] and container["ports"][0]["containerPort"] == 9464
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]


# ---- the drill -------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


@contextmanager
def process_of(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


@dataclass(frozen=True)
class Prometheus:
    address: str

    def firing(self) -> set[str]:
        told: dict[str, Any] = json.loads(fetch(f"{self.address}/api/v1/alerts"))
        return {one["labels"]["alertname"] for one in told["data"]["alerts"] if one["state"] == "firing"}

    def values(self, expression: str, begin_s: float, end_s: float) -> list[dict[str, Any]]:
        """What it has recorded: series, each with pairs of time and value."""
        asked = {"query": expression, "start": begin_s, "end": end_s, "step": STEP_S}
        told = json.loads(fetch(f"{self.address}/api/v1/query_range?{urlencode(asked)}"))
        found: list[dict[str, Any]] = told["data"]["result"]
        return found


@contextmanager
def prometheus_of(port: int, folder: Path) -> Iterator[Prometheus]:
    """A server with the rules, as a site would run it."""
    server = shutil.which("prometheus")
    if server is None:
        pytest.skip("prometheus is not installed (apt install prometheus)")
    targets = [{"targets": [f"127.0.0.1:{port}"]}]
    settings = {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "pykafka-sink-status", "static_configs": targets}],
    }
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(settings))
    listening = f"127.0.0.1:{free_port()}"
    words = (f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={listening}")

    with process_of(server, *words):
        wait_until(lambda: is_ready(f"http://{listening}/-/ready"), "Prometheus is ready")
        yield Prometheus(f"http://{listening}")


def is_ready(url: str) -> bool:
    try:
        return bool(fetch(url))
    except OSError:
        return False


@dataclass
class Drill:
    """What happened, and when, in seconds since it began."""

    began_s: float = field(default_factory=time.time)
    events: list[tuple[float, str]] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def tell(self, text: str) -> None:
        self.events.append((self._now(), text))

    def note_alert(self, name: str) -> None:
        """It fires, so long after what happened last."""
        self.notes[name] = f"after {self._now() - self.events[-1][0]:.0f} s"
        print(f"\n{name} fired {self.notes[name]}: {self.events[-1][1]}")

    def _now(self) -> float:
        return round(time.time() - self.began_s, 1)

    def record(self, prometheus: Prometheus) -> dict[str, Any]:
        end_s = time.time()
        told = {name: prometheus.values(FIGURES[name], self.began_s, end_s) for name in FIGURES}
        alerts = {
            f"{one['metric']['alertname']} {one['metric']['alertstate']}": [
                round(at_s - self.began_s, 1) for at_s, _ in one["values"]
            ]
            for one in prometheus.values("ALERTS", self.began_s, end_s)
        }
        figures = {
            name: points_of(series[0]["values"], self.began_s) if series else [] for name, series in told.items()
        }
        return {"figures": figures, "alerts": alerts, "events": self.events, "notes": self.notes}


@pytest.mark.slow
def test_the_alert_fires_within_two_minutes_after_a_driver_was_killed_in_its_commit(sink: Sink, tmp_path: Path) -> None:
    """With the intervals of the documentation. What is measured is printed: this is no promise about a busy machine.
    tools/drill_picture.py draws what Prometheus recorded."""
    sink.wall_ms = wall_ms()
    sink.deliver(BATCH)
    port = free_port()
    words = ("-m", "kafka_sink", "status", "--serve", str(port), "--bootstrap-server", sink.servers)
    with prometheus_of(port, tmp_path) as prometheus:
        firing = prometheus.firing
        with process_of(sys.executable, *words):
            wait_until(lambda: is_ready(f"http://127.0.0.1:{port}/metrics"), "the figures are served")
            scraped = "count_over_time(pykafka_sink_status_up[2m]) >= "
            wait_until(lambda: prometheus.values(f"{scraped}1", time.time() - 1, time.time()), "the first figures", 120)
            drill = Drill()
            wait_until(lambda: prometheus.values(f"{scraped}3", time.time() - 1, time.time()), "some figures", 120)
            assert not firing()
            killed = Sink(
                sink.servers, "t", "killed", DEFAULT_LEDGER, run="e" * 16, timeout_ms=900_000, wall_ms=wall_ms()
            )
            killed.decide_and_die(BATCH)
            drill.tell("a driver is killed between its decision and its commit")
            wait_until(lambda: "KafkaSinkActNow" in firing(), "the alert", 240)
            drill.note_alert("KafkaSinkActNow")
            assert firing() == {"KafkaSinkActNow"}
            about = ("recover", "--all", "--bootstrap-server", sink.servers)
            assert subprocess.run([sys.executable, "-m", "kafka_sink", *about]).returncode == 0
            drill.tell("recover --all")
            wait_until(lambda: not firing(), "the alert ends", 240)
        drill.tell("the status process is gone")
        wait_until(lambda: "KafkaSinkStatusDown" in firing(), "the alert", 240)
        drill.note_alert("KafkaSinkStatusDown")
        down = 'ALERTS{alertname="KafkaSinkStatusDown", alertstate="firing"}'

        def recorded() -> bool:
            return any(len(one["values"]) >= 4 for one in prometheus.values(down, drill.began_s, time.time()))

        wait_until(recorded, "the alert is in the record", 120)
        recording = drill.record(prometheus)
    assert any(point[1] for point in recording["figures"]["open decisions"])
    assert {"KafkaSinkActNow firing", "KafkaSinkStatusDown firing"} <= set(recording["alerts"])
    target = Path(os.environ.get("PYKAFKA_SINK_DRILL", tmp_path / "drill.json"))
    target.write_text(json.dumps(recording, indent=1) + "\n", encoding="utf-8")
    assert draw(recording).startswith("<svg ")
