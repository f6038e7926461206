"""Three nodes, one of them dead, frozen or restarting, while an idempotent producer sends.

Afterwards a foreign reader finds every record exactly once, in the order of sending within its partition, and no future
holds an error: the application does not notice an outage that the cluster survives.

extent.py says how many records each case sends. Run with `-s` to see the figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kafka_sink import Producer
from tests.chaos.clusters import restarts_all
from tests.chaos.extent import RECORDS
from tests.chaos.load import Load, metric
from tests.chaos.numbered_records import StreamChecker
from tests.chaos.outages import Outage, create_topic, kill_leader, pause_leader
from tools.foreign_reader import scan_topic
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

PARTITIONS = 6
PAUSE_S = 20


def kills_twice(kafka: KafkaCluster, topic: str) -> None:
    for _ in range(2):
        victim = kill_leader(kafka, topic, 0)
        kafka.start(victim)
        kafka.wait_in_sync(topic)


def pauses(kafka: KafkaCluster, topic: str) -> None:
    pause_leader(kafka, topic, 0, PAUSE_S)
    kafka.wait_in_sync(topic)


@pytest.mark.parametrize(
    ("outage", "expected_s", "settings"),
    [
        pytest.param(kills_twice, 20, {}, id="leader-killed-twice", marks=pytest.mark.slow),
        # Shorter than the pause: the producer changes to the new leader while the old one still has its requests.
        pytest.param(pauses, 22, {"request.timeout.ms": 6000}, id="leader-frozen-20s", marks=pytest.mark.slow),
        pytest.param(restarts_all, 20, {}, id="rolling-restart"),
    ],
)
def test_every_record_is_there_once_and_in_order_after(
    outage: Callable[[KafkaCluster, str], None],
    expected_s: float,
    settings: dict[str, object],
    kafka_three_nodes: KafkaCluster,
    topic_name: str,
) -> None:
    kafka = kafka_three_nodes
    topic = create_topic(kafka, topic_name, PARTITIONS, {"min.insync.replicas": 2})
    script = Outage(lambda: outage(kafka, topic))
    started = time.monotonic()
    with Producer({"bootstrap.servers": kafka.bootstrap_servers, **settings}) as producer:
        load = Load(producer, topic, PARTITIONS, RECORDS)
        load.run(script, expected_s)
        sent_s = time.monotonic() - started
        retries, errors = metric(producer, "record-retry-total"), metric(producer, "record-error-total")
    progress = load.progress
    during = progress.count_between(script.started_at, script.ended_at)

    checker = StreamChecker()
    for record in scan_topic(kafka.bootstrap_servers, topic):
        checker.on_record(record.partition, record.value)
    print(
        f"\n{topic}: {checker.record_count:,} records in {sent_s:.1f} s, outage "
        f"{script.ended_at - script.started_at:.1f} s with {during} calls done in it, "
        f"longest gap {progress.longest_gap_s():.2f} s, retried records {retries:.0f}"
    )
    assert checker.verdict(load.sent) == []
    assert progress.errors == [] and errors == 0
    assert during > 0
