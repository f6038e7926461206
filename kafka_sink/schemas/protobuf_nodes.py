"""Protobuf's binary encoding, array by array. The scalar reference is tests/property/slow_protobuf.py.

A field is a tag and its content, in the order of field numbers; a missing field takes no bytes. A nested message is
length-delimited, so it is encoded first and written to the outer one as bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kafka_sink.frozen import frozen
from kafka_sink.records.bytes_column import BytesColumn, to_plain
from kafka_sink.records.varint import Array, VarintField, encode_unsigned_varints, zigzag
from kafka_sink.schemas.arrays import read_flags, read_float_words, read_lists, read_numbers, valid_mask
from kafka_sink.schemas.misfit import MisfitScope
from kafka_sink.schemas.node import Numbers, ValueNode, symbol_numbers
from kafka_sink.schemas.pieces import Piece, bytes_elements, constant_piece, join_pieces, mask_pieces
from kafka_sink.schemas.utf8 import refuse_invalid_utf8

NULL_REFUSED = "is null, and Protobuf has no null in a repeated field or a map"
REQUIRED = "is null, and the field is required"
_NS_PER_SECOND = 1_000_000_000

# An encoded array: its pieces, and which elements are 0 or empty.
Content = tuple[list[Piece], Array]


def _is_zero(numbers: Array) -> Array:
    zero: Array = numbers == 0
    return zero


@frozen
class ProtobufVarint:
    """`signed` numbers use zigzag; otherwise negative ones take ten bytes. `known`: no others fit."""

    numbers: Numbers
    signed: bool = False
    known: tuple[int, ...] | None = None

    def content(self, array: pa.Array, scope: MisfitScope) -> Content:
        numbers = self.numbers.read(array, scope)
        if self.known is not None:
            scope.refuse(~np.isin(numbers, self.known), "is no number of its enum in the schema")
        unsigned = zigzag(numbers) if self.signed else numbers.view(np.uint64)
        return list(encode_unsigned_varints(unsigned)), _is_zero(numbers)


@frozen
class ProtobufBoolean:
    def content(self, array: pa.Array, scope: MisfitScope) -> Content:
        flags = read_flags(array)
        return [VarintField(flags.astype(np.uint64), 1, 1)], ~flags


@frozen
class ProtobufFixed:
    """A whole number of 4 or 8 bytes."""

    numbers: Numbers
    size: int

    def content(self, array: pa.Array, scope: MisfitScope) -> Content:
        numbers = self.numbers.read(array, scope)
        words = numbers.view(np.uint64)
        if self.size == 4:
            words = words & np.uint64(0xFFFFFFFF)
        return [VarintField(words, self.size, self.size)], _is_zero(numbers)


@frozen
class ProtobufFloat:
    """-0.0 is not 0: it is written."""

    source: Any
    size: int

    def content(self, array: pa.Array, scope: MisfitScope) -> Content:
        words = read_float_words(array, self.source, self.size)
        return [VarintField(words, self.size, self.size)], _is_zero(words)


@frozen
class ProtobufBytes:
    is_text: bool

    def content(self, array: pa.Array, scope: MisfitScope) -> Content:
        column = BytesColumn.from_arrow(refuse_invalid_utf8(array, scope) if self.is_text else array, "")
        lengths = np.maximum(column.lengths, 0)
        return [*_length_fields(lengths), bytes_elements(column)], _is_zero(lengths)


@frozen
class ProtobufEnum:
    """By name."""

    numbers: tuple[tuple[str, int], ...]

    def content(self, array: pa.Array, scope: MisfitScope) -> Content:
        numbers = symbol_numbers(array, dict(self.numbers), scope)
        return list(encode_unsigned_varints(numbers.view(np.uint64))), _is_zero(numbers)


@frozen
class ProtobufInside:
    """A nested message as the content of a field."""

    message: ValueNode

    def content(self, array: pa.Array, scope: MisfitScope) -> Content:
        flat = join_pieces(self.message.pieces(array, scope), len(array))
        return [*_length_fields(flat.lengths), flat.elements()], np.zeros(len(array), np.bool_)


Scalar = (
    ProtobufVarint | ProtobufBoolean | ProtobufFixed | ProtobufFloat | ProtobufBytes | ProtobufEnum | ProtobufInside
)


@frozen
class ProtobufMessageField:
    """`writes_zero`: also write a value that is 0 or empty. `oneof`: the name of its oneof."""

    name: str
    index: int
    tag: bytes
    content: Scalar
    writes_zero: bool
    is_required: bool = False
    oneof: str = ""

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        array = to_plain(array)
        valid = valid_mask(array)
        if valid is not None and self.is_required:
            scope.refuse(~valid, REQUIRED)
        content, is_zero = self.content.content(array, scope.where(valid))
        present = valid
        if not self.writes_zero and is_zero.any():
            present = ~is_zero if valid is None else valid & ~is_zero
        return mask_pieces([constant_piece(self.tag, len(array)), *content], present)


@frozen
class ProtobufRepeatedField:
    """`is_packed`: one tag for all items."""

    name: str
    index: int
    tag: bytes
    content: Scalar
    is_packed: bool
    oneof: str = ""

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        array = to_plain(array)
        valid = valid_mask(array)
        offsets, (child,) = read_lists(array)
        child = to_plain(child)
        items = scope.where(valid).items(offsets, "[]")
        content = _item_content(self.content, child, items)
        if not self.is_packed:
            flat = join_pieces([constant_piece(self.tag, len(child)), *content], len(child))
            return mask_pieces([flat.ranges(offsets)], valid)
        flat = join_pieces(content, len(child))
        sizes = np.diff(flat.starts[offsets])
        present = sizes > 0 if valid is None else (sizes > 0) & valid
        return mask_pieces(
            [constant_piece(self.tag, len(array)), *_length_fields(sizes), flat.ranges(offsets)], present
        )


@frozen
class ProtobufMapField:
    """Each entry is a message of two fields, both always written."""

    name: str
    index: int
    tag: bytes
    key: Scalar
    key_tag: bytes
    value: Scalar
    value_tag: bytes
    oneof: str = ""

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        array = to_plain(array)
        valid = valid_mask(array)
        offsets, (keys, values) = read_lists(array)
        count = len(keys)
        inner = scope.where(valid)
        entry = [
            constant_piece(self.key_tag, count),
            *_item_content(self.key, to_plain(keys), inner.items(offsets, "{key}")),
            constant_piece(self.value_tag, count),
            *_item_content(self.value, to_plain(values), inner.items(offsets, "{}")),
        ]
        flat = join_pieces(entry, count)
        entries = join_pieces([constant_piece(self.tag, count), *_length_fields(flat.lengths), flat.elements()], count)
        return mask_pieces([entries.ranges(offsets)], valid)


@frozen
class ProtobufMessage:
    """`oneofs` are those with several columns, of which at most one may be non-null."""

    fields: tuple[ProtobufMessageField | ProtobufRepeatedField | ProtobufMapField, ...]
    oneofs: tuple[str, ...] = ()

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        self._check_oneofs(array, scope)
        pieces: list[Piece] = []
        for field in self.fields:
            pieces += field.pieces(array.field(field.index), scope.field(field.name))
        return pieces

    def _check_oneofs(self, array: pa.Array, scope: MisfitScope) -> None:
        for oneof in self.oneofs:
            filled = np.zeros(len(array), np.int64)
            for field in self.fields:
                if field.oneof == oneof:
                    valid = valid_mask(to_plain(array.field(field.index)))
                    filled += 1 if valid is None else valid
            scope.field(oneof).refuse(filled > 1, "has several values, and a oneof has one")


@frozen
class ProtobufMoment:
    """google.protobuf.Timestamp and Duration: seconds and nanoseconds. Nanoseconds of a Timestamp are never negative,
    those of a Duration have the sign of its seconds."""

    units_per_second: int
    is_duration: bool

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        numbers = read_numbers(array, np.int64)
        seconds = numbers // self.units_per_second
        rest = numbers - seconds * self.units_per_second
        if self.is_duration:
            is_cut = (seconds < 0) & (rest > 0)
            seconds, rest = seconds + is_cut, rest - np.where(is_cut, self.units_per_second, 0)
        nanos = rest * (_NS_PER_SECOND // self.units_per_second)
        pieces: list[Piece] = []
        for tag, each in ((b"\x08", seconds), (b"\x10", nanos)):
            is_there = each != 0
            pieces += mask_pieces(
                [constant_piece(tag, len(array)), *encode_unsigned_varints(each.view(np.uint64))], is_there
            )
        return pieces


def _item_content(scalar: Scalar, array: pa.Array, scope: MisfitScope) -> list[Piece]:
    """The content of repeated items, none of which may be null."""
    valid = valid_mask(array)
    if valid is not None:
        scope.refuse(~valid, NULL_REFUSED)
    pieces, _ = scalar.content(array, scope.where(valid))
    return pieces


def _length_fields(lengths: Array) -> list[VarintField]:
    return encode_unsigned_varints(lengths.astype(np.uint64))
