"""The pieces of each row, from left to right, and joining those of all rows into one block of bytes.

A piece holds some bytes of every row. Numbers, lengths and tags are `VarintField`s: at most 8 bytes a row, packed into
words. Everything longer is `Elements`: strings in Arrow, values that are encoded already (the items of a list are
contiguous, so a list is a range of them), and constants.

`join_pieces` packs adjacent fields, and then one `take` with an interleaved index puts all elements in row order. That
is how whole records are made (`encoder`), their headers, and the values that a schema describes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kafka_sink.formats.records.arrays import read_bytes, take_elements
from kafka_sink.formats.records.bytes_column import BYTES_MAX, BytesColumn, TooManyBytes
from kafka_sink.formats.records.varint import (
    WORD_BYTES,
    Array,
    VarintField,
    binary_array,
    bytes_array,
    constant_field,
    encode_varints,
    largest,
    pack,
)
from kafka_sink.frozen import frozen

LENGTH_BYTES_MAX = 5
_EMPTY = bytes_array([b""])
# Lengths from -1 on that have their varint in a table.
_LENGTHS_COUNT = 1 << 13


@frozen
class Elements:
    """Row i is the element `indices[i]`, or without indices the element i, or always the element 0 of a constant; empty
    where `present` is false. `bytes_max` is an upper bound for all rows together."""

    array: pa.Array
    bytes_max: int
    indices: Array | None = None
    present: Array | None = None
    is_constant: bool = False


@frozen
class Flat:
    """Bytes of all rows, and where each starts (one more than rows)."""

    data: Array
    starts: Array

    @property
    def lengths(self) -> Array:
        lengths: Array = np.diff(self.starts)
        return lengths

    def elements(self, offsets: Array | None = None) -> Elements:
        """Each row; or the rows [offsets[i], offsets[i + 1]) as one element."""
        starts = np.ascontiguousarray(self.starts if offsets is None else self.starts[offsets])
        return Elements(binary_array(pa.py_buffer(self.data), starts), int(self.starts[-1]))


Piece = VarintField | Elements


def constant_elements(content: bytes, row_count: int) -> Elements:
    """The same bytes in every row."""
    return Elements(bytes_array([content]), len(content) * row_count, is_constant=True)


def constant_piece(content: bytes, row_count: int) -> Piece:
    """The same bytes in every row, as a field."""
    return constant_field(content) if len(content) <= WORD_BYTES else constant_elements(content, row_count)


def bytes_elements(column: BytesColumn, order: Array | None = None) -> Elements:
    """The bytes in Arrow, perhaps in another order; empty for a null."""
    elements = column.elements()
    present = None
    if column.has_nulls:
        present = (column.lengths if order is None else column.lengths[order]) >= 0
    return Elements(elements, int(column.starts[-1]) - int(column.starts[0]), order, present)


def length_elements(lengths: Array, order: Array | None = None) -> Elements:
    """Varints of lengths (-1 and up), as elements of a small array of the different ones: they need no packing."""
    longest = int(largest(lengths, initial=-1))
    if longest < _LENGTHS_COUNT - 1:
        table, indices = _LENGTH_TABLE.slice(0, longest + 2), lengths + 1
    else:
        different, indices = np.unique(lengths, return_inverse=True)
        table = _encode_lengths(different)
    return Elements(table, LENGTH_BYTES_MAX * len(indices), indices if order is None else indices[order])


def _encode_lengths(lengths: Array) -> pa.Array:
    flat, starts = pack(encode_varints(lengths), len(lengths))
    return binary_array(pa.py_buffer(flat), starts)


_LENGTH_TABLE = _encode_lengths(np.arange(-1, _LENGTHS_COUNT - 1))


def choice(contents: Sequence[bytes], indices: Array) -> Elements:
    """One of a few texts in each row."""
    longest = max(len(content) for content in contents)
    return Elements(bytes_array(contents), longest * len(indices), indices.astype(np.int32))


def mask_pieces(pieces: Sequence[Piece], present: Array | None) -> list[Piece]:
    """No bytes in the rows that are not present."""
    if present is None:
        return list(pieces)
    return [_mask_piece(piece, present) for piece in pieces]


def _mask_piece(piece: Piece, present: Array) -> Piece:
    if isinstance(piece, VarintField):
        words, counts = np.asarray(piece.words, np.uint64), np.asarray(piece.counts, np.uint8)
        masked = np.multiply(words, present, dtype=np.uint64), np.multiply(counts, present, dtype=np.uint8)
        return VarintField(*masked, piece.count_max)
    both = present if piece.present is None else piece.present & present
    return Elements(piece.array, piece.bytes_max, piece.indices, both, piece.is_constant)


def join_pieces(pieces: Sequence[Piece], row_count: int) -> Flat:
    """Raises `TooManyBytes` if the rows may not fit a block."""
    columns = _merge_neighbours(pieces, row_count)
    if not columns:
        return Flat(np.empty(0, np.uint8), np.zeros(row_count + 1, np.int32))
    first = columns[0]
    if sum([column.bytes_max for column in columns]) > BYTES_MAX:
        raise TooManyBytes
    if len(columns) == 1 and first.indices is None and first.present is None and not first.is_constant:
        return Flat(*read_bytes(first.array))
    parts = []
    interleaved = np.empty((row_count, len(columns)), np.int32)
    used = 0
    rows = np.arange(row_count, dtype=np.int32)
    for column, places in zip(columns, interleaved.T, strict=True):
        parts.append(column.array)
        places[:] = used if column.is_constant else used + (rows if column.indices is None else column.indices)
        used += len(column.array)
        if column.present is not None:
            parts.append(_EMPTY)
            places[~column.present] = used
            used += 1
    indices = pa.Array.from_buffers(pa.int32(), interleaved.size, [None, pa.py_buffer(interleaved)])
    data, starts = read_bytes(take_elements(pa.concat_arrays(parts), indices))
    return Flat(data, starts[:: len(columns)])


def _merge_neighbours(pieces: Sequence[Piece], row_count: int) -> list[Elements]:
    """Merges adjacent fields into one column of elements, adjacent constants into one constant."""
    columns: list[Elements] = []
    fields: list[VarintField] = []
    fields_max = 0
    is_after_constant = False
    for piece in (*pieces, None):
        if isinstance(piece, VarintField):
            fields.append(piece)
            fields_max += piece.count_max
            continue
        if fields:
            if fields_max * row_count > BYTES_MAX:
                raise TooManyBytes
            flat, starts = pack(fields, row_count)
            columns.append(Elements(binary_array(pa.py_buffer(flat), starts), len(flat)))
            fields, fields_max, is_after_constant = [], 0, False
        if piece is None:
            break
        is_constant = piece.is_constant and piece.present is None
        if is_constant and is_after_constant:
            columns[-1] = constant_elements(columns[-1].array[0].as_py() + piece.array[0].as_py(), row_count)
        else:
            columns.append(piece)
        is_after_constant = is_constant
    return columns
