"""Formats of key and value, and the names of options for them and the schema registry, so that a write without a format
imports no more."""

from __future__ import annotations

import re
from collections.abc import Mapping

AVRO, PROTOBUF, JSON, JSON_SCHEMA, STRING, BINARY = "avro", "protobuf", "json", "json-schema", "string", "binary"
FORMATS = (AVRO, PROTOBUF, JSON, JSON_SCHEMA, STRING, BINARY)
# Formats whose bytes need a schema to be read.
WITH_SCHEMA = frozenset({AVRO, PROTOBUF, JSON_SCHEMA})
# Formats that encode any column; the others use the given bytes.
ENCODED = WITH_SCHEMA | {JSON}
EVERY_COLUMN = "*"

FORMAT_NAMES = ("value.format", "value.columns", "value.record.name", "key.format", "key.record.name")
# Spark's own names for the same, from to_avro and to_protobuf.
FORMAT_ALIASES: Mapping[str, str] = {
    "avroschema": "value.schema",
    "recordname": "value.record.name",
    "descfilepath": "value.schema",
    "messagename": "value.record.name",
}

REGISTRY = "schema.registry."
SSL = f"{REGISTRY}ssl."
SIDES = ("value", "key")

# Confluent's clients accept these with and without the prefix.
BARE = ("basic.auth.", "bearer.auth.", "latest.cache.", "http.connect.", "http.read.")
_OF_BOTH_SIDES = frozenset({"auto.register.schemas", "use.latest.version", "normalize.schemas", "schema.rules"})
_OF_ONE_SIDE = re.compile(r"(value|key)\.(schema|schema\..*|subject\..*)", re.DOTALL)


def is_format_option(name: str) -> bool:
    return name in FORMAT_NAMES or name in FORMAT_ALIASES or is_registry_option(name)


def is_registry_option(name: str) -> bool:
    return name.startswith((REGISTRY, *BARE)) or name in _OF_BOTH_SIDES or bool(_OF_ONE_SIDE.fullmatch(name))
