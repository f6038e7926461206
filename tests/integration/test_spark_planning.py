"""What planning asks Kafka: once per process, and again after a commit that failed.

The assumption: Spark gives its planning and its committing processes on the driver the same SPARK_LOCAL_DIRS.
"""

from __future__ import annotations

import json
import pickle
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, DataType, StringType, StructType, VariantType

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.cluster_settings import settings_of_cluster
from kafka_sink.commit.admin.marks import Marks
from kafka_sink.commit.identity import Line, run_of_query, sink_id_of_write
from kafka_sink.commit.ledger_read import LedgerRead
from kafka_sink.commit.receipt import UNNAMED_BATCH, BatchKey
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import CommitAborted, ConfigError
from kafka_sink.kafka.client.ask import Controller
from kafka_sink.kafka.client.metadata import Metadata
from kafka_sink.kafka.client.request import Answer
from kafka_sink.kafka.wire.apis import DELETE_TOPICS, DESCRIBE_CONFIGS, Api
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import TopicPlan
from kafka_sink.spark import driver, process, task_writer
from kafka_sink.spark.datasource import plan_stream
from kafka_sink.spark.driver import CLOSED_MAX
from kafka_sink.spark.files import application_folder
from kafka_sink.testing import EmbeddedBroker, EmbeddedRegistry, acl
from kafka_sink.testing.acl import Acl
from tests.chaos.bare_spark import PARTITIONS, Checkpoint, problems, run_on, settings_of, sink_id_of
from tests.support.asking import client_of
from tests.support.commanding import ROWS_PER_TASK, Shell, Sink, rows
from tests.support.open_transactions import open_transactions
from tools.worker_environment import worker_environment

LEDGER = "ledger"
DELETE_LAST_BY_NAME = 5
BATCH = BatchKey("query-1", 0)
SCHEMA = StructType().add("value", StringType())
# How long a ledger takes to be read, where that is made slow.
READ_S = 0.4


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    for name, value in worker_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    with EmbeddedBroker() as broker:
        sink = Sink(broker.bootstrap_servers, "t", "orders", LEDGER)
        sink.create()
        yield sink


def plan(sink: Sink, **more: str) -> None:
    settings = {"topic": sink.topic, "sink.id": sink.sink_id, "ledger.topic": LEDGER, "queryname": "orders"}
    settings |= {name.replace("_", "."): value for name, value in more.items()}
    plan_stream({"kafka.bootstrap.servers": sink.servers, **settings}, SCHEMA, False)


def delete(client: Client, topic: str) -> None:
    body = {"topic_names": [topic], "timeout_ms": 10_000}
    (answer,) = client.ask(Controller(), DELETE_TOPICS, body, version_max=DELETE_LAST_BY_NAME)["responses"]
    assert answer["error_code"] == 0


def fail_in_a_commit(sink: Sink) -> None:
    with pytest.raises(ConnectionError), Marks(application_folder(), Line(sink.sink_id)).mark_commit(sink.run):
        raise ConnectionError


