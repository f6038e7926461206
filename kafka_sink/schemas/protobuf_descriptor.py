"""Descriptors as protoc writes them: the Protobuf messages that describe .proto files, read without a library."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from kafka_sink.error_table.commits import SCHEMA_INVALID
from kafka_sink.errors import ConfigError
from kafka_sink.schemas.protobuf import FIXED, VARINTS, ProtoEnum, ProtoField, ProtoFile, ProtoMessage

# FieldDescriptorProto.Type.
_TYPES = (
    "", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message",
    "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
_REQUIRED, _REPEATED = 2, 3
_IMPLICIT, _LEGACY_REQUIRED, _EXPANDED = 2, 3, 2

Fields = dict[int, list[bytes | int]]


def read_set(content: bytes) -> tuple[str, list[ProtoFile]]:
    """The last file's descriptor in base64, and all files."""
    try:
        files = _messages(_fields(content), 1)
        made = [_file(_fields(file)) for file in files]
    except (ValueError, IndexError, AttributeError, TypeError):
        raise ConfigError(
            "this is no FileDescriptorSet: write one with protoc --include_imports", SCHEMA_INVALID
        ) from None
    if not made:
        raise ConfigError("the FileDescriptorSet has no file in it", SCHEMA_INVALID)
    return base64.b64encode(files[-1]).decode(), made


def _fields(content: bytes) -> Fields:
    found: Fields = {}
    place = 0
    while place < len(content):
        tag, place = _varint(content, place)
        number, wire = tag >> 3, tag & 7
        value: bytes | int
        if wire == 0:
            value, place = _varint(content, place)
        elif wire == 2:
            size, place = _varint(content, place)
            value, place = content[place : place + size], place + size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, place = content[place : place + size], place + size
        else:
            raise ValueError
        if place > len(content):
            raise ValueError
        found.setdefault(number, []).append(value)
    return found


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError


def _messages(fields: Fields, number: int) -> list[bytes]:
    return [value for value in fields.get(number, []) if isinstance(value, bytes)]


def _text(fields: Fields, number: int) -> str:
    found = _messages(fields, number)
    return found[-1].decode() if found else ""


def _number(fields: Fields, number: int, default: int = 0) -> int:
    value = fields.get(number, [default])[-1]
    if not isinstance(value, int):
        raise TypeError
    return value


def _inside(fields: Fields, *numbers: int) -> Fields:
    for number in numbers:
        found = _messages(fields, number)
        fields = _fields(found[-1]) if found else {}
    return fields


def _file(fields: Fields) -> ProtoFile:
    package = _text(fields, 2)
    syntax = _text(fields, 12) or "proto2"
    # FileOptions.features.field_presence.
    is_implicit = _number(_inside(fields, 8, 50), 1) == _IMPLICIT
    messages: list[ProtoMessage] = []
    enums = [_enum(_fields(each), package) for each in _messages(fields, 5)]
    for place, each in enumerate(_messages(fields, 4)):
        for message, own in _tree(_fields(each), package, (place,), syntax, is_implicit):
            messages.append(message)
            enums += own
    return ProtoFile(tuple(messages), tuple(enums))


def _tree(
    fields: Fields, scope: str, path: tuple[int, ...], syntax: str, is_implicit: bool
) -> Iterator[tuple[ProtoMessage, list[ProtoEnum]]]:
    """A message and those inside it."""
    name = f"{scope}.{_text(fields, 1)}" if scope else _text(fields, 1)
    oneofs = [_text(_fields(each), 1) for each in _messages(fields, 8)]
    own = tuple(_field(_fields(each), oneofs, syntax, is_implicit) for each in _messages(fields, 2))
    is_entry = bool(_number(_inside(fields, 7), 7))
    yield ProtoMessage(name, own, path, is_entry), [_enum(_fields(each), name) for each in _messages(fields, 4)]
    for place, each in enumerate(_messages(fields, 3)):
        yield from _tree(_fields(each), name, (*path, place), syntax, is_implicit)


def _field(fields: Fields, oneofs: list[str], syntax: str, is_implicit: bool) -> ProtoField:
    kind = _TYPES[_number(fields, 5)]
    if kind == "group":
        raise ConfigError(f"field {_text(fields, 1)} is a group, which is not supported; use a message", SCHEMA_INVALID)
    label = _number(fields, 4)
    options = _inside(fields, 8)
    features = _inside(options, 21)
    is_optional = bool(_number(fields, 17))
    in_oneof = 9 in fields and not is_optional
    is_repeated = label == _REPEATED
    packed = bool(_number(options, 2, int(syntax != "proto2"))) and _number(features, 3) != _EXPANDED
    implicit = syntax == "proto3" and not is_optional
    if syntax == "editions":
        presence = _number(features, 1)
        implicit = presence == _IMPLICIT or (presence == 0 and is_implicit)
    return ProtoField(
        _text(fields, 1),
        _number(fields, 3),
        kind,
        _text(fields, 6).removeprefix("."),
        is_repeated,
        is_repeated and packed and (kind in VARINTS or kind in FIXED or kind == "enum"),
        label == _REQUIRED or _number(features, 1) == _LEGACY_REQUIRED,
        not is_repeated and (kind == "message" or in_oneof or not implicit),
        oneofs[_number(fields, 9)] if in_oneof else "",
    )


def _enum(fields: Fields, scope: str) -> ProtoEnum:
    numbers = {}
    for each in _messages(fields, 2):
        value = _fields(each)
        number = _number(value, 2)
        numbers[_text(value, 1)] = number - 2**64 if number >= 2**63 else number
    name = _text(fields, 1)
    return ProtoEnum(f"{scope}.{name}" if scope else name, numbers)
