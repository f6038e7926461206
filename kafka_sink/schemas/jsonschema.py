"""A JSON Schema: its text, parsed once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kafka_sink.error_table.commits import SCHEMA_INVALID
from kafka_sink.errors import ConfigError
from kafka_sink.frozen import frozen


@frozen
class JsonSchema:
    """`text` is the JSON without white space; `fullname` is its title, used in subject names."""

    text: str
    fullname: str
    found: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str, references: Mapping[str, str] | None = None) -> JsonSchema:
        """`references` are not parsed: they are left to validating readers."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise ConfigError(
                f"a JSON schema is JSON, and this is not: {text.strip()[:40]!r}", SCHEMA_INVALID
            ) from None
        if isinstance(found, bool):
            found = {} if found else {"not": {}}
        if not isinstance(found, dict):
            raise ConfigError("a JSON schema is an object", SCHEMA_INVALID)
        title = found.get("title")
        return cls(
            json.dumps(found, separators=(",", ":"), ensure_ascii=False), title if isinstance(title, str) else "", found
        )
