"""Lines of `check` about Spark, this package and quotas, from what a session, a file or a broker would tell."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.commit.admin.client_pool import ClientPool
from kafka_sink.commit.identity import sink_id_of_checkpoint
from kafka_sink.operate.checks.environment import environment, missing_pandas, server, versions
from kafka_sink.operate.checks.finding import FAIL, OK, WARN
from kafka_sink.operate.checks.quotas import ANONYMOUS, BYTE_RATE, TIME_SHARE, applying_quota, quotas
from kafka_sink.operate.checks.spark_settings import (
    ARROW_BYTES,
    ARROW_ROWS,
    HIDES_OPTIONS,
    IDLE_S,
    KILLS_IDLE,
    REDACTION,
    SOCKETS,
    arrow,
    hides_options,
    idle_workers,
    package,
)
from kafka_sink.operate.checks.workers import worker_findings, workers
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.version import VERSION


def session_with(settings: Mapping[str, str], version: str = "4.3.0") -> Any:
    return SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: settings.get(name, default)), version=version)


@pytest.mark.parametrize(
    ("settings", "advised"),
    [
        ({}, True),
        ({ARROW_BYTES: "4m"}, False),
        ({ARROW_BYTES: "4194304"}, False),
        ({ARROW_BYTES: "256MB"}, True),
        ({ARROW_BYTES: "16mb"}, True),
        ({ARROW_ROWS: "500"}, False),
        ({ARROW_ROWS: "0"}, True),
        ({ARROW_ROWS: "-1"}, True),
        ({ARROW_ROWS: "-1", ARROW_BYTES: "4mb"}, False),
    ],
)
def test_arrow_batches_without_a_limit_are_named_and_the_advised_setting_ends_that(
    settings: Mapping[str, str], advised: bool
) -> None:
    (line,) = arrow(session_with(settings), {})
    assert line.name == "arrow" and line.verdict == OK
    assert bool(line.advice) == ("slower" in line.text) == advised
    for setting in (f"{ARROW_BYTES}=4m", f"{ARROW_ROWS}=500") if advised else ():
        assert setting in line.advice
        (again,) = arrow(session_with({**settings, **dict([setting.split("=")])}), {})
        assert not again.advice


@pytest.mark.parametrize(
    ("kills", "idle", "is_told"),
    [
        ("true", "60", True), ("true", "1m", True), ("true", "120", False), ("true", "2min", False),
        ("true", "0", False), ("true", None, False), ("false", "60", False), (None, "60", False),
    ],
)  # fmt: skip
def test_a_session_that_kills_idle_workers_too_soon_for_a_commit_is_told(
    kills: str | None, idle: str | None, is_told: bool
) -> None:
    given = {KILLS_IDLE: kills, IDLE_S: idle}
    found = list(idle_workers(session_with({name: value for name, value in given.items() if value is not None}), {}))
    assert [each.verdict for each in found] == [WARN] * is_told
    assert all("for 60 s" in each.text and f"{IDLE_S}=120" in each.advice for each in found)


def test_the_limit_of_arrow_batches_is_read_from_the_defaults_of_a_new_session(tmp_path: Path) -> None:
    settings = {"SPARK_CONF_DIR": str(tmp_path)}
    assert list(arrow(None, settings)) == []
    (tmp_path / "spark-defaults.conf").write_text(f"{ARROW_BYTES} 4m\n")
    (line,) = arrow(None, settings)
    assert "4096 KiB" in line.text and not line.advice


@pytest.mark.parametrize(
    ("client", "server_version", "verdict", "said"),
    [
        ("4.3.0", "4.3.0", None, ""),
        ("4.3.0", "4.3.1", None, ""),
        (None, "4.3.0", None, ""),
        ("4.3.0", "4.0.1", WARN, "PySpark 4.3.0 here, and Spark 4.0.1 in the session"),
        ("4.3.0", "3.5.8", WARN, 'format("pykafka-sink") is unknown there, kafka_sink.foreach_batch(options)'),
        ("4.3.0", "3.3.4", FAIL, "too old"),
    ],
)
def test_a_session_of_another_spark_is_named_with_the_door_that_works_there(
    client: str | None, server_version: str, verdict: str | None, said: str
) -> None:
    found = list(server(client, server_version))
    assert [each.verdict for each in found] == ([] if verdict is None else [verdict])
    assert all(said in each.text and each.advice for each in found)


@pytest.mark.parametrize(
    ("pyspark", "verdict", "said"),
    [
        ("4.3.0", WARN, 'format("pykafka-sink") works, kafka_sink.foreach_batch(options) and kafka_sink.write'),
        ("3.5.9", FAIL, 'format("pykafka-sink") needs PySpark 4.0, kafka_sink.foreach_batch(options)'),
    ],
)
def test_without_pandas_the_functions_are_not_told_to_work(pyspark: str, verdict: str, said: str) -> None:
    line = list(versions((3, 12, 0), "20.0", pyspark, "Pandas >= 2.2.0 must be installed; however, it was not found."))[
        -1
    ]
    assert (line.verdict, said in line.text, "do not work: Pandas >= 2.2.0" in line.text) == (verdict, True, True)
    assert "pip install 'pandas>=2.2,<3'" in line.advice


def test_pyspark_says_itself_whether_pandas_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_pandas() == ""
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert "andas" in missing_pandas()


@pytest.mark.parametrize(("version", "is_told"), [("3.5.9", False), ("4.0.5", False), ("4.1.0", True), ("4.3.0", True)])
def test_unix_sockets_are_told_of_where_spark_has_them(version: str, is_told: bool) -> None:
    for value in ("true", "false"):
        names = [line.name for line in environment(session_with({SOCKETS: value}, version))]
        assert ("sockets" in names) == is_told


def test_a_pyspark_with_the_format_is_told_to_have_both_doors() -> None:
    assert "works, and the functions" in list(versions((3, 12, 0), "20.0", "4.1.0"))[-1].text


@pytest.mark.parametrize(
    ("shipped", "verdict", "said"),
    [
        ("", OK, VERSION),
        (f"hdfs:/libs/pykafka_sink-{VERSION}-py3-none-any.whl", OK, "as the application ships it"),
        (f"/a/pykafka_sink-{VERSION}.zip,/b/other-1.0.zip", OK, "as the application ships it"),
        ("s3://libs/pykafka_sink-0.1.0.zip", WARN, "the application ships 0.1.0 to its executors"),
        ("pykafka_sink-0.1.0-py3-none-any.whl", WARN, "tasks with another release than the driver are refused"),
        ("/envs/spark-env.tar.gz#environment", OK, VERSION),
    ],
)
def test_another_release_in_the_files_of_the_application_is_named(
    monkeypatch: pytest.MonkeyPatch, shipped: str, verdict: str, said: str
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: VERSION)
    for name in ("spark.submit.pyFiles", "spark.archives"):
        (line,) = package(session_with({name: shipped}), {})
        assert (line.name, line.verdict) == ("package", verdict) and said in line.text
        assert bool(line.advice) == (verdict == WARN)


def test_a_release_that_is_imported_and_not_the_installed_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.1.0")
    (line,) = package(session_with({}), {})
    assert (
        line.verdict == WARN and f"runs pykafka-sink {VERSION} from" in line.text and "0.1.0 is installed" in line.text
    )


def test_executors_with_another_release_or_none_are_named_by_host() -> None:
    told = [("a", VERSION, "/p"), ("b", "0.1.0", "/old.zip"), ("b", "0.1.0", "/old.zip"), ("c", "", "no module")]
    found = list(worker_findings(told))
    assert [each.verdict for each in found] == [FAIL, FAIL] and all(VERSION in each.advice for each in found)
    assert "b has pykafka-sink 0.1.0 from /old.zip" in found[0].text and "c has no pykafka-sink" in found[1].text
    (fine,) = worker_findings([("a", VERSION, "/p"), ("b", VERSION, "/p")])
    assert fine.verdict == OK and "2 tasks on 2 hosts" in fine.text
    (unasked,) = workers(None)
    assert unasked.verdict == OK and "not asked" in unasked.text


@pytest.mark.parametrize(
    ("expression", "hides"),
    [(None, False), (HIDES_OPTIONS, True), (r"options \{.*\}", False), ("(?i)password", False), ("(?<a", False)],
)
def test_a_server_of_connect_hides_options_only_with_an_expression_that_covers_them(
    expression: str | None, hides: bool
) -> None:
    assert hides_options(session_with({} if expression is None else {REDACTION: expression})) is hides


# ---- quotas ----------------------------------------------------------------------------------------------------------


def entry(value: float, key: str = BYTE_RATE, **entity: str | None) -> dict[str, Any]:
    named = [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in entity.items()]
    return {"entity": named, "values": [{"key": key, "value": value}]}


# From the most specific one on, as Apache Kafka decides.
RANKED = [
    entry(1, user="alice", client_id="me"), entry(2, user="alice", client_id=None), entry(3, user="alice"),
    entry(4, user=None, client_id="me"), entry(5, user=None, client_id=None), entry(6, user=None),
    entry(7, client_id="me"), entry(8, client_id=None),
]  # fmt: skip


def test_of_several_quotas_the_most_specific_one_applies() -> None:
    for first in range(len(RANKED)):
        found = applying_quota(list(reversed(RANKED[first:])), BYTE_RATE, "alice", "me")
        assert found is not None and found.value == first + 1


def test_quotas_of_others_do_not_apply() -> None:
    others = [
        entry(1, user="bob"),
        entry(2, client_id="you"),
        entry(3, ip="10.0.0.1"),
        entry(4, user="bob", client_id="me"),
    ]
    assert applying_quota(others, BYTE_RATE, "alice", "me") is None
    assert applying_quota(RANKED, "consumer_byte_rate", "alice", "me") is None
    assert applying_quota(RANKED[2:4], BYTE_RATE, None, "me") is not None  # only the default of users is known to apply
    assert applying_quota([entry(9, client_id=None)], BYTE_RATE, ANONYMOUS, "") is not None
    assert applying_quota([entry(9, client_id="me")], BYTE_RATE, ANONYMOUS, "") is None


@pytest.mark.parametrize(
    ("more", "of_tasks", "of_driver"),
    [
        ({}, "orders", None),
        ({"kafka.client.id": "mine"}, "mine", "mine-driver"),
        ({"sink.id": "", "checkpointLocation": "/c"}, sink_id_of_checkpoint("/c"), None),
    ],
)
def test_a_quota_on_the_name_of_the_tasks_is_seen_and_one_on_that_of_the_commits(
    more: Mapping[str, str], of_tasks: str, of_driver: str | None
) -> None:
    given = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "sink.id": "orders", **more}
    options = parse_sink_options({name: value for name, value in given.items() if value})
    job: Any = SimpleNamespace(options=options)
    entries = [
        entry(5000, client_id=of_tasks),
        entry(0.2, TIME_SHARE, client_id=of_tasks),
        entry(0.1, TIME_SHARE, client_id=of_driver),
        entry(1, client_id="other"),
    ]
    client: Any = SimpleNamespace(ask=lambda *_, **__: {"error_code": 0, "entries": entries})
    rate, *shares = quotas(job, client)
    assert f"producer_byte_rate=5000 bytes/s on each broker for client-id {of_tasks}" in rate.text
    assert [each.text.partition(":")[0] for each in shares] == [
        f"request_percentage=0.2 on each broker for client-id {of_tasks}",
        f"request_percentage=0.1 on each broker for client-id {of_driver or '(default)'}",
    ]


def test_clients_of_the_driver_do_not_have_the_name_that_holds_back_its_tasks() -> None:
    pool = ClientPool(1)
    for given, name in ({"client.id": "mine"}, r"mine-driver"), ({}, r"client-\d+"):
        with pool.borrow(parse_producer_options({"bootstrap.servers": "b:9092", **given})) as client:
            assert re.fullmatch(name, client.options.client_id)
    pool.close()
