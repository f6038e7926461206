"""Topics that the sink creates: before any task and any schema, known to every broker, and never changed afterwards.

The assumption under test: a broker may not know a topic yet, a moment after another broker created it.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql.types import StringType, StructType

from kafka_sink import Producer
from kafka_sink.errors import AuthorizationError, ConfigError, OperationTimeout
from kafka_sink.spark.datasource import plan_batch
from kafka_sink.testing import EmbeddedBroker, EmbeddedRegistry, Fault
from tests.support.asking import client_of
from tests.support.commanding import Shell
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster
from tools.kafka_views import view_of
from tools.waiting import wait_until

SCHEMA = StructType().add("value", StringType())
WANTED = {
    "topic.create": "true", "topic.partitions": "4", "topic.replication.factor": "2",
    "topic.config.max.message.bytes": "2000000",
}  # fmt: skip
LETTERS = {"record.errors": "dead-letter", "dead.letter.topic": "bad"}
BY_BROKERS = {"message.timestamp.type": "LogAppendTime"}
UNKNOWN_TOPIC = 3


pytestmark = pytest.mark.embedded_kafka(3)


def plan(servers: str, topic: str = "new", **options: str) -> None:
    named = {"kafka.bootstrap.servers": servers, "topic": topic, "ledger.topic": f"{topic}-ledger"}
    plan_batch({**named, **WANTED, **options}, SCHEMA, overwrite=False)


def test_a_missing_topic_is_made_as_wanted_and_the_one_for_dead_letters_without_its_configuration(
    broker: EmbeddedBroker,
) -> None:
    plan(broker.bootstrap_servers, **LETTERS)
    topics = broker.do(lambda core: dict(core.cluster.topics))
    made = {name: [len(each.replicas) for each in topics[name].partitions] for name in ("new", "bad")}
    assert made == {"new": [2] * 4, "bad": [2] * 4}
    assert topics["new"].configs == {"max.message.bytes": "2000000"} and topics["bad"].configs == BY_BROKERS


@pytest.mark.embedded_kafka(1, quirks="event-hubs-premium")
def test_where_no_topic_can_be_configured_the_one_for_dead_letters_is_made_plainer(broker: EmbeddedBroker) -> None:
    plainer = {name: value for name, value in WANTED.items() if not name.startswith("topic.config.")}
    plan_batch(
        {
            "kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "new", **plainer, **LETTERS,
            "topic.replication.factor": "1", "delivery.guarantee": "at-least-once",
        },
        SCHEMA, overwrite=False,
    )  # fmt: skip
    topics = broker.do(lambda core: dict(core.cluster.topics))
    assert topics["bad"].configs == {} and len(topics["bad"].partitions) == 4


def extent(servers: str, topic: str) -> tuple[int, int]:
    """The first offset of partition 0, and the end."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "nobody"})
    with contextlib.closing(consumer):
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return first, end


def test_letters_of_old_rows_outlive_the_retention_that_deletes_rows_of_their_age(shell: Shell) -> None:
    """Apache Kafka, which looks for what is to be deleted every 5 minutes unless told otherwise."""
    a_year_ago_ms = int(time.time() * 1000) - 365 * 86_400_000
    often = {
        "log.retention.ms": 7 * 86_400_000, "log.retention.check.interval.ms": 500, "log.initial.task.delay.ms": 500,
    }  # fmt: skip
    with KafkaCluster(properties=often) as kafka:
        servers = kafka.bootstrap_servers
        plan(servers, **LETTERS, **{"topic.replication.factor": "1"})
        with Producer({"bootstrap.servers": servers}) as producer:
            for topic in ("new", "bad"):
                letter = [("pykafka-sink.error", b"too large"), ("pykafka-sink.reason", b"too large")]
                producer.send(topic, b"row", None, letter, a_year_ago_ms, 0).result(60)
        wait_until(lambda: extent(servers, "new") == (1, 1), "rows of that age are deleted")
        time.sleep(2)  # four more looks
        assert extent(servers, "bad") == (0, 1)
        again = ("replay", "--bootstrap-server", servers, "--from", "bad", "--to", "back", "--yes")
        kafka.create_topic("back", config={"retention.ms": "-1"})
        assert shell(*again).exit_code == 0
        assert [(each.value, each.timestamp_ms) for each in read_topic(servers, "back")] == [(b"row", a_year_ago_ms)]


def test_every_broker_knows_the_topic_when_the_plan_is_made(broker: EmbeddedBroker) -> None:
    late = broker.inject(Fault("Metadata", UNKNOWN_TOPIC, broker_id=2, topic="new", times=3))
    later = broker.inject(Fault("Metadata", UNKNOWN_TOPIC, broker_id=3, topic="new", times=3))
    plan(broker.bootstrap_servers)  # it may have asked any of them before it created the topic
    assert (late.times, later.times) == (0, 0)


