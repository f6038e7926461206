"""The statements that docs/guides/sql.md says are refused; test_pages.py runs those that write."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.parity import values, writable_topic
from tools.kafka_cluster import KafkaCluster

ROWS = "SELECT 'k' AS key, 'v' AS value"


@pytest.fixture
def given(kafka_4: KafkaCluster, topic_name: str) -> str:
    """The options in the syntax of SQL."""
    writable_topic(kafka_4, topic_name)
    options = {"kafka.bootstrap.servers": kafka_4.bootstrap_servers, "topic": topic_name}
    return "(" + ", ".join(f"`{name}` = '{text}'" for name, text in options.items()) + ")"


@pytest.fixture
def table(spark: SparkSession, given: str) -> Iterator[str]:
    spark.sql(f"CREATE TABLE sink_table (key STRING, value STRING) USING `pykafka-sink` OPTIONS {given}")
    yield "sink_table"
    spark.sql("DROP TABLE sink_table")


def test_options_of_a_table_do_not_reach_the_sink_and_the_error_says_where_they_belong(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, given: str, table: str
) -> None:
    for statement in (
        f"INSERT INTO {table} {ROWS}",
        f"CREATE TABLE another_table USING `pykafka-sink` OPTIONS {given} AS {ROWS}",
    ):
        with pytest.raises(Exception, match="PKS-1003 missing option: bootstrap") as caught:
            spark.sql(statement)
        assert "INSERT INTO table WITH (`name` = 'value')" in str(caught.value)
    assert values(kafka_4, topic_name) == []


def test_what_a_topic_cannot_do_is_refused(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, given: str, table: str
) -> None:
    with pytest.raises(Exception, match="PKS-1102 mode not supported"):
        spark.sql(f"INSERT OVERWRITE {table} WITH {given} {ROWS}")
    with pytest.raises(Exception, match="PKS-1101 format is for writing only"):
        spark.sql(f"SELECT * FROM {table}").collect()
    assert values(kafka_4, topic_name) == []


def test_without_by_name_columns_go_by_their_position(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, given: str, table: str
) -> None:
    swapped = "SELECT 'v' AS value, 'k' AS key"
    spark.sql(f"INSERT INTO {table} WITH {given} {swapped}")
    spark.sql(f"INSERT INTO {table} WITH {given} BY NAME {swapped}")
    assert values(kafka_4, topic_name) == [b"k", b"v"]
