"""The types of Protobuf: messages, their fields, enums. protobuf_text.py reads them from a .proto file,
protobuf_descriptor.py from what protoc has written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from kafka_sink.formats.schemas.naming import invalid_schema
from kafka_sink.frozen import frozen

# Names of types in a .proto file. Those of a fixed size have it here; the other numbers are varints.
FIXED = {"fixed32": 4, "sfixed32": 4, "float": 4, "fixed64": 8, "sfixed64": 8, "double": 8}
SCALARS = frozenset(FIXED) | {"int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "string", "bytes"}
# Their length stands before them.
LENGTH_DELIMITED = frozenset({"string", "bytes", "message"})
NUMBER_MAX = 2**29 - 1
# The syntax of a file with an edition, as descriptors call it.
EDITIONS = "editions"

T = TypeVar("T")


@frozen
class ProtoEnum:
    """`is_closed`: readers take a number that it does not have for no value."""

    fullname: str
    numbers: Mapping[str, int]
    is_closed: bool = False


@frozen
class ProtoField:
    """`type` is a scalar's name, or "enum" or "message" with a `type_name`. `is_packed`: if it is repeated.
    `has_presence`: a value that is 0 or empty is written, because readers distinguish it from none. `is_delimited`: if
    it is a message and no map, it stands between start and end group tags."""

    name: str
    number: int
    type: str
    type_name: str = ""
    is_repeated: bool = False
    is_packed: bool = False
    is_required: bool = False
    has_presence: bool = False
    oneof: str = ""
    is_delimited: bool = False


def make_field(
    name: str, number: int, kind: str, type_name: str, label: str, oneof: str, syntax: str, options: Mapping[str, str]
) -> ProtoField:
    """`label` is optional, required, repeated or empty. `options` are its own, and those of its file that are defaults
    for fields."""
    is_packed = options.get("packed", "false" if syntax == "proto2" else "true") == "true"
    presence = options.get("features.field_presence")
    is_implicit = presence == "IMPLICIT" if syntax == EDITIONS else syntax == "proto3" and label != "optional"
    return ProtoField(
        name,
        number,
        kind,
        type_name,
        is_repeated=label == "repeated",
        is_packed=is_packed and options.get("features.repeated_field_encoding") != "EXPANDED",
        is_required=label == "required" or presence == "LEGACY_REQUIRED",
        has_presence=bool(oneof) or not is_implicit,
        oneof=oneof,
        is_delimited=options.get("features.message_encoding") == "DELIMITED",
    )


def make_enum(fullname: str, numbers: Mapping[str, int], syntax: str, options: Mapping[str, str]) -> ProtoEnum:
    return ProtoEnum(fullname, numbers, syntax == "proto2" or options.get("features.enum_type") == "CLOSED")


@frozen
class ProtoMessage:
    """`path` are its indexes in the file: first among the top-level messages, then within each enclosing one. Empty for
    the entry of a map<> in a text: Confluent's readers do not count it there, but count what is written as a message.
    """

    fullname: str
    fields: tuple[ProtoField, ...]
    path: tuple[int, ...]
    is_map_entry: bool = False


ProtoType = ProtoMessage | ProtoEnum


class _ByName(dict[str, T]):
    def __missing__(self, name: str) -> T:
        raise invalid_schema(f"the descriptors do not define {name}: write them with protoc --include_imports")


class ProtoTypes:
    """All types by full name. Descriptors may lack those of imported files."""

    def __init__(self, types: Iterable[ProtoType]) -> None:
        self.messages: _ByName[ProtoMessage] = _ByName()
        self.enums: _ByName[ProtoEnum] = _ByName()
        for each in types:
            if isinstance(each, ProtoEnum):
                self.enums[each.fullname] = each
            else:
                _check_fields(each)
                self.messages[each.fullname] = each

    def map_entry(self, field: ProtoField) -> ProtoMessage | None:
        """None: the field is no map."""
        entry = self.messages.get(field.type_name)
        return entry if entry is not None and entry.is_map_entry else None


def _check_fields(message: ProtoMessage) -> None:
    seen: set[int | str] = set()
    for field in message.fields:
        if not 1 <= field.number <= NUMBER_MAX:
            raise invalid_schema(
                f"field {field.name} of {message.fullname} has the number {field.number}, allowed is 1 to {NUMBER_MAX}"
            )
        if field.number in seen or field.name in seen:
            raise invalid_schema(
                f"{message.fullname} has two fields of the name {field.name} or the number {field.number}"
            )
        seen |= {field.number, field.name}
    if message.is_map_entry and len(message.fields) != 2:
        raise invalid_schema(f"{message.fullname} is no entry of a map: it has no key and value")
