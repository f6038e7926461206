"""An Avro schema: its JSON text, read once and checked. Names, namespaces, references and recursion are resolved here.

Names, unions and logical types follow the specification; an unknown logical type, or one that does not fit its type, is
ignored, as the specification requires.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import ConfigError
from kafka_sink.formats.schemas.naming import invalid_schema, list_some, read_json
from kafka_sink.frozen import frozen

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
# As distinct from the default null.
NO_DEFAULT = object()
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The types for which a logical type is defined.
_LOGICAL: Mapping[str, tuple[str, ...]] = {
    "decimal": ("bytes", "fixed"), "uuid": ("string", "fixed"),
    "date": ("int",), "time-millis": ("int",), "time-micros": ("long",),
    "timestamp-millis": ("long",), "timestamp-micros": ("long",), "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",), "local-timestamp-micros": ("long",), "local-timestamp-nanos": ("long",),
}  # fmt: skip
NESTING_MAX = 200
# Read in all rounds together.
REFERENCED_CHARACTERS_MAX = 32_000_000
_WHAT = "an Avro schema"
# Limit of a fixed: no record is larger.
FIXED_BYTES_MAX = 2**31 - 1


@frozen
class AvroField:
    """`default` is JSON, or `NO_DEFAULT`."""

    name: str
    type: AvroType
    default: Any


@dataclass(eq=False, repr=False)
class AvroType:
    """One type in a schema. Which attributes are used depends on `kind`; `items` are also the values of a map."""

    kind: str
    name: str = ""
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: tuple[AvroField, ...] = ()
    branches: tuple[AvroType, ...] = ()
    items: AvroType | None = None

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
        _read_references(references, names)
        found = read_json(text, _WHAT)
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
        raise invalid_schema(f"{name!r} is no name in Avro: letters, digits and underscores, no digit first")


def _read_references(texts: Mapping[str, str], names: dict[str, AvroType]) -> None:
    """In any order: one may refer to another. A registry's answers come before those that they refer to, so it is
    begun at the end, which mostly needs one round."""
    characters = 0
    while texts:
        problems: dict[str, ConfigError] = {}
        for name, text in reversed(list(texts.items())):
            characters += len(text)
            if characters > REFERENCED_CHARACTERS_MAX:
                raise invalid_schema(
                    f"the schemas that are referred to need too many rounds to read: {list_some(list(texts))}"
                )
            known = dict(names)
            try:
                _Reader(known).read(read_json(text, _WHAT), "", 0)
                names.update(known)
            except ConfigError as error:
                problems[name] = error
        if len(problems) == len(texts):
            *_, problem = problems.values()
            raise invalid_schema(
                f"the schemas that are referred to cannot be read ({list_some(list(texts))}): {problem}"
            )
        texts = {name: texts[name] for name in problems}


class _Reader:
    def __init__(self, names: dict[str, AvroType]) -> None:
        self._names = names
        # The record and field that are read; empty outside of records, where the text may be no schema at all.
        self._place = ""

    def read(self, found: Any, namespace: str, depth: int) -> AvroType:
        if depth > NESTING_MAX:
            raise invalid_schema(f"the Avro schema is nested more than {NESTING_MAX} deep")
        if isinstance(found, str):
            return self._look_up_type(found, namespace)
        if isinstance(found, list):
            return self._read_union(found, namespace, depth)
        if not isinstance(found, dict) or "type" not in found:
            is_object = isinstance(found, dict)
            raise invalid_schema(f"no Avro type{self._place}: {'an object without type' if is_object else 'no text'}")
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
            items = _require(found, "items" if kind == "array" else "values")
            return AvroType(kind, items=self.read(items, namespace, depth + 1))
        if kind in PRIMITIVES:
            return _set_logical_type(AvroType(kind), found)
        return self._look_up_type(kind, namespace)

    def _look_up_type(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        for candidate in (_qualify(name, namespace), name):
            if candidate in self._names:
                return self._names[candidate]
        shown = f" {name[:200]}" if self._place else ""
        raise invalid_schema(f"the Avro schema names a type{shown} that it does not define{self._place}")

    def _read_union(self, found: list[Any], namespace: str, depth: int) -> AvroType:
        made = AvroType("union", branches=tuple(self.read(branch, namespace, depth + 1) for branch in found))
        seen = [branch.name or branch.kind for branch in made.branches]
        if not seen or len(set(seen)) < len(seen) or "union" in seen:
            raise invalid_schema(f"an Avro union has different branches and no union in it, not {made}")
        return made

    def _define(self, kind: str, found: dict[str, Any], namespace: str) -> AvroType:
        name = _require(found, "name")
        check_name(name)
        own = found.get("namespace", namespace) or ""
        if not isinstance(own, str):
            raise invalid_schema(f"the namespace of {name} is no text")
        full = _qualify(name, own)
        if full in self._names or full in PRIMITIVES:
            raise invalid_schema(f"the Avro schema defines {full} twice")
        self._names[full] = AvroType(kind, full)
        return self._names[full]

    def _read_record(self, found: dict[str, Any], namespace: str, depth: int) -> AvroType:
        made, outer_place = self._define("record", found, namespace), self._place
        inner = made.name.rpartition(".")[0]
        fields: dict[str, AvroField] = {}
        listed = _require(found, "fields")
        if not isinstance(listed, list):
            raise invalid_schema(f"the fields of {made.name} are no list")
        for number, field in enumerate(listed, 1):
            if not isinstance(field, dict) or not is_name(field.get("name")):
                raise invalid_schema(f"the name of field {number} of {made.name} is no name in Avro")
            if field["name"] in fields:
                raise invalid_schema(f"{made.name} has two fields of the same name")
            self._place = f" (field {field['name']} of {made.name})"
            kind = self.read(_require(field, "type"), inner, depth + 1)
            fields[field["name"]] = AvroField(field["name"], kind, field.get("default", NO_DEFAULT))
        made.fields, self._place = tuple(fields.values()), outer_place
        return made

    def _read_enum(self, found: dict[str, Any], namespace: str) -> AvroType:
        made = self._define("enum", found, namespace)
        symbols = _require(found, "symbols")
        if not isinstance(symbols, list) or not symbols or not all(is_name(symbol) for symbol in symbols):
            raise invalid_schema(f"the symbols of {made.name} are not a list of Avro names")
        made.symbols = tuple(symbols)
        return made

    def _read_fixed(self, found: dict[str, Any], namespace: str) -> AvroType:
        made = self._define("fixed", found, namespace)
        size = _require(found, "size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= FIXED_BYTES_MAX:
            raise invalid_schema(f"the size of {made.name} is no number of bytes")
        made.size = size
        return _set_logical_type(made, found)


def _qualify(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


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
        named = f" {found['name']}" if is_name(found.get("name")) else ""
        raise invalid_schema(f"an Avro {found.get('type', 'field')}{named} without {name}")
    return found[name]
