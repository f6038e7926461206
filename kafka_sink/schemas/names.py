"""Names of types in error texts: Spark's, because the user knows these."""

from __future__ import annotations

import pyarrow as pa

from kafka_sink.records.bytes_column import plain_type

_SIMPLE = {
    "null": "void", "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
    "float": "float", "double": "double", "string": "string", "large_string": "string", "binary": "binary",
    "large_binary": "binary", "date32[day]": "date", "string_view": "string",
    "binary_view": "binary",
}  # fmt: skip


def spark_name(kind: pa.DataType) -> str:
    kind = plain_type(kind)
    types = pa.types
    if types.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return f"struct<{','.join(f'{field.name}:{spark_name(field.type)}' for field in fields)}>"
    if types.is_map(kind):
        return f"map<{spark_name(kind.key_type)},{spark_name(kind.item_type)}>"
    if is_list(kind):
        return f"array<{spark_name(kind.value_type)}>"
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz is not None else "timestamp_ntz"
    if types.is_time(kind):
        return "time"
    if types.is_duration(kind):
        return "interval day to second"
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _SIMPLE.get(str(kind), str(kind))


def is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )
