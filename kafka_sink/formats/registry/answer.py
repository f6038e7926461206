"""Responses of a registry: JSON checked field by field, and error codes with advice.

A response is not trusted: it may be huge, deeply nested, of wrong types, truncated, or a proxy's page.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from kafka_sink.errors import RemoteProtocolError, foreign_text
from kafka_sink.errors.table.commits import NOT_A_REGISTRY
from kafka_sink.formats.registry.rules import parse_rules
from kafka_sink.formats.registry.schema import AVRO, KINDS, Reference, ResolvedSchema, Schema
from kafka_sink.frozen import frozen

# Confluent Cloud accepts schemas of 1 MB; a schema is text inside JSON, so escaping enlarges it.
ANSWER_BYTES_MAX = 16 * 1024 * 1024
ID_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1

SUBJECT_NOT_FOUND, SCHEMA_NOT_FOUND = 40401, 40403
RETRIABLE = frozenset({408, 429, 500, 502, 503, 504})
_GUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


T = TypeVar("T")


@frozen
class RegistryAnswer:
    """`source` names the registry in errors."""

    source: str
    status: int
    body: bytes
    content_type: str = ""
    retry_after_s: float = 0.0

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300


def parse_refusal(answer: RegistryAnswer) -> tuple[int, str]:
    """The registry's own code, which begins with the HTTP status, or else the status; and its message. An error
    response need not be JSON: it may come from a proxy."""
    try:
        content = json.loads(answer.body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        return answer.status, ""
    code = content.get("error_code")
    if isinstance(code, bool) or not isinstance(code, int) or not 0 < code < 1_000_000:
        code = answer.status
    return code, foreign_text(content.get("message"))


def parse_registered(answer: RegistryAnswer, known: Schema | None = None) -> ResolvedSchema:
    """`known`: the schema that was sent, because the response may contain only the id. Then the rules are not known."""
    content = _parse_object(answer)
    guid = _get(answer, content, "guid", str)
    if guid is not None and not _GUID.fullmatch(guid):
        raise _wrong_field_error(answer, "guid")
    return ResolvedSchema(
        _parse_schema(answer, content) if known is None else known,
        _get(answer, content, "subject", str) or "",
        _get(answer, content, "version", int, ID_MAX),
        _get(answer, content, "id", int, LONG_MAX),
        guid,
        rules=parse_rules(content, partial(_wrong_field_error, answer)) if content.get("schema") is not None else None,
    )


def parse_compatibility(answer: RegistryAnswer) -> tuple[bool, tuple[str, ...]]:
    """Whether it is compatible, and the reasons why it is not."""
    content = _parse_object(answer)
    is_compatible, reasons = content.get("is_compatible"), content.get("messages")
    if not isinstance(is_compatible, bool):
        raise _wrong_field_error(answer, "is_compatible")
    return is_compatible, tuple(foreign_text(each) for each in reasons[:20]) if isinstance(reasons, list) else ()


def count_versions(answer: RegistryAnswer) -> int:
    """0 if the response has no list of versions: it is asked for a warning only."""
    with suppress(ValueError, RecursionError):
        content = json.loads(answer.body) if answer.is_good else None
        return len(content) if isinstance(content, list) else 0
    return 0


def _parse_object(answer: RegistryAnswer) -> dict[str, Any]:
    if len(answer.body) > ANSWER_BYTES_MAX:
        raise RemoteProtocolError(
            f"{answer.source} answered with more than {ANSWER_BYTES_MAX} bytes: that is no schema", NOT_A_REGISTRY
        )
    try:
        content = json.loads(answer.body)
    except (ValueError, RecursionError):
        kind = foreign_text(answer.content_type[:100]) or "no content type"
        raise RemoteProtocolError(
            f"{answer.source} did not answer with JSON ({kind}): is it the address of a schema registry, or of a proxy "
            "in front of it?",
            NOT_A_REGISTRY,
        ) from None
    if not isinstance(content, dict):
        raise RemoteProtocolError(
            f"{answer.source} answered with JSON that is no object: is it a schema registry?", NOT_A_REGISTRY
        )
    return content


def _parse_schema(answer: RegistryAnswer, content: dict[str, Any]) -> Schema:
    text, kind = content.get("schema"), content.get("schemaType", AVRO)
    if not isinstance(text, str):
        raise _wrong_field_error(answer, "schema")
    if kind not in KINDS:
        raise _wrong_field_error(answer, "schemaType")
    references = content.get("references") or []
    if not isinstance(references, list):
        raise _wrong_field_error(answer, "references")
    return Schema(kind, text, tuple(_parse_reference(answer, each) for each in references))


def _parse_reference(answer: RegistryAnswer, content: object) -> Reference:
    if not isinstance(content, dict):
        raise _wrong_field_error(answer, "references")
    name, subject = content.get("name"), content.get("subject")
    version = _get(answer, content, "version", int, ID_MAX)
    if not isinstance(name, str) or not isinstance(subject, str) or version is None:
        raise _wrong_field_error(answer, "references")
    return Reference(name, subject, version)


def _get(answer: RegistryAnswer, content: dict[str, Any], field: str, kind: type[T], most: int = LONG_MAX) -> T | None:
    """A text, or a number from 0 to `most`. Not `isinstance`: True is no number."""
    found = content.get(field)
    if found is None:
        return None
    if type(found) is not kind or (isinstance(found, int) and not 0 <= found <= most):
        raise _wrong_field_error(answer, field)
    return found


def _wrong_field_error(answer: RegistryAnswer, field: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{answer.source} answered with JSON in which {field} is missing or not what it should be: is it a schema "
        "registry?",
        NOT_A_REGISTRY,
    )
