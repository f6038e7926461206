"""Every trigger of Spark delivers or is refused; reading is refused with the name of the format that reads.

The assumption: Spark writes a micro-batch into the checkpoint before it plans it, and plans a continuous query before
anything is in the checkpoint. Otherwise each test of a stream would fail with the refusal of the continuous trigger.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.spark.parity import Folder, values, writable_topic
from tests.spark.spark_session import run_to_end
from tools.kafka_cluster import KafkaCluster

GUARANTEES = ["exactly-once", "at-least-once"]


def writer_of(
    spark: SparkSession, kafka: KafkaCluster, checkpoint: str, topic: str, guarantee: str
) -> DataStreamWriter:
    """The writer of an endless stream, with a source that supports every trigger."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load().selectExpr("'v' as value")
    writer = rows.writeStream.format("pykafka-sink").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer = writer.option("checkpointLocation", checkpoint).option("delivery.guarantee", guarantee)
    return writer.option("topic", topic)


@pytest.mark.parametrize("guarantee", [pytest.param(GUARANTEES[0], marks=pytest.mark.slow), GUARANTEES[1]])
def test_a_continuous_trigger_ends_the_query_with_our_text_before_any_row_is_taken(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, checkpoint: str, guarantee: str
) -> None:
    writer = writer_of(spark, kafka_4, checkpoint, topic_name, guarantee).trigger(continuous="1 second")
    with pytest.raises(StreamingQueryException, match=r"trigger\(continuous=\.\.\.\) is not supported"):
        run_to_end(writer.start())
    assert list(Path(checkpoint).glob("offsets/[0-9]*")) == []


@pytest.mark.parametrize("name", [pytest.param("a b", marks=pytest.mark.slow), "a%20b"])
def test_spark_decodes_nothing_in_the_name_of_a_checkpoint_and_neither_do_we(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, checkpoint: str, name: str
) -> None:
    place = Path(checkpoint, name)
    writer = writer_of(spark, kafka_4, f"file://{place}", topic_name, "exactly-once").trigger(continuous="1 second")
    with pytest.raises(StreamingQueryException, match=r"trigger\(continuous=\.\.\.\) is not supported"):
        run_to_end(writer.start())
    assert [each.name for each in Path(checkpoint).iterdir()] == [name]
    assert (place / "metadata").is_file() and list(place.glob("offsets/[0-9]*")) == []


@pytest.mark.skipif(
    "realTime" not in inspect.signature(DataStreamWriter.trigger).parameters, reason="this PySpark has no such trigger"
)
def test_a_real_time_trigger_is_refused_by_spark_itself(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, checkpoint: str
) -> None:
    writer = writer_of(spark, kafka_4, checkpoint, topic_name, "exactly-once").outputMode("update")
    with pytest.raises(IllegalArgumentException, match="not in the sink allowlist for Real-Time Mode"):
        writer.trigger(realTime="5 minutes").start()


@pytest.mark.parametrize("guarantee", [GUARANTEES[0], pytest.param(GUARANTEES[1], marks=pytest.mark.slow)])
@pytest.mark.parametrize("trigger", [{"processingTime": "1 second"}, {"once": True}, {"availableNow": True}], ids=str)
def test_triggers_of_micro_batches_deliver(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str, trigger: dict[str, str], guarantee: str
) -> None:
    writable_topic(kafka_4, topic_name)
    folder.add("a", "b")
    writer = folder.read().writeStream.format("pykafka-sink").option("topic", topic_name)
    writer = writer.option("kafka.bootstrap.servers", kafka_4.bootstrap_servers)
    writer = writer.option("checkpointLocation", f"file://{checkpoint}").option("delivery.guarantee", guarantee)
    query = writer.trigger(**trigger).start()  # type: ignore[call-overload]
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert values(kafka_4, topic_name) == [b"a", b"b"]


def test_reading_is_refused_with_the_format_that_reads(spark: SparkSession) -> None:
    for load in (
        lambda: spark.read.format("pykafka-sink").load(),
        lambda: spark.read.format("pykafka-sink").schema("value string").load().count(),
        lambda: spark.readStream.format("pykafka-sink").load(),
    ):
        with pytest.raises(AnalysisException, match=r'only writes\. Read topics with Spark\'s own format\("kafka"\)'):
            load()


def test_a_bare_number_as_the_name_of_a_write_is_refused_before_anything_is_sent(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    writer = spark.range(3).selectExpr("'v' as value").write.format("pykafka-sink").mode("append")
    writer = writer.option("kafka.bootstrap.servers", kafka_4.bootstrap_servers).option("topic", topic_name)
    writer = writer.option("sink.id", f"sink-{topic_name}").option("batch.id", "20261121")
    with pytest.raises(Exception, match=r"set the option query\.id .*batch\.id=export-20261121"):
        writer.save()
    assert values(kafka_4, topic_name) == []
    for query in ("first", "second"):
        for batch in ("0", "0", "1"):
            writer.option("query.id", query).option("batch.id", batch).save()
    assert values(kafka_4, topic_name) == [b"v"] * 12
