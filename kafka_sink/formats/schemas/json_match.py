"""JSON for a type, checked against a JSON schema.

Only names and types of a JSON schema are checked: properties, required, additionalProperties, type, items, and if null
is allowed; also behind local references and behind a choice between one schema and null. The rest (patterns, ranges,
other documents) is left to validating readers.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import partial
from typing import Any

import pyarrow as pa

from kafka_sink.formats.records.bytes_column import plain_type
from kafka_sink.formats.schemas import json_nodes as nodes
from kafka_sink.formats.schemas.json_schema_view import SchemaView, type_names
from kafka_sink.formats.schemas.json_text import format_dates, format_intervals, format_timestamps
from kafka_sink.formats.schemas.naming import (
    Problems,
    cast_text,
    column_text,
    is_bytes,
    is_list,
    is_text,
    join_path,
    list_some,
    spark_name,
)
from kafka_sink.formats.schemas.node import ValueNode, days, encode_null, is_float, timestamps


def match_json(kind: pa.DataType, schema: Any, problems: Problems, shown_nulls: Collection[str] = ()) -> ValueNode:
    """`schema` None: no schema. `shown_nulls`: fields of the value itself that are null where they have none."""
    return _Matcher(SchemaView(schema), problems, shown_nulls).value(kind, schema, "")


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
    if types.is_integer(kind):
        return "integer"
    return "number" if types.is_floating(kind) or types.is_decimal(kind) else "string"


class _Matcher:
    def __init__(self, view: SchemaView, problems: Problems, shown_nulls: Collection[str]) -> None:
        self._view = view
        self._shown_nulls = shown_nulls
        self._problems = problems

    def value(self, kind: pa.DataType, schema: Any, path: str) -> ValueNode:
        """`schema` is the subschema for this type."""
        # What cannot be read here is left to validating readers.
        has_null = self._view.allows_null(schema) is not False
        return partial(nodes.encode_nullable, self._present(plain_type(kind), schema, path), has_null)

    def _present(self, kind: pa.DataType, schema: Any, path: str) -> ValueNode:
        types = pa.types
        keywords = self._view.unwrap(schema)
        if keywords is not None and not isinstance(keywords, dict):
            keywords = {}
        _check_type(kind, keywords, path, self._problems)
        if types.is_struct(kind):
            return self._object(kind, keywords, path)
        if is_list(kind):
            return partial(
                nodes.encode_array, self.value(kind.value_type, _inner_schema(keywords, "items"), f"{path}[]")
            )
        if types.is_map(kind):
            return self._map(kind, keywords, path)
        found = _match_scalar(kind, is_strict=keywords is not None)
        if found is None:
            has = f"{column_text(path)} has type {spark_name(kind)}"
            self._problems.add(f"{has}, for which JSON has no text; {cast_text(path)}")
            return encode_null
        return found

    def _map(self, kind: pa.DataType, schema: dict[str, Any] | None, path: str) -> ValueNode:
        values = self.value(kind.item_type, _inner_schema(schema, "additionalProperties"), f"{path}{{}}")
        key = _match_scalar(plain_type(kind.key_type), is_strict=False, is_key=True)
        if key is None:
            cure = f"use map_entries({path or 'x'})"
            self._problems.add(f"{column_text(path)} is a {spark_name(kind)}, and its keys have no text; {cure}")
            return encode_null
        return partial(nodes.encode_map, key, json_type(kind.key_type) != "string", values)

    def _object(self, kind: pa.DataType, schema: dict[str, Any] | None, path: str) -> ValueNode:
        keywords = schema or {}
        properties = keywords.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = keywords.get("required")
        required = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
        is_closed = keywords.get("additionalProperties") is False and "patternProperties" not in keywords
        fields: list[nodes.JsonField] = []
        names: set[str] = set()
        for index, field in enumerate(kind):
            inner = join_path(path, field.name)
            if field.name in names:
                # A reader keeps one of two values, and nobody would know of the other.
                self._problems.add(f"two columns are called {inner}; rename one")
            names.add(field.name)
            if field.name not in properties and is_closed:
                has = list_some(list(properties))
                self._problems.add(f"the schema has no property for column {inner}; it has {has}")
            part = _inner_schema(None if schema is None else properties, field.name)
            node = self._present(plain_type(field.type), part, inner)
            is_required = field.name in required
            writes_null = is_required and field.name in properties and self._view.allows_null(part) is True
            writes_null = writes_null or (not path and field.name in self._shown_nulls)
            if writes_null or not pa.types.is_null(plain_type(field.type)):
                opening = json.dumps(field.name, ensure_ascii=False).encode() + b":"
                fields.append(nodes.JsonField(field.name, opening, index, node, is_required, writes_null))
        for name in sorted(required.difference(field.name for field in fields)):
            self._problems.add(f"the schema requires the property {join_path(path, name)}, which has no column")
        return partial(nodes.encode_object, tuple(fields))


def _inner_schema(schema: dict[str, Any] | None, name: str) -> Any:
    """Within a schema a number must be a number: {} means no further restriction."""
    return None if schema is None else schema.get(name, {})


def _check_type(kind: pa.DataType, schema: dict[str, Any] | None, path: str, problems: Problems) -> None:
    names, made = type_names(schema), json_type(kind)
    if not names or made in names or (made == "integer" and "number" in names) or made == "null":
        return
    has = f"{column_text(path)} has type {spark_name(kind)}"
    problems.add(f"{has}, which is {made} in JSON; the schema says {' or '.join(names)}")


def _match_scalar(kind: pa.DataType, *, is_strict: bool, is_key: bool = False) -> ValueNode | None:
    types = pa.types
    if types.is_null(kind):
        return encode_null
    if types.is_boolean(kind):
        return nodes.encode_boolean
    if types.is_integer(kind) or types.is_decimal(kind):
        return nodes.encode_number
    if is_float(kind):
        return partial(nodes.encode_float, is_strict, is_key)
    if is_text(kind):
        return nodes.encode_text
    if is_bytes(kind):
        return nodes.encode_binary
    if types.is_date(kind):
        return partial(nodes.encode_moment, format_dates, days(kind))
    if types.is_timestamp(kind):
        form = partial(format_timestamps, b"" if kind.tz is None else b"Z")
        return partial(nodes.encode_moment, form, timestamps(kind, "us"))
    if types.is_duration(kind):
        return partial(nodes.encode_moment, format_intervals, timestamps(kind, "us"))
    return nodes.encode_time if types.is_time(kind) else None
