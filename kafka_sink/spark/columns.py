"""Which columns of a DataFrame are written, checked by Spark's types before any task starts.

The rules are those of Spark's own Kafka sink (docs/parity.md): exact, case-sensitive names, the first of equal names
counts, other columns are ignored. The column topic is ignored if the option topic is set. Spark's sink has neither the
column timestamp nor formats: with a format a column may have any type, and the value may be a record of several
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kafka_sink.errors import ConfigError, common_entry
from kafka_sink.errors.table.writes import COLUMN_MISSING, COLUMN_TYPE, OPTIONS_CONTRADICT, TOPIC_MISSING, VALUE_MISSING
from kafka_sink.options.format_names import BINARY, ENCODED, EVERY_COLUMN, STRING
from kafka_sink.options.sink_options import DEBEZIUM

if TYPE_CHECKING:
    from kafka_sink.options.format_options import FormatOptions, SideFormat
    from kafka_sink.options.sink_options import ChangeOptions, EnvelopeOptions
    from kafka_sink.spark.formats import SidePlan


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


_KNOWN = frozenset(column.name for column in _COLUMNS)
_ATTRIBUTE_TYPES = (StringType, ByteType, ShortType, IntegerType, LongType, BooleanType, TimestampType)
_ID_TYPES = (StringType, ByteType, ShortType, IntegerType, LongType)
_PLAIN_FORMATS: dict[str, type[DataType]] = {STRING: StringType, BINARY: BinaryType}


@dataclass(frozen=True)
class WrittenColumns:
    """`indices` point into the DataFrame's schema, `names` have the same order. `record`: names and indices of the
    columns of the value, if it consists of several. `sides` are those to be encoded. `attributes`: CloudEvents
    attributes from columns, and the columns' indices. `traceparent`: the index of the column with that header.
    `operation` and `before`: the indices of the columns of a change. `row_id`: that of the column with ids of rows."""

    names: tuple[str, ...]
    indices: tuple[int, ...]
    ignored: tuple[str, ...]
    record: tuple[tuple[str, int], ...] = ()
    sides: tuple[SidePlan, ...] = ()
    attributes: tuple[tuple[str, int], ...] = ()
    traceparent: int | None = None
    operation: int | None = None
    before: int | None = None
    row_id: int | None = None


def choose_columns(
    schema: StructType,
    topic: str | None,
    formats: FormatOptions | None = None,
    envelope: EnvelopeOptions | None = None,
    changes: ChangeOptions | None = None,
) -> WrittenColumns:
    """Raises `ConfigError` with every problem of the schema."""
    value, key = (None, None) if formats is None else (formats.value, formats.key)
    names = schema.names
    problems: list[ConfigError] = []
    operation, before = (None, None) if changes is None else _find_change(schema, changes, problems)
    record = _record(schema, value, problems, {operation, before})
    if topic is None and "topic" not in names:
        problems.append(ConfigError("no topic: set the option topic, or add a string column topic", TOPIC_MISSING))
    found: list[tuple[str, int]] = []
    for column in _COLUMNS:
        if column.name == "value" and record:
            continue
        side = {"value": value, "key": key}.get(column.name)
        if column.name not in names or (column.name == "topic" and topic is not None):
            if column.name == "key" and side is not None:
                problems.append(ConfigError("key.format is set, and there is no column key", OPTIONS_CONTRADICT))
            continue
        index = names.index(column.name)
        found.append((column.name, index))
        problems += _check_column(column, schema.fields[index].dataType, side)
    if record and value is not None and value.format in _PLAIN_FORMATS:
        found += _only_column(schema, record, value.format, problems)
        record = ()
    attributes, traceparent, row_id = [], None, None
    if envelope is not None:
        for attribute, named in envelope.attribute_columns:
            attribute_index = _find_index(schema, f"cloudevents.{attribute}.column", named, _ATTRIBUTE_TYPES, problems)
            attributes.append((attribute, attribute_index))
        if envelope.traceparent_column is not None:
            named = envelope.traceparent_column
            traceparent = _find_index(schema, "traceparent.column", named, (StringType,), problems)
        if envelope.row_id_column is not None:
            row_id = _find_index(schema, "row.id.column", envelope.row_id_column, _ID_TYPES, problems)
    if problems:
        text = "this DataFrame cannot be written to Kafka: " + "; ".join(str(problem) for problem in problems)
        raise ConfigError(text, common_entry(problems, problems[0].entry))
    used = {traceparent, operation, before, row_id, *(index for _, index in (*found, *record, *attributes))}
    _check_unused(schema, used)
    ignored = tuple(
        name
        for index, name in enumerate(names)
        if index not in used and (name not in _KNOWN or (name == "value" and "value" not in dict(found)))
    )
    return WrittenColumns(
        tuple(name for name, _ in found),
        tuple(index for _, index in found),
        ignored,
        record,
        attributes=tuple(attributes),
        traceparent=traceparent,
        operation=operation,
        before=before,
        row_id=row_id,
    )


def _check_unused(schema: StructType, used: Collection[int | None]) -> None:
    """Spark sends every column to the tasks, also those that are not written. pyarrow cannot read one of this type."""
    for index, field in enumerate(schema.fields):
        kind = field.dataType.simpleString()
        if index not in used and kind.startswith(("interval year", "interval month")):
            raise ConfigError(
                f"column {field.name} is not written, and its type {kind} cannot be sent to Python: leave it out of "
                f"the DataFrame, drop('{field.name}')",
                COLUMN_TYPE,
            )


def encoded_sides(
    schema: StructType, columns: WrittenColumns, formats: FormatOptions, changes: ChangeOptions | None = None
) -> Iterator[tuple[str, SideFormat, DataType, str]]:
    """Which of value and key are encoded, and the type and name of the column; a record of several has no name."""
    for side, chosen in (("value", formats.value), ("key", formats.key)):
        if chosen is None or chosen.format not in ENCODED:
            continue
        if side == "value" and columns.record:
            kind: DataType = StructType([schema.fields[index] for _, index in columns.record])
            name = ""
        else:
            kind, name = schema.fields[columns.indices[columns.names.index(side)]].dataType, side
        if side == "value" and changes is not None and changes.envelope == DEBEZIUM:
            kind = _debezium_type(schema, columns, changes, kind)
        yield side, chosen, kind, name


def _debezium_type(schema: StructType, columns: WrittenColumns, changes: ChangeOptions, row: DataType) -> StructType:
    if columns.before is not None:
        before = schema.fields[columns.before].dataType
        if before.simpleString() != row.simpleString():
            raise ConfigError(
                f"before.column={changes.before_column} has type {before.simpleString()}, and the row after the change "
                f"has {row.simpleString()}: select the same columns, in the same order",
                COLUMN_TYPE,
            )
    made = StructType().add("before", row).add("after", row).add("op", StringType(), nullable=False)
    return made.add("ts_ms", LongType()) if "timestamp" in columns.names else made


def _find_change(schema: StructType, changes: ChangeOptions, problems: list[ConfigError]) -> tuple[int, int | None]:
    if "key" not in schema.names:
        text = f"envelope={changes.envelope} needs a column key: it is what a delete deletes"
        problems.append(ConfigError(text, COLUMN_MISSING))
    operation = _find_index(schema, "operation.column", changes.operation_column, (StringType,), problems)
    if changes.before_column is None:
        return operation, None
    return operation, _find_index(schema, "before.column", changes.before_column, (StructType,), problems)


def _find_index(
    schema: StructType, option: str, column: str, kinds: tuple[type[DataType], ...], problems: list[ConfigError]
) -> int:
    """Index of a column named in an option. If it is missing or has the wrong type, a problem is noted."""
    if column not in schema.names:
        text = f"{option}={column}: there is no such column. The DataFrame has {_columns_text(schema.names)}"
        problems.append(ConfigError(text, COLUMN_MISSING))
        return -1
    index = schema.names.index(column)
    kind = schema.fields[index].dataType
    if not isinstance(kind, kinds):
        # As text a date or a timestamp without time zone would have another form than CloudEvents demands.
        is_time = isinstance(kind, (DateType, TimestampNTZType)) and TimestampType in kinds
        cast = f"CAST({column} AS {'TIMESTAMP' if is_time else 'STRING'})"
        text = f"{option}={column} has type {kind.simpleString()}: {cast}"
        problems.append(ConfigError(text, COLUMN_TYPE))
    return index


def _record(
    schema: StructType, value: SideFormat | None, problems: list[ConfigError], hidden: Collection[int | None]
) -> tuple[tuple[str, int], ...]:
    """The columns of the value; none if there is a value column. `hidden`: what belongs to none unless it is named."""
    names = schema.names
    chosen = None if value is None else value.columns
    if chosen is None and "value" in names:
        return ()
    if value is None:
        text = (
            f"required column value not found. The DataFrame has {_columns_text(names)}; name the payload value, for "
            "example with selectExpr('to_json(struct(*)) AS value'), or set value.format"
        )
        problems.append(ConfigError(text, VALUE_MISSING))
        return ()
    if chosen is None or chosen == (EVERY_COLUMN,):
        record = [(name, index) for index, name in enumerate(names) if name not in _KNOWN and index not in hidden]
    else:
        missing = [name for name in chosen if name not in names]
        if missing:
            text = f"value.columns names {', '.join(missing)}; the DataFrame has {_columns_text(names)}"
            problems.append(ConfigError(text, VALUE_MISSING))
        record = [(name, names.index(name)) for name in chosen if name in names]
    if not record and not problems:
        problems.append(
            ConfigError(f"no column is left for the value. The DataFrame has {_columns_text(names)}", VALUE_MISSING)
        )
    return tuple(record)


def _only_column(
    schema: StructType, record: tuple[tuple[str, int], ...], format_name: str, problems: list[ConfigError]
) -> list[tuple[str, int]]:
    if len(record) > 1:
        names = [name for name, _ in record]
        text = f"value.format={format_name} writes one column, not {_columns_text(names)}: set value.columns"
        problems.append(ConfigError(text, OPTIONS_CONTRADICT))
        return []
    index = record[0][1]
    wanted = _PLAIN_FORMATS[format_name]
    if not isinstance(schema.fields[index].dataType, wanted):
        problems.append(_type_error(record[0][0], schema.fields[index].dataType, format_name))
    return [("value", index)]


def _check_column(column: _Column, kind: DataType, side: SideFormat | None) -> list[ConfigError]:
    if side is not None and side.format in ENCODED:
        return []
    if side is not None:
        return [] if isinstance(kind, _PLAIN_FORMATS[side.format]) else [_type_error(column.name, kind, side.format)]
    if column.accepts(kind):
        return []
    cure = column.cure
    if column.name in ("key", "value"):
        if isinstance(kind, (ArrayType, MapType, StructType)):
            cure = f"to_json({column.name}) AS {column.name}"
        cure += f", or set {column.name}.format"
    text = f"column {column.name} has the unsupported type {kind.simpleString()}. {column.name} must be {column.wanted}"
    return [ConfigError(f"{text}: {cure}", COLUMN_TYPE)]


def _type_error(name: str, kind: DataType, format_name: str) -> ConfigError:
    return ConfigError(
        f"column {name} has type {kind.simpleString()}, and the format is {format_name}: CAST({name} AS {format_name})",
        COLUMN_TYPE,
    )


def _columns_text(names: list[str]) -> str:
    return "the columns " + ", ".join(names) if names else "no columns"
