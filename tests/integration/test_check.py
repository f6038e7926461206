"""`check`: a healthy job has no complaints, and each planted mistake is named in its line.

The assumption under test: brokers say beforehand what they would refuse, and the requests of `check` change nothing.
"""

from __future__ import annotations

import json
import runpy
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kafka_sink
from kafka_sink.commit.admin.topics import topic_state
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.kafka.io import side_by_side
from kafka_sink.operate.checks import environment, ledger, spark_settings
from kafka_sink.operate.checks.environment import pyspark_zip, versions
from kafka_sink.operate.checks.finding import FAIL, OK, WARN, ProbeResult
from kafka_sink.operate.checks.run import run_side_by_side
from kafka_sink.operate.checks.spark_settings import sockets
from kafka_sink.spark import files
from kafka_sink.testing import BrokerCluster, EmbeddedBroker, EmbeddedRegistry, Fault
from kafka_sink.testing.errors import Code
from tests.integration.planted_mistakes import (
    LEDGER,
    MISTAKES,
    SHORT_S,
    SINK_ID,
    TOPIC,
    Mistake,
    Planting,
    closed_port,
    job,
    login,
)
from tests.support.asking import client_of
from tests.support.certificates import Authority
from tests.support.commanding import Shell, Sink
from tests.support.secured_kafka import SecuredKafka
from tools.foreign_reader import read_topic
from tools.waiting import wait_until

# Lines about the machine that runs this test, not about the job.
OF_THE_MACHINE = {"sockets", "pyspark.zip"}
# If every server answers, no check waits until this limit.
AMPLE_S = 60.0
# If one server is silent, a share of this limit is waited for it; the others must answer within it.
SILENT_S = 8.0


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Planting]:
    with ExitStack() as stack:
        yield Planting(stack, tmp_path)


def complaints(report: kafka_sink.CheckReport) -> set[str]:
    return {each.name for each in report if each.verdict != OK} - OF_THE_MACHINE


def state_of(core: BrokerCluster) -> Any:
    logs = {
        (topic.name, partition.index): partition.log.end_offset
        for topic in core.cluster.topics.values()
        for partition in topic.partitions
    }
    return logs, sorted(core.coordinator.transactions)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_check_that_has_a_bug_has_not_passed() -> None:
    def fail() -> Iterator[ProbeResult]:
        yield ProbeResult("brokers", OK, "so far")
        raise RuntimeError("a bug")

    found = run_side_by_side({"brokers": fail}, SILENT_S)
    assert [(each.verdict, each.text) for each in found] == [
        (OK, "so far"),
        (FAIL, "this could not be checked: RuntimeError"),
    ]


# ---- healthy jobs and mistakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["exactly-once", "at-least-once"])
def test_a_job_that_is_well_has_no_complaint_and_nothing_is_written(place: Planting, mode: str) -> None:
    kafka = place.guarded()
    before = kafka.do(state_of)
    report = kafka_sink.check(login(kafka, {"delivery.guarantee": mode}), place.schema, timeout_s=AMPLE_S)
    assert complaints(report) == {"options"}, report  # its password is readable on the network
    assert kafka.do(state_of) == before
    names = {each.name for each in report}
    assert {"options", "columns", "python", "pyarrow", "pyspark", "bootstrap", "login", "brokers", "versions"} <= names
    assert {"clock", "topic", "sizes", "permissions", "transactions"} <= names
    if mode == "exactly-once":
        assert {"time limits", "coordinator", "ids", "ledger", "decisions"} <= names


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_a_mistake_is_named_in_its_line_with_what_to_do(place: Planting, mistake: Mistake) -> None:
    options = mistake.plant(place)
    # A check that retries until the limit uses all of it.
    waits = mistake.name == "login" and mistake.verdict == FAIL
    report = kafka_sink.check(options, place.schema, timeout_s=SHORT_S if waits else AMPLE_S)
    lines = [each for each in report if each.name == mistake.name and each.verdict == mistake.verdict]
    assert any(mistake.said in each.text for each in lines), report
    assert all(each.advice for each in lines)
    assert report.exit_code >= (2 if mistake.verdict == FAIL else 1)


