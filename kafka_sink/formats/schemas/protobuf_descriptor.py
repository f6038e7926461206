"""Descriptors written by protoc: the Protobuf messages that describe .proto files, read without a library."""

from __future__ import annotations

import base64

from kafka_sink.errors import RemoteProtocolError
from kafka_sink.formats.records.scalar import Reader
from kafka_sink.formats.schemas.naming import invalid_schema, join_path
from kafka_sink.formats.schemas.protobuf_types import ProtoField, ProtoMessage, ProtoType, make_enum, make_field

# FieldDescriptorProto.Type and Label.
_TYPES = (
    "", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message",
    "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
_LABELS = ("", "", "required", "repeated")
# Fields of FeatureSet, with the names of their numbers.
_FEATURES = {
    1: ("features.field_presence", ("", "EXPLICIT", "IMPLICIT", "LEGACY_REQUIRED")),
    2: ("features.enum_type", ("", "OPEN", "CLOSED")),
    3: ("features.repeated_field_encoding", ("", "PACKED", "EXPANDED")),
    5: ("features.message_encoding", ("", "LENGTH_PREFIXED", "DELIMITED")),
}


def read_descriptor_set(content: bytes) -> tuple[str, list[ProtoType], list[ProtoType]]:
    """The last file's descriptor in base64, its types, and those of the files before it."""
    try:
        files = _Message(content).contents(1)
        types = [_FileReader(_Message(file)).types for file in files]
    except (RemoteProtocolError, ValueError, LookupError, TypeError, RecursionError):
        raise invalid_schema("this is no FileDescriptorSet: write one with protoc --include_imports") from None
    if not files:
        raise invalid_schema("the FileDescriptorSet has no file in it")
    return base64.b64encode(files[-1]).decode(), types[-1], [each for file in types[:-1] for each in file]


class _Message:
    """The values of each field, by number."""

    def __init__(self, content: bytes) -> None:
        self._values: dict[int, list[bytes | int]] = {}
        reader = Reader(content)
        while reader.remaining:
            tag = reader.read_unsigned_varint(64)
            wire = tag & 7
            value = reader.read_unsigned_varint(64) if wire in (0, 2) else {1: 8, 5: 4}[wire]
            self._values.setdefault(tag >> 3, []).append(reader.take(value) if wire else value)

    def __contains__(self, number: int) -> bool:
        return number in self._values

    def contents(self, number: int) -> list[bytes]:
        return [value for value in self._values.get(number, []) if isinstance(value, bytes)]

    def messages(self, number: int) -> list[_Message]:
        return [_Message(content) for content in self.contents(number)]

    def message(self, number: int) -> _Message:
        """The last one; an empty one if there is none."""
        return _Message(b"".join(self.contents(number)[-1:]))

    def text(self, number: int) -> str:
        return b"".join(self.contents(number)[-1:]).decode()

    def number(self, number: int) -> int:
        value = self._values.get(number, [0])[-1]
        if not isinstance(value, int):
            raise TypeError
        return value

    def features(self) -> dict[str, str]:
        return {name: words[self.number(number)] for number, (name, words) in _FEATURES.items() if number in self}


class _FileReader:
    def __init__(self, file: _Message) -> None:
        self._syntax = file.text(12) or "proto2"
        # FileOptions.features: defaults for the fields of the file.
        self._features = file.message(8).message(50).features()
        self.types: list[ProtoType] = []
        self._read_types(file, file.text(2), (), 4, 5)

    def _read_types(self, found: _Message, scope: str, path: tuple[int, ...], of_messages: int, of_enums: int) -> None:
        for each in found.messages(of_enums):
            self._read_enum(each, scope)
        for index, each in enumerate(found.messages(of_messages)):
            self._read_message(each, scope, (*path, index))

    def _read_message(self, found: _Message, scope: str, path: tuple[int, ...]) -> None:
        name = join_path(scope, found.text(1))
        oneofs = [each.text(1) for each in found.messages(8)]
        fields = tuple(self._read_field(each, oneofs) for each in found.messages(2))
        self.types.append(ProtoMessage(name, fields, path, is_map_entry=bool(found.message(7).number(7))))
        self._read_types(found, name, path, 3, 4)

    def _read_field(self, found: _Message, oneofs: list[str]) -> ProtoField:
        name, kind = found.text(1), _TYPES[found.number(5)]
        if not kind:
            raise invalid_schema(f"field {name} has no type in the descriptors: write them with protoc")
        if kind == "group":
            raise invalid_schema(f"field {name} is a group, which is not supported; use a message")
        # proto3_optional: the field is the only one of a oneof that nobody wrote.
        is_optional = bool(found.number(17))
        label = "optional" if is_optional else _LABELS[found.number(4)]
        oneof = oneofs[found.number(9)] if 9 in found and not is_optional else ""
        options = found.message(8)
        field_options = {**self._features, **options.message(21).features()}
        if 2 in options:
            field_options["packed"] = "true" if options.number(2) else "false"
        type_name = found.text(6).removeprefix(".")
        return make_field(name, found.number(3), kind, type_name, label, oneof, self._syntax, field_options)

    def _read_enum(self, found: _Message, scope: str) -> None:
        numbers = {}
        for each in found.messages(2):
            number = each.number(2)
            numbers[each.text(1)] = number - 2**64 if number >= 2**63 else number
        features = {**self._features, **found.message(3).message(7).features()}
        self.types.append(make_enum(join_path(scope, found.text(1)), numbers, self._syntax, features))
