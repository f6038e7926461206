"""Protobuf's binary encoding, array by array. The scalar reference is tests/property/slow_protobuf.py.

A field is a tag and its content, in the order of field numbers; a missing field takes no bytes. A nested message is
length-delimited, so it is encoded first and written to the outer one as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from kafka_sink.formats.records.arrays import read_flags, read_float_words, read_lists, read_numbers
from kafka_sink.formats.records.bytes_column import BytesColumn
from kafka_sink.formats.records.pieces import Piece, bytes_elements, constant_piece, join_pieces, mask_pieces
from kafka_sink.formats.records.varint import Array, VarintField, encode_unsigned_varints, zigzag
from kafka_sink.formats.schemas.misfit import MisfitScope
from kafka_sink.formats.schemas.node import Numbers, ValueNode, encode_present, refuse_invalid_utf8, symbol_numbers
from kafka_sink.frozen import frozen

NULL_REFUSED = "is null, and Protobuf has no null in a repeated field or a map"
REQUIRED = "is null, and the field is required"
_NS_PER_SECOND = 1_000_000_000
# In seconds, by the comments of timestamp.proto and duration.proto.
_TIMESTAMP_RANGE = -62_135_596_800, 253_402_300_799, "in the years 1 to 9999, and a Protobuf timestamp has no others"
_DURATION_RANGE = -315_576_000_000, 315_576_000_000, "within 10,000 years, and a Protobuf duration has no others"

# What stands behind a tag, and which elements are 0 or empty.
Content = tuple[list[Piece], Array]
ContentNode = Callable[[pa.Array, MisfitScope], Content]


# ---- contents --------------------------------------------------------------------------------------------------------


def encode_varint(
    numbers: Numbers, signed: bool, known: tuple[int, ...] | None, array: pa.Array, scope: MisfitScope
) -> Content:
    """`signed` numbers use zigzag; otherwise negative ones take ten bytes. `known`: no others fit."""
    read = numbers.read(array, scope)
    if known is not None:
        scope.refuse(~np.isin(read, known), "is no number of its enum in the schema")
    unsigned = zigzag(read) if signed else read.view(np.uint64)
    return list(encode_unsigned_varints(unsigned)), read == 0


def encode_boolean(array: pa.Array, scope: MisfitScope) -> Content:
    flags = read_flags(array)
    return [VarintField(flags.astype(np.uint64), 1, 1)], ~flags


def encode_fixed(numbers: Numbers, size: int, array: pa.Array, scope: MisfitScope) -> Content:
    """A whole number of 4 or 8 bytes."""
    read = numbers.read(array, scope)
    words = read.view(np.uint64)
    if size == 4:
        words = words & np.uint64(0xFFFFFFFF)
    return [VarintField(words, size, size)], read == 0


def encode_float(size: int, array: pa.Array, scope: MisfitScope) -> Content:
    """-0.0 is not 0: it is written."""
    words = read_float_words(array, size)
    return [VarintField(words, size, size)], words == 0


def encode_text(array: pa.Array, scope: MisfitScope) -> Content:
    return encode_binary(refuse_invalid_utf8(array, scope), scope)


def encode_binary(array: pa.Array, scope: MisfitScope) -> Content:
    column = BytesColumn.from_arrow(array)
    lengths = np.maximum(column.lengths, 0)
    return [*_length_fields(lengths), bytes_elements(column)], lengths == 0


def encode_enum(numbers: Mapping[str, int], array: pa.Array, scope: MisfitScope) -> Content:
    """By name."""
    read = symbol_numbers(array, numbers, scope)
    return list(encode_unsigned_varints(read.view(np.uint64))), read == 0


def encode_nested(message: ValueNode, array: pa.Array, scope: MisfitScope) -> Content:
    """A message as the content of a field."""
    flat = join_pieces(message(array, scope), len(array))
    return [*_length_fields(flat.lengths), flat.elements()], np.zeros(len(array), np.bool_)


def _length_fields(lengths: Array) -> list[VarintField]:
    return encode_unsigned_varints(lengths.astype(np.uint64))


# ---- fields ----------------------------------------------------------------------------------------------------------


def encode_single(
    tag: bytes, content: ContentNode, writes_zero: bool, array: pa.Array, scope: MisfitScope
) -> list[Piece]:
    """`writes_zero`: also a value that is 0 or empty."""
    pieces, is_zero = content(array, scope)
    present = None if writes_zero or not is_zero.any() else ~is_zero
    return mask_pieces([constant_piece(tag, len(array)), *pieces], present)


def encode_repeated(tag: bytes, content: ContentNode, array: pa.Array, scope: MisfitScope) -> list[Piece]:
    """A tag for each item."""
    offsets, (child,) = read_lists(array)
    items = _encode_items(content, child, scope.items(offsets, "[]"))
    return [join_pieces([constant_piece(tag, len(child)), *items], len(child)).elements(offsets)]


def encode_packed(tag: bytes, content: ContentNode, array: pa.Array, scope: MisfitScope) -> list[Piece]:
    """One tag for all items."""
    offsets, (child,) = read_lists(array)
    flat = join_pieces(_encode_items(content, child, scope.items(offsets, "[]")), len(child))
    sizes = np.diff(flat.starts[offsets])
    pieces = [constant_piece(tag, len(array)), *_length_fields(sizes), flat.elements(offsets)]
    return mask_pieces(pieces, sizes > 0)


def encode_map(
    tag: bytes, key: tuple[bytes, ContentNode], value: tuple[bytes, ContentNode], array: pa.Array, scope: MisfitScope
) -> list[Piece]:
    """Each entry is a message of two fields, both always written: their tags and contents."""
    offsets, children = read_lists(array)
    count = len(children[0])
    entry: list[Piece] = []
    for (inner_tag, content), child, name in zip((key, value), children, ("{key}", "{}"), strict=True):
        entry += [constant_piece(inner_tag, count), *_encode_items(content, child, scope.items(offsets, name))]
    flat = join_pieces(entry, count)
    entries = [constant_piece(tag, count), *_length_fields(flat.lengths), flat.elements()]
    return [join_pieces(entries, count).elements(offsets)]


def _encode_items(content: ContentNode, array: pa.Array, scope: MisfitScope) -> list[Piece]:
    """Repeated items, none of which may be null."""
    return encode_present(lambda *given: content(*given)[0], array, scope, NULL_REFUSED)[0]


# ---- messages --------------------------------------------------------------------------------------------------------


@frozen
class ProtoMember:
    """A field of a message, from the column at `index`."""

    name: str
    index: int
    node: ValueNode
    oneof: str
    is_required: bool


def encode_message(
    members: tuple[ProtoMember, ...], oneofs: tuple[str, ...], array: pa.Array, scope: MisfitScope
) -> list[Piece]:
    """`oneofs` are those with several columns, of which at most one may be non-null."""
    pieces: list[Piece] = []
    filled = {oneof: np.zeros(len(array), np.int64) for oneof in oneofs}
    for member in members:
        why = REQUIRED if member.is_required else None
        own, valid = encode_present(member.node, array.field(member.index), scope.field(member.name), why)
        pieces += own
        if member.oneof in filled:
            filled[member.oneof] += 1 if valid is None else valid
    for oneof, count in filled.items():
        scope.field(oneof).refuse(count > 1, "has several values, and a oneof has one")
    return pieces


def encode_moment(units_per_second: int, is_duration: bool, array: pa.Array, scope: MisfitScope) -> list[Piece]:
    """google.protobuf.Timestamp and Duration: seconds and nanoseconds. Nanoseconds of a Timestamp are never negative,
    those of a Duration have the sign of its seconds. Both have a range, outside of which readers fail."""
    numbers = read_numbers(array)
    seconds = numbers // units_per_second
    rest = numbers - seconds * units_per_second
    if is_duration:
        is_cut = (seconds < 0) & (rest > 0)
        seconds, rest = seconds + is_cut, rest - np.where(is_cut, units_per_second, 0)
    low, high, range_name = _DURATION_RANGE if is_duration else _TIMESTAMP_RANGE
    scope.refuse((seconds < low) | (seconds > high), f"is not {range_name}")
    nanos = rest * (_NS_PER_SECOND // units_per_second)
    pieces: list[Piece] = []
    for tag, each in ((b"\x08", seconds), (b"\x10", nanos)):
        content = encode_unsigned_varints(each.view(np.uint64))
        pieces += mask_pieces([constant_piece(tag, len(array)), *content], each != 0)
    return pieces
