"""The bytes of an Avro default, written in every row for a field without a column."""

from __future__ import annotations

import math
import struct
from typing import Any

from kafka_sink.error_table.commits import SCHEMA_INVALID
from kafka_sink.errors import ConfigError
from kafka_sink.records.scalar import encode_varint
from kafka_sink.schemas.avro import NO_DEFAULT, AvroType

_INTEGERS = {"int": 2**31, "long": 2**63}


def encode_default(kind: AvroType, value: Any, path: str) -> bytes:
    try:
        encoded = _encode(kind, value)
    except (RecursionError, UnicodeEncodeError, struct.error):
        encoded = None  # a recursive default, a lone surrogate, a number too large for a float
    if encoded is None:
        raise ConfigError(f"the default of field {path} does not fit its type {kind}", SCHEMA_INVALID)
    return encoded


def _encode(kind: AvroType, value: Any) -> bytes | None:
    if kind.kind == "union":
        # The first branch by the specification; since 1.12 any that fits.
        for number, branch in enumerate(kind.branches):
            encoded = _encode(branch, value)
            if encoded is not None:
                return encode_varint(number) + encoded
        return None
    if kind.kind in _INTEGERS:
        fits = isinstance(value, int) and not isinstance(value, bool) and -_INTEGERS[kind.kind] <= value
        return encode_varint(value) if fits and value < _INTEGERS[kind.kind] else None
    if kind.kind in ("float", "double"):
        return _encode_float(kind.kind, value)
    if kind.kind == "null":
        return b"" if value is None else None
    if kind.kind == "boolean":
        return bytes([value]) if isinstance(value, bool) else None
    if kind.kind == "string":
        return _add_length(value.encode()) if isinstance(value, str) else None
    return _encode_composite(kind, value)


def _encode_composite(kind: AvroType, value: Any) -> bytes | None:
    if kind.kind in ("bytes", "fixed"):
        # Code points 0 to 255 represent bytes.
        if not isinstance(value, str) or any(ord(character) > 255 for character in value):
            return None
        content = value.encode("latin-1")
        if kind.kind == "fixed":
            return content if len(content) == kind.size else None
        return _add_length(content)
    if kind.kind == "enum":
        return encode_varint(kind.symbols.index(value)) if value in kind.symbols else None
    if kind.kind == "record":
        if not isinstance(value, dict):
            return None
        parts = [_encode_field(field.type, value.get(field.name, field.default)) for field in kind.fields]
        return None if None in parts else b"".join(part for part in parts if part is not None)
    assert kind.items is not None
    if kind.kind == "map" and isinstance(value, dict):
        keys = [_add_length(key.encode()) for key in value]
        return _encode_block(keys, [_encode(kind.items, each) for each in value.values()])
    if kind.kind == "array" and isinstance(value, list):
        return _encode_block([b""] * len(value), [_encode(kind.items, each) for each in value])
    return None


def _encode_field(kind: AvroType, value: Any) -> bytes | None:
    return None if value is NO_DEFAULT else _encode(kind, value)


def _encode_block(keys: list[bytes], items: list[bytes | None]) -> bytes | None:
    if None in items:
        return None
    if not items:
        return b"\x00"
    content = b"".join(key + (item or b"") for key, item in zip(keys, items, strict=True))
    return encode_varint(len(items)) + content + b"\x00"


def _encode_float(kind: str, value: Any) -> bytes | None:
    words = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    if isinstance(value, str) and value in words:
        value = words[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return struct.pack("<f" if kind == "float" else "<d", value)
    except OverflowError:
        return None


def _add_length(content: bytes) -> bytes:
    return encode_varint(len(content)) + content
