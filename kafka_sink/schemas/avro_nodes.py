"""Avro's binary encoding, array by array. The scalar reference is tests/property/slow_avro.py.

Numbers are zigzag varints, floats their eight or four bytes; strings and lists have their length first. A list is one
block: the count, the items, and 0 for the end; an empty one is only the 0.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.frozen import frozen
from kafka_sink.records.bytes_column import BytesColumn, to_plain
from kafka_sink.records.varint import Array, VarintField, encode_varints
from kafka_sink.schemas.arrays import read_flags, read_float_words, read_lists, valid_mask
from kafka_sink.schemas.decimals import encode_fixed, encode_shortest, read_halves
from kafka_sink.schemas.misfit import MisfitScope
from kafka_sink.schemas.node import Numbers, ValueNode, symbol_numbers
from kafka_sink.schemas.pieces import Elements, Flat, Piece, bytes_elements, constant_piece, join_pieces, mask_pieces
from kafka_sink.schemas.utf8 import refuse_invalid_utf8

NULL_REFUSED = "is null, and the schema has no null there"
# Branches of a union whose index is one byte.
_SHORT_BRANCHES = 64
_HEX = "[0-9a-fA-F]"
_UUID_TEXT = f"^{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}$"
# A text for 16 bytes may have no hyphens.
_UUID = re.compile(f"{_HEX}{{8}}(-?){_HEX}{{4}}\\1{_HEX}{{4}}\\1{_HEX}{{4}}\\1{_HEX}{{12}}".encode())


@frozen
class AvroSlot:
    """A node and the enclosing union, if any. Without a null branch a null does not fit."""

    node: ValueNode
    branch: int | None = None
    null_branch: int | None = None

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        array = to_plain(array)
        valid = valid_mask(array)
        inner = self.node.pieces(array, scope.where(valid))
        if valid is not None:
            inner = mask_pieces(inner, valid)
            if self.null_branch is None and not isinstance(self.node, AvroNull):
                scope.refuse(~valid, NULL_REFUSED)
        if self.branch is None:
            return inner
        if valid is None or self.null_branch is None:
            return [*encode_varints(self.branch), *inner]
        if max(self.branch, self.null_branch) < _SHORT_BRANCHES:
            numbers = np.where(valid, np.uint64(self.branch << 1), np.uint64(self.null_branch << 1))
            return [VarintField(numbers, 1, 1), *inner]
        return [*encode_varints(np.where(valid, self.branch, self.null_branch)), *inner]


@frozen
class AvroNull:
    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        return []


@frozen
class AvroBoolean:
    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        return [VarintField(read_flags(array).astype(np.uint64), 1, 1)]


@frozen
class AvroInteger:
    numbers: Numbers

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        return list(encode_varints(self.numbers.read(array, scope)))


@frozen
class AvroFloat:
    """`source` is the dtype in Arrow, `size` 4 or 8."""

    source: Any
    size: int

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        return [VarintField(read_float_words(array, self.source, self.size), self.size, self.size)]


@frozen
class AvroText:
    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        return AvroBytes().pieces(refuse_invalid_utf8(array, scope), scope)


@frozen
class AvroBytes:
    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        column = BytesColumn.from_arrow(array, "")
        return [*_length_fields(column), bytes_elements(column)]


@frozen
class AvroFixed:
    size: int

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        column = BytesColumn.from_arrow(array, "")
        scope.refuse(column.lengths != self.size, f"does not have {self.size} bytes, which is what the schema says")
        return [bytes_elements(column)]


@frozen
class AvroEnum:
    symbols: tuple[str, ...]

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        return list(encode_varints(symbol_numbers(array, {name: i for i, name in enumerate(self.symbols)}, scope)))


@frozen
class AvroDecimal:
    """`size` is that of a fixed; 0 for bytes."""

    precision: int
    scale: int
    size: int

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        halves = read_halves(array, self.scale, self.precision, scope)
        if self.size:
            return encode_fixed(halves, self.size)
        fields, counts = encode_shortest(halves)
        return [VarintField(counts.astype(np.uint64) << np.uint64(1), 1, 1), *fields]


@frozen
class AvroUuidText:
    """A string that is a UUID with hyphens: readers parse it."""

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        text = array.cast(pa.large_binary())
        is_uuid = pc.match_substring_regex(text, _UUID_TEXT).fill_null(True).to_numpy(zero_copy_only=False)
        scope.refuse(~is_uuid, "is no UUID")
        return AvroBytes().pieces(text, scope)


@frozen
class AvroUuid:
    """A fixed of 16 bytes from the text of a UUID."""

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        column = BytesColumn.from_arrow(array, "")
        contents = [parse_uuid(column.row(index)) for index in range(len(column))]
        scope.refuse(np.array([content is None for content in contents], np.bool_), "is no UUID")
        filled = [content or bytes(16) for content in contents]
        return [Elements(pa.array(filled, pa.binary()), 16 * len(filled))]


@frozen
class AvroItems:
    """An array, or a map: `slots` are those of the items, or of keys and values."""

    slots: tuple[AvroSlot, ...]
    names: tuple[str, ...]

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        offsets, children = read_lists(array)
        counts = np.diff(offsets)
        flat = self._join_items(children, offsets, scope)
        is_filled = counts > 0
        end = VarintField(0, is_filled.view(np.uint8), 1)
        return [*encode_varints(counts), flat.ranges(offsets), end]

    def _join_items(self, children: list[pa.Array], offsets: Array, scope: MisfitScope) -> Flat:
        pieces: list[Piece] = []
        for slot, child, name in zip(self.slots, children, self.names, strict=True):
            pieces += slot.pieces(child, scope.items(offsets, name))
        return join_pieces(pieces, len(children[0]))


@frozen
class AvroRecordField:
    """From the column at `index`; without one constant bytes in every row."""

    name: str
    index: int | None = None
    slot: AvroSlot | None = None
    content: bytes = b""


@frozen
class AvroRecord:
    fields: tuple[AvroRecordField, ...]

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        pieces: list[Piece] = []
        for field in self.fields:
            if field.slot is not None:
                pieces += field.slot.pieces(array.field(field.index), scope.field(field.name))
            elif field.content:
                pieces.append(constant_piece(field.content, len(array)))
        return pieces


def parse_uuid(text: bytes | None) -> bytes | None:
    if not _UUID.fullmatch(text or b""):
        return None
    return bytes.fromhex((text or b"").replace(b"-", b"").decode("ascii"))


def _length_fields(column: BytesColumn) -> list[VarintField]:
    if column.is_equal_length:
        return encode_varints(max(column.longest, 0))
    return encode_varints(np.maximum(column.lengths, 0) if column.has_nulls else column.lengths)
