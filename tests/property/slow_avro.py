"""Avro's binary encoding, value by value: the slow twin of kafka_sink/formats/schemas/avro_nodes.py."""

from __future__ import annotations

import decimal
import struct
from typing import Any

import pyarrow as pa

from kafka_sink.formats.schemas.avro import AvroType

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}


def encoded(schema: AvroType, kind: pa.DataType, value: Any) -> bytes:
    if schema.kind == "union":
        for number, branch in enumerate(schema.branches):
            if (value is None) == (branch.kind == "null"):
                return whole(number) + encoded(branch, kind, value)
    if schema.kind == "null":
        return b""
    if schema.kind == "record":
        parts = [
            encoded(field.type, kind.field(kind.get_field_index(field.name)).type, value[field.name])
            for field in schema.fields
        ]
        return b"".join(parts)
    if schema.kind == "array":
        return _block([encoded(schema.items, kind.value_type, each) for each in value])
    if schema.kind == "map":
        return _block([_bytes(name.encode()) + encoded(schema.items, kind.item_type, each) for name, each in value])
    return _scalar(schema, kind, value)


def _scalar(schema: AvroType, kind: pa.DataType, value: Any) -> bytes:
    if schema.logical == "decimal":
        number = int(value.scaleb(schema.scale, decimal.Context(prec=80)))
        if schema.kind == "fixed":
            return number.to_bytes(schema.size, "big", signed=True)
        size = 1
        while not -(2 ** (8 * size - 1)) <= number < 2 ** (8 * size - 1):
            size += 1
        return _bytes(number.to_bytes(size, "big", signed=True))
    if "timestamp" in schema.logical:
        value = value * _PER_SECOND[_UNITS[schema.logical.rpartition("-")[2]]] // _PER_SECOND[kind.unit]
    if schema.logical == "time-micros":
        value = value * 10**6 // _PER_SECOND[kind.unit]
    if schema.kind in ("int", "long"):
        return whole(value)
    if schema.kind == "boolean":
        return b"\x01" if value else b"\x00"
    if schema.kind == "float":
        return struct.pack("<f", value)
    if schema.kind == "double":
        return struct.pack("<d", value)
    return _bytes(value.encode() if isinstance(value, str) else value)


def whole(number: int) -> bytes:
    number = number * 2 if number >= 0 else -number * 2 - 1
    out = []
    while number >= 128:
        out.append(number % 128 + 128)
        number //= 128
    return bytes([*out, number])


def _bytes(content: bytes) -> bytes:
    return whole(len(content)) + content


def _block(items: list[bytes]) -> bytes:
    return whole(len(items)) + b"".join(items) + b"\0" if items else b"\0"
