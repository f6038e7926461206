"""An Avro schema: its JSON text, read once and checked. Names, namespaces, references and recursion are resolved here.

Names, unions and logical types follow the specification; an unknown logical type, or one that does not fit its type, is
ignored, as the specification requires.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kafka_sink.error_table.commits import SCHEMA_INVALID
from kafka_sink.errors import ConfigError
from kafka_sink.frozen import frozen

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
# As distinct from the default null.
NO_DEFAULT = object()
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The types for which a logical type is defined.
_LOGICAL: Mapping[str, tuple[str, ...]] = {
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
}
NESTING_MAX = 200
# Limit of a fixed: no record is larger.
FIXED_BYTES_MAX = 2**31 - 1


@frozen
class AvroField:
    """`default` is JSON, or `NO_DEFAULT`."""

    name: str
    type: AvroType
    default: Any


class AvroType:
    """One type in a schema. Which attributes are used depends on `kind`."""

    def __init__(self, kind: str, name: str = "") -> None:
        self.kind = kind
        self.name = name
        self.logical = ""
        self.precision = 0
        self.scale = 0
        self.size = 0
        self.symbols: tuple[str, ...] = ()
        self.fields: tuple[AvroField, ...] = ()
        self.branches: tuple[AvroType, ...] = ()
        # The items of an array, the values of a map.
        self.items: AvroType | None = None

    def __str__(self) -> str:
        if self.kind == "union":
            return f"[{', '.join(str(branch) for branch in self.branches)}]"
        if self.kind in ("array", "map"):
            return f"{self.kind} of {self.items}"
        if self.logical == "decimal":
            return f"{self.kind} decimal({self.precision},{self.scale})"
        return " ".join(part for part in (self.kind, self.name, self.logical) if part)

    @property
    def null_branch(self) -> int | None:
        """Index of the null branch of a union."""
        return next((number for number, branch in enumerate(self.branches) if branch.kind == "null"), None)


@frozen
class AvroSchema:
    """`text` is the JSON without white space, in its original order, as sent to a registry. It is what is pickled, with
    its references: the types of a deeply nested schema are more than pickle can follow."""

    text: str
    fullname: str
    type: AvroType
    references: Mapping[str, str]

    @classmethod
    def parse(cls, text: str, references: Mapping[str, str] | None = None) -> AvroSchema:
        """`references`: name to text of every referenced schema."""
        references = dict(references or {})
        names: dict[str, AvroType] = {}
        _read_references(dict(references), names)
        found = _parse_json(text)
        kind = _Reader(names).read(found, "", 0)
        text = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
        return cls(text, kind.name or kind.kind, kind, references)

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroSchema.parse, (self.text, self.references)


def is_name(name: Any) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: Any) -> None:
    """A name of a type, perhaps with a namespace."""
    if not isinstance(name, str) or not all(is_name(part) for part in name.split(".")):
        raise ConfigError(
            f"{name!r} is no name in Avro: letters, digits and underscores, no digit first", SCHEMA_INVALID
        )


def _read_references(waiting: dict[str, str], names: dict[str, AvroType]) -> None:
    """In any order: one may refer to another."""
    while waiting:
        problem: ConfigError | None = None
        for name in list(waiting):
            known = dict(names)
            try:
                _Reader(known).read(_parse_json(waiting[name]), "", 0)
            except ConfigError as error:
                problem = error
                continue
            names.update(known)
            del waiting[name]
            break
        else:
            raise ConfigError(
                f"the schemas that are referred to cannot be read ({', '.join(waiting)}): {problem}", SCHEMA_INVALID
            )


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        shown = text.strip()[:40]
        raise ConfigError(f"an Avro schema is JSON, and this is not: {shown!r}", SCHEMA_INVALID) from None


class _Reader:
    def __init__(self, names: dict[str, AvroType]) -> None:
        self._names = names

    def read(self, found: Any, namespace: str, depth: int) -> AvroType:
        if depth > NESTING_MAX:
            raise ConfigError(f"the Avro schema is nested more than {NESTING_MAX} deep", SCHEMA_INVALID)
        if isinstance(found, str):
            return self._look_up_type(found, namespace)
        if isinstance(found, list):
            return self._read_union(found, namespace, depth)
        if not isinstance(found, dict) or "type" not in found:
            raise ConfigError(f"no Avro type: {json.dumps(found)[:80]}", SCHEMA_INVALID)
        kind = found["type"]
        if not isinstance(kind, str):
            return self.read(kind, namespace, depth + 1)
        if kind in ("record", "error"):
            return self._read_record(found, namespace, depth)
        if kind == "enum":
            return self._read_enum(found, namespace)
        if kind == "fixed":
            return self._read_fixed(found, namespace)
        if kind in ("array", "map"):
            made = AvroType(kind)
            made.items = self.read(_require(found, "items" if kind == "array" else "values"), namespace, depth + 1)
            return made
        if kind in PRIMITIVES:
            return _set_logical_type(AvroType(kind), found)
        return self._look_up_type(kind, namespace)

    def _look_up_type(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (full, name):
            if candidate in self._names:
                return self._names[candidate]
        raise ConfigError(f"the Avro schema names a type {name} that it does not define", SCHEMA_INVALID)

    def _read_union(self, found: list[Any], namespace: str, depth: int) -> AvroType:
        made = AvroType("union")
        made.branches = tuple(self.read(branch, namespace, depth + 1) for branch in found)
        seen = [branch.name or branch.kind for branch in made.branches]
        if not seen or len(set(seen)) < len(seen) or "union" in seen:
            raise ConfigError(f"an Avro union has different branches and no union in it, not {made}", SCHEMA_INVALID)
        return made

    def _define(self, kind: str, found: dict[str, Any], namespace: str) -> tuple[AvroType, str]:
        """A new named type, and the namespace inside it."""
        name = _require(found, "name")
        check_name(name)
        own = found.get("namespace", namespace) or ""
        if not isinstance(own, str):
            raise ConfigError(f"the namespace of {name} is no text", SCHEMA_INVALID)
        full = name if "." in name or not own else f"{own}.{name}"
        if full in self._names or full in PRIMITIVES:
            raise ConfigError(f"the Avro schema defines {full} twice", SCHEMA_INVALID)
        made = AvroType(kind, full)
        self._names[full] = made
        return made, full.rpartition(".")[0]

    def _read_record(self, found: dict[str, Any], namespace: str, depth: int) -> AvroType:
        made, inner = self._define("record", found, namespace)
        fields = []
        listed = _require(found, "fields")
        if not isinstance(listed, list):
            raise ConfigError(f"the fields of {made.name} are no list", SCHEMA_INVALID)
        for field in listed:
            if not isinstance(field, dict) or not is_name(field.get("name")):
                raise ConfigError(
                    f"{made.name} has a field whose name is no name in Avro: {json.dumps(field)[:80]}", SCHEMA_INVALID
                )
            kind = self.read(_require(field, "type"), inner, depth + 1)
            fields.append(AvroField(field["name"], kind, field.get("default", NO_DEFAULT)))
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            raise ConfigError(f"{made.name} has two fields of the same name", SCHEMA_INVALID)
        made.fields = tuple(fields)
        return made

    def _read_enum(self, found: dict[str, Any], namespace: str) -> AvroType:
        made, _ = self._define("enum", found, namespace)
        symbols = _require(found, "symbols")
        if not isinstance(symbols, list) or not symbols or not all(is_name(symbol) for symbol in symbols):
            raise ConfigError(f"the symbols of {made.name} are not a list of Avro names", SCHEMA_INVALID)
        made.symbols = tuple(symbols)
        return made

    def _read_fixed(self, found: dict[str, Any], namespace: str) -> AvroType:
        made, _ = self._define("fixed", found, namespace)
        size = _require(found, "size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= FIXED_BYTES_MAX:
            raise ConfigError(f"the size of {made.name} is no number of bytes: {size!r}", SCHEMA_INVALID)
        made.size = size
        return _set_logical_type(made, found)


def _set_logical_type(made: AvroType, found: dict[str, Any]) -> AvroType:
    logical = found.get("logicalType")
    if not isinstance(logical, str) or made.kind not in _LOGICAL.get(logical, ()):
        return made
    if logical == "decimal":
        precision, scale = found.get("precision"), found.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return made
        if precision < 1 or not 0 <= scale <= precision:
            return made
        made.precision, made.scale = precision, scale
    if logical == "uuid" and made.kind == "fixed" and made.size != 16:
        return made
    made.logical = logical
    return made


def _require(found: dict[str, Any], name: str) -> Any:
    if name not in found:
        raise ConfigError(
            f"an Avro {found.get('type', 'field')} without {name}: {json.dumps(found)[:80]}", SCHEMA_INVALID
        )
    return found[name]
