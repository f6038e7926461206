"""foreachBatch: a repeated batch is skipped, and another checkpoint is another query."""

from __future__ import annotations

from tests.spark.parity import Folder, values, writable_topic
from tests.spark.test_foreach_batch import forget_commit, write_in_batches
from tools.kafka_cluster import KafkaCluster


def test_a_repeated_batch_is_skipped_and_a_new_checkpoint_is_not(
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
