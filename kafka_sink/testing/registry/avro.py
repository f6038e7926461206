"""Avro schemas in the embedded schema registry: resolves names, rejects invalid schemas, and compares readers and
writers.

Written by the Avro specification ("Schema Resolution") and independent of the sink's encoder, because it is used to
test that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kafka_sink.frozen import frozen

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
# A type with one inner type -> where that is.
INNER = {"array": "items", "map": "values"}
# Writer -> further reader types that can read it.
PROMOTIONS: Mapping[str, frozenset[str]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class InvalidAvro(ValueError):
    pass


@frozen
class StoredAvroSchema:
    """`root` has full names, and each named type as a reference to `named`."""

    root: Any
    named: Mapping[str, dict[str, Any]]


def parse_avro(text: str, others: Iterable[str] = ()) -> StoredAvroSchema:
    """`others`: texts of referenced schemas, in order."""
    named: dict[str, dict[str, Any]] = {}
    root: Any = None
    for each in (*others, text):
        try:
            root = _Parser(named).read(json.loads(each), "")
        except json.JSONDecodeError as error:
            raise InvalidAvro(f"no JSON: {error}") from None
        except RecursionError:
            raise InvalidAvro("nested too deeply") from None
    return StoredAvroSchema(root, named)


class _Parser:
    def __init__(self, named: dict[str, dict[str, Any]]) -> None:
        self._named = named

    def read(self, schema: Any, space: str) -> Any:
        if isinstance(schema, str):
            return schema if schema in PRIMITIVES else {"ref": self._resolve_name(schema, space)}
        if isinstance(schema, list):
            return self._union(schema, space)
        if not isinstance(schema, dict) or "type" not in schema:
            raise InvalidAvro("no type")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.read(kind, space)
        if kind in NAMED:
            return {"ref": self._define(schema, kind, space)}
        if kind in INNER:
            return {"type": kind, INNER[kind]: self.read(schema.get(INNER[kind]), space)}
        return self.read(kind, space)

    def _union(self, branches: list[Any], space: str) -> list[Any]:
        found = [self.read(each, space) for each in branches]
        seen = [_describe(each) for each in found if not isinstance(each, list)]
        if len(seen) < len(found):
            raise InvalidAvro("a union directly inside a union")
        if len(set(seen)) < len(seen):
            raise InvalidAvro("a union with two branches of one type")
        return found

    def _resolve_name(self, name: str, space: str) -> str:
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._named:
            return full
        if name in self._named:
            return name
        raise InvalidAvro(f"undefined name: {name}")

    def _define(self, schema: dict[str, Any], kind: str, space: str) -> str:
        name = schema.get("name")
        if not isinstance(name, str) or not all(_NAME.fullmatch(part) for part in name.split(".")):
            raise InvalidAvro(f"illegal name: {name!r}")
        own = schema.get("namespace")
        outer = name.rpartition(".")[0] if "." in name else own if isinstance(own, str) else space
        short = name.rpartition(".")[2]
        full = f"{outer}.{short}" if outer else short
        if full in self._named:
            raise InvalidAvro(f"cannot redefine: {full}")
        aliases = [each if "." in each or not outer else f"{outer}.{each}" for each in self._aliases(schema)]
        made: dict[str, Any] = {"type": "record" if kind == "error" else kind, "name": full, "aliases": aliases}
        self._named[full] = made
        if kind == "enum":
            made |= {"symbols": self._symbols(schema), "has_default": "default" in schema}
        elif kind == "fixed":
            if isinstance(schema.get("size"), bool) or not isinstance(schema.get("size"), int):
                raise InvalidAvro(f"fixed {full} without a size")
            made["size"] = schema["size"]
        else:
            made["fields"] = self._fields(schema, full, outer)
        return full

    @staticmethod
    def _aliases(schema: dict[str, Any]) -> list[str]:
        aliases = schema.get("aliases") or []
        if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
            raise InvalidAvro("aliases that are no list of names")
        return aliases

    @staticmethod
    def _symbols(schema: dict[str, Any]) -> list[str]:
        symbols = schema.get("symbols")
        if not isinstance(symbols, list) or len(set(map(str, symbols))) < len(symbols):
            raise InvalidAvro("enum without symbols, or with one of them twice")
        return symbols

    def _fields(self, schema: dict[str, Any], full: str, space: str) -> list[dict[str, Any]]:
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
            raise InvalidAvro(f"record {full} without fields")
        made: list[dict[str, Any]] = []
        for each in fields:
            name = each.get("name")
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise InvalidAvro(f"illegal name of a field: {name!r}")
            if any(other["name"] == name for other in made):
                raise InvalidAvro(f"record {full} has two fields {name}")
            made.append(
                {
                    "name": name,
                    "aliases": self._aliases(each),
                    "type": self.read(each.get("type"), space),
                    "has_default": "default" in each,
                }
            )
        return made


# ---- schema resolution -----------------------------------------------------------------------------------------------


def find_mismatches(reader: StoredAvroSchema, writer: StoredAvroSchema) -> list[str]:
    """Why `reader` cannot read data written with `writer`; empty: it can."""
    return _Resolution(reader, writer).reasons(reader.root, writer.root, "/")


class _Resolution:
    def __init__(self, reader: StoredAvroSchema, writer: StoredAvroSchema) -> None:
        self._reader = reader
        self._writer = writer
        # Pairs of named types being compared: a type may be recursive.
        self._under_way: set[tuple[str, str]] = set()

    def reasons(self, reader: Any, writer: Any, path: str) -> list[str]:
        if isinstance(writer, list):
            return [text for each in writer for text in self.reasons(reader, each, path)]
        if isinstance(reader, list):
            if any(not self.reasons(each, writer, path) for each in reader):
                return []
            return [f"MISSING_UNION_BRANCH at {path}: the reader's union has no type for {_describe(writer)}"]
        mismatch = f"TYPE_MISMATCH at {path}: {_describe(reader)} cannot be read from {_describe(writer)}"
        if isinstance(reader, str) and isinstance(writer, str):
            return [] if reader == writer or reader in PROMOTIONS.get(writer, ()) else [mismatch]
        if isinstance(reader, str) or isinstance(writer, str):
            return [mismatch]
        if "ref" in reader and "ref" in writer:
            return self._named_type_reasons(reader["ref"], writer["ref"], path)
        if reader.get("type") != writer.get("type"):
            return [mismatch]
        inner = INNER[reader["type"]]
        return self.reasons(reader[inner], writer[inner], f"{path}{inner}/")

    def _named_type_reasons(self, reader_name: str, writer_name: str, path: str) -> list[str]:
        if (reader_name, writer_name) in self._under_way:
            return []
        reader, writer = self._reader.named[reader_name], self._writer.named[writer_name]
        if reader["type"] != writer["type"]:
            return [f"TYPE_MISMATCH at {path}: {reader['type']} cannot be read from {writer['type']}"]
        if _short(reader_name) != _short(writer_name) and writer_name not in reader["aliases"]:
            return [f"NAME_MISMATCH at {path}name: {reader_name} is not {writer_name}"]
        self._under_way.add((reader_name, writer_name))
        try:
            if reader["type"] == "fixed":
                same = reader["size"] == writer["size"]
                return [] if same else [f"FIXED_SIZE_MISMATCH at {path}size: {reader['size']}, not {writer['size']}"]
            if reader["type"] == "enum":
                missing = [each for each in writer["symbols"] if each not in reader["symbols"]]
                can_read = not missing or reader["has_default"]
                return [] if can_read else [f"MISSING_ENUM_SYMBOLS at {path}symbols: {missing}"]
            return self._field_reasons(reader, writer, path)
        finally:
            self._under_way.discard((reader_name, writer_name))

    def _field_reasons(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        written = {each["name"]: each for each in writer["fields"]}
        found: list[str] = []
        for index, field in enumerate(reader["fields"]):
            here = f"{path}fields/{index}/"
            other = next((written[name] for name in (field["name"], *field["aliases"]) if name in written), None)
            if other is not None:
                found += self.reasons(field["type"], other["type"], f"{here}type/")
            elif not field["has_default"]:
                found.append(
                    f"READER_FIELD_MISSING_DEFAULT_VALUE at {here}: the field {field['name']} has no default and "
                    "is not in what was written"
                )
        return found


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _describe(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema.get("ref", schema.get("type")))