def test_a_broker_that_never_learns_of_the_topic_is_waited_for_no_longer_than_max_block(broker: EmbeddedBroker) -> None:
    broker.inject(Fault("Metadata", UNKNOWN_TOPIC, broker_id=2, topic="new", times=None))
    broker.inject(Fault("Metadata", UNKNOWN_TOPIC, broker_id=3, topic="new", times=None))
    # The first broker, which knows the topic: with a connection to another one, chance may ask only that one in time.
    first, *_ = broker.bootstrap_servers.split(",")
    with pytest.raises(OperationTimeout, match="not every broker knows it") as raised:
        plan(first, **{"kafka.max.block.ms": "1500"})
    assert raised.value.name == "PKS-3012"


def test_every_apache_broker_knows_the_topic_when_the_plan_is_made(
    kafka_three_nodes: KafkaCluster, topic_name: str
) -> None:
    topic = topic_name[-60:].lstrip("-")
    plan(kafka_three_nodes.bootstrap_servers, topic)
    for server in kafka_three_nodes.bootstrap_servers.split(","):
        partitions = [each for each in view_of(server, topic).partitions if each.topic == topic]
        assert sorted(each.index for each in partitions) == [0, 1, 2, 3] and all(
            each.leader >= 0 for each in partitions
        )
    with client_of(kafka_three_nodes.bootstrap_servers) as client:
        assert client.topic_configs(topic, ["max.message.bytes"]) == {"max.message.bytes": "2000000"}


def test_a_topic_that_is_there_and_differs_stays_and_is_told_once(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("new", 1)
    with caplog.at_level(logging.WARNING, logger="kafka_sink"):
        plan(broker.bootstrap_servers)
        plan(broker.bootstrap_servers)
    told = [record.getMessage() for record in caplog.records if "stays as it is" in record.getMessage()]
    differs = "partitions=1 instead of 4; replicas=3 instead of 2; max.message.bytes=1048588 instead of 2000000"
    assert told == [f"topic new was there before, and stays as it is: {differs}"]
    assert len(broker.do(lambda core: core.cluster.topics["new"].partitions)) == 1


def test_a_topic_that_is_there_and_is_as_wanted_is_no_warning(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    plan(broker.bootstrap_servers)
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="kafka_sink"):
        plan(broker.bootstrap_servers, **{"sink.id": "another", "batch.id": "plan"})
    assert caplog.records == []


def test_a_topic_that_another_write_has_just_created_is_used(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """One broker knows it already; the one that is asked for its configuration does not."""
    plan(broker.bootstrap_servers)
    fault = broker.inject(Fault("DescribeConfigs", UNKNOWN_TOPIC, skip=1))  # the first one is about the ledger
    with caplog.at_level(logging.WARNING, logger="kafka_sink"):
        plan(broker.bootstrap_servers, **{"kafka.client.id": "another"})
    assert fault.times == 0 and "was there before" not in caplog.text


def test_a_topic_that_was_deleted_between_two_writes_is_made_again(broker: EmbeddedBroker) -> None:
    """As in a notebook, where one process plans both writes."""
    plan(broker.bootstrap_servers)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})  # has to outlive its future
    admin.delete_topics(["new"])["new"].result(30)
    plan(broker.bootstrap_servers)
    assert len(broker.do(lambda core: core.cluster.topics["new"].partitions)) == 4


def test_no_schema_is_registered_for_a_topic_that_cannot_be_made(broker: EmbeddedBroker) -> None:
    with EmbeddedRegistry() as registry:
        options = {
            "value.format": "avro", "value.columns": "value", "auto.register.schemas": "true",
            "schema.registry.url": registry.url, "topic.replication.factor": "7",
        }  # fmt: skip
        with pytest.raises(ConfigError, match="topic new was not created: INVALID_REPLICATION_FACTOR") as raised:
            plan(broker.bootstrap_servers, **options)
        assert raised.value.name == "PKS-3011"
        subjects = registry.do(lambda core: [list(each.subjects) for each in core.store.contexts.values()])
        assert subjects in ([], [[]])
        plan(broker.bootstrap_servers, **{**options, "topic.replication.factor": "3"})
        assert ["new-value"] in registry.do(lambda core: [list(each.subjects) for each in core.store.contexts.values()])


