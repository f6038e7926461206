"""No secret of the options is in anything that Spark or the sink writes, shows, stores or serves, on any outcome."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kafka_sink.testing import EmbeddedRegistry
from tests.conftest import NEWEST
from tests.spark.parity import values, writable_topic
from tests.support.secured_kafka import KEY_PASSWORD, USERS, SecuredKafka
from tests.support.token_server import TokenServer, unsecured_token
from tools.kafka_security import SASL_SSL
from tools.make_zip import write_zip
from tools.spark_cluster import SparkCluster
from tools.waiting import wait_until

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).parent / "jobs" / "canary.py"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
# The value of an option that is not secret.
MARKER = "marker-of-the-canary"
WAYS = ("batch", "stream", "engine")
FAILING = ("wrong-password", "wrong-jaas", "not-offered", "refused-option", "registry-refuses")
BEARER = "sasl.oauthbearer."


@pytest.fixture
def talkative_cluster(spark_cluster: SparkCluster) -> Iterator[SparkCluster]:
    """Drivers and executors log at DEBUG."""
    log4j = spark_cluster.folder / "conf" / "log4j2.properties"
    before = log4j.read_text()
    log4j.write_text(before.replace("level = warn", "level = debug"))
    yield spark_cluster
    log4j.write_text(before)


def settings(tmp_path: Path) -> dict[str, str]:
    """One executor, and every place where Spark shows or stores something is enabled."""
    events, site = tmp_path / "events", tmp_path / "site"
    events.mkdir()
    site.mkdir()
    # Every Python process reads this at its start, also those of tasks.
    (site / "sitecustomize.py").write_text("import logging\nlogging.basicConfig(level=logging.DEBUG)\n")
    return {"spark.cores.max": "1", "spark.ui.enabled": "true", "spark.ui.port": "0", "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": str(events), "spark.eventLog.compress": "false",
            "spark.executorEnv.PYTHONPATH": str(site)}  # fmt: skip


@pytest.mark.slow  # with a local session in every run: test_canary_doors.py
@pytest.mark.timeout(590)
def test_no_secret_is_in_any_output(
    secured_kafka_of: Callable[[str], SecuredKafka], talkative_cluster: SparkCluster, topic_name: str, tmp_path: Path
) -> None:
    cluster = talkative_cluster
    secured = secured_kafka_of(NEWEST)
    writable_topic(secured.kafka, topic_name)
    folder, rest = tmp_path / "input", tmp_path / "rest"
    folder.mkdir()
    rest.mkdir()
    (folder / "one.txt").write_text("a\nb\n")
    key = secured.client.both.read_text()
    client_secret, wrong, aws_secret, aws_token, of_registry, wrong_token = (
        f"canary-{secrets.token_hex(8)}" for _ in range(6)
    )
    canaries = {
        "password": USERS["alice"],
        "password in jaas": USERS["bob"],
        "password of the key": KEY_PASSWORD,
        "key": key.splitlines()[1],
        "client secret": client_secret,
        "wrong password": wrong,
        "secret key of AWS": aws_secret,
        "session token of AWS": aws_token,
        "password of the registry": of_registry,
        "both as they are sent": base64.b64encode(f"me:{of_registry}".encode()).decode(),
        "token for the registry": wrong_token,
    }

    with TokenServer() as tokens, EmbeddedRegistry(users={"me": of_registry}) as registry:
        answer = json.dumps({"access_token": unsecured_token()}).encode()
        tokens.answers = [(200, {}, answer)] * 1000
        own_key = {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": key, "ssl.key.password": KEY_PASSWORD,
                   "ssl.truststore.certificates": secured.authority.text}  # fmt: skip
        writes = {
            "plain": ("PLAIN", {"sasl.username": "alice", "sasl.password": USERS["alice"], **own_key}),
            "scram": ("SCRAM-SHA-256", {
                "sasl.jaas.config": f'{SCRAM} required username="bob" password="{USERS["bob"]}";'}),
            "bearer": ("OAUTHBEARER", {
                f"{BEARER}token.endpoint.url": tokens.url, f"{BEARER}client.credentials.client.id": "me",
                f"{BEARER}client.credentials.client.secret": client_secret}),
            "wrong-password": ("PLAIN", {"sasl.username": "alice", "sasl.password": wrong}),
            "wrong-jaas": ("SCRAM-SHA-512", {"sasl.jaas.config": f'{SCRAM} required username=a password="{wrong}";'}),
            "not-offered": ("AWS_MSK_IAM", {
                "sasl.aws.access.key.id": "AKIDCANARY", "sasl.aws.secret.access.key": aws_secret,
                "sasl.aws.session.token": aws_token, "sasl.aws.region": "eu-west-1"}),
            "refused-option": ("PLAIN", {"sasl.username": "alice", "sasl.password": wrong, "sasl.pasword": wrong}),
        }  # fmt: skip
        schemas = {"value.format": "avro", "schema.registry.url": registry.url, "auto.register.schemas": "true"}
        of_schemas = {
            "registry": {**schemas, "schema.registry.basic.auth.user.info": f"me:{of_registry}"},
            "registry-refuses": {**schemas, "schema.registry.bearer.auth.token": wrong_token},
        }
        for name in of_schemas:
            writes[name] = writes["scram"]
        order = {
            "folder": str(folder),
            "checkpoints": str(tmp_path / "checkpoints"),
            "rest": str(rest),
            "writes": [
                {
                    "name": name,
                    "ways": ways_of(name),
                    "fails": name in FAILING,
                    "options": {**options_of(secured, topic_name, mechanism, more), **of_schemas.get(name, {})},
                }
                for name, (mechanism, more) in writes.items()
            ],
        }
        (tmp_path / "order.json").write_text(json.dumps(order))
        package = tmp_path / "package.zip"
        write_zip(package)
        conf = settings(tmp_path)
        environment = {"PYTHONPATH": os.pathsep.join((str(tmp_path / "site"), str(ROOT)))}
        before = times_of(cluster.folder)
        job = cluster.submit(
            JOB, [str(tmp_path / "order.json")], py_files=[package], conf=conf, environment=environment
        )
        assert "\nend\n" in job.wait(500)
    wait_until(lambda: not cluster.executors(), "the executor has ended")
    # Four rows of each batch, one of each producer, two of the stream.
    assert len(values(secured.kafka, topic_name)) == 4 * 5 + 2

    # Only files of the cluster that are new or changed: other tests leave files with passwords there.
    times = times_of(cluster.folder) | times_of(tmp_path)
    paths = (path for path, time in times.items() if before.get(path) != time)
    contents = {path: path.read_bytes() for path in paths if is_output(path, tmp_path)}
    found = {where(contents, name, canary) for name, canary in canaries.items() if places(contents, canary)}
    size = sum(map(len, contents.values()))
    print(f"{len(contents)} outputs, {size} bytes, {len(canaries)} secrets, {len(found)} found")
    print("a value that is no secret:", seen(contents))
    kinds = (f"{job.folder}/stderr", f"{job.folder}/stdout", *KINDS)
    assert all(any(kind in str(path) for path in contents) for kind in kinds)
    # The search works: it finds a value in the driver and in a task. Spark shows no value of any option in its plans.
    assert any(str(job.folder) in place for place in places(contents, MARKER))
    assert any("work/app-" in place for place in places(contents, f"DEBUG:kafka_sink:[{MARKER}"))
    assert not any(
        kind in place for place in places(contents, MARKER) for kind in ("/rest/", "/events/", "/checkpoints/")
    )
    assert found == set()
    # Neither a batch write nor a stream of this session is warned of.
    assert places(contents, "in clear, which Spark Connect") == []


def times_of(folder: Path) -> dict[Path, int]:
    """When each file was last changed. Spark may remove files at any time."""
    found = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                found[path] = path.stat().st_mtime_ns
    return found


def ways_of(name: str) -> tuple[str, ...]:
    if name in ("plain", "wrong-password"):
        return WAYS
    # A producer by itself has no registry that could refuse.
    return ("batch",) if name == "registry-refuses" else ("batch", "engine")


def places(contents: dict[Path, bytes], text: str) -> list[str]:
    return [str(path) for path, content in contents.items() if text.encode() in content]


def where(contents: dict[Path, bytes], name: str, canary: str) -> tuple[str, ...]:
    return (name, *places(contents, canary))


def seen(contents: dict[Path, bytes]) -> list[str]:
    return [place.rpartition("pykafka-sink-spark-")[2] for place in places(contents, MARKER)]


# Executor, event log, REST responses, checkpoints.
KINDS = (
    "work/app-",
    "/events/",
    "/rest/sql.json",
    "/rest/environment.json",
    "/checkpoints/",
)


def is_output(path: Path, tmp_path: Path) -> bool:
    """Excludes what this test itself wrote: the order, the certificates, the zip with the sources."""
    return path != tmp_path / "order.json" and path.suffix not in (".zip", ".jar", ".pem")


def options_of(secured: SecuredKafka, topic: str, mechanism: str, more: dict[str, str]) -> dict[str, str]:
    chosen = {
        "bootstrap.servers": secured.kafka.bootstrap_servers_of(SASL_SSL),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "client.id": MARKER,
        **more,
    }
    if "ssl.truststore.certificates" not in chosen:
        chosen["ssl.truststore.location"] = str(secured.authority.path)
    return {"topic": topic, **{f"kafka.{name}": value for name, value in chosen.items()}}
