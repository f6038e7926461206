"""Messages with maps and messages inside, in any order, and how each reader of Confluent's counts them.

A shape is the body of a message: "map" for a field, a tuple for a nested message. Each shape is written three ways: as
a .proto text; as protoc's descriptors, where the entry of a map is a nested message at the place of its field; and as
the text that a registry makes of such descriptors, where the entry is a message with an option. For clients that ask
for descriptors (format=serialized) a registry makes them of the text, with the entries of map<> behind all messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka.schema_registry.common.protobuf import _create_index_array
from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool
from hypothesis import strategies as st

Shape = tuple[Any, ...]
PACKAGE = "shop"


def shapes() -> st.SearchStrategy[Shape]:
    """The body of a file: messages only."""
    bodies = st.recursive(
        st.just(()), lambda inner: st.lists(st.one_of(st.just("map"), inner), max_size=4).map(tuple), max_leaves=12
    )
    return st.lists(bodies, min_size=1, max_size=3).map(tuple)


def names(shape: Shape, scope: str = PACKAGE) -> Iterator[str]:
    """Full names of all messages, without entries."""
    for number, item in enumerate(shape):
        if item != "map":
            yield f"{scope}.M{number}"
            yield from names(item, f"{scope}.M{number}")


def text(shape: Shape, *, with_entries: bool = False) -> str:
    """`with_entries`: as a registry writes what it was sent as descriptors."""
    return f'syntax = "proto3"; package {PACKAGE}; {_body(shape, with_entries)}'


def _body(shape: Shape, with_entries: bool) -> str:
    parts = []
    for number, item in enumerate(shape):
        if item != "map":
            parts.append(f"message M{number} {{ {_body(item, with_entries)} }}")
        elif with_entries:
            members = "string key = 1; int64 value = 2;"
            parts.append(f"message F{number}Entry {{ option map_entry = true; {members} }}")
            parts.append(f"repeated F{number}Entry f{number} = {number + 1};")
        else:
            parts.append(f"map<string, int64> f{number} = {number + 1};")
    return " ".join(parts)


def file_descriptor(shape: Shape, *, entries_last: bool) -> pb.FileDescriptorProto:
    file = pb.FileDescriptorProto(name="shop.proto", package=PACKAGE, syntax="proto3")
    for number, item in enumerate(shape):
        _fill(file.message_type.add(name=f"M{number}"), item, f".{PACKAGE}.M{number}", entries_last)
    return file


def _fill(message: Any, shape: Shape, fullname: str, entries_last: bool) -> None:
    """`entries_last`: as a registry does it, otherwise as protoc does."""
    waiting = []
    for number, item in enumerate(shape):
        if item != "map":
            _fill(message.nested_type.add(name=f"M{number}"), item, f"{fullname}.M{number}", entries_last)
            continue
        entry = pb.DescriptorProto(name=f"F{number}Entry", options=pb.MessageOptions(map_entry=True))
        entry.field.add(name="key", number=1, label=1, type=9)
        entry.field.add(name="value", number=2, label=1, type=3)
        message.field.add(
            name=f"f{number}", number=number + 1, label=3, type=11, type_name=f"{fullname}.F{number}Entry"
        )
        if entries_last:
            waiting.append(entry)
        else:
            message.nested_type.append(entry)
    message.nested_type.extend(waiting)


def indexes(file: pb.FileDescriptorProto) -> dict[str, tuple[int, ...]]:
    """By full name, as confluent-kafka counts them."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found: dict[str, tuple[int, ...]] = {}
    waiting = list(pool.FindFileByName(file.name).message_types_by_name.values())
    while waiting:
        message = waiting.pop()
        waiting += message.nested_types
        found[message.full_name] = tuple(_create_index_array(message))
    return found
