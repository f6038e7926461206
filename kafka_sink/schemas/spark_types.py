"""Converts Spark's types to the Arrow types that a task gets: from the JSON of a schema (`df.schema.json()`), or from
DDL (`id BIGINT NOT NULL, tags ARRAY<STRING>`), which is read into the same JSON. Neither needs Spark."""

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
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else _Ddl(text).read()
    except ValueError:
        raise _unwritable("the columns are neither JSON of a Spark schema nor DDL") from None
    except RecursionError:
        raise _unwritable(f"the columns are nested more than {NESTING_MAX} deep") from None
    kind = arrow_type_from_json(found, "")
    if not pa.types.is_struct(kind):
        raise _unwritable("the columns are a struct: df.schema.json(), or DDL as in 'id BIGINT, name STRING'")
    return kind


def arrow_type_from_json(found: Any, path: str, depth: int = 0) -> pa.DataType:
    """Parses `jsonValue()` of a Spark type. `path` is the column in error texts."""
    if depth > NESTING_MAX:
        raise _unwritable(f"column {path} is nested more than {NESTING_MAX} deep")
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
        raise _unwritable(f"column {path}: this is no JSON of a Spark type") from None
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
    return _unwritable(f"column {path} has type {name}, which no format can write: {cure}")


class _Ddl:
    """Names and types as in CREATE TABLE; column comments are skipped."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        position = 0
        while text[position:].strip():
            found = _TOKEN.match(text, position)
            if found is None:
                raise _ddl_error(f"{text[position:].strip()[:20]!r} is not understood")
            self._tokens.append(found[0].strip())
            position = found.end()
        # The end is a token, too.
        self._tokens.append("")
        self._position = 0

    def read(self) -> dict[str, Any]:
        fields = self._read_fields("")
        if self._peek():
            raise _ddl_error(f"{self._peek()!r} is not expected")
        return fields

    def _peek(self) -> str:
        return self._tokens[self._position]

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise _ddl_error("it ends too early")
        self._position += 1
        return token

    def _expect(self, wanted: str) -> None:
        token = self._next()
        if token.lower() != wanted:
            raise _ddl_error(f"{token!r} where {wanted} is expected")

    def _read_fields(self, end: str) -> dict[str, Any]:
        fields: list[dict[str, Any]] = []
        while self._peek() != end:
            if fields:
                self._expect(",")
            name = self._next()
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            if self._peek() == ":":
                self._next()
            kind = self._read_type()
            fields.append({"name": name, "type": kind, "nullable": not self._read_not_null()})
            if self._peek() != ",":
                break
        return {"type": "struct", "fields": fields}

    def _read_not_null(self) -> bool:
        is_required = False
        while self._peek().lower() in ("not", "comment"):
            if self._next().lower() == "not":
                self._expect("null")
                is_required = True
            else:
                self._next()
        return is_required

    def _read_type(self) -> Any:
        name = self._next().lower()
        if name in ("array", "map", "struct") and self._peek() == "<":
            self._next()
            kind: dict[str, Any]
            if name == "struct":
                kind = self._read_fields(">")
            elif name == "array":
                kind = {"type": "array", "elementType": self._read_type(), "containsNull": True}
            else:
                kind = {"type": "map", "keyType": self._read_type(), "valueContainsNull": True}
                self._expect(",")
                kind["valueType"] = self._read_type()
            self._expect(">")
            return kind
        if name == "interval":
            name += f" {self._next().lower()}"
            if self._peek().lower() == "to":
                name += f" {self._next().lower()} {self._next().lower()}"
        if self._peek() == "(":
            while not name.endswith(")"):
                name += self._next()
        return name


def _ddl_error(what: str) -> ConfigError:
    return _unwritable(f"the columns are no DDL: {what}")


def _unwritable(what: str) -> ConfigError:
    return ConfigError(what, TYPE_UNWRITABLE)
