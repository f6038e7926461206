"""Requests to a registry: paths and bodies of Confluent's REST API, as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from urllib.parse import quote, urlencode

from kafka_sink.formats.registry.schema import AVRO, Schema
from kafka_sink.frozen import frozen

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
ACCEPT = f"{CONTENT_TYPE}, application/vnd.schemaregistry+json, application/json"
LATEST = "latest"


@frozen
class RegistryRequest:
    """`body` None: a GET. All requests are idempotent: registering twice returns the first result."""

    path: str
    body: bytes | None = None

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"


def by_version(subject: str, version: int | str) -> RegistryRequest:
    """`version` is a number or LATEST."""
    return RegistryRequest(f"/subjects/{_quote_part(subject)}/versions/{version}")


def versions_of(subject: str) -> RegistryRequest:
    return RegistryRequest(f"/subjects/{_quote_part(subject)}/versions")


def by_id(schema_id: int, subject: str) -> RegistryRequest:
    """The subject determines the context: each context has its own schema ids."""
    return RegistryRequest(f"/schemas/ids/{schema_id}" + _encode_query({"subject": subject}))


def by_guid(guid: str) -> RegistryRequest:
    return RegistryRequest(f"/schemas/guids/{guid}")


def look_up(subject: str, schema: Schema, *, normalize: bool) -> RegistryRequest:
    return _send_schema(f"/subjects/{_quote_part(subject)}", schema, normalize)


def register(subject: str, schema: Schema, *, normalize: bool) -> RegistryRequest:
    return _send_schema(f"/subjects/{_quote_part(subject)}/versions", schema, normalize)


def check_compatibility(subject: str, schema: Schema, *, normalize: bool) -> RegistryRequest:
    """By the subject's compatibility level; requests the registry's reasons."""
    path = f"/compatibility/subjects/{_quote_part(subject)}/versions"
    return _send_schema(path, schema, normalize, verbose="true")


def _send_schema(path: str, schema: Schema, normalize: bool, **query: str) -> RegistryRequest:
    content: dict[str, object] = {"schema": schema.text}
    if schema.kind != AVRO:  # old registries support only Avro and lack this field
        content["schemaType"] = schema.kind
    if schema.references:
        content["references"] = [asdict(each) for each in schema.references]
    if normalize:
        query["normalize"] = "true"
    return RegistryRequest(path + _encode_query(query), json.dumps(content).encode())


def _quote_part(text: str) -> str:
    """A subject is any text: slashes, colons and blanks must not change the path."""
    return quote(text, safe="")


def _encode_query(pairs: Mapping[str, str]) -> str:
    return "?" + urlencode(pairs, quote_via=quote) if pairs else ""