def test_a_missing_permission_is_named() -> None:
    with EmbeddedBroker(3, acls=[]) as broker, pytest.raises(AuthorizationError, match="Describe on it"):
        plan(broker.bootstrap_servers)


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_shows_creates_and_compares(
    broker: EmbeddedBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("topic", "--bootstrap-server", broker.bootstrap_servers, "--topic", "new")
    assert shell(*words).exit_code == 1 and "there is no topic new: --create makes it" in shell(*words).out
    create = (*words, "--create", "--partitions", "2", "--config", "cleanup.policy=compact")
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    asked = shell(*create)
    assert asked.exit_code == 1 and "partitions: 2" in asked.err and "cleanup.policy=compact" in asked.err
    assert "new" not in broker.do(lambda core: list(core.cluster.topics))
    made = shell(*create, "--yes", "--json")
    assert made.exit_code == 0 and made.content["configs"]["cleanup.policy"] == "compact"
    assert [each["partition"] for each in made.content["partitions"]] == [0, 1]
    shown = shell(*words)
    assert shown.exit_code == 0 and shown.out.splitlines()[0].split() == [
        "PARTITION",
        "LEADER",
        "REPLICAS",
        "IN",
        "SYNC",
    ]
    again = shell(*words, "--create", "--partitions", "9", "--yes")
    assert again.exit_code == 1 and "stays as it is: partitions=2 instead of 9" in again.out
    assert shell(*words, "--partitions", "9").exit_code == 2


def test_the_command_says_that_there_are_no_records_and_nothing_where_none_were_asked_for(shell: Shell) -> None:
    with EmbeddedBroker(topics={"t": 2}) as broker:
        words = ("topic", "--bootstrap-server", broker.bootstrap_servers, "--topic", "t")
        assert shell(*words, "--records", "2").out.rstrip().endswith("\n\nno records that read_committed readers see")
        assert "no records" not in shell(*words).out
        assert json.loads(shell(*words, "--records", "2", "--json").out)["records"] == []


def test_the_command_shows_the_newest_records_that_readers_see(shell: Shell) -> None:
    with EmbeddedBroker(topics={"t": 2}) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "one"}
        with Producer(settings) as producer:
            producer.init_transactions()
            with producer.transaction():
                for number in range(3):
                    producer.send("t", key=f"k{number}", value=f"v{number}", partition=0)
                producer.send("t", value=b"\xff" + b"x" * 300, headers=[("h", b"1")], partition=1)
            with contextlib.suppress(ZeroDivisionError), producer.transaction():
                producer.send("t", value=b"aborted", partition=0).result(60)
                raise ZeroDivisionError
            producer.begin_transaction()
            producer.send("t", value=b"open", partition=0).result(60)
            said = shell("topic", "--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--records", "2")
            shown = said.out[said.out.index("PARTITION  OFFSET") :].splitlines()[1:]
            assert [line.split() for line in shown[:2]] == [["0", "1", "k1", "v1"], ["0", "2", "k2", "v2"]]
            assert shown[2].split()[:3] == ["1", "0", "null"] and shown[2].endswith("xxx...") and "\\xff" in shown[2]
            told = shell(
                "topic", "--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--records", "1", "--json"
            )
            first, second = json.loads(told.out)["records"]
            assert (first["key"], first["value"], second["headers"]) == ("k2", "v2", [["h", "1"]])
            assert second["value"] == "\\xff" + "x" * 300
        assert "OFFSET" not in shell("topic", "--bootstrap-server", broker.bootstrap_servers, "--topic", "t").out


def test_the_command_shows_the_time_that_readers_see_where_brokers_set_it(shell: Shell) -> None:
    own_ms = 1_000
    with EmbeddedBroker(topics={}) as broker:
        configs = {"message.timestamp.type": "LogAppendTime"}
        broker.create_topic("t", 1, configs)
        with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            producer.send("t", value=b"row", timestamp_ms=own_ms).result(60)
        words = ("topic", "--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--records", "1", "--json")
        (shown,) = json.loads(shell(*words).out)["records"]
        (read,) = read_topic(broker.bootstrap_servers, "t")
        assert shown["timestamp_ms"] == read.timestamp_ms > own_ms


def test_the_topic_of_the_page_is_created(broker: EmbeddedBroker, shell: Shell) -> None:
    page = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^pykafka-sink (topic .* --create .*)$", page, re.MULTILINE)
    made = shell(*line.replace("broker:9092", broker.bootstrap_servers).split(), "--yes", "--json")
    assert made.exit_code == 0, made.err
    assert len(made.content["partitions"]) == 6 and made.content["configs"]["retention.ms"] == "604800000"


def test_the_command_needs_a_person_or_a_yes(broker: EmbeddedBroker, shell: Shell, tmp_path: Path) -> None:
    twice = shell("topic", "--topic", "t", "--create", "--config", "retention.ms=1", "--config", "retention.ms=2")
    assert twice.exit_code == 2 and "--config names the same option twice" in twice.err
    said = shell("topic", "--bootstrap-server", broker.bootstrap_servers, "--topic", "../x")
    assert said.exit_code == 2 and "a topic name" in said.err
