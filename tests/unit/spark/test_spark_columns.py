"""The columns of a DataFrame that are written: Spark's types, exact names, and all problems in one error."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from kafka_sink.errors import ConfigError
from kafka_sink.spark.columns import WrittenColumns, choose_columns

STRUCT = StructType().add("key", StringType()).add("value", BinaryType())
EVERY_TYPE: list[DataType] = [
    StringType(), BinaryType(), BooleanType(), ByteType(), ShortType(), IntegerType(), LongType(), DoubleType(),
    DecimalType(10, 2), DateType(), TimestampType(), TimestampNTZType(), NullType(), STRUCT, ArrayType(STRUCT),
    ArrayType(StringType()), MapType(StringType(), BinaryType()), MapType(StringType(), StringType()),
    MapType(LongType(), BinaryType()), ArrayType(StructType().add("value", BinaryType()).add("key", StringType())),
    ArrayType(StructType().add("name", StringType()).add("value", BinaryType())),
    ArrayType(StructType().add("key", StringType()).add("value", LongType())),
]  # fmt: skip
ACCEPTED: dict[str, list[DataType]] = {
    "value": [StringType(), BinaryType()],
    "key": [StringType(), BinaryType()],
    "topic": [StringType()],
    "partition": [IntegerType()],
    "headers": [ArrayType(STRUCT), MapType(StringType(), BinaryType()), MapType(StringType(), StringType())],
    "timestamp": [TimestampType(), LongType()],
}


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def refusal(frame: StructType, topic: str | None = "t") -> str:
    with pytest.raises(ConfigError) as raised:
        choose_columns(frame, topic)
    return str(raised.value)


@pytest.mark.parametrize("column", ACCEPTED)
@pytest.mark.parametrize("kind", EVERY_TYPE, ids=lambda kind: kind.simpleString())
def test_a_column_takes_its_types_and_no_other(column: str, kind: DataType) -> None:
    topic = None if column == "topic" else "t"
    frame = schema(**{"value": StringType(), column: kind})
    if kind in ACCEPTED[column]:
        assert column in choose_columns(frame, topic).names
    else:
        text = refusal(frame, topic)
        assert f"column {column} has the unsupported type {kind.simpleString()}. {column} must be " in text


def test_whether_parts_of_headers_may_be_null_does_not_matter() -> None:
    for nullable in (True, False):
        parts = StructType([StructField("key", StringType(), nullable), StructField("value", BinaryType(), nullable)])
        frame = schema(value=StringType(), headers=ArrayType(parts, nullable))
        assert choose_columns(frame, "t").names == ("value", "headers")


def test_names_are_exact_and_others_are_named_as_ignored() -> None:
    frame = schema(
        Value=StringType(), value=StringType(), KEY=StringType(), offset=LongType(), timestampType=LongType()
    )
    found = choose_columns(frame, "t")
    assert found == WrittenColumns(("value",), (1,), ("Value", "KEY", "offset", "timestampType"))


def test_indices_are_places_in_the_frame_in_whatever_order() -> None:
    frame = schema(headers=ArrayType(STRUCT), x=LongType(), topic=StringType(), value=BinaryType(), key=BinaryType())
    assert choose_columns(frame, None) == WrittenColumns(("value", "key", "topic", "headers"), (3, 4, 2, 0), ("x",))


def test_of_equal_names_the_first_counts() -> None:
    frame = StructType([StructField("value", StringType()), StructField("value", LongType())])
    assert choose_columns(frame, "t").indices == (0,)
    assert "unsupported type bigint" in refusal(StructType([frame.fields[1], frame.fields[0]]))


def test_the_option_topic_makes_the_column_count_for_nothing_not_even_its_type() -> None:
    frame = schema(topic=LongType(), value=StringType())
    assert choose_columns(frame, "t") == WrittenColumns(("value",), (1,), ())
    assert "column topic has the unsupported type bigint" in refusal(frame, None)


def test_every_problem_is_told_at_once() -> None:
    text = refusal(schema(key=LongType(), partition=StringType()), None)
    for part in ("required column value not found", "no topic:", "column key has", "column partition has"):
        assert part in text
    assert text.startswith("this DataFrame cannot be written to Kafka: ")


def test_a_frame_without_columns_says_so() -> None:
    assert "The DataFrame has no columns" in refusal(StructType())


@pytest.mark.parametrize("kind", [YearMonthIntervalType(), YearMonthIntervalType(0, 0), YearMonthIntervalType(1, 1)])
def test_a_column_that_cannot_be_sent_to_tasks_is_refused_though_it_is_not_written(kind: DataType) -> None:
    frame = StructType().add("value", StringType()).add("age", kind)
    with pytest.raises(
        ConfigError, match=r"column age is not written, .*interval (year|month).* drop\('age'\)"
    ) as raised:
        choose_columns(frame, "t")
    assert raised.value.name == "PKS-1203"
    inside = StructType().add("value", StringType()).add("ages", ArrayType(kind))
    assert choose_columns(inside, "t").ignored == ("ages",)
