"""A batch write: every column of the sink, a key's partition, and a second run of the same export."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.spark.parity import append, records, values, writable_topic
from tests.spark.test_threads import (
    test_threads_find_the_format_as_the_troubleshooting_page_says_and_write_side_by_side,
)
from tools.kafka_cluster import KafkaCluster

__all__ = ["test_threads_find_the_format_as_the_troubleshooting_page_says_and_write_side_by_side"]


def test_every_column_arrives_as_it_was_written(spark: SparkSession, kafka_4: KafkaCluster, topic_name: str) -> None:
    writable_topic(kafka_4, topic_name)
    header = "array(named_struct('key', 'h', 'value', X'00ff')) as headers"
    columns = ["cast(id as string) as key", "concat('v', id) as value", header, "cast(id % 3 as int) as partition"]
    append(spark.range(0, 60, 1, 2).selectExpr(*columns), kafka_4, topic=topic_name)
    expected = {(id_ % 3, b"%d" % id_, b"v%d" % id_, (("h", b"\x00\xff"),)) for id_ in range(60)}
    found = records(kafka_4, topic_name)
    assert {tuple(record) for record in found} == expected
    assert len(found) == 60


def test_a_second_run_of_the_same_export_writes_nothing(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    frame = spark.range(0, 10, 1, 2).selectExpr("cast(id as string) as value")
    for _ in range(2):
        append(frame, kafka_4, topic=topic_name, sink_id=f"sink-{topic_name}", batch_id="today")
    assert values(kafka_4, topic_name) == sorted(b"%d" % number for number in range(10))


def test_a_row_that_cannot_be_written_fails_the_job_with_the_name_of_the_row(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    frame = spark.range(0, 5, 1, 1).selectExpr("cast(id as string) as value", "cast(99 as int) as partition")
    with pytest.raises(Exception, match="row 0 names partition 99"):
        append(frame, kafka_4, topic=topic_name, kafka_max_block_ms="3000")
    assert values(kafka_4, topic_name) == []
