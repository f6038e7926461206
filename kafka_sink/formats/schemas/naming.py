"""Matches columns with the fields of a schema by name; error texts for mismatches. Types have Spark's names in them,
because the user knows these."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kafka_sink.errors import ConfigError, foreign_text
from kafka_sink.errors.table.commits import SCHEMA_INVALID, SCHEMA_MISMATCH
from kafka_sink.formats.records.bytes_column import plain_type

_SIMPLE = {
    "null": "void", "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
    "float": "float", "double": "double", "string": "string", "large_string": "string", "binary": "binary",
    "large_binary": "binary", "date32[day]": "date", "string_view": "string", "binary_view": "binary",
}  # fmt: skip
LISTED_MAX = 50
# Items of arrays, keys and values of maps, as they are named in a path.
_INSIDE = re.compile(r"(\[\]|\{key\}|\{\})")
_EACH = {
    "[]": ("transform({}, x -> {})", "x"),
    "{key}": ("transform_keys({}, (k, v) -> {})", "k"),
    "{}": ("transform_values({}, (k, v) -> {})", "v"),
}


def join_path(path: str, name: str) -> str:
    """The path of a nested column in error texts: names from the outermost column inwards."""
    return f"{path}.{name}" if path else name


def column_text(path: str) -> str:
    """The start of an error text. The path of a value that is a single column is empty."""
    return f"column {path}" if path else "the column"


def cast_text(path: str, function: str = "CAST({} AS STRING)") -> str:
    """SQL that makes another value of the one at this path. Items and values have no names in SQL: they are reached by
    a function of their column, or the column is cast as a whole if they lie deeper."""
    column, *inside = _INSIDE.split(path or "x")
    if not inside:
        return function.format(column)
    if inside[0] in _EACH and inside[1:] == [""]:
        each, name = _EACH[inside[0]]
        return each.format(column, function.format(name))
    return f"CAST({column} AS STRING)"


def list_some(names: Sequence[str], between: str = ", ") -> str:
    """For an error text: a schema may have any number of names."""
    more = len(names) - LISTED_MAX
    return (between.join(names[:LISTED_MAX]) or "none") + (f" and {more} more" if more > 0 else "")


def invalid_schema(what: str) -> ConfigError:
    """Names in it may come from a registry."""
    return ConfigError(foreign_text(what), SCHEMA_INVALID)


def read_json(text: str, what: str) -> Any:
    """The error names a position and no content: the text may be of a file that is no schema, but holds secrets."""
    try:
        return json.loads(text)
    except RecursionError:
        raise invalid_schema(f"{what} is JSON, and this is nested too deep") from None
    except ValueError as error:
        where = ""  # of a number with too many digits no position is known
        if isinstance(error, json.JSONDecodeError):
            where = f": {error.msg} at line {error.lineno}, column {error.colno}"
        raise invalid_schema(f"{what} is JSON, and this is not{where}") from None


class Problems:
    """Collects all mismatches for one error."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, text: str) -> None:
        self.texts.append(foreign_text(text))

    def add_mismatch(self, path: str, kind: pa.DataType, declared: str, fits: str) -> None:
        has = f"{column_text(path)} has type {spark_name(kind)}"
        self.add(f"{has}, the schema says {declared}; what fits there: {fits}")

    def raise_any(self, format_name: str) -> None:
        if self.texts:
            listed = list_some(self.texts, "; ")
            raise ConfigError(f"the columns do not fit the {format_name} schema: {listed}", SCHEMA_MISMATCH)


def find_columns(kind: pa.StructType, fields: Sequence[str], path: str, problems: Problems) -> list[int | None]:
    """The index of each field's column: of the same name, or else the only one that differs only in case and is not the
    name of another field. None: there is no such column. A column of no field is a problem."""
    columns = [field.name for field in kind]
    known, exact, similar = set(fields), defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for index, name in enumerate(columns):
        (exact[name] if name in known else similar[name.lower()]).append(index)
    rivals = Counter(field.lower() for field in fields if field not in exact)
    found = []
    for field in fields:
        fitting = exact[field] if field in exact else similar[field.lower()]
        if len(fitting) > 1:
            names = ", ".join(columns[index] for index in fitting)
            problems.add(f"field {join_path(path, field)} could be each of the columns {names}")
        if fitting and field not in exact and rivals[field.lower()] > 1:
            problems.add(
                f"column {columns[fitting[0]]} could be field {join_path(path, field)} or another that differs only in "
                "case; rename it"
            )
        found.append(fitting[0] if fitting else None)
    has = list_some(fields)
    for index in sorted(set(range(len(columns))).difference(found)):
        problems.add(
            f"the schema has no field for column {join_path(path, columns[index])}; it has {has}. Leave the column out "
            "(drop, or the option value.columns), or rename it"
        )
    return found


# ---- types -----------------------------------------------------------------------------------------------------------


def spark_name(kind: pa.DataType) -> str:
    kind = plain_type(kind)
    types = pa.types
    if types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{spark_name(field.type)}' for field in kind)}>"
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
    return _SIMPLE.get(str(kind)) == "string"


def is_bytes(kind: pa.DataType) -> bool:
    return _SIMPLE.get(str(kind)) == "binary" or bool(pa.types.is_fixed_size_binary(kind))
