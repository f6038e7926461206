"""Converts Spark's types to the Arrow types that a task gets: from the JSON of a schema (`df.schema.json()`), or from
DDL (`id BIGINT NOT NULL, tags ARRAY<STRING>`), which is read into the same JSON. Neither needs Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.commits import TYPE_UNWRITABLE
from kafka_sink.formats.schemas.naming import cast_text, join_path

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
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'")
_NAME = r"`(?:[^`]|``)*`|[\w.]+"
_COLUMN = re.compile(
    rf"\s*({_NAME})(?:\s*:\s*|\s+)(.+?)((?:\s+not\s+null|\s+comment\s+{_QUOTED.pattern})*)\s*", re.I | re.S
)
_NESTED = re.compile(r"(array|map|struct)\s*<(.*)>", re.I | re.S)
_PLAIN = re.compile(r"interval(?:\s+\w+){1,3}|\w+\s*(?:\([^()]*\))?(?:\s+collate\s+\w+)?", re.I)
_MARK = re.compile(rf"`(?:[^`]|``)*`|{_QUOTED.pattern}|[<>(),]")
NESTING_MAX = 200


def parse_struct(text: str) -> pa.StructType:
    """A schema as JSON or as DDL."""
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else _read_ddl(text)
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
            return pa.list_(_field("element", items, found["containsNull"]))
        if found["type"] == "map":
            keys = arrow_type_from_json(found["keyType"], f"{path}{{key}}", depth + 1)
            values = arrow_type_from_json(found["valueType"], f"{path}{{}}", depth + 1)
            if pa.types.is_null(keys):  # as of map()
                raise _unwritable(
                    f"column {path} is a map with keys of type void, which no format can write: "
                    f"CAST({path} AS MAP<STRING, STRING>)"
                )
            return pa.map_(pa.field("key", keys, False), _field("value", values, found["valueContainsNull"]))
        if found["type"] == "udt":
            return arrow_type_from_json(found["sqlType"], path, depth + 1)
    except (KeyError, TypeError):
        raise _unwritable(f"column {path}: this is no JSON of a Spark type") from None
    raise _unknown_type_error(str(found["type"]), path)


def _parse_field(field: Any, path: str, depth: int) -> pa.Field:
    inner = join_path(path, field["name"])
    return _field(field["name"], arrow_type_from_json(field["type"], inner, depth + 1), field["nullable"])


def _field(name: str, kind: pa.DataType, nullable: Any) -> pa.Field:
    """The elements of array() are void and not nullable, which pyarrow refuses."""
    return pa.field(name, kind, bool(nullable) or pa.types.is_null(kind))


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
    cure = cast_text(path, "ST_AsBinary({})") if is_spatial else cast_text(path)
    import difflib  # most processes meet no unknown type

    meant = difflib.get_close_matches(name, _SIMPLE, 1, cutoff=0.7)
    if meant:
        return _unwritable(f"column {path} has type {name}, which is no type of Spark: did you mean {meant[0]}?")
    return _unwritable(f"column {path} has type {name}, which no format can write: {cure}")


# ---- DDL -------------------------------------------------------------------------------------------------------------


def _read_ddl(text: str) -> dict[str, Any]:
    """Names and types as in CREATE TABLE; column comments are skipped."""
    fields = []
    for part in _split(text):
        found = _COLUMN.fullmatch(part)
        if found is None:
            raise _unwritable(f"the columns are no DDL: {part.strip()[:40]!r} is no name with a type")
        name, kind, more = found.groups()
        name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        is_required = "not" in _QUOTED.sub("", more).lower()
        fields.append({"name": name, "type": _read_ddl_type(kind), "nullable": not is_required})
    return {"type": "struct", "fields": fields}


def _read_ddl_type(text: str) -> Any:
    nested = _NESTED.fullmatch(text)
    if nested is None:
        if _PLAIN.fullmatch(text) is None:
            raise _unwritable(f"the columns are no DDL: {text[:40]!r} is no type")
        return " ".join(text.split())
    kind = nested[1].lower()
    if kind == "struct":
        return _read_ddl(nested[2])
    parts = [_read_ddl_type(part.strip()) for part in _split(nested[2])]
    if kind == "array" and len(parts) == 1:
        return {"type": "array", "elementType": parts[0], "containsNull": True}
    if kind == "map" and len(parts) == 2:
        return {"type": "map", "keyType": parts[0], "valueType": parts[1], "valueContainsNull": True}
    raise _unwritable(f"the columns are no DDL: {text[:40]!r} is no {kind}")


def _split(text: str) -> list[str]:
    """At the commas that are in no brackets and no quotes."""
    parts, start, depth = [], 0, 0
    for found in _MARK.finditer(text):
        depth += (found[0] in "<(") - (found[0] in ">)")
        if depth < 0 or depth > NESTING_MAX:
            break
        if found[0] == "," and not depth:
            parts.append(text[start : found.start()])
            start = found.end()
    if depth:
        reason = f"they are nested more than {NESTING_MAX} deep" if depth > NESTING_MAX else "a bracket has no other"
        raise _unwritable(f"the columns are no DDL: {reason}")
    return [*parts, text[start:]] if text.strip() else []


def _unwritable(what: str) -> ConfigError:
    return ConfigError(what, TYPE_UNWRITABLE)
