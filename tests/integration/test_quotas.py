"""How Apache Kafka answers a client that has used up a quota."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_sink import Producer
from kafka_sink.commit.log_scan import (
    FETCH_LAST_BY_NAME,
    READ_UNCOMMITTED,
    THROTTLED,
    fetch_body,
    read_fetch_answer,
)
from kafka_sink.kafka.client.ask import Leader
from kafka_sink.kafka.wire.apis import FETCH
from tests.support.asking import client_of
from tools.foreign_reader import read_topic
from tools.java import run_class
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until


def limit_client(kafka: KafkaCluster, client_id: str, quota: str) -> None:
    who = ["--entity-type", "clients", "--entity-name", client_id]
    arguments = ["--bootstrap-server", kafka.bootstrap_servers, "--alter", *who, "--add-config", quota]
    run_class(kafka.version, "kafka.admin.ConfigCommand", arguments)


def fetched(kafka: KafkaCluster, client_id: str, topic: str) -> Mapping[str, Any]:
    body = fetch_body(topic, 0, 0, READ_UNCOMMITTED)
    with client_of(kafka.bootstrap_servers, client_id=client_id) as client:
        answer: Mapping[str, Any] = client.ask(Leader(topic, 0), FETCH, body, version_max=FETCH_LAST_BY_NAME)
    return answer


def test_a_fetch_beyond_the_quota_names_no_partition_and_is_no_answer_about_the_log(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name)
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        producer.send(topic_name, value=b"x" * 10_000)
    assert read_fetch_answer(fetched(kafka, topic_name, topic_name)).error_code == 0
    limit_client(kafka, topic_name, "consumer_byte_rate=10")

    def throttled() -> Mapping[str, Any] | None:
        body = fetched(kafka, topic_name, topic_name)
        return body if body["throttle_time_ms"] else None

    body = wait_until(throttled, "the broker keeps to the quota")
    assert body["error_code"] == 0 and body["responses"] == []
    assert read_fetch_answer(body).error_code == THROTTLED


def test_a_producer_that_has_used_up_its_quota_of_time_commits_after_the_pauses_that_it_is_asked_for(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name)
    limit_client(kafka, topic_name, "request_percentage=0.1")
    named = {"client.id": topic_name, "transactional.id": topic_name, "bootstrap.servers": kafka.bootstrap_servers}
    sent: list[bytes] = []
    with Producer(named) as producer:
        producer.init_transactions()

        def commit_one() -> None:
            producer.begin_transaction()
            sent.append(str(len(sent)).encode())
            producer.send(topic_name, value=sent[-1])
            producer.commit_transaction()

        def is_throttled() -> bool:
            commit_one()
            return any(value > 0 for name, value in producer.metrics().items() if "throttle-time-max" in str(name))

        # A broker applies a new quota a moment after it was set.
        wait_until(is_throttled, "the broker keeps to the quota", poll_s=0)
        commit_one()
    assert [record.value for record in read_topic(kafka.bootstrap_servers, topic_name)] == sent
