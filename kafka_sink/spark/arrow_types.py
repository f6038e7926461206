"""Spark's types as the Arrow types in which a task will get them. PySpark's own function for it has changed its
parameters from release to release, and says nothing of the column that it cannot convert."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from kafka_sink.errors import ConfigError

_SIMPLE: dict[str, pa.DataType] = {
    "NullType": pa.null(),
    "BooleanType": pa.bool_(),
    "ByteType": pa.int8(),
    "ShortType": pa.int16(),
    "IntegerType": pa.int32(),
    "LongType": pa.int64(),
    "FloatType": pa.float32(),
    "DoubleType": pa.float64(),
    "StringType": pa.string(),
    "CharType": pa.string(),
    "VarcharType": pa.string(),
    "BinaryType": pa.binary(),
    "DateType": pa.date32(),
    "TimestampType": pa.timestamp("us", tz="UTC"),
    "TimestampNTZType": pa.timestamp("us"),
    "DayTimeIntervalType": pa.duration("us"),
    "TimeType": pa.time64("ns"),
}


def arrow_type(kind: spark.DataType, path: str) -> pa.DataType:
    """`path` names the column in the error."""
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.StructType):
        return arrow_struct([(field.name, field) for field in kind.fields], path)
    if isinstance(kind, spark.ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType, f"{path}[]"), kind.containsNull))
    if isinstance(kind, spark.MapType):
        values = pa.field("value", arrow_type(kind.valueType, f"{path}{{}}"), kind.valueContainsNull)
        return pa.map_(pa.field("key", arrow_type(kind.keyType, f"{path}{{key}}"), False), values)
    if isinstance(kind, spark.UserDefinedType):
        return arrow_type(kind.sqlType(), path)
    for base in type(kind).__mro__:
        if base.__name__ in _SIMPLE:
            return _SIMPLE[base.__name__]
    raise ConfigError(
        f"column {path} has type {kind.simpleString()}, which no format can write: CAST({path} AS STRING)"
    )


def arrow_struct(fields: list[tuple[str, Any]], path: str) -> pa.StructType:
    made = []
    for name, field in fields:
        inner = f"{path}.{name}" if path else name
        made.append(pa.field(name, arrow_type(field.dataType, inner), field.nullable))
    return pa.struct(made)
