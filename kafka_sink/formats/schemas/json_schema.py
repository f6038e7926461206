"""A JSON Schema: its text, parsed once, or derived (draft-07) from a type.

In a derived schema nullable fields are not required, since nulls are omitted; items of arrays and values of maps may be
null. The properties are closed, so that adding a column is a compatible change for a registry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kafka_sink.formats.records.bytes_column import plain_type
from kafka_sink.formats.schemas.json_match import json_type, match_json
from kafka_sink.formats.schemas.naming import Problems, invalid_schema, is_bytes, is_list, read_json
from kafka_sink.frozen import frozen

_DRAFT = "http://json-schema.org/draft-07/schema#"


@frozen
class JsonSchema:
    """`text` is the JSON without white space; `fullname` is its title, used in subject names."""

    text: str
    fullname: str
    found: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str, references: Mapping[str, str] | None = None) -> JsonSchema:
        """`references` are not parsed: they are left to validating readers."""
        found = read_json(text, "a JSON schema")
        if isinstance(found, bool):
            found = {} if found else {"not": {}}
        if not isinstance(found, dict):
            raise invalid_schema("a JSON schema is an object")
        title = found.get("title")
        return cls(
            json.dumps(found, separators=(",", ":"), ensure_ascii=False), title if isinstance(title, str) else "", found
        )


def derive_json_schema(kind: pa.DataType, name: str) -> JsonSchema:
    problems = Problems()
    match_json(kind, None, problems)
    problems.raise_any("JSON")
    return JsonSchema.parse(json.dumps({"$schema": _DRAFT, "title": name, **_derive(plain_type(kind))}))


def _derive(kind: pa.DataType) -> dict[str, Any]:
    types = pa.types
    schema: dict[str, Any] = {"type": json_type(kind)}
    if types.is_struct(kind):
        schema["properties"] = {field.name: _derive(plain_type(field.type)) for field in kind}
        required = [field.name for field in kind if not field.nullable]
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False
    elif types.is_map(kind):
        schema["additionalProperties"] = _derive_nullable(kind.item_field)
    elif is_list(kind):
        schema["items"] = _derive_nullable(kind.value_field)
    elif is_bytes(kind):
        schema["contentEncoding"] = "base64"
    elif types.is_date(kind):
        schema["format"] = "date"
    elif types.is_timestamp(kind) and kind.tz is not None:
        schema["format"] = "date-time"
    return schema


def _derive_nullable(field: pa.Field) -> dict[str, Any]:
    schema = _derive(plain_type(field.type))
    if field.nullable and schema["type"] != "null":
        schema["type"] = [schema["type"], "null"]
    return schema
