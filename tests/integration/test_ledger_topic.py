"""The ledger's topic: how it is created, refused and warned about, on the embedded broker and on Apache Kafka.

The assumption under test: an administrator may have created the topic by hand, with any configuration, or the sink
created it when there were fewer brokers than now.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

import kafka_sink
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.ledger_topic import check_ledger_configs, check_ledger_topic
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry
from kafka_sink.commit.ledger_codec import encode_record
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import AuthorizationError, CommitAborted, ConfigError
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import SinkOptions, TopicPlan
from kafka_sink.testing import Acl, EmbeddedBroker
from kafka_sink.testing.acl import ANONYMOUS
from tests.integration.bare_frame import BareFrame
from tests.support.asking import client_of
from tests.support.commanding import Sink, rows
from tests.support.releases import BEFORE_NAMES, BEFORE_QUERY_IDS, release_of
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster

COMPACT = {"cleanup.policy": "compact"}


def about(ledger: str, replication_factor: int = -1, **more: str) -> SinkOptions:
    chosen = {"ledger.topic": ledger, "ledger.replication.factor": str(replication_factor)}
    return parse_sink_options({"kafka.bootstrap.servers": "127.0.0.1:9092", **chosen, **more})


def replicas_of(servers: str, topic: str) -> list[int]:
    """As a foreign client sees them."""
    found = AdminClient({"bootstrap.servers": servers}).list_topics(topic, timeout=60).topics[topic]
    return [len(partition.replicas) for partition in found.partitions.values()]


def warned(client: Client, topic: str, caplog: pytest.LogCaptureFixture) -> str:
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="kafka_sink"):
        check_ledger_topic(client, about(topic))
    return "\n".join(record.getMessage() for record in caplog.records if record.name == "kafka_sink")


# ---- created ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("brokers", "chosen", "replicas", "in_sync"),
    [(1, -1, 1, "1"), (2, -1, 2, "1"), (3, -1, 3, "2"), (4, -1, 3, "2"), (3, 1, 1, "1"), (4, 4, 4, "2")],
)
def test_a_new_ledger_has_as_many_replicas_as_are_wise_or_as_were_asked_for(
    brokers: int, chosen: int, replicas: int, in_sync: str
) -> None:
    with EmbeddedBroker(brokers=brokers) as broker, client_of(broker.bootstrap_servers) as client:
        check_ledger_topic(client, about("led", chosen))
        assert replicas_of(broker.bootstrap_servers, "led") == [replicas]
        assert client.topic_configs("led", ["cleanup.policy", "min.insync.replicas"]) == {
            "cleanup.policy": "compact",
            "min.insync.replicas": in_sync,
        }


def test_a_new_ledger_on_apache_kafka_has_three_replicas_of_which_two_acknowledge_and_nothing_to_be_warned_of(
    kafka_three_nodes: KafkaCluster, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = f"ledger-{topic_name[-60:]}"
    with client_of(kafka_three_nodes.bootstrap_servers) as client:
        assert warned(client, ledger, caplog) == ""
        kafka_three_nodes.wait_for_topic(ledger)
        assert replicas_of(kafka_three_nodes.bootstrap_servers, ledger) == [3]
        configs = client.topic_configs(ledger, ["min.insync.replicas", "cleanup.policy"])
        assert configs == {"min.insync.replicas": "2", "cleanup.policy": "compact"}
        assert warned(client, ledger, caplog) == "", "the second look finds what the first one made"


@pytest.mark.parametrize("on", [Acl(ANONYMOUS, "create", "topic", "led"), Acl(ANONYMOUS, "create", "cluster")])
def test_a_new_ledger_needs_no_permission_to_read_configurations(on: Acl, caplog: pytest.LogCaptureFixture) -> None:
    """Without it brokers answer the same about a topic that does not exist."""
    acls = [Acl(ANONYMOUS, operation, "topic", "led") for operation in ("write", "read")]
    with EmbeddedBroker(acls=acls) as broker, client_of(broker.bootstrap_servers, max_block_ms=5_000) as client:
        with pytest.raises(AuthorizationError, match="The principal needs Create on topic 'led'"):
            check_ledger_topic(client, about("led"))
        with pytest.raises(ConfigError, match="there is no ledger topic led"):
            check_ledger_topic(client, about("led", **{"ledger.create": "false"}))
        broker.do(lambda core: core.authorizer.add(on))
        check_ledger_topic(client, about("led"))
        assert broker.do(lambda core: core.cluster.topics["led"].configs)["cleanup.policy"] == "compact"
        assert warned(client, "led", caplog) == "", "the second look finds what the first one made"


# ---- refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_ledger_that_forgets_with_age_is_refused_with_the_command_that_mends_it(policy: str) -> None:
    with EmbeddedBroker() as broker, client_of(broker.bootstrap_servers) as client:
        check_refused(client, "led", policy)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_ledger_that_forgets_with_age_is_refused_on_apache_kafka(
    kafka: KafkaCluster, topic_name: str, policy: str
) -> None:
    with client_of(kafka.bootstrap_servers) as client:
        check_refused(client, f"ledger-{topic_name[-60:]}", policy)


def check_refused(client: Client, ledger: str, policy: str) -> None:
    client.create_topic(ledger, TopicPlan(1, 1, (("cleanup.policy", policy),)))
    with pytest.raises(ConfigError, match=f"cleanup.policy={policy}: decisions would be deleted with age") as caught:
        check_ledger_topic(client, about(ledger))
    assert f"--entity-name {ledger} --add-config cleanup.policy=compact" in str(caught.value)


@pytest.mark.usefixtures("fresh_driver")
def test_a_ledger_that_is_made_to_forget_after_planning_is_refused_by_the_first_commit_of_a_process() -> None:
    with EmbeddedBroker(topics={"rows": 2}) as broker:

        def make_it_forget(_: int) -> None:
            broker.do(lambda core: core.cluster.topics["led"].configs.update({"cleanup.policy": "delete"}))

        frame: Any = BareFrame([["1"], ["2"]])
        frame.before_task = make_it_forget
        chosen = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "rows", "ledger.topic": "led"}
        with pytest.raises(CommitAborted, match="decisions would be deleted with age"):
            kafka_sink.write(frame, {**chosen, "sink.id": "orders"})
        assert read_topic(broker.bootstrap_servers, "rows") == []


def test_a_ledger_whose_policy_the_broker_does_not_tell_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    """As with a configuration that is not told at all: other servers than Apache Kafka leave out what they lack."""
    with EmbeddedBroker(topics={"led": 1}) as broker, client_of(broker.bootstrap_servers) as client:
        client.reach(topics=["led"])
        for configs in ({}, {"cleanup.policy": None}, None):
            check_ledger_configs(client, about("led"), configs)
    assert "cleanup.policy" not in caplog.text


# ---- warned about ----------------------------------------------------------------------------------------------

UNSAFE = [
    (1, {}, ["1 replica,", "3 brokers", "kafka-reassign-partitions"]),
    (2, {}, ["2 replicas,", "kafka-reassign-partitions"]),
    (3, {}, ["min.insync.replicas=1", "--add-config min.insync.replicas=2"]),
    (
        3,
        {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"},
        ["--add-config unclean.leader.election.enable=false"],
    ),
    (3, {"min.insync.replicas": "2", "max.message.bytes": "65536"}, ["--add-config max.message.bytes=1048588"]),
    (3, {"min.insync.replicas": "2"}, []),
]


@pytest.mark.parametrize(("replicas", "configs", "words"), UNSAFE)
def test_what_could_lose_a_decision_is_said_once_with_the_command_that_mends_it(
    replicas: int, configs: Mapping[str, str], words: list[str], topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(brokers=3) as broker, client_of(broker.bootstrap_servers) as client:
        ledger = f"ledger-{topic_name[-60:]}"
        client.create_topic(ledger, TopicPlan(1, replicas, tuple({**COMPACT, **configs}.items())))
        check_warned(client, ledger, words, caplog)


@pytest.mark.parametrize(("replicas", "configs", "words"), UNSAFE)
def test_what_could_lose_a_decision_is_said_on_apache_kafka(
    replicas: int,
    configs: Mapping[str, str],
    words: list[str],
    kafka_three_nodes: KafkaCluster,
    topic_name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with client_of(kafka_three_nodes.bootstrap_servers) as client:
        # Settings that the topic lacks come from the brokers, whose defaults here are safer than Kafka's.
        plain = {"min.insync.replicas": "1", **configs}
        ledger = f"ledger-{topic_name[-60:]}"
        client.create_topic(ledger, TopicPlan(1, replicas, tuple({**COMPACT, **plain}.items())))
        kafka_three_nodes.wait_for_topic(ledger)
        check_warned(client, ledger, words, caplog)


def check_warned(client: Client, ledger: str, words: list[str], caplog: pytest.LogCaptureFixture) -> None:
    said = warned(client, ledger, caplog)
    assert bool(said) == bool(words)
    for word in words:
        assert word in said
    assert warned(client, ledger, caplog) == "", "it is said once"


def test_where_there_are_fewer_brokers_nobody_is_asked_for_three_replicas(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(brokers=2) as broker, client_of(broker.bootstrap_servers) as client:
        client.create_topic("small", TopicPlan(1, 1, tuple(COMPACT.items())))
        assert warned(client, "small", caplog) == ""


def test_a_ledger_of_several_partitions_is_as_good_as_one(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker() as broker, client_of(broker.bootstrap_servers) as client:
        client.create_topic("wide", TopicPlan(4, 1, tuple(COMPACT.items())))
        assert warned(client, "wide", caplog) == ""


@pytest.mark.parametrize(
    ("commit", "folder", "entries"),
    [(BEFORE_QUERY_IDS, "delivery", "pledges"), (BEFORE_NAMES, "exactly_once", "entries")],
)
def test_releases_before_read_a_record_with_a_name(
    commit: str, folder: str, entries: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    package = release_of(commit, tmp_path_factory)
    program = (
        f"import sys; from kafka_sink.{folder}.ledger_codec import decode_record\n"
        "found = decode_record(sys.stdin.buffer.read())\n"
        f"print(found.kind.value, len(found.{entries}), found.row_count)"
    )
    entry = TransactionEntry(0, 0, 4711, 3, 2, "t", 5, 1_000, 10)
    record = LedgerRecord(
        Kind.INTENT, "sink", BatchKey("q", 5), "a" * 16, row_count=10, entries=(entry,), label="orders"
    )
    named = encode_record(record)
    assert b'"name":"orders"' in named
    environment = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, input=named, capture_output=True, cwd=package, env=environment)
    assert said.stdout == b"intent 1 10\n", said.stderr


# ---- read ------------------------------------------------------------------------------------------------------


def test_a_ledger_whose_first_records_were_deleted_is_read_from_where_it_begins() -> None:
    """Compaction never moves the start of a log; DeleteRecords does."""
    with EmbeddedBroker() as broker:
        other, sink = (Sink(broker.bootstrap_servers, name, name, "led") for name in ("others", "orders"))
        other.create()
        broker.create_topic("orders", 2)
        other.deliver(BatchKey("query-1", 0))
        written = broker.do(lambda core: core.cluster.topics["led"].partitions[0].log.high_watermark)
        sink.deliver(BatchKey("query-2", 0))
        broker.do(lambda core: core.cluster.topics["led"].partitions[0].log.delete_before(written))
        sink.deliver(BatchKey("query-2", 1))
        assert sink.visible() == sorted(rows(BatchKey("query-2", 0), 0, 1) + rows(BatchKey("query-2", 1), 0, 1))
