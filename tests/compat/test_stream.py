"""A stream: what arrives, a restart from the checkpoint, and a batch that Spark runs a second time."""

from __future__ import annotations

from tests.spark.parity import Folder, start, values, writable_topic
from tests.spark.spark_session import run_to_end
from tests.spark.test_no_task_has_ended import (
    small_batches,
    test_a_batch_that_fails_before_any_task_has_ended_holds_no_reader_back,
    test_a_stream_that_is_stopped_before_any_task_has_ended_holds_no_reader_back,
)
from tests.spark.test_parity_streams import test_a_restart_from_the_checkpoint_goes_on_where_the_stream_was
from tests.spark.writes import forget_commit
from tools.kafka_cluster import KafkaCluster

__all__ = [
    "small_batches",
    "test_a_batch_that_fails_before_any_task_has_ended_holds_no_reader_back",
    "test_a_restart_from_the_checkpoint_goes_on_where_the_stream_was",
    "test_a_stream_that_is_stopped_before_any_task_has_ended_holds_no_reader_back",
]


def test_a_batch_that_is_not_in_sparks_commit_log_is_not_delivered_again(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    folder.add("a", "b")
    folder.add("c")
    run_to_end(start(folder.read(), kafka_4, checkpoint, topic=topic_name))
    forget_commit(checkpoint, 1)
    folder.add("d")
    run_to_end(start(folder.read(), kafka_4, checkpoint, topic=topic_name))
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c", b"d"]


def test_the_progress_counts_the_rows(kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str) -> None:
    writable_topic(kafka_4, topic_name)
    folder.add("1", "2", "3")
    folder.add("4")
    query = start(folder.read(), kafka_4, checkpoint, topic=topic_name)
    run_to_end(query)
    counts = [progress["sink"]["numOutputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert counts == [3, 1]
