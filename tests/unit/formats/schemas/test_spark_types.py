"""Spark's types from JSON and from DDL: the same Arrow types that a task gets."""

from __future__ import annotations

import json
from inspect import signature
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from kafka_sink.errors import ConfigError
from kafka_sink.formats.schemas.spark_types import parse_struct

EVERY = spark.StructType(
    [
        *(
            spark.StructField(f"c{number}", kind, number % 2 == 0)
            for number, kind in enumerate(
                [
                    spark.BooleanType(), spark.ByteType(), spark.ShortType(), spark.IntegerType(), spark.LongType(),
                    spark.FloatType(), spark.DoubleType(), spark.StringType(), spark.BinaryType(), spark.DateType(),
                    spark.TimestampType(), spark.TimestampNTZType(), spark.DecimalType(38, 18),
                    spark.DayTimeIntervalType(), spark.NullType(), spark.DayTimeIntervalType(0, 1),
                ]
            )
        ),
        spark.StructField("list", spark.ArrayType(spark.ArrayType(spark.LongType(), False)), False),
        spark.StructField("map", spark.MapType(spark.StringType(), spark.StructType([]), False)),
        spark.StructField("a.b `c", spark.StructType([spark.StructField("x", spark.DecimalType(), False)])),
    ]
)  # fmt: skip


def test_json_of_a_schema_is_what_pyspark_makes_arrow_columns_of() -> None:
    # PySpark 4.1 has no parameter for the time zone and always uses UTC.
    zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    assert parse_struct(EVERY.json()) == pa.struct(list(to_arrow_schema(EVERY, **zone)))


def test_ddl_is_what_spark_reads_it_as() -> None:
    text = """
        id BIGINT NOT NULL COMMENT 'the, key', `a b` string,
        t STRUCT<x: decimal(10,2) NOT NULL, y:array<map<int,date>>>, n timestamp_ntz, d decimal,
        i interval day to second, c varchar(10), e struct<>, tt time(6) COMMENT 'not null' ,
        `,` string collate UTF8_LCASE
    """
    inner = pa.struct(
        [
            pa.field("x", pa.decimal128(10, 2), False),
            ("y", pa.list_(pa.field("element", pa.map_(pa.int32(), pa.date32())))),
        ]
    )
    assert parse_struct(text) == pa.struct(
        [
            pa.field("id", pa.int64(), False), ("a b", pa.string()), ("t", inner), ("n", pa.timestamp("us")),
            ("d", pa.decimal128(10, 0)), ("i", pa.duration("us")), ("c", pa.string()), ("e", pa.struct([])),
            ("tt", pa.time64("ns")), (",", pa.string()),
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id", "'id' is no name with a type"),
        ("id bigint id2", "'bigint id2' is no type"),
        ("id bigint,", "'' is no name with a type"),
        ("a map<int>", "'map<int>' is no map"),
        ("a int>, b int", "a bracket has no other"),
        ("id strng", "column id has type strng, which is no type of Spark: did you mean string?"),
        ("id wrong", "column id has type wrong, which no format can write: CAST(id AS STRING)"),
        ("a struct<b:variant>", "column a.b has type variant, which no format can write: CAST(a.b AS STRING)"),
        ("a struct<b:array<variant>>", "column a.b[] has type variant, "),
        ("a struct<b:array<variant>>", "write: transform(a.b, x -> CAST(x AS STRING))"),
        ("a map<string, variant>", "write: transform_values(a, (k, v) -> CAST(v AS STRING))"),
        ("a map<variant, int>", "write: transform_keys(a, (k, v) -> CAST(k AS STRING))"),
        ("a array<geometry(4326)>", "write: transform(a, x -> ST_AsBinary(x))"),
        ("a array<struct<b:variant>>", "column a[].b has type variant, which no format can write: CAST(a AS STRING)"),
        ("a array<array<variant>>", "column a[][] has type variant, which no format can write: CAST(a AS STRING)"),
        ("a map<int, array<variant>>", "column a{}[] has type variant, which no format can write: CAST(a AS STRING)"),
        ("a array<map<int, variant>>", "column a[]{} has type variant, which no format can write: CAST(a AS STRING)"),
        ("m map<void, void>", "column m is a map with keys of type void, which no format can write: CAST(m AS MAP<"),
        ("a geometry(4326)", "column a has type geometry(4326), which no format can write: ST_AsBinary(a)"),
        ("a array<int", "a bracket has no other"),
        ("a decimal(50,2)", "column a has type decimal(50,2)"),
        ("a decimal(10,39)", "column a has type decimal(10,39)"),
        ("a decimal(10, 9999999999)", "column a has type decimal(10, 9999999999)"),
        (f"a decimal({'9' * 5000})", "column a has type decimal(999"),
        ("a int; drop", "'int; drop' is no type"),
        ("{", "neither JSON of a Spark schema nor DDL"),
        ('{"type":"array","elementType":"int","containsNull":true}', "the columns are a struct"),
        ('{"type":"struct"}', "this is no JSON of a Spark type"),
        ('{"type":"struct","fields":[{"name":"a","type":"geometry","nullable":true}]}', "column a has type geometry"),
        ("a " + "array<" * 300 + "int" + ">" * 300, "nested more than 200 deep"),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_struct(text)
    assert said in str(raised.value)


def test_the_expression_array_is_a_list_of_nulls_though_its_elements_are_said_never_to_be_null() -> None:
    schema = spark.StructType([spark.StructField("a", spark.ArrayType(spark.NullType(), False), False)])
    assert parse_struct(schema.json()) == pa.struct([pa.field("a", pa.list_(pa.field("element", pa.null())), False)])


def test_user_defined_types_are_what_they_are_made_of() -> None:
    udt: Any = {
        "type": "udt",
        "class": "x.Y",
        "sqlType": {"type": "array", "elementType": "double", "containsNull": False},
    }
    found = parse_struct(json.dumps({"type": "struct", "fields": [{"name": "v", "type": udt, "nullable": True}]}))
    assert found.field("v").type == pa.list_(pa.field("element", pa.float64(), False))
