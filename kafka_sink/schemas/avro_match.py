"""Which Avro type an Arrow type can be written as: docs/schemas.md has the table.

All mismatches are collected and reported in one error before there are rows. Checks that depend on the rows (a range, a
null, a symbol, a length) are left to the nodes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_sink.records.bytes_column import plain_type
from kafka_sink.schemas.avro import NO_DEFAULT, AvroField, AvroType
from kafka_sink.schemas.avro_default import encode_default
from kafka_sink.schemas.avro_nodes import (
    AvroBoolean,
    AvroBytes,
    AvroDecimal,
    AvroEnum,
    AvroFixed,
    AvroFloat,
    AvroInteger,
    AvroItems,
    AvroNull,
    AvroRecord,
    AvroRecordField,
    AvroSlot,
    AvroText,
    AvroUuid,
    AvroUuidText,
)
from kafka_sink.schemas.decimals import PRECISION_MAX
from kafka_sink.schemas.names import is_bytes, is_list, is_text, spark_name
from kafka_sink.schemas.naming import (
    Problems,
    add_unknown_columns,
    column_text,
    find_column,
    join_path,
    missing_column_text,
)
from kafka_sink.schemas.node import Numbers, ValueNode, days, integer_dtype, integers, timestamps

# What can be written as a type: the second half of an error text.
_FITS = {
    "null": "void",
    "boolean": "boolean",
    "int": "tinyint, smallint, int, bigint if every value is small enough, date",
    "long": "tinyint, smallint, int, bigint, timestamp, interval day to second",
    "float": "float, tinyint, smallint",
    "double": "double, float, tinyint, smallint, int",
    "bytes": "binary, string",
    "fixed": "binary of that many bytes",
    "string": "string",
    "enum": "string",
    "array": "array",
    "map": "map with string keys",
    "record": "struct",
    "date": "date, int",
    "decimal": "decimal with no more digits behind the point",
    "uuid": "string, binary of 16 bytes",
    "time-millis": "time",
    "time-micros": "time",
    "timestamp-millis": "timestamp, bigint",
    "timestamp-micros": "timestamp, bigint",
    "timestamp-nanos": "timestamp, bigint",
    "local-timestamp-millis": "timestamp_ntz, bigint",
    "local-timestamp-micros": "timestamp_ntz, bigint",
    "local-timestamp-nanos": "timestamp_ntz, bigint",
}
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_DECIMAL_BYTES_MAX = 1024
_NOT_SCALAR = frozenset({"array", "map", "record", "union"})


def match_avro(kind: pa.DataType, schema: AvroType, path: str, problems: Problems) -> AvroSlot:
    """In place of a mismatch there is a slot that encodes nothing."""
    kind = plain_type(kind)
    if schema.kind != "union":
        node = _match_node(kind, schema, path, problems)
        return AvroSlot(node)
    null_branch = schema.null_branch
    if pa.types.is_null(kind) and null_branch is not None:
        return AvroSlot(AvroNull(), null_branch, null_branch)
    numbers = [number for number, branch in enumerate(schema.branches) if branch.kind != "null"]
    if len(numbers) == 1:
        return AvroSlot(_match_node(kind, schema.branches[numbers[0]], path, problems), numbers[0], null_branch)
    for rank in (_is_natural, lambda *_: True):
        for number in numbers:
            branch = schema.branches[number]
            branch_problems = Problems()
            if not rank(kind, branch):
                continue
            node = _match_node(kind, branch, path, branch_problems)
            if not branch_problems.texts:
                return AvroSlot(node, number, null_branch)
    problems.add(_mismatch_text(path, kind, schema))
    return AvroSlot(AvroNull())


def _match_node(kind: pa.DataType, schema: AvroType, path: str, problems: Problems) -> ValueNode:
    node = _match_nested(kind, schema, path, problems) if schema.kind in _NOT_SCALAR else _match_scalar(kind, schema)
    if node is None:
        problems.add(_mismatch_text(path, kind, schema))
        return AvroNull()
    return node


def _match_nested(kind: pa.DataType, schema: AvroType, path: str, problems: Problems) -> ValueNode | None:
    if schema.kind == "record":
        return _match_record(kind, schema, path, problems) if pa.types.is_struct(kind) else None
    assert schema.items is not None
    if schema.kind == "array" and is_list(kind):
        return AvroItems((match_avro(kind.value_type, schema.items, f"{path}[]", problems),), ("[]",))
    if schema.kind == "map" and pa.types.is_map(kind) and is_text(plain_type(kind.key_type)):
        return AvroItems(
            (AvroSlot(AvroText()), match_avro(kind.item_type, schema.items, f"{path}{{}}", problems)), ("{key}", "{}")
        )
    return None


def _match_record(kind: pa.DataType, schema: AvroType, path: str, problems: Problems) -> AvroRecord:
    columns = [kind.field(index).name for index in range(kind.num_fields)]
    names = [field.name for field in schema.fields]
    fields: list[AvroRecordField] = []
    used: set[int] = set()
    for field in schema.fields:
        inner = join_path(path, field.name)
        index = find_column(field.name, names, columns, inner, problems)
        if index is None:
            fields.append(AvroRecordField(field.name, content=_default_content(field, inner, problems)))
            continue
        used.add(index)
        fields.append(
            AvroRecordField(field.name, index, match_avro(kind.field(index).type, field.type, inner, problems))
        )
    add_unknown_columns(columns, used, names, path, problems)
    return AvroRecord(tuple(fields))


def _default_content(field: AvroField, path: str, problems: Problems) -> bytes:
    if field.default is not NO_DEFAULT:
        return encode_default(field.type, field.default, path)
    if field.type.kind == "null":
        return b""
    if field.type.null_branch is not None:
        return encode_default(field.type, None, path)
    problems.add(missing_column_text(path, str(field.type), _fitting_types(field.type)))
    return b""


def _match_scalar(kind: pa.DataType, schema: AvroType) -> ValueNode | None:
    if schema.logical:
        return _match_logical(kind, schema)
    if schema.kind == "null":
        return AvroNull() if pa.types.is_null(kind) else None
    if schema.kind == "boolean":
        return AvroBoolean() if pa.types.is_boolean(kind) else None
    if schema.kind in ("int", "long"):
        return _match_integer(kind, schema)
    if schema.kind in ("float", "double"):
        return _match_float(kind, 4 if schema.kind == "float" else 8)
    if schema.kind == "enum":
        return AvroEnum(schema.symbols) if is_text(kind) else None
    if schema.kind == "string":
        return AvroText() if is_text(kind) else None
    if not is_bytes(kind) and not (schema.kind == "bytes" and is_text(kind)):
        return None
    return AvroBytes() if schema.kind == "bytes" else AvroFixed(schema.size)


def _match_integer(kind: pa.DataType, schema: AvroType) -> ValueNode | None:
    types = pa.types
    numbers = integers(kind, 32 if schema.kind == "int" else 64)
    if schema.kind == "int" and types.is_date(kind):
        numbers = days(kind)
    elif schema.kind == "long" and types.is_timestamp(kind):
        # Without a logical type Spark's to_avro uses milliseconds.
        numbers = timestamps(kind, "ms")
    elif schema.kind == "long" and types.is_duration(kind):
        numbers = timestamps(kind, "us")
    return None if numbers is None else AvroInteger(numbers)


def _match_float(kind: pa.DataType, size: int) -> ValueNode | None:
    """Only without loss of precision."""
    if pa.types.is_float32(kind) or (pa.types.is_float64(kind) and size == 8):
        return AvroFloat(np.float32 if pa.types.is_float32(kind) else np.float64, size)
    dtype = integer_dtype(kind)
    if dtype is None or np.dtype(dtype).itemsize > size // 2:
        return None
    return AvroFloat(dtype, size)


def _match_logical(kind: pa.DataType, schema: AvroType) -> ValueNode | None:
    types = pa.types
    logical = schema.logical
    if logical == "decimal":
        return _match_decimal(kind, schema)
    if logical == "uuid":
        if is_text(kind):
            return AvroUuid() if schema.kind == "fixed" else AvroUuidText()
        return AvroFixed(16) if schema.kind == "fixed" and is_bytes(kind) else None
    numbers: Numbers | None = None
    if logical == "date":
        numbers = days(kind) if types.is_date(kind) else integers(kind, 32)
    elif logical.startswith("time-"):
        unit = _UNITS[logical.removeprefix("time-")]
        numbers = timestamps(kind, unit) if types.is_time(kind) else None
    else:
        is_local = logical.startswith("local-")
        if types.is_timestamp(kind) and (kind.tz is None) == is_local:
            numbers = timestamps(kind, _UNITS[logical.rpartition("-")[2]])
        elif str(kind) == "int64":
            numbers = integers(kind)
    return None if numbers is None else AvroInteger(numbers)


def _match_decimal(kind: pa.DataType, schema: AvroType) -> ValueNode | None:
    """A schema may declare more digits and bytes; numbers here have at most 38 digits."""
    if not pa.types.is_decimal(kind) or kind.precision > PRECISION_MAX or not 0 <= kind.scale <= schema.scale:
        return None
    if schema.scale > PRECISION_MAX or schema.size > _DECIMAL_BYTES_MAX:
        return None
    precision = min(schema.precision, PRECISION_MAX)
    if schema.kind == "fixed" and 10**precision > 2 ** (8 * schema.size - 1):
        return None
    return AvroDecimal(precision, schema.scale, schema.size)


def _is_natural(kind: pa.DataType, schema: AvroType) -> bool:
    """The preferred branch of a union: the one that a derived schema would have."""
    types = pa.types
    if integer_dtype(kind) is not None:
        return not schema.logical and schema.kind == ("long" if "64" in str(kind) else "int")
    if types.is_floating(kind):
        return schema.kind == ("float" if types.is_float32(kind) else "double")
    if is_text(kind):
        return schema.kind == "string" and not schema.logical
    if types.is_timestamp(kind):
        return bool(schema.logical)
    if types.is_time(kind):
        return schema.logical == "time-micros"
    return is_bytes(kind) and schema.kind == "bytes"


def _fitting_types(schema: AvroType) -> str:
    if schema.kind != "union":
        return _FITS[schema.logical or schema.kind]
    fitting = (_FITS[branch.logical or branch.kind] for branch in schema.branches if branch.kind != "null")
    return "; ".join(dict.fromkeys(fitting))


def _mismatch_text(path: str, kind: pa.DataType, schema: AvroType) -> str:
    has = f"{column_text(path)} has type {spark_name(kind)}"
    return f"{has}, the schema says {schema}; what fits there: {_fitting_types(schema)}"
