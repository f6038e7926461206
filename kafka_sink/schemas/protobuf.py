"""A Protobuf message type: from the text of a .proto file, or from descriptors written by protoc."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from kafka_sink.error_table.commits import SCHEMA_INVALID
from kafka_sink.errors import ConfigError
from kafka_sink.frozen import frozen

# Scalar types by wire encoding, with their names in a .proto file.
VARINTS = frozenset({"int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool"})
FIXED = {"fixed32": 4, "sfixed32": 4, "float": 4, "fixed64": 8, "sfixed64": 8, "double": 8}
SCALARS = VARINTS | frozenset(FIXED) | {"string", "bytes"}

NUMBER_MAX = 2**29 - 1

T = TypeVar("T")


@frozen
class ProtoEnum:
    """`is_closed`: readers take a number that it does not have for no value."""

    fullname: str
    numbers: Mapping[str, int]
    is_closed: bool = False


@frozen
class ProtoField:
    """`type` is a scalar's name, or "enum", or "message" with a `type_name`. `has_presence`: a value that is 0 or empty
    is written, because readers distinguish it from none. `is_delimited`: a message between start and end group tags."""

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


@frozen
class ProtoMessage:
    """`path` are its indexes in the file: first among the top-level messages, then within each enclosing one."""

    fullname: str
    fields: tuple[ProtoField, ...]
    path: tuple[int, ...]
    is_map_entry: bool = False


@frozen
class ProtoFile:
    messages: tuple[ProtoMessage, ...]
    enums: tuple[ProtoEnum, ...]


class _ByName(dict[str, T]):
    def __missing__(self, name: str) -> T:
        raise ConfigError(
            f"the descriptors do not define {name}: write them with protoc --include_imports", SCHEMA_INVALID
        )


class ProtoTypes:
    """All types by full name. Descriptors may lack those of imported files."""

    def __init__(self, files: Sequence[ProtoFile]) -> None:
        self.messages = _ByName({message.fullname: message for file in files for message in file.messages})
        self.enums = _ByName({enum.fullname: enum for file in files for enum in file.enums})
        for message in self.messages.values():
            _check_fields(message)


def _check_fields(message: ProtoMessage) -> None:
    seen: set[int | str] = set()
    for field in message.fields:
        if not 1 <= field.number <= NUMBER_MAX:
            raise ConfigError(
                f"field {field.name} of {message.fullname} has the number {field.number}, allowed is 1 to {NUMBER_MAX}",
                SCHEMA_INVALID,
            )
        if field.number in seen or field.name in seen:
            raise ConfigError(
                f"{message.fullname} has two fields of the name {field.name} or the number {field.number}",
                SCHEMA_INVALID,
            )
        seen |= {field.number, field.name}
    if message.is_map_entry and len(message.fields) != 2:
        raise ConfigError(f"{message.fullname} is no entry of a map: it has no key and value", SCHEMA_INVALID)


@frozen
class ProtobufSchema:
    """`text` is sent to a registry: the .proto file, or its descriptor in base64."""

    text: str
    fullname: str
    message_indexes: tuple[int, ...]
    # Its index among the sorted full names of all messages of its file and the entries of their maps, used by Glue.
    message_rank: int
    types: ProtoTypes

    @property
    def message(self) -> ProtoMessage:
        return self.types.messages[self.fullname]

    @classmethod
    def parse(
        cls, text: str, references: Mapping[str, str] | None = None, message: str | None = None
    ) -> ProtobufSchema:
        """`references`: import path to text. `message` is a full or a short name; default: the first of the file."""
        from kafka_sink.schemas.protobuf_text import read_files

        main, others = read_files(text, references or {})
        return cls._select_message(text, main, others, message)

    @classmethod
    def of_descriptors(cls, content: bytes, message: str | None = None) -> ProtobufSchema:
        """A serialized FileDescriptorSet, as written by protoc --include_imports --descriptor_set_out. The message is
        in its last file, since a file follows its imports."""
        from kafka_sink.schemas.protobuf_descriptor import read_descriptor_set

        text, files = read_descriptor_set(content)
        return cls._select_message(text, files[-1], files, message)

    @classmethod
    def _select_message(
        cls, text: str, main: ProtoFile, files: Sequence[ProtoFile], wanted: str | None
    ) -> ProtobufSchema:
        messages = [message for message in main.messages if not message.is_map_entry]
        if not messages:
            raise ConfigError("the Protobuf schema has no message in it", SCHEMA_INVALID)
        found = [
            message
            for message in messages
            if wanted is None or wanted == message.fullname or message.fullname.endswith(f".{wanted}")
        ]
        if not found:
            known = ", ".join(message.fullname for message in messages)
            raise ConfigError(f"the Protobuf schema has no message {wanted}; it has {known}", SCHEMA_INVALID)
        types = ProtoTypes([*files, main])
        rank = sorted(message.fullname for message in main.messages).index(found[0].fullname)
        return cls(text, found[0].fullname, found[0].path, rank, types)
