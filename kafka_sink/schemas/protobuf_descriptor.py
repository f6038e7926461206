"""Descriptors written by protoc: the Protobuf messages that describe .proto files, read without a library."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace

from kafka_sink.error_table.commits import SCHEMA_INVALID
from kafka_sink.errors import ConfigError
from kafka_sink.schemas.protobuf import FIXED, VARINTS, ProtoEnum, ProtoField, ProtoFile, ProtoMessage

# FieldDescriptorProto.Type.
_TYPES = (
    "", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message",
    "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
_REQUIRED, _REPEATED = 2, 3
_IMPLICIT, _LEGACY_REQUIRED, _EXPANDED, _DELIMITED, _CLOSED = 2, 3, 2, 2, 2

Fields = dict[int, list[bytes | int]]


def read_descriptor_set(content: bytes) -> tuple[str, list[ProtoFile]]:
    """The last file's descriptor in base64, and all files."""
    try:
        files = _get_messages(_read_fields(content), 1)
        made = [_read_file(_read_fields(file)) for file in files]
    except (ValueError, IndexError, AttributeError, TypeError, RecursionError):
        raise ConfigError(
            "this is no FileDescriptorSet: write one with protoc --include_imports", SCHEMA_INVALID
        ) from None
    if not made:
        raise ConfigError("the FileDescriptorSet has no file in it", SCHEMA_INVALID)
    return base64.b64encode(files[-1]).decode(), made


def _read_fields(content: bytes) -> Fields:
    found: Fields = {}
    position = 0
    while position < len(content):
        tag, position = _read_varint(content, position)
        number, wire = tag >> 3, tag & 7
        value: bytes | int
        if wire == 0:
            value, position = _read_varint(content, position)
        elif wire == 2:
            size, position = _read_varint(content, position)
            value, position = content[position : position + size], position + size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, position = content[position : position + size], position + size
        else:
            raise ValueError
        if position > len(content):
            raise ValueError
        found.setdefault(number, []).append(value)
    return found


def _read_varint(content: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError


def _get_messages(fields: Fields, number: int) -> list[bytes]:
    return [value for value in fields.get(number, []) if isinstance(value, bytes)]


def _get_text(fields: Fields, number: int) -> str:
    found = _get_messages(fields, number)
    return found[-1].decode() if found else ""


def _get_number(fields: Fields, number: int, default: int = 0) -> int:
    value = fields.get(number, [default])[-1]
    if not isinstance(value, int):
        raise TypeError
    return value


def _get_nested(fields: Fields, *numbers: int) -> Fields:
    for number in numbers:
        found = _get_messages(fields, number)
        fields = _read_fields(found[-1]) if found else {}
    return fields


def _read_file(fields: Fields) -> ProtoFile:
    package = _get_text(fields, 2)
    syntax = _get_text(fields, 12) or "proto2"
    # FileOptions.features: defaults for the fields of the file.
    common = _get_nested(fields, 8, 50)
    messages: list[ProtoMessage] = []
    enums = [_read_enum(_read_fields(each), package, syntax, common) for each in _get_messages(fields, 5)]
    for index, each in enumerate(_get_messages(fields, 4)):
        for message, own in _read_messages(_read_fields(each), package, (index,), syntax, common):
            messages.append(message)
            enums += own
    return ProtoFile(tuple(messages), tuple(enums))


def _read_messages(
    fields: Fields, scope: str, path: tuple[int, ...], syntax: str, common: Fields
) -> Iterator[tuple[ProtoMessage, list[ProtoEnum]]]:
    """A message and its nested messages."""
    name = f"{scope}.{_get_text(fields, 1)}" if scope else _get_text(fields, 1)
    oneofs = [_get_text(_read_fields(each), 1) for each in _get_messages(fields, 8)]
    is_entry = _is_map_entry(fields)
    nested = [_read_fields(each) for each in _get_messages(fields, 3)]
    # Maps are never delimited, whatever the file's features.
    maps = {f".{name}.{_get_text(each, 1)}" for each in nested if _is_map_entry(each)}
    own = tuple(
        replace(field, is_delimited=False) if is_entry or f".{field.type_name}" in maps else field
        for field in (_read_field(_read_fields(each), oneofs, syntax, common) for each in _get_messages(fields, 2))
    )
    yield (
        ProtoMessage(name, own, path, is_entry),
        [_read_enum(_read_fields(each), name, syntax, common) for each in _get_messages(fields, 4)],
    )
    for index, inner in enumerate(nested):
        yield from _read_messages(inner, name, (*path, index), syntax, common)


def _is_map_entry(fields: Fields) -> bool:
    return bool(_get_number(_get_nested(fields, 7), 7))


def _read_field(fields: Fields, oneofs: list[str], syntax: str, common: Fields) -> ProtoField:
    kind = _TYPES[_get_number(fields, 5)]
    if kind == "group":
        raise ConfigError(
            f"field {_get_text(fields, 1)} is a group, which is not supported; use a message", SCHEMA_INVALID
        )
    label = _get_number(fields, 4)
    options = _get_nested(fields, 8)
    features = _get_nested(options, 21)
    is_optional = bool(_get_number(fields, 17))
    in_oneof = 9 in fields and not is_optional
    is_repeated = label == _REPEATED
    repeated_encoding = _get_number(features, 3) or _get_number(common, 3)
    packed = bool(_get_number(options, 2, int(syntax != "proto2"))) and repeated_encoding != _EXPANDED
    implicit = syntax == "proto3" and not is_optional
    if syntax == "editions":
        presence = _get_number(features, 1)
        implicit = presence == _IMPLICIT or (presence == 0 and _get_number(common, 1) == _IMPLICIT)
    return ProtoField(
        _get_text(fields, 1),
        _get_number(fields, 3),
        kind,
        _get_text(fields, 6).removeprefix("."),
        is_repeated,
        is_repeated and packed and (kind in VARINTS or kind in FIXED or kind == "enum"),
        label == _REQUIRED or _get_number(features, 1) == _LEGACY_REQUIRED,
        not is_repeated and (kind == "message" or in_oneof or not implicit),
        oneofs[_get_number(fields, 9)] if in_oneof else "",
        kind == "message" and (_get_number(features, 5) or _get_number(common, 5)) == _DELIMITED,
    )


def _read_enum(fields: Fields, scope: str, syntax: str, common: Fields) -> ProtoEnum:
    numbers = {}
    for each in _get_messages(fields, 2):
        value = _read_fields(each)
        number = _get_number(value, 2)
        numbers[_get_text(value, 1)] = number - 2**64 if number >= 2**63 else number
    name = _get_text(fields, 1)
    is_closed = (_get_number(_get_nested(fields, 3, 7), 2) or _get_number(common, 2)) == _CLOSED or syntax == "proto2"
    return ProtoEnum(f"{scope}.{name}" if scope else name, numbers, is_closed)
