"""A DataFrame written by format("kafka") and by format("pykafka-sink") gives the same topic, record by record.

Each frame is one Spark partition, so that the order within a topic's partition is compared, too. For rows with neither
key nor partition each sink chooses the partition freely, and only the partition is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.conftest import NEWEST, without_kafka
from tests.spark.parity import OURS, SPARKS_OWN, Record, append, records, writable_topic
from tools.kafka_cluster import KafkaCluster

KEYS = "concat('key ', id % 5)"
ONE = "array(struct('once' as key, cast('1' as binary) as value))"
TWO = "array(struct('a' as key, cast('1' as binary) as value), struct('b' as key, cast('2' as binary) as value))"
DUPLICATE = "array(struct('x' as key, cast('1' as binary) as value), struct('x' as key, cast('2' as binary) as value))"
NULL_VALUE = "array(struct('n' as key, cast(null as binary) as value), struct('' as key, X'00ff' as value))"
NO_HEADERS = "cast(array() as array<struct<key:string,value:binary>>)"
MIXED = (
    f"case when id % 6 = 0 then {ONE} when id % 6 = 1 then {TWO} when id % 6 = 2 then {DUPLICATE} "
    f"when id % 6 = 3 then {NULL_VALUE} when id % 6 = 4 then {NO_HEADERS} end"
)

# Case -> key, value, partition, headers; each case has its own topic. `id` numbers its rows.
PLACED: dict[str, tuple[str, str, str, str]] = {
    "strings-in-5-keys": (KEYS, "concat('value ', id)", "null", "null"),
    "text-outside-of-ascii": ("concat('schlüssel ', id % 3, ' 键')", "concat('🎈', id, 'é')", "null", "null"),
    "tombstones": (KEYS, "if(id % 3 = 0, null, 'there')", "null", "null"),
    "tombstones-only": (KEYS, "null", "null", "null"),
    "empty-key-and-empty-value": ("if(id % 2 = 0, '', 'k')", "if(id % 4 = 0, '', 'v')", "null", "null"),
    "partition-column": (KEYS, "cast(id as string)", "id % 4", "null"),
    "partition-column-without-keys": ("null", "cast(id as string)", "id % 4", "null"),
    "partition-of-some-rows": (KEYS, "cast(id as string)", "if(id % 3 = 0, id % 4, null)", "null"),
    "one-header": (KEYS, "'v'", "null", ONE),
    "two-headers": (KEYS, "'v'", "null", TWO),
    "headers-of-one-name": (KEYS, "'v'", "null", DUPLICATE),
    "null-and-empty-in-headers": (KEYS, "'v'", "null", NULL_VALUE),
    "headers-mixed": (
        KEYS,
        "if(id = 11, null, cast(id as string))",
        "null",
        MIXED,
    ),
    "large-rows": (KEYS, "repeat('0123456789', 3000)", "null", "null"),
}
TYPES = {"key": "string", "value": "string", "partition": "int", "headers": "array<struct<key:string,value:binary>>"}
ROWS = 24


@pytest.fixture(scope="module")
def placed(
    spark: SparkSession, java_sink_jars: list[Path], kafka_of: Callable[[str, int], KafkaCluster]
) -> KafkaCluster:
    """All cases by each sink in one write, with a column topic."""
    if not java_sink_jars:
        without_kafka("Maven could not fetch the jars of Spark's own Kafka sink")
    kafka = kafka_of(NEWEST, 1)
    for sink in (SPARKS_OWN, OURS):
        for case in PLACED:
            writable_topic(kafka, f"{sink}-{case}")
        columns = [f"concat('{sink}-', {_by_case(list(map(repr, PLACED)))}) as topic"]
        for index, (name, kind) in enumerate(TYPES.items()):
            columns.append(f"cast({_by_case([case[index] for case in PLACED.values()])} as {kind}) as {name}")
        numbered = spark.range(0, ROWS * len(PLACED), 1, 1).selectExpr(f"id div {ROWS} as n", f"id % {ROWS} as id")
        append(numbered.selectExpr(*columns), kafka, sink)
    return kafka


def _by_case(expressions: list[str]) -> str:
    return "case n " + " ".join(f"when {number} then {each}" for number, each in enumerate(expressions)) + " end"


@pytest.mark.parametrize("case", PLACED)
def test_both_sinks_write_the_same_records_to_the_same_partitions(placed: KafkaCluster, case: str) -> None:
    ours = records(placed, f"{OURS}-{case}")
    assert ours == records(placed, f"{SPARKS_OWN}-{case}")
    assert len(ours) == ROWS


def written_by_both(frame: DataFrame, kafka: KafkaCluster, name: str) -> tuple[list[Record], list[Record]]:
    found = []
    for sink in (SPARKS_OWN, OURS):
        topic = writable_topic(kafka, f"{name}-{sink}")
        append(frame, kafka, sink, topic=topic)
        found.append(records(kafka, topic))
    return found[0], found[1]


def test_binary_columns_and_others_that_are_not_written_give_the_same_records(
    jvm_spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    columns = ["id as offset", "X'80ff0a0d' as value", "array(1, 2) as numbers", "'V' as Value"]
    frame = jvm_spark.range(0, 20, 1, 1).selectExpr(*columns, "unhex(concat('fffe00', lpad(id, 2, '0'))) as key")
    theirs, ours = written_by_both(frame, kafka_4, topic_name)
    assert ours == theirs
    assert len({record.key for record in ours}) == len(ours) == 20


def test_a_column_of_null_partitions_places_rows_as_no_column_does(
    jvm_spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    frame = jvm_spark.range(0, 100, 1, 1).selectExpr("cast(id % 5 as string) as key", "cast(id as string) as value")
    theirs, ours = written_by_both(frame.selectExpr("*", "cast(null as int) as partition"), kafka_4, topic_name)
    assert ours == theirs
    without_column = writable_topic(kafka_4, f"{topic_name}-without")
    append(frame, kafka_4, topic=without_column)
    assert records(kafka_4, without_column) == ours


def test_rows_without_a_key_arrive_whole_and_in_order_through_both_sinks(
    jvm_spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    frame = jvm_spark.range(0, 40, 1, 1).selectExpr("cast(id as string) as value", f"{ONE} as headers")
    theirs, ours = written_by_both(frame, kafka_4, topic_name)
    assert sorted(record[1:] for record in ours) == sorted(record[1:] for record in theirs)
    numbers = [(record.partition, int(record.value or b"")) for record in ours]
    assert numbers == sorted(numbers)


def test_four_partitions_and_five_keys_use_more_than_one_partition_and_the_same_as_sparks_own_sink(
    jvm_spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    frame = jvm_spark.range(0, 100, 1, 3).selectExpr("cast(id % 5 as string) as key", "cast(id as string) as value")
    theirs, ours = written_by_both(frame, kafka_4, topic_name)
    placed = {(record.key, record.partition) for record in ours}
    assert placed == {(record.key, record.partition) for record in theirs}
    assert len(placed) == 5 and len({partition for _, partition in placed}) > 1
    assert sorted(record.value or b"" for record in ours) == sorted(record.value or b"" for record in theirs)


def test_a_column_topic_spreads_rows_over_the_same_topics(
    jvm_spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    for sink in (SPARKS_OWN, OURS):
        for number in range(3):
            writable_topic(kafka_4, f"{topic_name}-{sink}-{number}")
        frame = jvm_spark.range(0, 60, 1, 2).selectExpr(
            f"concat('{topic_name}-{sink}-', id % 3) as topic", f"{KEYS} as key", "cast(id as string) as value"
        )
        append(frame, kafka_4, sink)
    # The rows of two Spark partitions are in any order.
    for number in range(3):
        theirs, ours = (sorted(records(kafka_4, f"{topic_name}-{sink}-{number}")) for sink in (SPARKS_OWN, OURS))
        assert ours == theirs
        assert {int(record.value or b"") % 3 for record in ours} == {number}


def test_a_plan_that_is_analysed_late_can_be_written(
    jvm_spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    frame = jvm_spark.range(0, 5, 1, 1).selectExpr("cast(id as string) as key", "to_json(struct(*)) as value")
    theirs, ours = written_by_both(frame, kafka_4, topic_name)
    assert ours == theirs
    assert {record.value for record in ours} == {b'{"id":%d}' % number for number in range(5)}


def test_an_empty_frame_writes_nothing_and_does_not_fail(
    jvm_spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    frame = jvm_spark.range(0).selectExpr("cast(id as string) as value")
    assert written_by_both(frame, kafka_4, topic_name) == ([], [])
