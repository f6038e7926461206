"""What the tests of the sink rely on: Spark's own sink, the foreign reader, the session of the tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import pytest
from pyspark.sql import SparkSession

from tests.spark.spark_session import TopicRow, as_sets, read_rows, run_to_end
from tools.kafka_cluster import KafkaCluster


def test_rows_of_sparks_own_sink_are_read_back_whole(
    jvm_spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    kafka_4.create_topic(topic_name, partitions=2)
    frame = jvm_spark.range(100).selectExpr(
        "cast(id as string) as key",
        "if(id = 7, null, concat('value ', id)) as value",
        "cast(id % 2 as int) as partition",
        "if(id = 8, array(named_struct('key', 'h', 'value', cast('x' as binary))), null) as headers",
    )
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", kafka_4.bootstrap_servers)
    writer.option("topic", topic_name).save()
    rows = read_rows(kafka_4.bootstrap_servers, topic_name)
    expected = [
        TopicRow(
            topic_name,
            number % 2,
            str(number).encode(),
            None if number == 7 else f"value {number}".encode(),
            (("h", b"x"),) if number == 8 else (),
            0,
        )
        for number in range(100)
    ]
    assert as_sets(rows) == as_sets(expected)
    assert all(row.timestamp_ms > 1_600_000_000_000 for row in rows)


def test_a_stream_of_sparks_own_sink_ends_and_is_read_back(
    jvm_spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path, checkpoint: str
) -> None:
    kafka_4.create_topic(topic_name)
    jvm_spark.range(100).selectExpr("cast(id as string) as value").write.parquet(str(tmp_path / "source"))
    source = jvm_spark.readStream.schema("value string").parquet(str(tmp_path / "source"))
    writer = source.writeStream.format("kafka").option("kafka.bootstrap.servers", kafka_4.bootstrap_servers)
    writer = writer.option("topic", topic_name).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    run_to_end(query)
    values = [row.value for row in read_rows(kafka_4.bootstrap_servers, topic_name)]
    assert sorted(values, key=lambda value: int(value or b"-1")) == [str(number).encode() for number in range(100)]


def test_an_option_whose_value_is_none_does_not_reach_a_data_source(spark: SparkSession) -> None:
    """So the sink cannot tell it from one that was not given, and can only warn of what is missing. Before PySpark 4.3
    Spark itself fails."""
    from pyspark.sql.datasource import DataSource

    class Telling(DataSource):
        def writer(self, schema: object, overwrite: bool) -> NoReturn:
            raise ValueError(f"told: {sorted(self.options)}")

    spark.dataSource.register(Telling)
    writer = spark.range(1).write.format("Telling").option("sink.id", "s").option("batch.id", None).mode("append")
    with pytest.raises(Exception, match=r"told: \['sink\.id'\]|NullPointerException"):
        writer.save()


def test_python_workers_of_the_session_run_the_interpreter_of_the_tests(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert found == [sys.executable]


def test_python_workers_of_the_session_load_pyspark_from_a_folder_with_compiled_modules(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__spec__.cached).collect()
    assert Path(found[0]).is_file() and found[0].endswith(".pyc")


def test_a_task_that_fails_once_is_tried_again(spark: SparkSession) -> None:
    def attempt(numbers: object) -> list[int]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            raise ValueError("the first attempt fails")
        return [context.attemptNumber()]

    assert spark.sparkContext.parallelize([0], 1).mapPartitions(attempt).collect() == [1]
