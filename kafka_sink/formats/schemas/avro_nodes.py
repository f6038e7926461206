"""Avro's binary encoding, array by array. The scalar reference is tests/property/slow_avro.py.

Numbers are zigzag varints, floats their eight or four bytes; strings and lists have their length first. A list is one
block: the count, the items, and 0 for the end; an empty one is only the 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.formats.records.arrays import read_flags, read_float_words, read_lists
from kafka_sink.formats.records.bytes_column import BytesColumn
from kafka_sink.formats.records.pieces import Elements, Piece, bytes_elements, constant_piece, join_pieces
from kafka_sink.formats.records.varint import VarintField, encode_varints
from kafka_sink.formats.schemas.decimals import encode_fixed_decimal, encode_shortest_decimal, read_halves
from kafka_sink.formats.schemas.misfit import MisfitScope
from kafka_sink.formats.schemas.node import Numbers, ValueNode, encode_present, refuse_invalid_utf8, symbol_numbers
from kafka_sink.frozen import frozen

NULL_REFUSED = "is null, and the schema has no null there"
# Branches of a union whose index is one byte.
_SHORT_BRANCHES = 64
_HEX = "[0-9a-fA-F]"
_UUID_TEXT = f"^{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}$"
# A text for 16 bytes may have no hyphens.
_UUID = re.compile(f"{_HEX}{{8}}(-?){_HEX}{{4}}\\1{_HEX}{{4}}\\1{_HEX}{{4}}\\1{_HEX}{{12}}".encode())


def encode_slot(
    node: ValueNode, branch: int | None, null_branch: int | None, array: pa.Array, scope: MisfitScope
) -> list[Piece]:
    """A value in the branch of the enclosing union, if there is one. Without a null branch a null does not fit."""
    inner, valid = encode_present(node, array, scope, NULL_REFUSED if null_branch is None else None)
    if branch is None:
        return inner
    if valid is None or null_branch is None:
        return [*encode_varints(branch), *inner]
    if max(branch, null_branch) < _SHORT_BRANCHES:
        numbers = np.where(valid, np.uint64(branch << 1), np.uint64(null_branch << 1))
        return [VarintField(numbers, 1, 1), *inner]
    return [*encode_varints(np.where(valid, branch, null_branch)), *inner]


def encode_boolean(array: pa.Array, scope: MisfitScope) -> list[Piece]:
    return [VarintField(read_flags(array).astype(np.uint64), 1, 1)]


def encode_integer(numbers: Numbers, array: pa.Array, scope: MisfitScope) -> list[Piece]:
    return list(encode_varints(numbers.read(array, scope)))


def encode_float(size: int, array: pa.Array, scope: MisfitScope) -> list[Piece]:
    """`size` is 4 or 8."""
    return [VarintField(read_float_words(array, size), size, size)]


def encode_text(array: pa.Array, scope: MisfitScope) -> list[Piece]:
    return encode_binary(refuse_invalid_utf8(array, scope), scope)


def encode_binary(array: pa.Array, scope: MisfitScope) -> list[Piece]:
    column = BytesColumn.from_arrow(array)
    if column.is_equal_length:
        sizes = encode_varints(max(column.longest, 0))
    else:
        sizes = encode_varints(np.maximum(column.lengths, 0) if column.has_nulls else column.lengths)
    return [*sizes, bytes_elements(column)]


def encode_fixed(size: int, array: pa.Array, scope: MisfitScope) -> list[Piece]:
    column = BytesColumn.from_arrow(array)
    scope.refuse(column.lengths != size, f"does not have {size} bytes, which is what the schema says")
    return [bytes_elements(column)]


def encode_enum(numbers: Mapping[str, int], array: pa.Array, scope: MisfitScope) -> list[Piece]:
    return list(encode_varints(symbol_numbers(array, numbers, scope)))


def encode_decimal(precision: int, scale: int, size: int, array: pa.Array, scope: MisfitScope) -> list[Piece]:
    """`size` is that of a fixed; 0 for bytes."""
    halves = read_halves(array, scale, precision, scope)
    if size:
        return encode_fixed_decimal(halves, size)
    fields, counts = encode_shortest_decimal(halves)
    return [VarintField(counts.astype(np.uint64) << np.uint64(1), 1, 1), *fields]


def encode_uuid_text(array: pa.Array, scope: MisfitScope) -> list[Piece]:
    """A string that is a UUID with hyphens: readers parse it."""
    text = array.cast(pa.large_binary())
    is_uuid = pc.match_substring_regex(text, _UUID_TEXT).fill_null(True).to_numpy(zero_copy_only=False)
    scope.refuse(~is_uuid, "is no UUID")
    return encode_binary(text, scope)


def encode_uuid(array: pa.Array, scope: MisfitScope) -> list[Piece]:
    """A fixed of 16 bytes from the text of a UUID."""
    column = BytesColumn.from_arrow(array)
    contents = [_parse_uuid(column.row(index) or b"") for index in range(len(column))]
    scope.refuse(np.array([content is None for content in contents], np.bool_), "is no UUID")
    filled = [content or bytes(16) for content in contents]
    return [Elements(pa.array(filled, pa.binary()), 16 * len(filled))]


def _parse_uuid(text: bytes) -> bytes | None:
    return bytes.fromhex(text.replace(b"-", b"").decode("ascii")) if _UUID.fullmatch(text) else None


def encode_items(parts: tuple[tuple[str, ValueNode], ...], array: pa.Array, scope: MisfitScope) -> list[Piece]:
    """An array, or a map: `parts` are the items, or keys and values, each with its name in paths."""
    offsets, children = read_lists(array)
    pieces: list[Piece] = []
    for (name, node), child in zip(parts, children, strict=True):
        pieces += node(child, scope.items(offsets, name))
    flat = join_pieces(pieces, len(children[0]))
    counts = np.diff(offsets)
    end = VarintField(0, (counts > 0).view(np.uint8), 1)
    return [*encode_varints(counts), flat.elements(offsets), end]


@frozen
class AvroMember:
    """A field of a record, from the column at `index`; without a node the same `content` in every row."""

    name: str
    index: int = 0
    node: ValueNode | None = None
    content: bytes = b""


def encode_record(members: tuple[AvroMember, ...], array: pa.Array, scope: MisfitScope) -> list[Piece]:
    pieces: list[Piece] = []
    for member in members:
        if member.node is not None:
            pieces += member.node(array.field(member.index), scope.field(member.name))
        elif member.content:
            pieces.append(constant_piece(member.content, len(array)))
    return pieces
