"""Which columns of a DataFrame are written, checked by Spark's types before any task starts.

The rules are those of Spark's own Kafka sink (docs/parity.md): exact, case-sensitive names, the first of equal names
counts, other columns are ignored. A column topic is not even looked at when the option topic is set. What Spark's sink
does not have is the column timestamp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from kafka_sink.errors import ConfigError


@dataclass(frozen=True)
class _Column:
    name: str
    wanted: str
    accepts: Callable[[DataType], bool]
    cure: str


def _is_bytes(kind: DataType) -> bool:
    return isinstance(kind, (StringType, BinaryType))


def _is_headers(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and _is_bytes(kind.valueType)
    if not (isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType)):
        return False
    fields = kind.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and _is_bytes(fields[1].dataType)
    )


_COLUMNS = (
    _Column("value", "string or binary", _is_bytes, "CAST(value AS STRING), or to_json(struct(*)) AS value"),
    _Column("key", "string or binary", _is_bytes, "CAST(key AS STRING)"),
    _Column("topic", "string", lambda kind: isinstance(kind, StringType), "CAST(topic AS STRING)"),
    _Column("partition", "int", lambda kind: isinstance(kind, IntegerType), "CAST(partition AS INT)"),
    _Column(
        "headers",
        "array<struct<key:string,value:binary>> or map<string,binary>",
        _is_headers,
        "array(struct('name' AS key, CAST(x AS BINARY) AS value)) AS headers",
    ),
    _Column(
        "timestamp",
        "timestamp, or bigint for milliseconds",
        lambda kind: isinstance(kind, (TimestampType, LongType)),
        "CAST(timestamp AS TIMESTAMP)",
    ),
)


@dataclass(frozen=True)
class WrittenColumns:
    """`indices` are places in the DataFrame's schema, `names` stand in the same order."""

    names: tuple[str, ...]
    indices: tuple[int, ...]
    ignored: tuple[str, ...]


def written_columns(schema: StructType, topic: str | None) -> WrittenColumns:
    """Raises `ConfigError` with every problem of the schema."""
    names = [field.name for field in schema.fields]
    problems = []
    if "value" not in names:
        problems.append(
            f"required column value not found. The DataFrame has {_listed(names)}; name the payload value, for "
            "example with selectExpr('to_json(struct(*)) AS value')"
        )
    if topic is None and "topic" not in names:
        problems.append("no topic: set the option topic, or add a string column topic")
    found: list[str] = []
    for column in _COLUMNS:
        if column.name not in names or (column.name == "topic" and topic is not None):
            continue
        found.append(column.name)
        kind = schema.fields[names.index(column.name)].dataType
        if not column.accepts(kind):
            problems.append(
                f"column {column.name} has the unsupported type {kind.simpleString()}. {column.name} must be "
                f"{column.wanted}: {column.cure}"
            )
    if problems:
        raise ConfigError("this DataFrame cannot be written to Kafka: " + "; ".join(problems))
    known = {column.name for column in _COLUMNS}
    ignored = tuple(name for name in names if name not in known)
    return WrittenColumns(tuple(found), tuple(names.index(name) for name in found), ignored)


def _listed(names: list[str]) -> str:
    return "the columns " + ", ".join(names) if names else "no columns"
