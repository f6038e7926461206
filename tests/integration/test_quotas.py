"""How Apache Kafka answers a client that has used up a quota."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from kafka_sink import Producer
from kafka_sink.commit.log_scan import READ_UNCOMMITTED, fetch_body, read_fetch_answer
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.kafka.client.ask import Leader
from kafka_sink.kafka.wire.apis import FETCH
from kafka_sink.kafka.wire.codes import THROTTLING_QUOTA_EXCEEDED
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.producer.pool import POOL
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.telemetry.metrics.figures import TaskMeter
from tests.chaos.extent import NEWEST_MAINLY
from tests.support.asking import client_of
from tools.foreign_reader import read_topic
from tools.java import run_class
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

pytestmark = NEWEST_MAINLY


def limit_client(kafka: KafkaCluster, client_id: str, quota: str) -> None:
    who = ["--entity-type", "clients", "--entity-name", client_id]
    arguments = ["--bootstrap-server", kafka.bootstrap_servers, "--alter", *who, "--add-config", quota]
    run_class(kafka.version, "kafka.admin.ConfigCommand", arguments)


def fetched(kafka: KafkaCluster, client_id: str, topic: str) -> Mapping[str, Any]:
    body = fetch_body(topic, 0, 0, READ_UNCOMMITTED)
    with client_of(kafka.bootstrap_servers, client_id=client_id) as client:
        answer: Mapping[str, Any] = client.ask(Leader(topic, 0), FETCH, body, version_max=FETCH.last_by_name)
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
    assert read_fetch_answer(body).error_code == THROTTLING_QUOTA_EXCEEDED


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


def test_a_quota_for_the_name_of_a_sink_holds_back_its_tasks_and_no_others(
    kafka: KafkaCluster, topic_name: str
) -> None:
    """Both run in one worker process, as the tasks of an application do."""
    kafka.create_topic(topic_name)
    slow, free = f"{topic_name}-slow", f"{topic_name}-free"
    limit_client(kafka, slow, "producer_byte_rate=1000")
    schema, rows = StructType().add("value", StringType()), pa.record_batch({"value": pa.array(["x" * 3000])})
    throttled_s = {slow: 0.0, free: 0.0}

    def write_one(sink: str) -> float:
        options = parse_sink_options(
            {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic_name, "sink.id": sink, "batch.id": "b"}
        )
        meter = TaskMeter(0)
        place = TaskPlace(BatchKey("", "b"), "run", 0, 0)
        write_task(options, choose_columns(schema, topic_name), iter([rows]), place, meter)
        assert meter.figures is not None
        throttled_s[sink] += meter.figures.totals.own["throttle_seconds"]
        return throttled_s[slow]

    def is_throttled() -> bool:
        write_one(free)
        return write_one(slow) > 0

    # A broker applies a new quota a moment after it was set.
    wait_until(is_throttled, "the broker keeps to the quota", poll_s=0)
    for _ in range(3):
        write_one(slow)
        write_one(free)
    POOL.close()
    assert throttled_s[slow] > throttled_s[free] == 0
