"""Schemas derived from columns that differ in nothing but where they allow null.

Spark decides anew in each micro-batch which columns can be null, by the plan that it has optimized: of a union with a
side that has no rows only the other side is left. So the schema of the same columns allows null in one batch and not
in the next. A schema that allows the nulls of both serves both.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from kafka_sink.formats.registry.schema import AVRO, JSON, Schema

_NULL = "null"


def allow_nulls_of_both(registered: Schema, derived: Schema) -> Schema | None:
    """`registered`, or else `derived`, if it allows all that the other one does. None: they differ in more."""
    join = {AVRO: _join_avro, JSON: _join_json}.get(derived.kind)
    if join is None or registered.kind != derived.kind or registered.references:
        return None
    try:
        known, made = json.loads(registered.text), json.loads(derived.text)
        joined = join(known, made)
    except (_Different, ValueError, RecursionError):  # the registry's text may be anything
        return None
    if joined == known:
        return registered
    if joined == made:
        return derived
    return Schema(derived.kind, json.dumps(joined, separators=(",", ":"), ensure_ascii=False))


class _Different(Exception):
    """In something else than where null is allowed."""


# ---- Avro: a union of null and the type, in a field with the default null -------------------------------------------


def _join_avro(known: Any, made: Any) -> Any:
    if _is_nullable(known) or _is_nullable(made):
        return [_NULL, _join_avro(_without_null(known), _without_null(made))]
    if not isinstance(known, dict) or not isinstance(made, dict):
        return _same(known, made)
    _check_others(known, made, {"fields", "items", "values"})
    inner = {name: _join_avro(known[name], made[name]) for name in ("items", "values") if name in made}
    if "fields" in made:
        inner["fields"] = _join_fields(known["fields"], made["fields"])
    return {**made, **inner}


def _is_nullable(kind: Any) -> bool:
    return isinstance(kind, list) and len(kind) == 2 and kind[0] == _NULL


def _without_null(kind: Any) -> Any:
    return kind[1] if _is_nullable(kind) else kind


def _join_fields(known: Any, made: list[Any]) -> list[Any]:
    if not isinstance(known, list) or len(known) != len(made):
        raise _Different
    return [_join_field(*fields) for fields in zip(known, made, strict=True)]


def _join_field(known: Any, made: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(known, dict):
        raise _Different
    _check_others(known, made, {"type", "default"}, optional={"default"})
    if _is_nullable(known["type"]) == _is_nullable(made["type"]):
        _check_others(known, made, {"type"})
    nullable = known if _is_nullable(known["type"]) else made
    return {**nullable, "type": _join_avro(known["type"], made["type"])}


# ---- JSON: a field that is not required, null among the types of items and values -----------------------------------


def _join_json(known: Any, made: Any) -> Any:
    if not isinstance(known, dict) or not isinstance(made, dict):
        return _same(known, made)
    nested = {"items", "additionalProperties"}
    _check_others(known, made, {"type", "properties", "required", *nested}, optional={"required"})
    joined = {**made, "type": _join_types(known["type"], made["type"])}
    joined |= {name: _join_json(known[name], made[name]) for name in nested & made.keys()}
    if "properties" in made:
        joined["properties"] = _join_properties(known["properties"], made["properties"])
    known_required = known.get("required", [])
    required = [
        name for name in joined.pop("required", []) if isinstance(known_required, list) and name in known_required
    ]
    return {**joined, "required": required} if required else joined


def _join_properties(known: Any, made: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(known, dict) or known.keys() != made.keys():
        raise _Different
    return {name: _join_json(known[name], inner) for name, inner in made.items()}


def _join_types(known: Any, made: Any) -> Any:
    plain = [kind[0] if isinstance(kind, list) and kind[1:] == [_NULL] else kind for kind in (known, made)]
    kind = _same(*plain)
    return kind if known == made == kind else [kind, _NULL]


# ---- both ------------------------------------------------------------------------------------------------------------


def _same(known: Any, made: Any) -> Any:
    if known != made:
        raise _Different
    return made


def _check_others(
    known: dict[str, Any], made: dict[str, Any], members: Collection[str], optional: Collection[str] = ()
) -> None:
    """All but these members are equal, and both have each of these, except for optional ones."""
    for name in known.keys() | made.keys():
        if name not in members:
            _same(known.get(name, _Different), made.get(name, _Different))
        elif name not in optional:
            _same(name in known, name in made)
