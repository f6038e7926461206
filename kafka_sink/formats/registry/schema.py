"""A schema as stored in a registry, and the result of looking it up."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from kafka_sink.formats.registry.rules import SchemaRule
from kafka_sink.frozen import frozen

# The registries' names of the three formats. Missing means Avro.
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
KINDS = (AVRO, PROTOBUF, JSON)


@frozen
class Reference:
    """`name` is used by the referring schema: a full name in Avro, an import in Protobuf, a URL in JSON."""

    name: str
    subject: str
    version: int


@frozen
class Schema:
    kind: str
    text: str
    references: tuple[Reference, ...] = ()


@frozen
class ResolvedSchema:
    """One version of a subject: everything that a task needs to write with it, without further requests. What the
    registry did not return is empty or None.

    `dependencies` are the names and texts of all referenced schemas. `rules` None: they are not known.
    `earlier_version_count`: how many versions the subject had when this one was registered for this write.
    """

    schema: Schema
    subject: str = ""
    version: int | None = None
    schema_id: int | None = None
    guid: str | None = None
    dependencies: tuple[tuple[str, str], ...] = ()
    rules: tuple[SchemaRule, ...] | None = None
    earlier_version_count: int = 0


def to_text(resolved: ResolvedSchema) -> str:
    """For a file."""
    return json.dumps(asdict(resolved))


def from_text(text: str) -> ResolvedSchema | None:
    """None: not written by this release."""
    try:
        content = json.loads(text)
        schema = content.pop("schema")
        references = tuple(Reference(**each) for each in schema.pop("references"))
        dependencies = tuple((name, each) for name, each in content.pop("dependencies"))
        rules = content.pop("rules")
        return ResolvedSchema(
            Schema(**schema, references=references),
            **content,
            dependencies=dependencies,
            rules=None if rules is None else tuple(_read_rule(each) for each in rules),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _read_rule(content: dict[str, Any]) -> SchemaRule:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
    }
    return SchemaRule(**fields)
