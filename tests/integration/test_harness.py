"""The harness itself: Apache Kafka starts, breaks and heals on request, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from kafka_sink.kafka.wire.apis import FETCH
from kafka_sink.testing import EmbeddedBroker
from tests.chaos.extent import NEWEST_MAINLY
from tests.conftest import NEWEST, without_kafka
from tests.support.asking import client_of
from tests.support.faults import Harm
from tests.support.kafka_proxy import KafkaProxy
from tools import kafka_node, kafka_watchdog
from tools.foreign_reader import end_offsets, read_topic, read_topic_java
from tools.kafka_cluster import KafkaCluster
from tools.kafka_jars import KafkaUnavailable
from tools.kafka_node import free_port
from tools.waiting import wait_until

ODD = b"tab\t line\n backslash\\ comma, colon: zero\x00 high\xff"


def fill(
    cluster: KafkaCluster | EmbeddedBroker, topic: str, count: int, transactional_id: str | None = None
) -> Producer:
    settings: dict[str, object] = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
    producer = Producer(settings)
    if transactional_id is not None:
        producer.init_transactions(30)
        producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, b"value %d" % number, key=b"key %d" % number, partition=0)
    assert producer.flush(60) == 0
    return producer


@NEWEST_MAINLY
def test_both_foreign_readers_see_the_same_records_byte_for_byte(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    headers = [("name", b"a:b,c"), ("nothing", None), ("empty", b""), ("name", b"twice")]
    producer.produce(topic_name, ODD, key=b"", headers=headers, partition=0, timestamp=5)
    producer.produce(topic_name, None, key=b"NO_HEADERS", partition=1, timestamp=7)
    producer.produce(topic_name, b"\\N", partition=1, timestamp=9)
    assert producer.flush(30) == 0

    records = read_topic(kafka.bootstrap_servers, topic_name)
    assert [(record.partition, record.offset, record.key, record.value, record.timestamp_ms) for record in records] == [
        (0, 0, b"", ODD, 5),
        (1, 0, b"NO_HEADERS", None, 7),
        (1, 1, None, b"\\N", 9),
    ]
    assert records[0].headers == tuple(headers)
    assert read_topic_java(kafka.bootstrap_servers, topic_name, version=kafka.version) == records


def test_readers_tell_committed_aborted_and_open_transactions_apart(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    servers = kafka.bootstrap_servers
    fill(kafka, topic_name, 3, "one").commit_transaction()
    fill(kafka, topic_name, 2, "two").abort_transaction()
    assert len(read_topic(servers, topic_name)) == 3
    assert len(read_topic(servers, topic_name, "read_uncommitted")) == 5

    still_open = fill(kafka, topic_name, 4, "three")
    assert len(read_topic(servers, topic_name, settle_timeout_s=0)) == 3
    with pytest.raises(TimeoutError, match="still open"):
        read_topic(servers, topic_name, settle_timeout_s=0.3)
    still_open.abort_transaction()
    # Nine records and a marker for each of the three transactions.
    assert end_offsets(servers, topic_name) == {0: 12}


def test_a_topic_has_the_wanted_partitions_and_config_and_goes_away_when_deleted(
    kafka_4: KafkaCluster, topic_name: str
) -> None:
    kafka_4.create_topic(topic_name, partitions=5, config={"max.message.bytes": 2000})
    assert [kafka_4.leader_of(topic_name, partition) for partition in range(5)] == [1] * 5
    resource = ConfigResource(ResourceType.TOPIC, topic_name)
    admin = AdminClient({"bootstrap.servers": kafka_4.bootstrap_servers})  # has to outlive its future
    (described,) = admin.describe_configs([resource]).values()
    assert described.result(90)["max.message.bytes"].value == "2000"
    kafka_4.delete_topic(topic_name)
    with pytest.raises(KeyError):
        kafka_4.leader_of(topic_name, 0)


def test_what_was_just_made_or_deleted_is_news_to_no_node(kafka_three_nodes: KafkaCluster, topic_name: str) -> None:
    cluster = kafka_three_nodes

    def known(topic: str) -> list[tuple[tuple[str, int, int], ...]]:
        return [view.leaders for node_id in cluster.node_ids if (view := cluster.view_of(node_id, topic)) is not None]

    for number in range(3):
        topic = cluster.create_topic(f"{topic_name}-{number}", partitions=6)
        first, *others = known(topic)
        assert others == [first, first]
        assert [(index, leader in cluster.node_ids) for _, index, leader in first] == [(one, True) for one in range(6)]
        cluster.delete_topic(topic)
        assert known(topic) == [()] * 3


def test_the_foreign_reader_goes_on_where_a_leader_shows_less_than_it_has() -> None:
    """A newly elected leader does that until its followers have reported their positions."""

    def nothing_yet(body: Mapping[str, Any]) -> dict[str, Any]:
        partition = {"partition_index": 0, "error_code": 0, "high_watermark": 0, "records": b""}
        topics = [{**topic, "partitions": [{**partition, "aborted_transactions": None}]} for topic in body["topics"]]
        return {"session_id": 0, "responses": topics}

    with EmbeddedBroker(topics={"t": 1}) as broker, KafkaProxy(broker.bootstrap_servers) as proxy:
        fill(broker, "t", 10)
        shown = proxy.on(FETCH, Harm.REFUSE, refusal=nothing_yet)
        assert len(read_topic(proxy.bootstrap_servers, "t")) == 10
        assert shown.has_acted


@pytest.mark.slow  # tests/chaos/test_transactions_under_fire.py does so in every run
def test_a_paused_node_takes_connections_but_answers_only_after_it_is_resumed(
    kafka_three_nodes: KafkaCluster, topic_name: str
) -> None:
    cluster = kafka_three_nodes
    cluster.create_topic(topic_name)
    leader = cluster.leader_of(topic_name, 0)
    cluster.pause(leader)
    host, _, port = cluster.address_of(leader).partition(":")
    socket.create_connection((host, int(port)), timeout=5).close()
    wait_until(lambda: cluster.leader_of(topic_name, 0) not in (leader, -1), "another node leads")
    cluster.resume(leader)
    cluster.wait_ready()
    fill(cluster, topic_name, 10)
    assert len(read_topic(cluster.bootstrap_servers, topic_name)) == 10


@pytest.mark.slow  # tests/chaos/test_transactions_under_fire.py does so in every run
def test_three_nodes_elect_another_leader_when_one_is_killed_and_heal_brings_it_back(
    kafka_three_nodes: KafkaCluster, topic_name: str
) -> None:
    cluster = kafka_three_nodes
    cluster.create_topic(topic_name)
    fill(cluster, topic_name, 10)
    leader = cluster.leader_of(topic_name, 0)
    cluster.kill(leader)
    wait_until(lambda: cluster.leader_of(topic_name, 0) not in (leader, -1), "another node leads")
    assert len(read_topic(cluster.bootstrap_servers, topic_name)) == 10
    cluster.heal()
    assert cluster.process_id(leader) > 0


@pytest.mark.slow  # tests/chaos starts such nodes and kills them in every run
def test_a_node_has_what_is_chosen_comes_back_with_port_and_data_when_killed_and_leaves_nothing(
    topic_name: str,
) -> None:
    properties: dict[str, object] = {"auto.create.topics.enable": True, "num.partitions": 7}
    with new_cluster(NEWEST, properties, transaction_version=0) as cluster:
        fill(cluster, topic_name, 1)
        assert sorted(end_offsets(cluster.bootstrap_servers, topic_name)) == list(range(7))
        with client_of(cluster.bootstrap_servers) as client:
            assert client.transaction_support().transaction_version == 1
        servers = cluster.bootstrap_servers
        cluster.kill(1)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", int(servers.rpartition(":")[2])), timeout=1).close()
        cluster.start(1)
        assert cluster.bootstrap_servers == servers
        assert len(read_topic(servers, topic_name)) == 1
        folder, process_id = cluster.folder, cluster.process_id(1)
        assert process_id in kafka_watchdog.processes_using(str(folder))
    assert not folder.exists()
    assert kafka_watchdog.processes_using(str(folder)) == []


def test_a_cluster_that_is_formatted_from_the_cache_has_names_of_its_own(kafka_three_nodes: KafkaCluster) -> None:
    nodes = [kafka_three_nodes.data_folder(node_id) / "meta.properties" for node_id in kafka_three_nodes.node_ids]
    named = [dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line) for path in nodes]
    assert [names["node.id"] for names in named] == ["1", "2", "3"]
    assert len({names["cluster.id"] for names in named}) == 1
    assert len({names["directory.id"] for names in named}) == 3


OWNER = """
import sys, time
from tools.kafka_cluster import KafkaCluster
cluster = KafkaCluster(sys.argv[1])
cluster.open()
cluster.pause(1)
print(cluster.folder, flush=True)
time.sleep(600)
"""


def test_an_owner_killed_with_sigkill_leaves_no_process_and_no_folder(kafka_4: KafkaCluster) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, kafka_4.version], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        owner.stdout.close()
        # The broker is paused, and its watchdog runs.
        assert folder.is_dir()
        assert len(kafka_watchdog.processes_using(str(folder))) == 1
        os.kill(owner.pid, signal.SIGKILL)
    finally:
        owner.kill()
        owner.wait(30)
    wait_until(lambda: not folder.exists() and kafka_watchdog.processes_using(str(folder)) == [], "all is gone")


TAKER = """
import sys
from tools.kafka_node import free_port
print(free_port(), flush=True)
sys.stdin.read()
"""


def test_a_port_is_given_to_one_process_at_a_time_though_nobody_listens_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = free_port()
    taker = subprocess.Popen([sys.executable, "-c", TAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with taker:
        assert taker.stdout is not None
        theirs = int(taker.stdout.readline())
        # Mostly those two are tried; there are several others in case this test also runs elsewhere at the same time.
        others = range(32_000, 32_050)
        monkeypatch.setattr(kafka_node, "_PORT_RANGE", [mine, theirs] * 100 + [*others])
        assert free_port() in others
        taker.kill()
    monkeypatch.setattr(kafka_node, "_PORT_RANGE", [mine, theirs])
    assert free_port() == theirs


def new_cluster(
    version: str, properties: dict[str, object] | None = None, *, transaction_version: int | None = None
) -> KafkaCluster:
    """A separate cluster for a test that changes it."""
    cluster = KafkaCluster(version, properties=properties, transaction_version=transaction_version)
    try:
        cluster.open()
    except KafkaUnavailable as error:
        without_kafka(str(error))
    return cluster
