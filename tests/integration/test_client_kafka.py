"""The driver's admin client against Apache Kafka 4.3.1 and 3.9.1, and against three nodes of which one is killed."""

from __future__ import annotations

import time

import pytest

from kafka_sink import Producer, TransactionReceipt
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.receipt import BatchKey, PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.commit.session import (
    CommitResult,
    Conclusion,
    DeliverySettings,
    DriverOperation,
    DriverSession,
    Job,
)
from kafka_sink.errors import OperationTimeout
from kafka_sink.kafka.client.ask import AllBrokers, Coordinator, Coordinators, Leader, ReplyKind
from kafka_sink.kafka.wire.apis import DESCRIBE_TRANSACTIONS, END_TXN, LIST_OFFSETS, LIST_TRANSACTIONS
from kafka_sink.options.sink_options import TopicPlan
from kafka_sink.testing import EmbeddedBroker
from kafka_sink.testing.topics import TRANSACTION_TOPIC, internal_partition
from tests.support.asking import (
    LIST_BODY,
    answers_to,
    client_of,
    described,
    end_body,
    end_versions,
    listed_ids,
    prepared,
    request,
)
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster


def test_a_prepared_transaction_is_described_listed_and_ended(kafka: KafkaCluster, topic_name: str) -> None:
    servers = kafka.bootstrap_servers
    with client_of(servers) as client:
        assert len(client.create_topic(topic_name, TopicPlan(2, 1, (("retention.ms", "86400000"),)))) == 2
        assert client.topic_configs(topic_name, ["retention.ms"]) == {"retention.ms": "86400000"}
        found = client.broker_configs(["transaction.max.timeout.ms"])
        assert found == {"transaction.max.timeout.ms": "900000"}
        version = client.transaction_support().transaction_version
        receipt = prepared(servers, topic_name, topic_name, b"a", b"b")
        assert receipt.transaction_version == version
        body = {"transactional_ids": [topic_name]}
        (states, listed) = answers_to(
            client,
            request(Coordinators((topic_name,)), DESCRIBE_TRANSACTIONS, body),
            request(AllBrokers(), LIST_TRANSACTIONS, LIST_BODY),
        )
        assert described(states.bodies) == {topic_name: "Ongoing"} and topic_name in listed_ids(listed.bodies)
        for _ in range(2):  # the second is what a restarted driver sends
            answer = client.ask(Coordinator(topic_name), END_TXN, end_body(receipt), **end_versions(receipt))
            while answer["error_code"] == 51:
                answer = client.ask(Coordinator(topic_name), END_TXN, end_body(receipt), **end_versions(receipt))
            assert answer["error_code"] == 0
        question = {"replica_id": -1, "isolation_level": 0, "topics": [
            {"name": topic_name, "partitions": [{"partition_index": 1, "timestamp": -1}]}]}  # fmt: skip
        answer = client.ask(Leader(topic_name, 1), LIST_OFFSETS, question, version_min=2)
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0
    assert sorted(str(record.value) for record in read_topic(servers, topic_name)) == ["b'a'", "b'b'"]


def test_an_unknown_topic_and_a_topic_created_on_demand(kafka: KafkaCluster, topic_name: str) -> None:
    with client_of(kafka.bootstrap_servers, allow_auto_create_topics="false") as client:
        with pytest.raises(OperationTimeout, match="UNKNOWN_TOPIC_OR_PARTITION"):
            client.describe_topic(topic_name, timeout_ms=500)
        kafka.create_topic(topic_name, partitions=3)
        assert len(client.describe_topic(topic_name)) == 3


def test_transactions_of_several_coordinators_are_ended_although_one_is_killed(
    kafka_three_nodes: KafkaCluster, topic_name: str
) -> None:
    kafka = kafka_three_nodes
    servers = kafka.bootstrap_servers
    kafka.hand_back(TRANSACTION_TOPIC)  # other tests kill nodes, and one that stayed may lead all of it
    kafka.create_topic(topic_name, partitions=3)
    ids = tuple(f"{topic_name}-{number}" for number in range(9))
    receipts = {one: prepared(servers, one, topic_name, one.encode()) for one in ids}
    with client_of(servers) as client:
        places = {one: kafka.leader_of(TRANSACTION_TOPIC, place_of(client, one)) for one in ids}
        states = request(Coordinators(ids), DESCRIBE_TRANSACTIONS, {"transactional_ids": list(ids)})
        (first, listed) = answers_to(client, states, request(AllBrokers(), LIST_TRANSACTIONS, LIST_BODY))
        assert first.kind is ReplyKind.ANSWERED and described(first.bodies) == dict.fromkeys(ids, "Ongoing")
        assert len(first.bodies) == len(set(places.values())) > 1
        assert len(listed.bodies) == 3 and listed_ids(listed.bodies) >= set(ids)

        kafka.kill(places[ids[0]])
        kinds: set[ReplyKind] = set()
        find_again = False
        while receipts:
            asked = [
                request(Coordinator(one), END_TXN, end_body(receipt), **end_versions(receipt), find_again=find_again)
                for one, receipt in receipts.items()
            ]
            for one, answer in zip(list(receipts), answers_to(client, *asked), strict=True):
                if not find_again:
                    # Live coordinators answer without delay, and the results for the dead one are unknown.
                    is_dead = places[one] == places[ids[0]]
                    assert answer.kind.is_unanswered if is_dead else answer.kind is ReplyKind.ANSWERED, answer.error
                kinds.add(answer.kind)
                if answer.kind is ReplyKind.ANSWERED and answer.bodies[0]["error_code"] == 0:
                    del receipts[one]
            find_again = True
            time.sleep(0.05)
        (again,) = answers_to(client, request(states.target, states.api, states.body, find_again=True))
        assert again.kind is ReplyKind.ANSWERED and set(described(again.bodies)) == set(ids)
    assert {record.value for record in read_topic(servers, topic_name)} == {one.encode() for one in ids}


