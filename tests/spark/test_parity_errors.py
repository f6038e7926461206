"""What a user sees when a write cannot work: the text of the exception that Spark raises, and that it is raised early.

What the driver can know is refused when the write is planned, before any task. Tests without Spark check all texts of
`columns` and `options`; these tests show that the texts reach the user whole.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession

from tests.spark.parity import Folder, append, start, values, writable_topic
from tests.spark.spark_session import run_to_end
from tools.kafka_cluster import KafkaCluster

# In every run through another test: test_mistakes.py makes the same mistake and looks at the first line.
ALSO_A_MISTAKE = pytest.mark.slow

WRONG = {
    "value": ("id as value", "value has the unsupported type bigint. value must be string or binary"),
    "key": ("cast(id as int) as key", "key has the unsupported type int. key must be string or binary"),
    "topic": ("cast(id as int) as topic", "topic has the unsupported type int. topic must be string"),
    "partition": ("'0' as partition", "partition has the unsupported type string. partition must be int"),
    "headers": (
        "array('h') as headers",
        "headers has the unsupported type array<string>. headers must be array<struct",
    ),
    "timestamp": ("'now' as timestamp", "timestamp has the unsupported type string. timestamp must be timestamp"),
}


def refusal(spark: SparkSession, columns: list[str], kafka: KafkaCluster | str, /, **options: str) -> str:
    with pytest.raises(AnalysisException) as raised:
        append(spark.range(3).selectExpr(*columns), kafka, **options)
    return str(raised.value)


# ---- columns ---------------------------------------------------------------------------------------------------------


def test_every_column_of_a_wrong_type_is_named_with_what_it_must_be(spark: SparkSession, kafka_4: KafkaCluster) -> None:
    text = refusal(spark, [column for column, _ in WRONG.values()], kafka_4)
    for _, said in WRONG.values():
        assert f"column {said}" in text
    assert "CAST(value AS STRING)" in text


@ALSO_A_MISTAKE
def test_a_missing_value_is_named_beside_the_columns_that_there_are(spark: SparkSession, kafka_4: KafkaCluster) -> None:
    text = refusal(spark, ["'k' as key", "'v' as Value"], kafka_4, topic="t")
    assert "required column value not found. The DataFrame has the columns key, Value" in text


@ALSO_A_MISTAKE
def test_no_topic_anywhere_names_the_option(spark: SparkSession, kafka_4: KafkaCluster) -> None:
    assert "no topic: set the option topic, or add a string column topic" in refusal(spark, ["'v' as value"], kafka_4)


def test_the_option_topic_beats_the_column_even_one_of_a_wrong_type(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    append(spark.range(3).selectExpr("'foo' as topic", "'a' as value"), kafka_4, topic=f" {topic_name} ")
    append(spark.range(3).selectExpr("id as topic", "'b' as value"), kafka_4, topic=topic_name)
    assert values(kafka_4, topic_name) == [b"a"] * 3 + [b"b"] * 3
    assert "foo" not in AdminClient({"bootstrap.servers": kafka_4.bootstrap_servers}).list_topics(timeout=60).topics


def test_two_columns_of_one_name_are_refused_by_spark_in_plain_words(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    """Spark's own sink takes the first of them; no Python data source ever gets such a frame."""
    writable_topic(kafka_4, topic_name)
    with pytest.raises(PySparkException, match=r"Duplicated field names .* got \[value, value\]"):
        append(spark.range(3).selectExpr("'a' as value", "'b' as value"), kafka_4, topic=topic_name)


# ---- options ---------------------------------------------------------------------------------------------------------


def test_an_unknown_option_is_refused_with_the_nearest_name(spark: SparkSession, kafka_4: KafkaCluster) -> None:
    text = refusal(spark, ["'v' as value"], kafka_4, topic="t", kafka_lingr_ms="5", record_error="drop")
    assert "'record.error' is not an option of this sink: did you mean record.errors?" in text
    assert "'lingr.ms' is not a producer option: did you mean linger.ms?" in text


@ALSO_A_MISTAKE
def test_key_and_value_serializers_are_refused(spark: SparkSession, kafka_4: KafkaCluster) -> None:
    text = refusal(
        spark, ["'v' as value"], kafka_4, topic="t", kafka_key_serializer="foo", kafka_value_serializer="foo"
    )
    assert "kafka.key.serializer is not supported" in text
    text = refusal(spark, ["'v' as value"], kafka_4, topic="t", kafka_value_serializer="foo")
    assert "kafka.value.serializer is not supported" in text


@ALSO_A_MISTAKE
def test_a_partitioner_that_is_not_there_is_told_before_any_task(spark: SparkSession, kafka_4: KafkaCluster) -> None:
    text = refusal(spark, ["'v' as value"], kafka_4, topic="t", kafka_partitioner_class="no_such_module:place")
    assert "kafka.partitioner.class=no_such_module:place cannot be imported here" in text


# ---- modes -----------------------------------------------------------------------------------------------------------


@ALSO_A_MISTAKE
def test_overwrite_is_refused_with_what_to_do_instead(spark: SparkSession, kafka_4: KafkaCluster) -> None:
    writer = spark.range(3).selectExpr("'v' as value").write.format("pykafka-sink").mode("overwrite")
    with pytest.raises(AnalysisException, match=r"rows are appended to a topic.*Write with mode\(\"append\"\)"):
        writer.option("kafka.bootstrap.servers", kafka_4.bootstrap_servers).option("topic", "t").save()


