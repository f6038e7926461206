"""Exactly once when Spark repeats a batch: inside foreachBatch, and in a stream that begins without rows.

Spark repeats the last batch of a query that is missing in its commit log. Here the commit log's file is deleted, which
is the state after a crash between our commit and Spark's.
"""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from tests.spark.parity import Folder, append, start, values, writable_topic
from tests.spark.spark_session import run_to_end
from tests.spark.writes import forget_commit
from tools.kafka_cluster import KafkaCluster


def write_in_batches(frame: DataFrame, kafka: KafkaCluster, checkpoint: str, topic: str) -> None:
    def write(rows: DataFrame, batch_id: int) -> None:
        append(rows, kafka, topic=topic, sink_id=f"sink-{topic}", batch_id=str(batch_id))

    query = frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    run_to_end(query.trigger(availableNow=True).start())


def test_inside_foreach_batch_a_repeated_batch_is_skipped_and_a_new_checkpoint_is_not(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    folder.add("a", "b")
    folder.add("c")
    write_in_batches(folder.read(), kafka_4, checkpoint, topic_name)
    forget_commit(checkpoint, 1)
    folder.add("d")
    write_in_batches(folder.read(), kafka_4, checkpoint, topic_name)
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c", b"d"]
    write_in_batches(folder.read(), kafka_4, f"{checkpoint}-2", topic_name)
    assert values(kafka_4, topic_name) == sorted([b"a", b"b", b"c", b"d"] * 2)


def test_two_writes_of_a_batch_under_one_name_stop_the_query_though_they_have_as_many_rows(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    folder.add("a", "b")

    def write(rows: DataFrame, batch_id: int) -> None:
        for expression in ("value", "upper(value) AS value"):
            changed = rows.selectExpr(expression)
            append(changed, kafka_4, topic=topic_name, sink_id=f"sink-{topic_name}", batch_id=str(batch_id))

    query = folder.read().writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    with pytest.raises(Exception, match=r"each write of one batch needs its own sink\.id"):
        run_to_end(query.trigger(availableNow=True).start())
    assert values(kafka_4, topic_name) == [b"a", b"b"]


def test_a_label_of_ones_own_inside_foreach_batch_is_one_write(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    folder.add("a")

    def write(rows: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            append(rows, kafka_4, topic=topic_name, sink_id=f"sink-{topic_name}", batch_id=f"day-{batch_id}")

    for number in range(2):
        query = folder.read().writeStream.foreachBatch(write)
        run_to_end(query.option("checkpointLocation", f"{checkpoint}-{number}").trigger(availableNow=True).start())
    assert values(kafka_4, topic_name) == [b"a"]


def test_a_stream_whose_first_batch_has_no_rows_goes_on(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    folder.add("left out")
    folder.add("a")
    folder.add("left out")
    folder.add("b")
    run_to_end(start(folder.read().filter("value <> 'left out'"), kafka_4, checkpoint, topic=topic_name))
    assert values(kafka_4, topic_name) == [b"a", b"b"]
