"""Streams: which records arrive, what the progress reports, and that failures and restarts lose no row.

Every test counts with a foreign reader. Sources are folders of text files, one file for each micro-batch.
"""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from tests.spark.parity import Folder, append, records, start, values, writable_topic
from tests.spark.spark_session import run_to_end
from tools.kafka_cluster import KafkaCluster


def test_two_successive_inputs_arrive_with_null_keys_by_a_column_topic_and_are_counted_in_the_progress(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    rows = folder.read().selectExpr("value", f"'{topic_name}' as topic")
    writer = rows.writeStream.format("pykafka-sink").option("kafka.bootstrap.servers", kafka_4.bootstrap_servers)
    query = writer.option("checkpointLocation", checkpoint).start()
    try:
        folder.add("1", "2", "3")
        query.processAllAvailable()
        assert values(kafka_4, topic_name) == [b"1", b"2", b"3"]
        folder.add("4", "5")
        query.processAllAvailable()
        counts = [progress["sink"]["numOutputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    finally:
        query.stop()
    assert values(kafka_4, topic_name) == [b"1", b"2", b"3", b"4", b"5"]
    assert {record.key for record in records(kafka_4, topic_name)} == {None}
    assert counts == [3, 2]


def test_a_stream_with_the_option_topic_needs_no_column(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    folder.add("a")
    folder.add("b")
    rows = folder.read().selectExpr("value", "'foo' as topic", "concat('key of ', value) as key")
    query = start(rows, kafka_4, checkpoint, topic=topic_name)
    run_to_end(query)
    assert values(kafka_4, topic_name) == [b"a", b"b"]
    assert {record.key for record in records(kafka_4, topic_name)} == {b"key of a", b"key of b"}


def test_a_restart_from_the_checkpoint_goes_on_where_the_stream_was(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    for number in range(4):
        folder.add(f"{number}-a", f"{number}-b")
        if number % 2:
            run_to_end(start(folder.read(), kafka_4, checkpoint, topic=topic_name))
    assert values(kafka_4, topic_name) == [f"{number}-{name}".encode() for number in range(4) for name in "ab"]


def failing_once(frame: DataFrame) -> DataFrame:
    """The first attempt of every task fails in its last row; what it has sent by then may stay in the topic."""

    def seen(line: str) -> str:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if line.endswith("last") and context.attemptNumber() == 0:
            raise ValueError("the first attempt fails")
        return line

    return frame.withColumn("value", udf(seen, "string", useArrow=False)("value"))


def test_a_task_that_fails_once_is_repeated_and_loses_no_row(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    lines = [*(f"row {number}" for number in range(50)), "last"]
    folder.add(*lines)
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "10")
    try:
        run_to_end(start(failing_once(folder.read()), kafka_4, checkpoint, topic=topic_name))
    finally:
        spark.conf.set(name, before or "10000")
    assert set(values(kafka_4, topic_name)) == {line.encode() for line in lines}


def test_a_task_that_fails_for_good_ends_the_query_with_its_text_and_a_restart_delivers_everything(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    folder.add("fine")
    folder.add("once more", "and the last")
    broken = folder.read().selectExpr("if(value = 'and the last', raise_error('the text of the task'), value) as value")
    with pytest.raises(StreamingQueryException, match="the text of the task"):
        run_to_end(start(broken, kafka_4, checkpoint, topic=topic_name))
    run_to_end(start(folder.read().select("value"), kafka_4, checkpoint, topic=topic_name))
    assert set(values(kafka_4, topic_name)) == {b"fine", b"once more", b"and the last"}


def test_rows_of_many_tasks_and_many_arrow_batches_arrive_once_each_in_a_run_without_failures(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    frame = spark.range(0, 25_000, 1, 2).selectExpr("cast(id as string) as value", "cast(id % 9 as string) as key")
    append(frame, kafka_4, topic=topic_name)
    found = records(kafka_4, topic_name)
    assert sorted(int(record.value or b"") for record in found) == list(range(25_000))


def test_15_mb_through_a_buffer_of_16_kib_wait_for_room_and_do_not_fail(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name, partitions=1)
    frame = spark.range(0, 1000, 1, 1).selectExpr("concat(lpad(id, 4, '0'), repeat('x', 14996)) as value")
    append(frame, kafka_4, topic=topic_name, kafka_buffer_memory="16384")
    found = records(kafka_4, topic_name)
    assert [len(record.value or b"") for record in found] == [15_000] * 1000
    assert [int((record.value or b"")[:4]) for record in found] == list(range(1000))
