"""A stream is started again in the session in which its commit process was killed after the decision.

The planning processes live on and remember their earlier requests about this stream, which are older than the decision.
The transactions of a decision have a time limit, so it must be finished when the query starts again, not when its next
batch is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from kafka_sink.kafka.wire.apis import END_TXN
from tests.spark.parity import Folder, start, values, writable_topic
from tests.spark.spark_session import run_to_end
from tests.support.faults import Harm, of_a_task
from tests.support.kafka_proxy import KafkaProxy
from tools.driver_processes import driver_processes, kill
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

COMMIT = "python_streaming_sink_runner"
PATIENCE_S = 300


@pytest.fixture
def proxy(kafka_4: KafkaCluster) -> Iterator[KafkaProxy]:
    with KafkaProxy(kafka_4.bootstrap_servers) as proxy:
        yield proxy


def kill_committing() -> None:
    for process_id in driver_processes(COMMIT):
        kill(process_id)


def decide_and_be_killed(folder: Folder, kafka: KafkaCluster, proxy: KafkaProxy, topic: str, checkpoint: str) -> None:
    """Batch 0 is delivered; batch 1 is decided, and none of its transactions has ended."""
    writable_topic(kafka, topic)
    folder.add("a")
    run_to_end(start(folder.read(), proxy.bootstrap_servers, checkpoint, topic=topic), PATIENCE_S)
    folder.add("b")
    fault = proxy.on(END_TXN, Harm.LOSE_REQUEST, where=of_a_task, before=kill_committing)
    # When the process is gone, Spark ends the query.
    with pytest.raises(StreamingQueryException):
        run_to_end(start(folder.read(), proxy.bootstrap_servers, checkpoint, topic=topic), PATIENCE_S)
    assert fault.has_acted


def held_back(rows: DataFrame, gate: Path) -> DataFrame:
    """No task gets past its first row before the file `gate` exists."""

    def wait(value: str) -> str:
        while not gate.exists():
            time.sleep(0.05)
        return value

    return rows.select(udf(wait, "string", useArrow=False)("value").alias("value"))


@pytest.mark.timeout(1200)
def test_a_stream_that_starts_again_in_its_session_delivers_what_a_killed_process_had_decided(
    kafka_4: KafkaCluster, proxy: KafkaProxy, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    decide_and_be_killed(folder, kafka_4, proxy, topic_name, checkpoint)
    folder.add("c")
    run_to_end(start(folder.read(), proxy.bootstrap_servers, checkpoint, topic=topic_name), PATIENCE_S)
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c"]


@pytest.mark.timeout(1200)
def test_a_stream_that_starts_again_in_its_session_finishes_the_open_decision_before_any_task_writes(
    spark: SparkSession,
    kafka_4: KafkaCluster,
    proxy: KafkaProxy,
    topic_name: str,
    folder: Folder,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    decide_and_be_killed(folder, kafka_4, proxy, topic_name, checkpoint)
    gate = tmp_path / "gate"
    query = start(held_back(folder.read(), gate), proxy.bootstrap_servers, checkpoint, topic=topic_name)
    try:
        tracker = spark.sparkContext.statusTracker()
        wait_until(tracker.getActiveJobsIds, "a job of Spark's runs", PATIENCE_S)
        # So the batch is planned, and no task can have written anything.
        assert values(kafka_4, topic_name) == [b"a", b"b"]
    finally:
        gate.touch()
        run_to_end(query, PATIENCE_S)
    assert values(kafka_4, topic_name) == [b"a", b"b"]
