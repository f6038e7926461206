"""A query leaves at most as many transactional ids at the brokers as its processes run tasks of one batch.

The session has two cores, so two worker processes run the four tasks of a batch. Another process takes ids only after
one of these has ended, which Spark does after a minute without a task.
"""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from tests.spark.parity import Folder, append, start, values, writable_topic
from tests.spark.spark_session import run_to_end
from tests.support.asking import client_of
from tools.kafka_cluster import KafkaCluster
from tools.listed_transactions import listed_transactions

TASKS, CORES, BATCHES = 4, 2, 12
pytestmark = pytest.mark.timeout(900)


def ids_of_tasks(kafka: KafkaCluster, sink_id: str) -> set[str]:
    """The ids in any state. The sink id of a stream is longer than the option: it contains the query."""
    with client_of(kafka.bootstrap_servers) as client:
        names = {row["transactional_id"] for row in listed_transactions(client)}
    return {name for name in names if name.startswith(f"{sink_id}-") and not name.endswith("-driver")}


def lines(batch: int) -> list[str]:
    return [f"{batch}-{number}" for number in range(2 * TASKS)]


def spread(frame: DataFrame) -> DataFrame:
    """Distributes the rows to all tasks."""
    return frame.repartition(TASKS)


def test_a_stream_leaves_no_more_ids_than_its_processes_run_tasks_of_one_batch(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    for batch in range(BATCHES):
        folder.add(*lines(batch))
    run_to_end(start(spread(folder.read()), kafka_4, checkpoint, topic=topic_name, sink_id=topic_name), 800)
    expected = sorted(line.encode() for batch in range(BATCHES) for line in lines(batch))
    assert values(kafka_4, topic_name) == sorted(expected, key=repr)
    assert TASKS <= len(ids_of_tasks(kafka_4, topic_name)) <= TASKS * CORES


def test_inside_foreach_batch_ids_are_used_again_as_well(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    for batch in range(BATCHES):
        folder.add(*lines(batch))

    def write(frame: DataFrame, batch_id: int) -> None:
        append(spread(frame), kafka_4, topic=topic_name, sink_id=topic_name, batch_id=str(batch_id))

    query = folder.read().writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    run_to_end(query.trigger(availableNow=True).start(), 800)
    expected = [line.encode() for batch in range(BATCHES) for line in lines(batch)]
    assert values(kafka_4, topic_name) == sorted(expected, key=repr)
    assert TASKS <= len(ids_of_tasks(kafka_4, topic_name)) <= TASKS * CORES
