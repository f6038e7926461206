"""Batch writes from several threads of the user, in parallel in one application."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

from kafka_sink import register
from tests.spark.parity import append, values, writable_topic
from tools.kafka_cluster import KafkaCluster


def test_threads_find_the_format_as_the_troubleshooting_page_says_and_write_side_by_side(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)

    def write(first: int) -> None:
        append(
            spark.range(first, first + 100, 1, 3).selectExpr("CAST(id AS STRING) AS value"), kafka_4, topic=topic_name
        )

    def write_with_session(first: int) -> None:
        register(spark)
        write(first)

    with ThreadPoolExecutor(1) as pool, pytest.raises(Exception, match="Failed to find the data source: pykafka-sink"):
        pool.submit(write, 0).result()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write_with_session, range(0, 400, 100)))
    assert values(kafka_4, topic_name) == sorted((b"%d" % number for number in range(400)), key=repr)
