"""Schemas as the embedded registry reads them from JSON and tells them in it."""

from __future__ import annotations

import json
from typing import Any

from kafka_sink.testing.registry_store import AVRO, JSON, KINDS, Content, Ref, RegistryRefusal, StoredVersion


def content_of(said: dict[str, Any]) -> Content:
    text, kind = said.get("schema"), said.get("schemaType") or AVRO
    if not isinstance(text, str) or not text.strip():
        raise RegistryRefusal(422, 42201, "Empty schema")
    if kind not in KINDS:
        raise RegistryRefusal(422, 42201, f"Invalid schema type {kind}")
    try:
        references = tuple(
            Ref(str(each["name"]), str(each["subject"]), int(each["version"])) for each in said.get("references") or []
        )
    except (TypeError, KeyError, ValueError):
        raise RegistryRefusal(422, 42201, "Invalid schema: a reference needs name, subject and version") from None
    return Content(kind, text, references)


def told_content(content: Content) -> dict[str, Any]:
    fields: dict[str, Any] = {"schema": content.text}
    if content.kind != AVRO:
        fields["schemaType"] = content.kind
    if content.references:
        fields["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version} for each in content.references
        ]
    return fields


def told(subject: str, version: StoredVersion) -> dict[str, Any]:
    place = {"subject": subject, "version": version.number, "id": version.schema_id, "guid": version.content.guid}
    return {**place, "schemaType": version.content.kind, **told_content(version.content)}


def text_as_json(content: Content) -> str:
    return json.dumps(content.text) if content.kind not in (AVRO, JSON) else content.text
