"""Protobuf's binary encoding, value by value: the slow twin of kafka_sink/formats/schemas/protobuf_nodes.py."""

from __future__ import annotations

import struct
from typing import Any

from kafka_sink.formats.schemas.protobuf_types import ProtoField, ProtoMessage, ProtoTypes

_PACKING = {"fixed32": "<I", "sfixed32": "<i", "fixed64": "<Q", "sfixed64": "<q", "float": "<f", "double": "<d"}


def encoded(types: ProtoTypes, message: ProtoMessage, value: dict[str, Any]) -> bytes:
    out = b""
    for field in sorted(message.fields, key=lambda each: each.number):
        content = value.get(field.name)
        if content is None:
            continue
        if not field.is_repeated:
            body = _body(types, field, content)
            if field.has_presence or not _is_default(types, field, content):
                out += _tag(field) + body
            continue
        entry = types.messages.get(field.type_name)
        if entry is not None and entry.is_map_entry:
            for pair in content:
                inner = b"".join(
                    _tag(part) + _body(types, part, each) for part, each in zip(entry.fields, pair, strict=True)
                )
                out += _tag(field) + _varint(len(inner)) + inner
        elif field.is_packed and field.type not in ("string", "bytes", "message"):
            inner = b"".join(_body(types, field, each) for each in content)
            if inner:
                out += _varint(field.number << 3 | 2) + _varint(len(inner)) + inner
        else:
            out += b"".join(_tag(field) + _body(types, field, each) for each in content)
    return out


def _tag(field: ProtoField) -> bytes:
    if field.type in ("string", "bytes", "message"):
        wire = 2
    elif field.type in _PACKING:
        wire = 5 if struct.calcsize(_PACKING[field.type]) == 4 else 1
    else:
        wire = 0
    return _varint(field.number << 3 | wire)


def _is_default(types: ProtoTypes, field: ProtoField, value: Any) -> bool:
    if field.type == "enum":
        return types.enums[field.type_name].numbers[value] == 0
    if field.type in ("float", "double"):
        return struct.pack("<d", value) == bytes(8)
    return field.type != "message" and not value


def _body(types: ProtoTypes, field: ProtoField, value: Any) -> bytes:
    if field.type == "message":
        inner = encoded(types, types.messages[field.type_name], value)
        return _varint(len(inner)) + inner
    if field.type == "enum":
        return _varint(types.enums[field.type_name].numbers[value])
    if field.type in ("string", "bytes"):
        content = value.encode() if isinstance(value, str) else value
        return _varint(len(content)) + content
    if field.type in _PACKING:
        return struct.pack(_PACKING[field.type], value)
    if field.type.startswith("sint"):
        return _varint(value * 2 if value >= 0 else -value * 2 - 1)
    return _varint(int(value))


def _varint(number: int) -> bytes:
    number %= 2**64
    out = []
    while number >= 128:
        out.append(number % 128 + 128)
        number //= 128
    return bytes([*out, number])
