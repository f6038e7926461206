"""A running stream moves from Spark's own sink to this one and back, as docs/migration.md says: each row once."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import kafka_sink
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


def test_a_stream_moves_from_sparks_own_sink_to_the_function(
    jvm_spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    """As with PySpark 3, which has no format."""
    writable_topic(kafka_4, topic_name)
    to_topic = {"kafka.bootstrap.servers": kafka_4.bootstrap_servers, "topic": topic_name}
    named = {**to_topic, "sink.id": topic_name[-60:].lstrip("-")}
    rows = folder.read()

    def run(line: str, options: dict[str, str] | None) -> None:
        folder.add(line)
        writer = rows.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        if options is None:
            writer = writer.format("kafka").options(**to_topic)
        else:
            writer = writer.foreachBatch(kafka_sink.foreach_batch(options))
        run_to_end(writer.start(), 120)

    run("a", None)
    with pytest.raises(StreamingQueryException, match=r"has no record of sink(?s:.*)ledger\.accept\.new\.sink=true"):
        run("b", named)
    run("c", {**named, "ledger.accept.new.sink": "true"})
    run("d", named)
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c", b"d"]