def place_of(client: Client, transactional_id: str) -> int:
    return internal_partition(transactional_id, len(client.describe_topic(TRANSACTION_TOPIC)))


# ---- the driver's machine --------------------------------------------------------------------------------------

SINK, RUN = "client-test", "0123456789abcdef"


def task(servers: str, topic: str, sink_id: str, spark_partition: int, rows: int) -> TaskReceipt:
    transactional_id = f"{sink_id}-{RUN}-{spark_partition}-0"
    with Producer(
        {"bootstrap.servers": servers, "transactional.id": transactional_id, "transaction.timeout.ms": 300_000}
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for row in range(rows):
            producer.send(topic, value=b"%d-%d" % (spark_partition, row), partition=spark_partition % 2)
        receipt = producer.prepare_transaction()
    return as_task_receipt(receipt, topic, spark_partition, rows)


def as_task_receipt(receipt: TransactionReceipt, topic: str, spark_partition: int, rows: int) -> TaskReceipt:
    (((_, partition), last_offset),) = receipt.last_offsets.items()
    identity = (receipt.transactional_id, receipt.producer_id, receipt.producer_epoch, receipt.transaction_version)
    return TaskReceipt(
        BatchKey("query", 0),
        RUN,
        spark_partition,
        0,
        PreparedTransaction(*identity),
        300_000,
        290_000,
        (WrittenPartition(topic, partition, rows, last_offset - rows + 1, last_offset),),
        rows,
    )


def committed(client: Client, servers: str, topic: str, sink_id: str, *, visible_ms: int = 0) -> CommitResult:
    ledger = f"ledger-of-{sink_id}"
    client.create_topic(ledger, TopicPlan(1, 1, (("cleanup.policy", "compact"),)))
    client.create_topic(topic, TopicPlan(2, 1))
    transaction_version = client.transaction_support().transaction_version
    receipts = [task(servers, topic, sink_id, number, 20) for number in range(2)]
    assert read_topic(servers, topic, settle_timeout_s=0) == []
    settings = DeliverySettings(ledger_topic=ledger, transaction_version=transaction_version, visible_ms=visible_ms)
    job = Job(DriverOperation.COMMIT, BatchKey("query", 0), receipts)
    return client.run(Committer(settings, DriverSession(sink_id, RUN), job, client.now_ms()))


def check_committed(verdict: CommitResult, servers: str, topic: str) -> None:
    assert verdict.error is None and verdict.conclusion is Conclusion.DELIVERED
    found = sorted(str(record.value) for record in read_topic(servers, topic))
    assert found == sorted(str(b"%d-%d" % (task, row)) for task in range(2) for row in range(20))


def test_a_batch_of_two_tasks_is_committed_on_apache_kafka(kafka: KafkaCluster, topic_name: str) -> None:
    servers = kafka.bootstrap_servers
    with client_of(servers) as client:
        check_committed(committed(client, servers, topic_name, f"sink-{topic_name}"[:100]), servers, topic_name)


def test_a_commit_that_waits_until_its_rows_are_visible_returns_when_they_are(
    kafka: KafkaCluster, topic_name: str
) -> None:
    check_visible_at_once(kafka.bootstrap_servers, topic_name)


def test_a_commit_that_waits_until_its_rows_are_visible_asks_each_leader(
    kafka_three_nodes: KafkaCluster, topic_name: str
) -> None:
    check_visible_at_once(kafka_three_nodes.bootstrap_servers, topic_name)


def check_visible_at_once(servers: str, topic_name: str) -> None:
    with client_of(servers) as client:
        verdict = committed(client, servers, topic_name, f"sink-{topic_name}"[:100], visible_ms=30_000)
        assert verdict.conclusion is Conclusion.DELIVERED and not verdict.notes and verdict.summary is not None
        for written in verdict.summary.written:
            asked = {"partition_index": written.partition, "timestamp": -1}
            body = {"replica_id": -1, "isolation_level": 1, "topics": [{"name": topic_name, "partitions": [asked]}]}
            answer = client.ask(Leader(topic_name, written.partition), LIST_OFFSETS, body, version_min=2)
            assert answer["topics"][0]["partitions"][0]["offset"] > written.last_offset
        check_committed(verdict, servers, topic_name)


@pytest.mark.parametrize("release", ["4.3", "3.9"])
def test_a_batch_of_two_tasks_is_committed_on_the_embedded_broker(release: str) -> None:
    with EmbeddedBroker(brokers=3, release=release) as kafka, client_of(kafka.bootstrap_servers) as client:
        check_committed(committed(client, kafka.bootstrap_servers, "t", "sink"), kafka.bootstrap_servers, "t")


@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_the_port_of_a_controller_is_named_as_what_it_is(version: str) -> None:
    with KafkaCluster(version) as kafka:
        (node,) = kafka._nodes.values()
        wrong = client_of(f"127.0.0.1:{node.controller_port}", max_block_ms=3_000)
        with wrong as client, pytest.raises(OperationTimeout, match="the port of a KRaft controller"):
            client.reach()
