"""JSON for a type, checked against a JSON schema.

Only names and types of a JSON schema are checked: properties, required, additionalProperties, type, items. The rest
(patterns, ranges, references, anyOf) is left to validating readers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kafka_sink.records.bytes_column import plain_type
from kafka_sink.schemas.json_nodes import (
    JsonBase64,
    JsonBoolean,
    JsonDate,
    JsonEntries,
    JsonFloat,
    JsonInterval,
    JsonItems,
    JsonNull,
    JsonNumber,
    JsonObject,
    JsonObjectField,
    JsonSlot,
    JsonText,
    JsonTime,
    JsonTimestamp,
)
from kafka_sink.schemas.names import is_bytes, is_list, is_text, spark_name
from kafka_sink.schemas.naming import Problems, column_text, join_path
from kafka_sink.schemas.node import ValueNode, days, integer_dtype, timestamps

# Types whose text must be quoted as keys of maps.
_BARE = (JsonNumber, JsonBoolean)


def match_json(kind: pa.DataType, schema: Any, path: str, problems: Problems) -> JsonSlot:
    """`schema` is the subschema for this type; None: no schema."""
    return JsonSlot(_match_node(plain_type(kind), schema, path, problems))


def json_type(kind: pa.DataType) -> str:
    """The type's name in JSON Schema."""
    types = pa.types
    kind = plain_type(kind)
    if types.is_struct(kind) or types.is_map(kind):
        return "object"
    if is_list(kind):
        return "array"
    if types.is_boolean(kind) or types.is_null(kind):
        return "boolean" if types.is_boolean(kind) else "null"
    if integer_dtype(kind) is not None:
        return "integer"
    return "number" if types.is_floating(kind) or types.is_decimal(kind) else "string"


def _match_node(kind: pa.DataType, schema: Any, path: str, problems: Problems) -> ValueNode:
    types = pa.types
    if schema is not None and not isinstance(schema, dict):
        schema = {}
    _check_type(kind, schema, path, problems)
    if types.is_struct(kind):
        return _match_object(kind, schema, path, problems)
    if is_list(kind):
        return JsonItems(match_json(kind.value_type, _inner_schema(schema, "items"), f"{path}[]", problems))
    if types.is_map(kind):
        values = match_json(kind.item_type, _inner_schema(schema, "additionalProperties"), f"{path}{{}}", problems)
        key = _match_key(plain_type(kind.key_type))
        if key is None:
            cure = f"use map_entries({path or 'x'})"
            problems.add(f"{column_text(path)} is a {spark_name(kind)}, and its keys have no text; {cure}")
            return JsonNull()
        return JsonEntries(key, isinstance(key, (*_BARE, JsonFloat)), values)
    found = _match_scalar(kind, schema is not None)
    if found is None:
        cure = f"CAST({path or 'x'} AS STRING)"
        problems.add(f"{column_text(path)} has type {spark_name(kind)}, for which JSON has no text; {cure}")
        return JsonNull()
    return found


def _inner_schema(schema: dict[str, Any] | None, name: str) -> Any:
    """Within a schema a number must be a number: {} means no further restriction."""
    return None if schema is None else schema.get(name, {})


def _match_object(kind: pa.DataType, schema: dict[str, Any] | None, path: str, problems: Problems) -> JsonObject:
    said = schema or {}
    properties = said.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    required = said.get("required")
    required = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    fields: list[JsonObjectField] = []
    for index in range(kind.num_fields):
        field = kind.field(index)
        inner = join_path(path, field.name)
        if any(field.name == other.name for other in fields):
            # A reader keeps one of two values, and nobody would know of the other.
            problems.add(f"two columns are called {inner}; rename one")
        is_closed = said.get("additionalProperties") is False and "patternProperties" not in said
        if field.name not in properties and is_closed:
            problems.add(f"the schema has no property for column {inner}; it has {', '.join(properties) or 'none'}")
        part = _inner_schema(None if schema is None else properties, field.name)
        node = _match_node(plain_type(field.type), part, inner, problems)
        is_null = pa.types.is_null(plain_type(field.type))
        fields.append(JsonObjectField(field.name, node, field.name in required, is_null))
    present = {field.name for field in fields if not field.is_null}
    for name in required:
        if name not in present:
            problems.add(f"the schema requires the property {join_path(path, name)}, which has no column")
    return JsonObject(tuple(fields))


def _check_type(kind: pa.DataType, schema: dict[str, Any] | None, path: str, problems: Problems) -> None:
    said = (schema or {}).get("type")
    names = [name for name in (said if isinstance(said, list) else [said]) if isinstance(name, str)]
    made = json_type(kind)
    if not names or made in names or (made == "integer" and "number" in names) or made == "null":
        return
    has = f"{column_text(path)} has type {spark_name(kind)}"
    problems.add(f"{has}, which is {made} in JSON; the schema says {' or '.join(names)}")


def _match_key(kind: pa.DataType) -> ValueNode | None:
    key = _match_scalar(kind, False)
    return JsonFloat(key.source, False, is_key=True) if isinstance(key, JsonFloat) else key


def _match_scalar(kind: pa.DataType, is_strict: bool) -> ValueNode | None:
    types = pa.types
    if types.is_null(kind):
        return JsonNull()
    if types.is_boolean(kind):
        return JsonBoolean()
    if integer_dtype(kind) is not None or types.is_decimal(kind):
        return JsonNumber()
    if types.is_float32(kind) or types.is_float64(kind):
        return JsonFloat(np.float32 if types.is_float32(kind) else np.float64, is_strict)
    if is_text(kind):
        return JsonText()
    if is_bytes(kind):
        return JsonBase64()
    if types.is_date(kind):
        return JsonDate(days(kind))
    if types.is_timestamp(kind):
        return JsonTimestamp(timestamps(kind, "us"), b"Z" if kind.tz is not None else b"")
    if types.is_duration(kind):
        return JsonInterval(timestamps(kind, "us"))
    return JsonTime() if types.is_time(kind) else None
