"""Converts Spark's types to the Arrow types that a task gets: from the JSON of a schema (`df.schema.json()`), or from
DDL (`id BIGINT NOT NULL, tags ARRAY<STRING>`). Neither needs Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kafka_sink.error_table.commits import TYPE_UNWRITABLE
from kafka_sink.errors import ConfigError
from kafka_sink.schemas.naming import join_path

_SIMPLE: Mapping[str, pa.DataType] = {
    "void": pa.null(), "null": pa.null(), "boolean": pa.bool_(),
    "byte": pa.int8(), "tinyint": pa.int8(), "short": pa.int16(), "smallint": pa.int16(),
    "integer": pa.int32(), "int": pa.int32(), "long": pa.int64(), "bigint": pa.int64(),
    "float": pa.float32(), "real": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "char": pa.string(), "varchar": pa.string(), "binary": pa.binary(),
    "date": pa.date32(), "timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"), "time": pa.time64("ns"),
}  # fmt: skip
_WITH_NUMBERS = re.compile(r"(\w+)\s*\(\s*(\d{1,9})\s*(?:,\s*(-?\d{1,9})\s*)?\)")
_DAY_TIME = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*')|([\w.]+)|([<>(),:]))")
NESTING_MAX = 200


def parse_struct(text: str) -> pa.StructType:
    """A schema as JSON or as DDL."""
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise ConfigError("the columns are neither JSON of a Spark schema nor DDL", TYPE_UNWRITABLE) from None
        kind = arrow_type_from_json(found, "")
    else:
        kind = _Ddl(text).parse()
    if not pa.types.is_struct(kind):
        raise ConfigError(
            "the columns are a struct: df.schema.json(), or DDL as in 'id BIGINT, name STRING'", TYPE_UNWRITABLE
        )
    return kind


def arrow_type_from_json(found: Any, path: str, depth: int = 0) -> pa.DataType:
    """Parses `jsonValue()` of a Spark type. `path` is the column in error texts."""
    if depth > NESTING_MAX:
        raise ConfigError(f"column {path} is nested more than {NESTING_MAX} deep", TYPE_UNWRITABLE)
    if isinstance(found, str):
        return _parse_simple(found, path)
    try:
        if found["type"] == "struct":
            return pa.struct([_parse_field(field, path, depth) for field in found["fields"]])
        if found["type"] == "array":
            items = arrow_type_from_json(found["elementType"], f"{path}[]", depth + 1)
            return pa.list_(pa.field("element", items, bool(found["containsNull"])))
        if found["type"] == "map":
            keys = arrow_type_from_json(found["keyType"], f"{path}{{key}}", depth + 1)
            values = arrow_type_from_json(found["valueType"], f"{path}{{}}", depth + 1)
            return pa.map_(pa.field("key", keys, False), pa.field("value", values, bool(found["valueContainsNull"])))
        if found["type"] == "udt":
            return arrow_type_from_json(found["sqlType"], path, depth + 1)
    except (KeyError, TypeError):
        raise ConfigError(f"column {path}: this is no JSON of a Spark type", TYPE_UNWRITABLE) from None
    raise _unknown_type_error(str(found["type"]), path)


def _parse_field(field: Any, path: str, depth: int) -> pa.Field:
    inner = join_path(path, field["name"])
    return pa.field(field["name"], arrow_type_from_json(field["type"], inner, depth + 1), bool(field["nullable"]))


def _parse_simple(name: str, path: str) -> pa.DataType:
    name = name.strip().lower()
    base = re.sub(r"\s+collate\s+.*", "", name)
    if base in _SIMPLE:
        return _SIMPLE[base]
    if base == "decimal":
        return pa.decimal128(10, 0)
    if _DAY_TIME.fullmatch(base):
        return pa.duration("us")
    parts = _WITH_NUMBERS.fullmatch(base)
    if parts is not None and parts[1] in ("decimal", "dec", "numeric"):
        precision, scale = int(parts[2]), int(parts[3] or 0)
        if 1 <= precision <= 38 and abs(scale) <= 38:
            return pa.decimal128(precision, scale)
    elif parts is not None and parts[1] in ("char", "varchar", "time"):
        return _SIMPLE[parts[1]]
    raise _unknown_type_error(name, path)


def _unknown_type_error(name: str, path: str) -> ConfigError:
    # Spark casts every other type to a string, but not these.
    is_spatial = name.startswith(("geometry", "geography"))
    cure = f"ST_AsBinary({path})" if is_spatial else f"CAST({path} AS STRING)"
    return ConfigError(f"column {path} has type {name}, which no format can write: {cure}", TYPE_UNWRITABLE)


class _Ddl:
    """Names and types as in CREATE TABLE; column comments are skipped."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        position = 0
        while text[position:].strip():
            found = _TOKEN.match(text, position)
            if found is None:
                raise ConfigError(
                    f"the columns are no DDL: {text[position:].strip()[:20]!r} is not understood", TYPE_UNWRITABLE
                )
            self._tokens.append(found[0].strip())
            position = found.end()
        self._position = 0

    def parse(self) -> pa.StructType:
        fields = self._parse_fields("", "", 0)
        return pa.struct(fields)

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._position += 1
        if not token:
            raise ConfigError("the columns are no DDL: it ends too early", TYPE_UNWRITABLE)
        return token

    def _expect(self, *wanted: str) -> str:
        token = self._next()
        if token.lower() not in wanted:
            raise ConfigError(
                f"the columns are no DDL: {token!r} where {' or '.join(wanted)} is expected", TYPE_UNWRITABLE
            )
        return token

    def _parse_fields(self, path: str, end: str, depth: int) -> list[pa.Field]:
        fields: list[pa.Field] = []
        if self._peek() == end:
            return fields
        while True:
            name = self._next()
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            if self._peek() == ":":
                self._next()
            kind = self._parse_type(join_path(path, name), depth + 1)
            fields.append(pa.field(name, kind, not self._parse_not_null()))
            if self._peek() != ",":
                break
            self._next()
        if not end and self._peek():
            raise ConfigError(f"the columns are no DDL: {self._peek()!r} is not expected", TYPE_UNWRITABLE)
        return fields

    def _parse_not_null(self) -> bool:
        is_required = False
        while self._peek().lower() in ("not", "comment"):
            if self._next().lower() == "not":
                self._expect("null")
                is_required = True
            else:
                self._next()
        return is_required

    def _parse_type(self, path: str, depth: int) -> pa.DataType:
        if depth > NESTING_MAX:
            raise ConfigError(f"column {path} is nested more than {NESTING_MAX} deep", TYPE_UNWRITABLE)
        name = self._next().lower()
        if name in ("array", "map", "struct") and self._peek() == "<":
            self._next()
            if name == "struct":
                kind = pa.struct(self._parse_fields(path, ">", depth))
            elif name == "array":
                kind = pa.list_(pa.field("element", self._parse_type(f"{path}[]", depth + 1)))
            else:
                key = self._parse_type(f"{path}{{key}}", depth + 1)
                self._expect(",")
                kind = pa.map_(
                    pa.field("key", key, False), pa.field("value", self._parse_type(f"{path}{{}}", depth + 1))
                )
            self._expect(">")
            return kind
        if name == "interval":
            name += f" {self._next().lower()}"
            if self._peek().lower() == "to":
                name += f" {self._next().lower()} {self._next().lower()}"
        if self._peek() == "(":
            while not name.endswith(")"):
                name += self._next()
        return _parse_simple(name, path)
