"""A Protobuf schema: a message type with all that it refers to, from the text of a .proto file, or from descriptors
written by protoc."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_sink.formats.schemas.naming import invalid_schema, list_some
from kafka_sink.formats.schemas.protobuf_types import ProtoMessage, ProtoType, ProtoTypes
from kafka_sink.frozen import frozen


@frozen
class ProtobufSchema:
    """`text` is sent to a registry: the .proto file, or its descriptor in base64. `counts_entries`: the indexes of the
    message count entries of maps, as they stand in descriptors; the text that a registry makes of them may have none.
    """

    text: str
    fullname: str
    message_indexes: tuple[int, ...]
    # Its index among the sorted full names of all messages of its file and the entries of their maps, used by Glue.
    message_rank: int
    types: ProtoTypes
    counts_entries: bool = False

    @property
    def message(self) -> ProtoMessage:
        return self.types.messages[self.fullname]

    @classmethod
    def parse(
        cls, text: str, references: Mapping[str, str] | None = None, message: str | None = None
    ) -> ProtobufSchema:
        """`references`: import path to text. `message` is a full or a short name; default: the first of the file."""
        from kafka_sink.formats.schemas.protobuf_text import read_files

        return cls._select_message(text, *read_files(text, references or {}), message)

    @classmethod
    def of_descriptors(cls, content: bytes, message: str | None = None) -> ProtobufSchema:
        """A serialized FileDescriptorSet, as written by protoc --include_imports --descriptor_set_out. The message is
        in its last file, since a file follows its imports."""
        from kafka_sink.formats.schemas.protobuf_descriptor import read_descriptor_set

        return cls._select_message(*read_descriptor_set(content), message)

    @classmethod
    def _select_message(
        cls, text: str, own: Iterable[ProtoType], imported: Iterable[ProtoType], wanted: str | None
    ) -> ProtobufSchema:
        """`own` are the types of the file itself."""
        counted = sorted((each for each in own if isinstance(each, ProtoMessage)), key=lambda message: message.path)
        messages = [message for message in counted if not message.is_map_entry]
        if not messages:
            raise invalid_schema("the Protobuf schema has no message in it")
        fitting = [each for each in messages if wanted is None or f".{each.fullname}".endswith(f".{wanted}")]
        if not fitting:
            known = list_some([message.fullname for message in messages])
            raise invalid_schema(f"the Protobuf schema has no message {wanted}; it has {known}")
        # Of one name: the outermost, and the first.
        found = min(fitting, key=lambda message: len(message.path))
        rank = sorted(message.fullname for message in counted).index(found.fullname)
        counts_entries = any(_is_before(each.path, found.path) for each in counted if each.is_map_entry)
        return cls(text, found.fullname, found.path, rank, ProtoTypes([*imported, *own]), counts_entries)


def _is_before(entry: tuple[int, ...], path: tuple[int, ...]) -> bool:
    """Whether the entry stands before the message, or before one that encloses it, in the same message."""
    outer = len(entry) - 1
    return outer > 0 and len(path) > outer and entry[:outer] == path[:outer] and entry[outer] < path[outer]