@pytest.mark.parametrize("release", ["4.3", "3.9"])
def test_the_first_planning_asks_one_broker_for_all_of_the_configuration_and_nothing_else_twice(
    monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    """API versions are known from the connection, topics from the metadata; see also test_round_trips.py."""
    asked: list[str] = []
    ask_all, mine = Client.ask_all, threading.get_ident()

    def noted(client: Client, target: Any, api: Api, body: Any, **more: Any) -> Any:
        if threading.get_ident() == mine:
            asked.append(api.name)
        return ask_all(client, target, api, body, **more)

    monkeypatch.setattr(Client, "ask_all", noted)
    with EmbeddedBroker(release=release) as broker:
        sink = Sink(broker.bootstrap_servers, "t", "orders", LEDGER)
        sink.create()
        asked.clear()
        plan(sink)
    assert asked == [DESCRIBE_CONFIGS.name]


def test_a_deleted_topic_of_an_earlier_write_is_not_asked_for_again(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All writes are planned with the same client, which would request a missing topic repeatedly."""
    asked: list[set[str]] = []
    on_answer, mine = Metadata.on_answer, threading.get_ident()

    def noted(metadata: Metadata, now_ms: int, answer: Answer) -> None:
        if threading.get_ident() == mine:  # not the producers that other tests have left
            assert answer.body is not None
            asked.append({row["name"] for row in answer.body["topics"]})
        on_answer(metadata, now_ms, answer)

    plan(sink)
    with client_of(sink.servers) as client:
        client.create_topic("u", TopicPlan())
        client.create_topic("v", TopicPlan())
        delete(client, "t")
    monkeypatch.setattr(Metadata, "on_answer", noted)
    for sink.topic in ("u", "v"):
        plan(sink)
    assert asked
    assert not set.union(*asked) - {"u", "v", LEDGER}


def test_a_start_after_a_commit_that_failed_finishes_what_was_decided_before_any_task_runs(sink: Sink) -> None:
    plan(sink)
    sink.decide_and_die(BATCH)
    plan(sink)
    assert len(open_transactions(sink.servers, sink.sink_id, patience_s=0)) == 2  # earlier answers are remembered
    fail_in_a_commit(sink)
    plan(sink)
    assert open_transactions(sink.servers, sink.sink_id) == []
    assert sink.visible() == sorted(rows(BATCH, 0, 1))
    assert Marks(application_folder(), Line(sink.sink_id)).find_unfinished() == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"topic": "orders-v2"}, "topic orders-v2 is not known"),
        ({"topic": "orders-v2", "topic_create": "true", "topic_replication_factor": "5"}, "orders-v2"),
        ({"manifest_topic": "none"}, "topic none is not known"),
        ({"kafka_transaction_timeout_ms": "999999999"}, "is more than the brokers allow"),
        ({"value_format": "avro", "schema_registry_url": "http://127.0.0.1:9"}, "127.0.0.1:9"),
    ],
    ids=["topic", "created-topic", "manifests", "time-out", "registry"],
)
def test_a_start_that_is_refused_for_its_options_finishes_what_was_decided_all_the_same(
    sink: Sink, change: dict[str, str], text: str
) -> None:
    """The driver died with its release; the next one comes with a change. Nobody may mend that before the transactions
    of the decision time out."""
    sink.decide_and_die(BATCH)
    impatient = {"kafka_max_block_ms": "500", "kafka_allow_auto_create_topics": "false"}
    with pytest.raises(Exception, match=text):
        plan(sink, **impatient, **change)
    assert open_transactions(sink.servers, sink.sink_id) == []
    assert sink.visible() == sorted(rows(BATCH, 0, 1))


def test_a_start_that_is_refused_for_the_policy_of_the_ledger_finishes_what_was_decided_all_the_same() -> None:
    with EmbeddedBroker() as broker:
        sink = Sink(broker.bootstrap_servers, "t", "orders", LEDGER)
        sink.create()
        sink.decide_and_die(BATCH)
        broker.do(lambda core: core.cluster.topics[LEDGER].configs.update({"cleanup.policy": "delete"}))
        with pytest.raises(ConfigError, match=r"cleanup\.policy=delete"):
            plan(sink)
        assert open_transactions(sink.servers, sink.sink_id) == []
        assert sink.visible() == sorted(rows(BATCH, 0, 1))


def test_a_stream_whose_checkpoint_was_moved_goes_on_under_the_id_that_the_ledger_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with EmbeddedBroker(topics={"t": PARTITIONS}) as broker:
        servers, checkpoint = broker.bootstrap_servers, Checkpoint()
        settings = settings_of(servers, "t")
        run_on(checkpoint, settings, 2)
        said = Shell(capsys)("ledger", "--bootstrap-server", servers, "--json")
        (decision,) = json.loads(said.out)["decisions"]
        name = sink_id_of(settings)
        settings["checkpointLocation"] = "/another/place"
        with pytest.raises(CommitAborted, match=f"Set sink.id={name}"):
            run_on(checkpoint, settings)
        run_on(checkpoint, {**settings, "sink.id": decision["sink_id"]}, 2)
        assert problems(servers, "t", 4) == []


@pytest.mark.parametrize("is_renamed", [False, True], ids=["moved", "renamed"])
def test_a_first_batch_that_was_delivered_under_another_name_is_not_delivered_again(is_renamed: bool) -> None:
    """Spark has not noted it: the driver died before. The first batch of a backlog is often all there is."""
    with EmbeddedBroker(topics={"t": PARTITIONS}) as broker:
        checkpoint, settings = Checkpoint(), settings_of(broker.bootstrap_servers, "t")
        run_on(checkpoint.copy(), settings)
        other = {**settings, **({"sink.id": "new"} if is_renamed else {"checkpointLocation": "/another/place"})}
        for _ in range(2):
            with pytest.raises(CommitAborted, match=f"Set sink.id={sink_id_of(settings)} and start") as refused:
                run_on(checkpoint, other)
        assert refused.value.name == "PKS-6009"
        run_on(checkpoint, {**settings, "checkpointLocation": "/another/place", "sink.id": sink_id_of(settings)}, 2)
        assert problems(broker.bootstrap_servers, "t", 2) == []


def test_a_planning_that_finds_no_broker_leaves_the_mark_for_the_next_one(sink: Sink) -> None:
    fail_in_a_commit(sink)
    sink.topic = "no such topic"
    with pytest.raises(Exception, match="no such topic"):
        plan(sink)
    assert len(Marks(application_folder(), Line(sink.sink_id)).find_unfinished()) == 1


def test_a_start_after_tasks_that_failed_asks_the_brokers_again(sink: Sink) -> None:
    """What they failed of may be what planning remembers: a topic that is gone, a limit that was lowered."""
    settings = {
        "kafka.bootstrap.servers": sink.servers, "topic": sink.topic, "sink.id": sink.sink_id, "ledger.topic": LEDGER,
        "kafka.max.block.ms": "2000", "kafka.allow.auto.create.topics": "false",
        "queryname": "orders",
        "kafka.retry.backoff.ms": "1",  # metadata that is younger is not asked for again
    }  # fmt: skip
    planned = plan_stream(settings, SCHEMA, False)
    with client_of(sink.servers) as client:
        delete(client, sink.topic)
    plan_stream(settings, SCHEMA, False)  # earlier answers are remembered
    planned.abort([], 0)
    with pytest.raises(Exception, match=f"topic {sink.topic} is not known"):
        plan_stream(settings, SCHEMA, False)


def test_no_schema_is_registered_for_a_topic_that_is_not_there(sink: Sink, embedded_registry: EmbeddedRegistry) -> None:
    settings = {
        "kafka.bootstrap.servers": sink.servers,
        "kafka.max.block.ms": "300",
        "kafka.allow.auto.create.topics": "false",
        "delivery.guarantee": "at-least-once",
        "value.format": "avro",
        "schema.registry.url": embedded_registry.url,
        "auto.register.schemas": "true",
    }
    with pytest.raises(Exception, match="topic missing is not known"):
        plan_stream({**settings, "topic": "missing"}, SCHEMA, False)
    assert embedded_registry.requests() == []
    plan_stream({**settings, "topic": sink.topic}, SCHEMA, False)
    path = f"/subjects/{sink.topic}-value/versions"
    assert embedded_registry.requests() == [("GET", f"{path}/latest"), ("POST", path)]


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (VariantType(), "value"),
        (StructType().add("a", VariantType()), "value.a"),
        (ArrayType(VariantType()), "value[]"),
    ],
)
def test_the_error_of_a_type_that_no_format_can_write_names_the_column(sink: Sink, kind: DataType, named: str) -> None:
    settings = {"kafka.bootstrap.servers": sink.servers, "topic": sink.topic, "delivery.guarantee": "at-least-once"}
    with pytest.raises(ConfigError, match=re.escape(f"column {named} has type variant")):
        plan_stream({**settings, "value.format": "json"}, StructType().add("value", kind), False)


def test_of_a_thousand_micro_batches_the_first_one_asks_and_tasks_cannot_ask(
    sink: Sink, embedded_registry: EmbeddedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark creates the writer again before every micro-batch and pickles it to the tasks. It lacks the registry's
    address, so no task can send a request. tests/spark/test_registry_requests.py counts in Spark itself."""
    monkeypatch.setattr(task_writer, "moment_here", lambda: None)  # nothing else differs
    settings = {
        "kafka.bootstrap.servers": sink.servers,
        "topic": sink.topic,
        "delivery.guarantee": "at-least-once",
        "value.format": "avro",
        "schema.registry.url": embedded_registry.url,
        "auto.register.schemas": "true",
    }
    plans = {pickle.dumps(plan_stream(settings, SCHEMA, False)) for _ in range(1000)}
    assert [method for method, _ in embedded_registry.requests()] == ["GET", "POST"]
    address = embedded_registry.url.removeprefix("http://").encode()
    assert [address in plan for plan in plans] == [False]


def test_a_registry_that_refuses_keeps_no_commit_and_no_abort_from_running(
    sink: Sink, embedded_registry: EmbeddedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark plans both anew, in a process that may be fresh: tests/spark/test_registry_requests.py."""
    settings = {
        "kafka.bootstrap.servers": sink.servers,
        "topic": sink.topic,
        "delivery.guarantee": "at-least-once",
        "value.format": "avro",
        "schema.registry.url": embedded_registry.url,
        "use.latest.version": "true",
    }
    with pytest.raises(Exception, match=r"Subject .* not found"):
        plan_stream(settings, SCHEMA, False)
    asked = len(embedded_registry.requests())
    monkeypatch.setattr(process, "_worker_module", lambda: process.STREAM_COMMITS)
    plan_stream(settings, SCHEMA, False).abort([], 7)
    assert len(embedded_registry.requests()) == asked


def test_a_ledger_that_may_not_be_read_is_refused_before_any_row_is_written() -> None:
    everything = [Acl(acl.EVERYBODY, acl.ALL, kind, "*") for kind in (acl.TOPIC, acl.TRANSACTIONAL_ID)]
    unread = Acl(acl.EVERYBODY, acl.READ, acl.TOPIC, LEDGER, permission=acl.DENY)
    with EmbeddedBroker(acls=[*everything, Acl(acl.EVERYBODY, acl.ALL, acl.CLUSTER), unread]) as broker:
        sink = Sink(broker.bootstrap_servers, "t", "orders", LEDGER)
        sink.create()
        with pytest.raises(CommitAborted, match="The principal needs Read on this topic"):
            plan(sink)


def test_planning_helps_stale_writes_of_others_for_five_seconds_altogether(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger takes long to be read, and has decisions of writes without a label whose drivers died long ago. To close
    one, it is read once more. Here the limit is a second."""
    for number in range(CLOSED_MAX):
        run = run_of_query(f"write {number}")
        replace(sink, sink_id=sink_id_of_write("others", run), run=run).decide_and_die(UNNAMED_BATCH)
    options = parse_sink_options({
        "kafka.bootstrap.servers": sink.servers, "topic": sink.topic, "sink.id": "orders", "ledger.topic": LEDGER,
    })  # fmt: skip
    reads: list[float] = []
    take = LedgerRead._conclude

    def slowly(read: LedgerRead) -> None:
        reads.append(time.monotonic())
        time.sleep(READ_S)
        take(read)

    def settings_with_limit(*given: Any) -> DeliverySettings:
        return replace(settings_of_cluster(*given), sweep_ms=1_000)

    monkeypatch.setattr(LedgerRead, "_conclude", slowly)
    monkeypatch.setattr(driver, "settings_of_cluster", settings_with_limit)
    with client_of(sink.servers) as client:
        driver.Driver(options, "orders").recover(client)
    # The one of planning itself, and as many more as there was time for.
    assert 1 <= len(reads) <= 1 + 1.0 / READ_S
    assert len(sink.visible()) == CLOSED_MAX * 2 * ROWS_PER_TASK
    monkeypatch.undo()
    with client_of(sink.servers) as client:
        driver.Driver(options, "orders").recover(client)
        listed, _ = driver.Driver(options, "others").list_decisions(client)
    assert listed == []
