"""Many streams in one session: Spark's changes of Python processes end no query, and every row is there once.

This runs the long version, `make streams`, for a few seconds.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.parity import writable_topic
from tools.kafka_cluster import KafkaCluster
from tools.many_streams import KILLED, RESTARTED, ManyStreams, names_of

STREAMS, SECONDS = 5, 10


@pytest.mark.slow  # in every run: test_second_door_faults.py, test_restarts_in_one_session.py
@pytest.mark.timeout(1200)
def test_five_streams_that_are_stopped_started_and_robbed_of_processes_deliver_each_row_once(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(1 << 31)
    # Short, because a name is the prefix of transactional ids, a folder and a line of a table.
    prefix = f"many-{topic_name.rpartition('-')[2]}"
    for name in names_of(prefix, STREAMS):
        writable_topic(kafka_4, name, partitions=2)
    streams = ManyStreams(
        spark, kafka_4.bootstrap_servers, tmp_path, random.Random(seed), prefix=prefix, streams=STREAMS
    )
    streams.run(SECONDS)
    is_right = streams.judge()
    told = capsys.readouterr().out
    assert is_right, f"seed {seed}\n{told}\n{chr(10).join(streams.findings()[:2])}"
    assert streams.faults[RESTARTED] > 0
    assert streams.faults[KILLED] > 0
