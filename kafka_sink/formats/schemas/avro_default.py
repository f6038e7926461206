"""The bytes of an Avro default, written in every row for a field without a column."""

from __future__ import annotations

import math
import struct
from typing import Any

from kafka_sink.formats.records.scalar import encode_varint
from kafka_sink.formats.schemas.avro import AvroType
from kafka_sink.formats.schemas.naming import invalid_schema

_INTEGERS = {"int": 2**31, "long": 2**63}
_FLOATS = {"float": "<f", "double": "<d"}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# A record of Kafka's default size holds no more.
BYTES_MAX = 1_000_000
VALUES_MAX = 100_000
# How a value that does not fit shows itself; a lone surrogate and a number too large for a float among them.
_MISFITS = (ValueError, OverflowError, struct.error)


def encode_default(kind: AvroType, value: Any, path: str) -> bytes:
    try:
        return _Encoder(path).encode(kind, value)
    except (*_MISFITS, RecursionError):  # a default may contain itself
        raise invalid_schema(f"the default of field {path} does not fit its type {kind}") from None


class _Encoder:
    """One default, with limits: defaults of nested records may double with each level."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._values_left = VALUES_MAX

    def encode(self, kind: AvroType, value: Any) -> bytes:
        self._values_left -= 1
        if self._values_left >= 0:
            content = self._encode(kind, value)
            if len(content) <= BYTES_MAX:
                return content
        raise invalid_schema(
            f"the default of field {self._path} is larger than {BYTES_MAX} bytes or {VALUES_MAX} values, and would be "
            "written in every row"
        )

    def _encode(self, kind: AvroType, value: Any) -> bytes:
        name = kind.kind
        if name == "union":
            # The first branch by the specification; since 1.12 any that fits.
            for number, branch in enumerate(kind.branches):
                try:
                    return encode_varint(number) + self.encode(branch, value)
                except _MISFITS:
                    continue
        elif name == "record" and isinstance(value, dict):
            return b"".join(self.encode(field.type, value.get(field.name, field.default)) for field in kind.fields)
        elif name == "array" and isinstance(value, list):
            return _encode_block([self._encode_item(kind, each) for each in value])
        elif name == "map" and isinstance(value, dict):
            return _encode_block(
                [_add_length(key.encode()) + self._encode_item(kind, each) for key, each in value.items()]
            )
        return _encode_single(kind, value)

    def _encode_item(self, kind: AvroType, value: Any) -> bytes:
        assert kind.items is not None
        return self.encode(kind.items, value)


def _encode_single(kind: AvroType, value: Any) -> bytes:
    name = kind.kind
    if name in _INTEGERS and isinstance(value, int) and not isinstance(value, bool):
        if -_INTEGERS[name] <= value < _INTEGERS[name]:
            return encode_varint(value)
    elif name in _FLOATS and isinstance(value, int | float | str) and not isinstance(value, bool):
        return struct.pack(_FLOATS[name], _NOT_FINITE.get(value, value) if isinstance(value, str) else value)
    elif name == "null" and value is None:
        return b""
    elif name == "boolean" and isinstance(value, bool):
        return bytes([value])
    elif name == "string" and isinstance(value, str):
        return _add_length(value.encode())
    elif name == "bytes" and isinstance(value, str):
        return _add_length(value.encode("latin-1"))  # code points 0 to 255 represent bytes
    elif name == "fixed" and isinstance(value, str) and len(value) == kind.size:
        return value.encode("latin-1")
    elif name == "enum" and value in kind.symbols:
        return encode_varint(kind.symbols.index(value))
    raise ValueError


def _encode_block(items: list[bytes]) -> bytes:
    return encode_varint(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"


def _add_length(content: bytes) -> bytes:
    return encode_varint(len(content)) + content
