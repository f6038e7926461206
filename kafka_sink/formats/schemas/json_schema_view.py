"""What a JSON schema says of one value: behind local references ("#/$defs/Address"), and behind the anyOf or oneOf of a
schema and null, as pydantic writes an optional field. Does it allow null?

References may lead to themselves, and choices may double with each step, so the number of steps is limited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

STEPS_MAX = 200
# Words with which a schema beside a reference, or beside anyOf, says something of its own.
_KEYWORDS = frozenset(
    {"$ref", "type", "properties", "required", "additionalProperties", "patternProperties", "items", "enum", "const",
     "allOf", "anyOf", "oneOf"}
)  # fmt: skip
# They may exclude a null, and are not read.
_NOT_READ = frozenset({"$dynamicRef", "$recursiveRef", "not", "if"})

# None: it depends on what is not read.
Verdict = bool | None


class SchemaView:
    """`root` is the whole schema, to which references are relative."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps_left = 0

    def unwrap(self, schema: Any) -> Any:
        """The schema for values that are not null. {}: it cannot be read here, so anything may fit."""
        for _ in range(STEPS_MAX):
            inner = self._inner_schema(schema)
            if inner is None:
                return schema
            schema = inner
        return {}

    def _inner_schema(self, schema: Any) -> Any:
        """None: the schema speaks for itself."""
        if not isinstance(schema, dict):
            return None
        keywords = _KEYWORDS.intersection(schema)
        if keywords == {"$ref"}:
            return self._find(schema["$ref"])
        branches = schema[next(iter(keywords))] if keywords in ({"anyOf"}, {"oneOf"}) else None
        if not isinstance(branches, list):
            return None
        others = [each for each in branches if not (isinstance(each, dict) and type_names(each) == ["null"])]
        return others[0] if len(others) == 1 else None

    def allows_null(self, schema: Any) -> Verdict:
        self._steps_left = STEPS_MAX
        return self._allows_null(schema)

    def _allows_null(self, schema: Any) -> Verdict:
        self._steps_left -= 1
        if not isinstance(schema, dict):
            return schema is not False
        if self._steps_left <= 0:
            return None
        names = type_names(schema)
        verdicts: list[Verdict] = ["null" in names] if names else []
        if "const" in schema:
            verdicts.append(schema["const"] is None)
        if isinstance(schema.get("enum"), list):
            verdicts.append(None in schema["enum"])
        if "$ref" in schema:
            found = self._find(schema["$ref"])
            verdicts.append(None if found is None else self._allows_null(found))
        for word, combine in _COMBINATIONS.items():
            branches = schema.get(word)
            if isinstance(branches, list):
                verdicts.append(combine([self._allows_null(each) for each in branches]))
        if not _NOT_READ.isdisjoint(schema):
            verdicts.append(None)
        return _all_allow(verdicts)

    def _find(self, reference: Any) -> Any:
        """None: it is in another document, or nowhere."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found = self._root
        for part in unquote(reference[1:]).split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(part)] if part.isdecimal() and len(part) < 10 and int(part) < len(found) else None
            else:
                found = found.get(part) if isinstance(found, dict) else None
        return found


def type_names(schema: Any) -> list[str]:
    """The types that the schema allows; empty: any."""
    types = schema.get("type") if isinstance(schema, dict) else None
    return [name for name in (types if isinstance(types, list) else [types]) if isinstance(name, str)]


def _all_allow(verdicts: list[Verdict]) -> Verdict:
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _any_allows(verdicts: list[Verdict]) -> Verdict:
    if True in verdicts:
        return True
    return None if None in verdicts else False


def _one_allows(verdicts: list[Verdict]) -> Verdict:
    return None if None in verdicts else verdicts.count(True) == 1


_COMBINATIONS: dict[str, Callable[[list[Verdict]], Verdict]] = {
    "allOf": _all_allow,
    "anyOf": _any_allows,
    "oneOf": _one_allows,
}
