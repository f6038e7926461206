"""A running stream moves from Spark's own sink to this one and back, as docs/migration.md says: each row once."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.parity import Folder, values, writable_topic
from tests.spark.spark_session import run_to_end
from tools.kafka_cluster import KafkaCluster


def test_a_stream_moves_from_sparks_own_sink_and_back_between_two_batches(
    jvm_spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    rows = folder.read()

    def run(sink: str, line: str, **options: str) -> None:
        folder.add(line)
        settings = {"kafka.bootstrap.servers": kafka_4.bootstrap_servers, "topic": topic_name}
        writer = rows.writeStream.format(sink).options(**settings, **options).trigger(availableNow=True)
        run_to_end(writer.option("checkpointLocation", checkpoint).start(), 120)

    run("kafka", "a")
    run("kafka", "b")
    with pytest.raises(StreamingQueryException, match="has no record of sink"):
        run("pykafka-sink", "c")
    run("pykafka-sink", "d", **{"ledger.accept.new.sink": "true"})
    run("pykafka-sink", "e")
    run("kafka", "f")
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c", b"d", b"e", b"f"]
