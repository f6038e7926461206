"""Converts a resolved schema to text for a file and back."""

from __future__ import annotations

import json
from typing import Any

from kafka_sink.registry.schema import KINDS, Dependency, Reference, ResolvedSchema, Schema


def to_text(resolved: ResolvedSchema) -> str:
    return json.dumps(
        {
            "schema": _schema_fields(resolved.schema),
            "subject": resolved.subject,
            "version": resolved.version,
            "schema_id": resolved.schema_id,
            "guid": resolved.guid,
            "dependencies": [[each.name, _schema_fields(each.schema)] for each in resolved.dependencies],
        }
    )


def from_text(text: str) -> ResolvedSchema | None:
    """None: not written by this release."""
    try:
        said = json.loads(text)
        return ResolvedSchema(
            _parse_schema(said["schema"]),
            said["subject"],
            said["version"],
            said["schema_id"],
            said["guid"],
            tuple(Dependency(name, _parse_schema(each)) for name, each in said["dependencies"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _schema_fields(schema: Schema) -> dict[str, Any]:
    references = [[each.name, each.subject, each.version] for each in schema.references]
    return {"kind": schema.kind, "text": schema.text, "references": references}


def _parse_schema(said: dict[str, Any]) -> Schema:
    if said["kind"] not in KINDS or not isinstance(said["text"], str):
        raise ValueError(said["kind"])
    return Schema(said["kind"], said["text"], tuple(Reference(*each) for each in said["references"]))
