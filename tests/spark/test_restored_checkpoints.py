"""A checkpoint that was copied by hand and restored, one batch older than what was delivered.

Spark then plans the newest batch again and does not know about the first time. With the same rows that is an ordinary
repetition. With other rows it is not, and only the sink can notice: Spark gives a batch its number and promises the
same rows under it, and a restored backup breaks this promise.
"""

from __future__ import annotations

import shutil

import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException

from tests.spark.parity import Folder, start, values, writable_topic
from tests.spark.spark_session import run_to_end
from tools.kafka_cluster import KafkaCluster

# Numbers that do not occur in an id or a time by accident.
ROWS_BEFORE, ROWS_AFTER = 1379, 2113
PATIENCE_S = 300

pytestmark = pytest.mark.timeout(1200)


def rows(name: str, count: int) -> list[str]:
    return [f"{name}-{number}" for number in range(count)]


def as_values(*lines: str) -> list[bytes | None]:
    return sorted((line.encode() for line in lines), key=repr)


def deliver_and_put_the_copy_back(folder: Folder, kafka: KafkaCluster, topic: str, checkpoint: str) -> None:
    """Delivers batch 0, copies the checkpoint, delivers batch 1, and restores the copy."""
    writable_topic(kafka, topic)
    folder.add("first")
    run_to_end(start(folder.read(), kafka, checkpoint, topic=topic), PATIENCE_S)
    shutil.copytree(checkpoint, f"{checkpoint}-copy")
    folder.add(*rows("before", ROWS_BEFORE))
    run_to_end(start(folder.read(), kafka, checkpoint, topic=topic), PATIENCE_S)
    shutil.rmtree(checkpoint)
    shutil.move(f"{checkpoint}-copy", checkpoint)


def test_the_same_rows_under_a_checkpoint_that_was_put_back_are_delivered_once_and_the_stream_goes_on(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    deliver_and_put_the_copy_back(folder, kafka_4, topic_name, checkpoint)
    folder.add("later")
    run_to_end(start(folder.read(), kafka_4, checkpoint, topic=topic_name), PATIENCE_S)
    assert values(kafka_4, topic_name) == as_values("first", *rows("before", ROWS_BEFORE), "later")


def test_other_rows_under_a_checkpoint_that_was_put_back_stop_the_stream_with_both_counts(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    deliver_and_put_the_copy_back(folder, kafka_4, topic_name, checkpoint)
    folder.take_back()
    folder.add(*rows("after", ROWS_AFTER))
    with pytest.raises(StreamingQueryException) as caught:
        run_to_end(start(folder.read(), kafka_4, checkpoint, topic=topic_name), PATIENCE_S)
    told = str(caught.value).replace(",", "")
    assert str(ROWS_BEFORE) in told and str(ROWS_AFTER) in told
    assert values(kafka_4, topic_name) == as_values("first", *rows("before", ROWS_BEFORE))