@pytest.mark.parametrize("mode", [pytest.param(None, marks=ALSO_A_MISTAKE), "ignore"])
def test_without_append_spark_itself_asks_for_it(spark: SparkSession, kafka_4: KafkaCluster, mode: str | None) -> None:
    writer = spark.range(3).selectExpr("'v' as value").write.format("pykafka-sink").mode(mode)
    with pytest.raises(AnalysisException, match='Please use either the "Append"'):
        writer.option("kafka.bootstrap.servers", kafka_4.bootstrap_servers).option("topic", "t").save()


def counted_words(spark: SparkSession, path: Path) -> Folder:
    folder = Folder(spark, path)
    folder.add("a", "b", "a")
    return folder


@ALSO_A_MISTAKE
def test_complete_mode_is_refused_with_what_to_do_instead(
    spark: SparkSession, kafka_4: KafkaCluster, tmp_path: Path, checkpoint: str
) -> None:
    counts = counted_words(spark, tmp_path).read().groupBy("value").count()
    query = start(counts, kafka_4, checkpoint, topic="t", output_mode="complete")
    with pytest.raises(StreamingQueryException, match="replace the whole topic at every batch"):
        run_to_end(query)


def test_update_mode_is_refused_by_spark_itself(
    spark: SparkSession, kafka_4: KafkaCluster, tmp_path: Path, checkpoint: str
) -> None:
    counts = counted_words(spark, tmp_path).read().groupBy("value").count()
    query = start(counts, kafka_4, checkpoint, topic="t", output_mode="update")
    with pytest.raises(StreamingQueryException, match="does not support Update mode"):
        run_to_end(query)


def test_a_stream_without_a_topic_fails_with_the_text_of_a_batch_write(
    spark: SparkSession, kafka_4: KafkaCluster, tmp_path: Path, checkpoint: str
) -> None:
    query = start(counted_words(spark, tmp_path).read(), kafka_4, checkpoint)
    with pytest.raises(StreamingQueryException, match="no topic: set the option topic, or add a string column topic"):
        run_to_end(query)


# ---- brokers and topics ----------------------------------------------------------------------------------------------


@ALSO_A_MISTAKE
def test_a_topic_that_does_not_exist_ends_the_write_within_max_block_ms(
    spark: SparkSession, kafka_4: KafkaCluster
) -> None:
    text = refusal(spark, ["'v' as value"], kafka_4, topic="nobody-made-this", kafka_max_block_ms="1000")
    assert "topic nobody-made-this is not known within max.block.ms=1000" in text
    assert "UNKNOWN_TOPIC_OR_PARTITION" in text


def test_a_topic_of_the_column_that_does_not_exist_fails_the_task(spark: SparkSession, kafka_4: KafkaCluster) -> None:
    frame = spark.range(0, 1, 1, 1).selectExpr("'nobody-made-this' as topic", "'v' as value")
    with pytest.raises(PythonException, match=r"topic nobody-made-this is not known within max\.block\.ms=500"):
        append(frame, kafka_4, kafka_max_block_ms="500")


@ALSO_A_MISTAKE
def test_brokers_that_do_not_answer_end_the_write_within_max_block_ms(spark: SparkSession, deaf: str) -> None:
    text = refusal(spark, ["'v' as value"], deaf, topic="t", kafka_max_block_ms="1000")
    assert "within max.block.ms=1000" in text
    assert deaf in text


@ALSO_A_MISTAKE
def test_missing_brokers_are_an_error_of_the_options(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match=r"bootstrap.servers is missing: .* prefix kafka\."):
        spark.range(3).selectExpr("'v' as value").write.format("pykafka-sink").mode("append").save()


# ---- rows ------------------------------------------------------------------------------------------------------------


@ALSO_A_MISTAKE
def test_a_null_topic_fails_the_task_and_names_the_row_and_the_cure(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    frame = spark.range(0, 3, 1, 1).selectExpr(f"if(id = 2, null, '{topic_name}') as topic", "'v' as value")
    with pytest.raises(PythonException, match="null topic in row 2: set the option topic or fill the column topic"):
        append(frame, kafka_4)


@ALSO_A_MISTAKE
def test_a_partition_out_of_range_fails_the_task_and_names_row_and_topic(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    frame = spark.range(0, 3, 1, 1).selectExpr("cast(3 + id as int) as partition", "'v' as value")
    with pytest.raises(PythonException) as raised:
        append(frame, kafka_4, topic=topic_name, kafka_max_block_ms="500")
    assert f"row 2 names partition 5; topic {topic_name} has 4 partitions (0 to 3)" in str(raised.value)


def test_the_text_of_a_failed_task_says_which_task_of_which_batch_it_was(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    folder = Folder(spark, tmp_path)
    folder.add("good", "bad")
    rows = folder.read().selectExpr(
        "value", "if(value = 'bad', 'no topic', null) as key", "cast(9 as int) as partition"
    )
    query = start(rows, kafka_4, checkpoint, topic=topic_name, kafka_max_block_ms="500")
    with pytest.raises(StreamingQueryException) as raised:
        run_to_end(query)
    assert "(Spark partition 0, TID " in str(raised.value)
    assert f", of batch 0 of query {query.id})" in str(raised.value)
