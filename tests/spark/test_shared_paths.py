"""Two queries whose checkpoint paths are equal but name different places: every pod mounts its own volume at
/checkpoint, and `checkpoint` in two working directories is two folders. A path does not identify a query."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.conftest import require_java
from tests.spark.parity import values, writable_topic
from tests.spark.stepwise import StepwiseStream
from tests.spark.writes import forget_commit
from tools.kafka_cluster import KafkaCluster


@pytest.mark.slow  # without Spark in every run: tests/chaos/test_driver_crashes.py
@pytest.mark.timeout(1200)
def test_two_queries_with_the_same_relative_checkpoint_path_deliver_each_row_once_side_by_side(
    kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    require_java()
    writable_topic(kafka_4, topic_name)
    options = {"kafka.bootstrap.servers": kafka_4.bootstrap_servers, "topic": topic_name}
    wanted = []
    with StepwiseStream(tmp_path / "one", options) as one, StepwiseStream(tmp_path / "two", options) as two:
        for number in range(2):
            for name, stream in (("one", one), ("two", two)):
                lines = [f"{name}-{number}-{row}" for row in range(4)]
                stream.add(*lines)
                wanted += [line.encode() for line in lines]
                assert stream.step() == "delivered"
        # A crash between the sink's commit and Spark's: the batch runs again after a batch of the other query.
        forget_commit(str(tmp_path / "one" / "checkpoint"), 1)
        assert one.step() == "delivered"
    assert values(kafka_4, topic_name) == sorted(wanted)
