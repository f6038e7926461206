"""Derives an Avro schema from a type: the table is in docs/schemas.md.

A nullable column is a union of null and its type with null as its default, so that adding a column is a compatible
change. Nullability is that of Spark's schema.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.commits import TYPE_UNWRITABLE
from kafka_sink.formats.records.bytes_column import plain_type
from kafka_sink.formats.schemas.avro import AvroSchema, check_name, is_name
from kafka_sink.formats.schemas.naming import (
    Problems,
    cast_text,
    column_text,
    is_bytes,
    is_list,
    is_text,
    join_path,
    spark_name,
)

_SIMPLE = {
    "null": "null", "bool": "boolean", "int8": "int", "int16": "int", "int32": "int", "int64": "long",
    "uint8": "int", "uint16": "int", "uint32": "long", "float": "float", "double": "double",
}  # fmt: skip
_UNITS = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}


def derive_avro_schema(kind: pa.DataType, name: str) -> AvroSchema:
    """`name` is the record's full name. A type other than a struct becomes a schema without a name."""
    check_name(name)
    namespace, _, short = name.rpartition(".")
    derivation = _Derivation()
    found = derivation.derive(kind, short, "")
    if derivation.problems.texts:
        raise ConfigError(
            "no Avro schema can be made for these columns: " + "; ".join(derivation.problems.texts), TYPE_UNWRITABLE
        )
    if namespace and isinstance(found, dict) and found["type"] == "record":
        found = {"type": "record", "name": short, "namespace": namespace, "fields": found["fields"]}
    return AvroSchema.parse(json.dumps(found))


class _Derivation:
    """A nested record is named after the path of fields to it, which works with Java's generated classes."""

    def __init__(self) -> None:
        self.problems = Problems()
        self._names: set[str] = set()

    def derive(self, kind: pa.DataType, name: str, path: str) -> Any:
        kind = plain_type(kind)
        if pa.types.is_struct(kind):
            return self._derive_record(kind, name, path)
        if is_list(kind):
            return {"type": "array", "items": self._derive_nullable(kind.value_field, name, f"{path}[]")}
        if pa.types.is_map(kind):
            return self._derive_map(kind, name, path)
        found = derive_scalar(kind)
        if found is None:
            self.problems.add(f"{column_text(path)} has type {spark_name(kind)}, which Avro lacks; {cast_text(path)}")
        return found

    def _derive_map(self, kind: pa.DataType, name: str, path: str) -> Any:
        if not is_text(plain_type(kind.key_type)):
            self.problems.add(
                f"{column_text(path)} is a {spark_name(kind)}, and keys of Avro maps are strings; "
                f"map_entries({path or 'x'}) makes an array of structs of it"
            )
        return {"type": "map", "values": self._derive_nullable(kind.item_field, name, f"{path}{{}}")}

    def _derive_record(self, kind: pa.DataType, name: str, path: str) -> Any:
        while name in self._names:
            name += "_"
        self._names.add(name)
        fields: dict[str, dict[str, Any]] = {}
        for field in kind:
            inner = join_path(path, field.name)
            if not is_name(field.name):
                self.problems.add(
                    f"column {inner} has a name that Avro does not allow: rename it to letters, digits and underscores"
                )
            if field.name in fields:
                self.problems.add(f"two columns are called {inner}; rename one")
            made = self._derive_nullable(field, f"{name}_{field.name}", inner)
            default = {"default": None} if field.nullable else {}
            fields[field.name] = {"name": field.name, "type": made, **default}
        return {"type": "record", "name": name, "fields": list(fields.values())}

    def _derive_nullable(self, field: pa.Field, name: str, path: str) -> Any:
        found = self.derive(field.type, name, path)
        return ["null", found] if field.nullable and found != "null" else found


def derive_scalar(kind: pa.DataType) -> Any:
    """None: Avro has no such type."""
    types = pa.types
    if str(kind) in _SIMPLE:
        return _SIMPLE[str(kind)]
    if is_text(kind):
        return "string"
    if is_bytes(kind):
        return "bytes"
    if types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= 38:
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if types.is_timestamp(kind):
        local = "" if kind.tz is not None else "local-"
        return {"type": "long", "logicalType": f"{local}timestamp-{_UNITS[kind.unit]}"}
    if types.is_time(kind):
        return {"type": "long", "logicalType": "time-micros"}
    if types.is_duration(kind):
        # Avro's own durations have months, days and milliseconds; Spark's to_avro writes microseconds, too.
        return "long"
    return None