def test_a_long_ledger_is_told_with_what_a_start_costs(place: Planting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records of all sinks count, whichever sink is asked for."""
    kafka = place.broker()
    for sink_id in (SINK_ID, "of-another-team"):
        Sink(kafka.bootstrap_servers, TOPIC, sink_id, LEDGER).deliver(BatchKey("query-1", 0))

    def told() -> list[str]:
        report = kafka_sink.check(job(kafka), place.schema, timeout_s=AMPLE_S)
        return [each.text for each in report if "each start reads" in each.text and each.verdict == WARN]

    assert told() == []
    monkeypatch.setattr(ledger, "LONG_FROM", 3)
    (text,) = told()
    # A claim, an intent and a done record of each.
    assert text == f"each start reads the 6 records of all sinks in {LEDGER}: about 0.0 s of CPU"


def test_there_are_mistakes_of_every_kind() -> None:
    assert len(MISTAKES) >= 25 and len({mistake.name for mistake in MISTAKES}) >= 15


def test_a_wrong_password_is_tried_once(place: Planting, caplog: pytest.LogCaptureFixture) -> None:
    """Repeated wrong passwords lock accounts."""
    kafka = place.guarded()
    with caplog.at_level("WARNING", logger="kafka_sink"):
        report = kafka_sink.check(login(kafka, {"kafka.sasl.password": "wrong"}), timeout_s=AMPLE_S)
    assert [each.name for each in report if each.verdict == FAIL] == ["login"]
    assert caplog.text.count("refused the credentials") == 1


# ---- writing -------------------------------------------------------------------------------------------------------


def test_probe_write_leaves_an_aborted_transaction_and_nothing_else(place: Planting) -> None:
    kafka = place.broker()
    report = kafka_sink.check(job(kafka), place.schema, probe_write=True, timeout_s=AMPLE_S)
    (write,) = [each for each in report if each.name == "write"]
    assert write.verdict == OK and "aborted" in write.text
    assert {each.text for each in report if each.name == "clock"} == {
        "this clock and the controller's differ by less than 5 s",
        "this clock and the coordinator's differ by less than 5 s",
    }

    def written() -> int:
        return sum(end for (topic, _), end in kafka.do(state_of)[0].items() if topic == TOPIC)

    # The record and the marker of the abort, which is written after the answer.
    wait_until(lambda: written() >= 2, "the marker of the abort")
    logs, ids = kafka.do(state_of)
    assert ids == [f"{SINK_ID}-check"] and written() == 2
    assert logs[LEDGER, 0] == 0
    assert read_topic(kafka.bootstrap_servers, TOPIC) == []
    before = kafka.do(state_of)
    assert complaints(kafka_sink.check(job(kafka), place.schema, timeout_s=AMPLE_S)) == set()
    assert kafka.do(state_of) == before


def test_brokers_that_write_no_markers_are_told_where_exactly_once_would_lose_rows(place: Planting) -> None:
    """Everything else works: rows arrive, and an aborted one is not seen. Only after a crash nothing tells the end."""
    kafka = place.stack.enter_context(EmbeddedBroker(3, topics={TOPIC: 3}, quirks="warpstream"))
    report = kafka_sink.check(job(kafka), place.schema, probe_write=True, timeout_s=AMPLE_S)
    (write,) = [each for each in report if each.name == "write"]
    assert write.verdict == FAIL and "exactly-once cannot work here" in write.text, report
    assert "delivery.guarantee=at-least-once" in write.advice
    assert read_topic(kafka.bootstrap_servers, TOPIC) == []


@pytest.mark.parametrize("preset", ["redpanda", "warpstream", "bufstream"])
def test_nobody_is_advised_to_set_what_a_service_has_no_setting_for(place: Planting, preset: str) -> None:
    kafka = place.stack.enter_context(EmbeddedBroker(3, topics={TOPIC: 3}, quirks=preset))
    for more, advice in (({}, "use Kafka 3.6 or newer"), ({"preset": preset}, "the service has no setting for it")):
        report = kafka_sink.check(job(kafka, more), timeout_s=AMPLE_S)
        (line,) = [each for each in report if each.name == "transactions"]
        assert line.verdict == WARN and line.advice.startswith(advice), line


def test_a_marker_that_is_late_is_no_reason_to_give_exactly_once_up(place: Planting) -> None:
    kafka = place.broker()
    kafka.inject(Fault("Fetch", error_code=Code.NOT_LEADER_OR_FOLLOWER, topic=TOPIC, times=None))
    report = kafka_sink.check(job(kafka), place.schema, probe_write=True, timeout_s=SHORT_S)
    (write,) = [each for each in report if each.name == "write"]
    assert write.verdict == WARN and "its marker is late" in write.text and "--timeout" in write.advice, report


def test_who_may_only_write_is_not_told_that_a_marker_is_missing(place: Planting) -> None:
    options = login(place.guarded(("read", "topic", TOPIC)))
    report = kafka_sink.check(options, probe_write=True, timeout_s=AMPLE_S)
    (write,) = [each for each in report if each.name == "write"]
    assert write.verdict == OK and "aborted" in write.text, report


def test_what_could_not_be_taken_back_is_not_written(place: Planting) -> None:
    kafka = place.broker()
    before = kafka.do(state_of)
    report = kafka_sink.check(job(kafka, {"delivery.guarantee": "at-least-once"}), probe_write=True, timeout_s=AMPLE_S)
    (write,) = [each for each in report if each.name == "write"]
    assert "could not be taken back" in write.text and kafka.do(state_of) == before


def test_a_job_that_may_fall_back_needs_neither_ledger_nor_transaction(place: Planting) -> None:
    kafka = place.stack.enter_context(EmbeddedBroker(3, topics={TOPIC: 3}, quirks="event-hubs"))
    options = job(kafka, {"delivery.fallback": "at-least-once"})
    report = kafka_sink.check(options, place.schema, probe_write=True, timeout_s=AMPLE_S)
    assert report.is_ok and "ledger" not in {each.name for each in report}, report
    assert [each.text for each in report if each.name == "permissions"] == [f"topic {TOPIC}: Write"]


TO_WRITE, TO_BEGIN = "not possible to write the record: ", "not possible to begin the transaction: "


@pytest.mark.parametrize(
    ("refused_by", "said", "advised"),
    [
        (
            "topic",
            f"{TO_WRITE}this principal may not write to the topic",
            f"User:alice --operation Write --topic {TOPIC}`",
        ),
        ("ids", f"{TO_BEGIN}this principal may not use the transactional ids", f"--transactional-id {SINK_ID}- "),
        ("size", f"{TO_WRITE}the topic takes no record of", "--add-config max.message.bytes=1048588`"),
        ("load", f"{TO_BEGIN}the coordinator has just taken over", "repeat the check"),
        ("replicas", f"{TO_WRITE}too few replicas are in sync", "start the brokers that are down"),
        ("transaction before", f"{TO_BEGIN}the transaction of the probe before", "repeat it in some seconds"),
    ],
)
def test_the_probe_of_a_write_says_what_was_not_possible_why_and_what_to_do(
    place: Planting, refused_by: str, said: str, advised: str
) -> None:
    limit_s = AMPLE_S
    if refused_by == "topic":
        options = login(place.guarded(("write", "topic", TOPIC)))
    elif refused_by == "ids":
        options = login(place.guarded(("write", "transactional_id", SINK_ID)))
    else:
        kafka = place.broker()
        kafka.create_topic("tiny", 1, {"max.message.bytes": "20"})
        options = job(kafka, {"topic": "tiny"} if refused_by == "size" else {})
        faults = {
            "load": Fault("InitProducerId", error_code=Code.COORDINATOR_LOAD_IN_PROGRESS, times=None),
            "replicas": Fault("Produce", error_code=Code.NOT_ENOUGH_REPLICAS, times=None),
            "transaction before": Fault("InitProducerId", error_code=Code.CONCURRENT_TRANSACTIONS, times=None),
        }
        if refused_by in faults:
            limit_s = SHORT_S  # it is repeated until then
            kafka.inject(faults[refused_by])
    report = kafka_sink.check(options, probe_write=True, timeout_s=limit_s)
    (write,) = [each for each in report if each.name == "write"]
    assert write.verdict == FAIL and write.text.startswith(said) and advised in write.advice, report


# ---- the command ---------------------------------------------------------------------------------------------------


def test_the_command_takes_options_as_the_job_does_and_its_exit_code_tells_the_worst(
    place: Planting, shell: Shell, tmp_path: Path
) -> None:
    kafka = place.broker()
    words = ("--bootstrap-server", kafka.bootstrap_servers, "--sink-id", SINK_ID, "--timeout", "10", "--json")
    ledger = ("--option", f"ledger.topic={LEDGER}")
    said = shell("check", *words, *ledger, "--topic", TOPIC, "--columns", "value STRING")
    found = json.loads(said.out)
    assert all(list(each) == ["name", "verdict", "text", "advice"] for each in found)
    assert {each["verdict"] for each in found} <= {OK, WARN, FAIL}
    worst = {each["verdict"] for each in found}
    assert said.exit_code == (1 if WARN in worst else 0) and FAIL not in worst
    kafka.create_topic("loose", 1)
    assert shell("check", *words, *ledger, "--topic", "loose").exit_code == 1
    properties = tmp_path / "job.properties"
    properties.write_text("max.request.size=10485760\nledger.topic=none\nledger.create=false\n")
    failed = shell("check", *words, "--topic", TOPIC, "--properties", str(properties))
    bad = {each["name"]: each["verdict"] for each in json.loads(failed.out) if each["verdict"] != OK}
    assert failed.exit_code == 2 and bad["sizes"] == WARN and bad["ledger"] == FAIL


def test_the_table_has_a_mark_and_advice_for_each_line(place: Planting, shell: Shell) -> None:
    kafka = place.broker(properties={"auto.create.topics.enable": "false"})
    said = shell("check", "--bootstrap-server", kafka.bootstrap_servers, "--topic", "orderz", "--timeout", "10")
    lines = said.out.splitlines()
    (at,) = [index for index, line in enumerate(lines) if "orderz is not there" in line]
    assert lines[at].split()[1] == "topic" and said.exit_code == 2
    assert "--topic orderz`, or set topic.create=true" in lines[at + 1]


def test_wrong_options_are_a_line_too(shell: Shell) -> None:
    said = shell("check", "--topic", "t", "--json")
    (line,) = [each for each in json.loads(said.out) if each["name"] == "options"]
    assert said.exit_code == 2 and "bootstrap.servers is missing" in line["text"]
    missing = shell("check", "--properties", "no such file", "--json")
    assert missing.exit_code == 2 and "cannot be read" in json.loads(missing.out)[0]["text"]
    report = kafka_sink.check({"kafka.bootstrap.servers": "nowhere:1", "topic": "t", "sink.id": None})
    assert [each.text for each in report if each.name == "options"] == ["these options have no value (None): sink.id"]


def test_a_preset_is_explained_without_a_broker_and_what_is_set_wins(shell: Shell) -> None:
    said = shell("check", "--preset", "event-hubs", "--explain", "--option", "kafka.compression.type=gzip")
    assert said.exit_code == 0
    assert "kafka.compression.type=none (the option that you set wins)" in said.out
    assert "sets     kafka.connections.max.idle.ms=180000\n" in said.out and "cannot   Transactions" in said.out
    assert shell("check", "--explain").exit_code == 2


def test_a_schema_is_looked_for_and_not_registered(place: Planting) -> None:
    kafka = place.broker()
    with EmbeddedRegistry() as registry:
        options = {"value.format": "avro", "value.columns": "value", "schema.registry.url": registry.url}
        report = kafka_sink.check(
            job(kafka, {**options, "auto.register.schemas": "true"}), place.schema, timeout_s=AMPLE_S
        )
        assert {each.verdict for each in report if each.name in ("registry", "schema")} == {OK}, report
        assert not registry.do(lambda core: [each.subjects for each in core.store.contexts.values() if each.subjects])


def test_a_registry_is_asked_again_by_each_check(place: Planting) -> None:
    kafka = place.broker()
    with EmbeddedRegistry() as registry:

        def register(kind: str) -> None:
            text = f'{{"type": "record", "name": "Row", "fields": [{{"name": "value", "type": "{kind}"}}]}}'
            body = json.dumps({"schema": text}).encode()
            path = f"/subjects/{TOPIC}-value/versions"
            assert registry.do(lambda core: core.answer("POST", path, {}, body).status) == 200

        registry.do(lambda core: core.store.levels.update({"": "NONE"}))
        options = {"value.format": "avro", "value.columns": "value", "schema.registry.url": registry.url}
        wanted = job(kafka, {**options, "use.latest.version": "true"})
        verdicts = []
        for kind in ("long", "string"):
            register(kind)
            report = kafka_sink.check(wanted, place.schema, timeout_s=AMPLE_S)
            verdicts += [each.verdict for each in report if each.name == "schema"]
    assert verdicts == [FAIL, OK]


def test_rules_of_a_schema_are_told(place: Planting) -> None:
    kafka = place.broker()
    with EmbeddedRegistry() as registry:
        text = '{"type": "record", "name": "Row", "fields": [{"name": "value", "type": "string"}]}'
        rules = [
            {"name": "encryptAll", "type": "ENCRYPT", "mode": "WRITEREAD", "tags": ["PII"]},
            {"name": "shown", "kind": "CONDITION", "type": "CEL", "mode": "READ"},
        ]
        body = json.dumps({"schema": text, "ruleSet": {"domainRules": rules}}).encode()
        path = f"/subjects/{TOPIC}-value/versions"
        assert registry.do(lambda core: core.answer("POST", path, {}, body).status) == 200
        options = {"value.format": "avro", "value.columns": "value", "schema.registry.url": registry.url,
                   "use.latest.version": "true"}  # fmt: skip
        found = {
            word: [
                (each.verdict, each.text)
                for each in kafka_sink.check(job(kafka, {**options, **more}), place.schema, timeout_s=AMPLE_S)
                if each.name == "schema"
            ]
            for word, more in (("refuse", {}), ("ignore", {"schema.rules": "ignore"}))
        }
    ((verdict, said),) = found["refuse"]
    assert verdict == FAIL and "encryptAll (TRANSFORM ENCRYPT, WRITEREAD, tags PII)" in said
    assert [verdict for verdict, _ in found["ignore"]] == [OK, WARN, OK]
    assert "encryptAll" in found["ignore"][1][1] and "shown (CONDITION CEL, READ)" in found["ignore"][2][1]


def test_ids_are_counted_for_their_own_sink(place: Planting) -> None:
    kafka = place.broker()
    for sink_id in (SINK_ID, f"{SINK_ID}-eu"):
        Sink(kafka.bootstrap_servers, TOPIC, sink_id, LEDGER).task(BatchKey("query-1", 0), 0)
    report = kafka_sink.check(job(kafka), timeout_s=AMPLE_S)
    (line,) = [each for each in report if each.name == "ids"]
    assert line.text == f"1 of 2 transactional ids are of sink {SINK_ID}, 1 transactions open"


def test_transactions_that_a_broker_does_not_list_are_not_taken_for_none(place: Planting) -> None:
    kafka = place.broker()
    kafka.inject(Fault("ListTransactions", error_code=Code.COORDINATOR_LOAD_IN_PROGRESS, times=None))
    report = kafka_sink.check(job(kafka), timeout_s=AMPLE_S)
    told, counted = [each for each in report if each.name == "ids"]
    assert told.verdict == WARN and "ListTransactions was answered with COORDINATOR_LOAD_IN_PROGRESS" in told.text
    assert counted.text.startswith("0 of 0 ")


# ---- the machine ---------------------------------------------------------------------------------------------------


def test_versions_that_are_too_old_are_named() -> None:
    told = {each.name: each for each in versions((3, 10, 1), "13.0.0", "3.3.4")}
    assert told["python"].text == "Python 3.10.1" and told["pyarrow"].verdict == FAIL
    assert told["pyspark"].verdict == FAIL and told["pyspark"].advice == "use PySpark 3.4 or newer"
    assert [each.verdict for each in versions((3, 12, 0), "20.0", None)] == [OK, OK, WARN]
    assert [each.verdict for each in versions((3, 12, 0), None, "4.0.1")] == [OK, FAIL, OK]
    # Those of a platform's own packages.
    assert [each.verdict for each in versions((3, 12, 0), "20-vendor", "4.3-vendor")] == [OK, OK, OK]


def test_of_a_pyspark_without_the_format_check_says_what_works_there() -> None:
    pyspark = list(versions((3, 10, 1), "18.0", "3.5.8"))[-1]
    assert pyspark.verdict == OK and "kafka_sink.foreach_batch(options)" in pyspark.text
    assert 'format("pykafka-sink") needs PySpark 4.0' in pyspark.text


def test_slow_imports_of_this_machine_are_no_matter_of_the_brokers_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_slowly() -> str:
        threading.Event().wait(0.5)
        return ""

    monkeypatch.setattr(environment, "missing_pandas", import_slowly)
    report = kafka_sink.check({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}, timeout_s=0.2)
    told = {each.name: each for each in report}
    assert told["python"].verdict == OK and told["pyspark"].verdict == OK
    assert not any("no answer within" in each.text for each in report if each.name == "python")


def test_sockets_are_read_from_the_defaults_that_a_new_session_would_have(tmp_path: Path) -> None:
    settings = {"SPARK_CONF_DIR": str(tmp_path)}
    assert list(sockets(None, settings)) == []  # the defaults are unknown
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text("# none\nspark.executor.memory 2g\n")
    (off,) = sockets(None, settings)
    defaults.write_text("spark.python.unix.domain.socket.enabled   true\n")
    (on,) = sockets(None, settings)
    assert (off.verdict, on.verdict) == (WARN, OK) and off.advice
    name = "spark.python.unix.domain.socket.enabled"
    defaults.write_text(f"{name} true\n{name}=false\n")
    (last,) = sockets(None, settings)
    assert last.verdict == WARN


def test_a_client_of_spark_connect_alone_has_no_files_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyspark-client lacks SparkFiles."""
    monkeypatch.delattr("pyspark.SparkFiles")
    assert runpy.run_path(str(files.__file__))["spark_folder"]() is None


def test_a_zip_that_is_compiled_in_every_process_is_advised_against(tmp_path: Path) -> None:
    settings = {"SPARK_HOME": str(tmp_path)}
    (without,) = pyspark_zip(settings)
    (tmp_path / "python" / "lib").mkdir(parents=True)
    (tmp_path / "python" / "lib" / "pyspark.zip").touch()
    (zipped,) = pyspark_zip(settings)
    assert without.advice == "" and "pyspark.zip" in zipped.text and zipped.advice


class NoThread(threading.Thread):
    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_what_no_thread_could_be_started_for_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "Thread", NoThread)
    report = kafka_sink.check({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": TOPIC}, timeout_s=SHORT_S)
    failed = [each.text for each in report if each.verdict == FAIL]
    assert "this process cannot start a thread: can't start new thread" in failed


def test_whoever_does_not_answer_in_time_is_a_line(place: Planting) -> None:
    """The server accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        report = kafka_sink.check({"kafka.bootstrap.servers": servers, "topic": TOPIC}, timeout_s=SHORT_S)
    assert {each.name: each.verdict for each in report if each.name in ("bootstrap", "login")} == {
        "bootstrap": OK,
        "login": FAIL,
    }


def test_a_broker_that_is_silent_where_it_advertises_itself_is_named_and_holds_nobody_up(place: Planting) -> None:
    kafka = place.broker()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = job(kafka)
        with kafka.control() as core:
            core.cluster.brokers[2].port = silent.getsockname()[1]
        report = kafka_sink.check(options, timeout_s=SILENT_S)
    (line,) = [each for each in report if each.name == "brokers"]
    assert line.verdict == FAIL and "broker 2 is not reached" in line.text, report
    assert {each.verdict for each in report if each.name in ("topic", "permissions")} == {OK}, report


def test_what_could_not_be_checked_is_a_line(place: Planting, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Mapping[str, str]) -> None:
        raise PermissionError(13, "Permission denied", "/conf/spark-defaults.conf")

    monkeypatch.setattr(spark_settings, "defaults_file", refuse)
    report = kafka_sink.check(job(place.broker()), timeout_s=AMPLE_S)
    (line,) = [each for each in report if each.verdict == FAIL]
    assert line.name == "python" and "could not be checked: PermissionError" in line.text


SLOW_NAMES = """
import socket, time
socket.getaddrinfo = lambda *_, **__: time.sleep(600)
import kafka_sink
print(kafka_sink.check({"kafka.bootstrap.servers": "a.example:9092", "topic": "t"}, timeout_s=0.5))
"""


def test_a_name_server_that_is_silent_does_not_hold_the_program_up() -> None:
    said = subprocess.run([sys.executable, "-c", SLOW_NAMES], capture_output=True, text=True, timeout=60)
    assert "a.example:9092: no answer within 0.2 s" in said.stdout, said.stderr


def test_replicas_that_need_not_acknowledge_do_not_count(place: Planting) -> None:
    kafka = place.broker()
    kafka.create_topic("strict", 1, {"min.insync.replicas": "3"})
    options = job(kafka, {"topic": "strict", "delivery.guarantee": "at-least-once", "kafka.acks": "1"})
    kafka.stop_broker(3)
    report = kafka_sink.check(options, timeout_s=AMPLE_S)
    assert [each for each in report if each.name == "replicas"] == [] and report.is_ok, report


def test_what_a_job_does_not_need_or_has_only_to_wait_for_fails_no_check(place: Planting) -> None:
    """There is no controller at this moment, and the coordinator has just begun to lead."""
    kafka = place.broker()
    with kafka.control() as core:  # as in a cluster that has used transactions
        core.cluster.coordinator_partition("__transaction_state", "")
    kafka.inject(Fault("DescribeQuorum", disconnect=True, times=None))
    kafka.inject(Fault("EndTxn", error_code=Code.COORDINATOR_LOAD_IN_PROGRESS))
    report = kafka_sink.check(job(kafka), timeout_s=2.0)
    assert report.is_ok and "clock" not in {each.name for each in report}, report
    (line,) = [each for each in report if each.name == "coordinator"]
    assert line.verdict == WARN and "COORDINATOR_LOAD_IN_PROGRESS" in line.text


def test_of_brokers_that_do_not_answer_no_versions_are_told(place: Planting) -> None:
    kafka = place.broker()
    options = job(kafka)
    with kafka.control() as core:
        for broker in core.cluster.brokers.values():
            broker.port = closed_port()
    report = kafka_sink.check(options, timeout_s=2.0)
    told = [each.name for each in report if each.name in ("brokers", "versions")]
    assert told.count("brokers") >= 3 and "versions" not in told, report


# ---- Apache Kafka ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listener", "mechanism"), [("SSL", ""), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-256")]
)
def test_apache_kafka_lets_in_by_tls_and_sasl(
    secured: SecuredKafka, topic_name: str, listener: str, mechanism: str
) -> None:
    """There is one node, so topics have one replica; the lines about replicas are not judged here."""
    report = kafka_sink.check(
        of_sink(secured.options(listener, mechanism), secured.kafka.create_topic(topic_name)), timeout_s=AMPLE_S
    )
    told = {each.name: each.verdict for each in report}
    assert told["login"] == told["brokers"] == told["topic"] == told["permissions"] == told["transactions"] == OK, (
        report
    )
    assert report.is_ok, report


def test_apache_kafka_refuses_a_wrong_password_a_mechanism_and_an_unknown_authority(
    secured: SecuredKafka, tmp_path: Path
) -> None:
    unknown = {"ssl.truststore.location": str(Authority(tmp_path, "somebody").path)}
    for options, said in (
        (secured.options("SASL_PLAINTEXT", "PLAIN", sasl_password="wrong"), "refused the credentials for PLAIN"),
        ({**secured.options("SSL"), **unknown}, "an authority that is not trusted here"),
        (secured.options("SSL", security_protocol="SASL_SSL", **LOGIN), "does not want SASL on this port"),
    ):
        report = kafka_sink.check(of_sink(options, "t"), timeout_s=AMPLE_S)
        (line,) = [each for each in report if each.name == "login"]
        assert line.verdict == FAIL and said in line.text and line.advice, report


def test_apache_kafka_is_looked_at_and_left_as_it_was(secured: SecuredKafka, topic_name: str) -> None:
    """The job uses the listener without a login."""
    kafka = secured.kafka
    topic = kafka.create_topic(topic_name, partitions=2)
    options = of_sink({"bootstrap.servers": kafka.bootstrap_servers}, topic)
    report = kafka_sink.check(options, timeout_s=AMPLE_S)
    assert {each.name for each in report if each.verdict != OK} <= OF_THE_MACHINE, report
    assert "clock" in {each.name for each in report}
    with client_of(kafka.bootstrap_servers) as client:
        assert topic_state(client, options["ledger.topic"]) is None
    written = kafka_sink.check(options, timeout_s=AMPLE_S, probe_write=True)
    assert next(each for each in written if each.name == "write").verdict == OK, written
    assert {each.verdict for each in written if each.name in ("clock", "coordinator")} == {OK}, written
    assert read_topic(kafka.bootstrap_servers, topic) == []
    again = kafka_sink.check(options, timeout_s=AMPLE_S)
    assert {each.verdict for each in again if each.name == "coordinator"} == {OK}, again


LOGIN = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "any"}


def of_sink(producer: Mapping[str, Any], topic: str) -> dict[str, str]:
    named = {f"kafka.{name}": str(value) for name, value in producer.items()}
    return {**named, "topic": topic, "sink.id": topic[-60:], "ledger.topic": f"ledger-{topic[-60:]}"}


def test_a_compacted_topic_of_manifests_is_warned_about_unless_the_write_is_named(place: Planting) -> None:
    kafka = place.broker()
    kafka.create_topic("told", configs={"cleanup.policy": "compact"})
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": TOPIC, "sink.id": SINK_ID}
    options |= {"ledger.topic": LEDGER, "manifest.topic": "told"}
    (line,) = [
        each for each in kafka_sink.check(options, place.schema, timeout_s=AMPLE_S) if "manifest.topic" in each.text
    ]
    assert (line.name, line.verdict, line.text) == (
        "topic", WARN,
        "manifest.topic=told is compacted, and all manifests of a stream have one key: only the newest stays",
    )  # fmt: skip
    assert "--entity-name told --add-config cleanup.policy=delete" in (line.advice or "")
    named = kafka_sink.check({**options, "batch.id": "monday"}, place.schema, timeout_s=AMPLE_S)
    assert not [each for each in named if "manifest.topic" in each.text]


def test_a_topic_of_manifests_that_is_missing_is_made_by_the_command_of_its_line(place: Planting, shell: Shell) -> None:
    kafka = place.broker(properties={"auto.create.topics.enable": "false"})
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": TOPIC, "sink.id": SINK_ID}
    options |= {"ledger.topic": LEDGER, "manifest.topic": "told"}
    (line,) = [each for each in kafka_sink.check(options, place.schema, timeout_s=AMPLE_S) if "told" in each.text]
    assert (line.name, line.verdict, line.text) == (
        "topic", FAIL, "manifest.topic=told is not there: no batch can be planned",
    )  # fmt: skip
    _, command, *_ = (line.advice or "").split("`")
    assert shell(*shlex.split(command)[1:], "--yes").exit_code == 0
    again = kafka_sink.check(options, place.schema, timeout_s=AMPLE_S)
    assert not [each for each in again if "told" in each.text and each.verdict != OK]
