"""Zigzag varints for whole arrays: their sizes, and their bytes, packed into words and extracted by a mask.

A varint with up to 56 bits of content fits one 64-bit word, lowest byte first. Several varints are combined by shifting
and or-ing their words, as long as they fit 8 bytes; `pack` does that for any number of fields and then drops the unused
bytes of all rows at once. Small values, which almost all are, come from tables.

The scalar reference is `scalar.encode_varint`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_sink.formats.records.scalar import encode_varint

Array = NDArray[Any]

WORD_BYTES = 8
# A 64-bit varint takes ten bytes: two words' worth of at most five bytes (35 bits) each.
SPLIT_BITS = 35


# What an array's own `min` and `max` call, without numpy's two Python functions in between.
smallest, largest = np.minimum.reduce, np.maximum.reduce


class VarintField(NamedTuple):
    """Some bytes of every row: `words` holds them, lowest first, `counts` their number. Scalars: all rows alike."""

    words: Array | int
    counts: Array | int
    count_max: int


def zigzag(values: Array) -> Array:
    signed = values.astype(np.int64, copy=False)
    doubled = signed << 1
    # Usually no number is negative, and checking that is cheaper than a shift.
    if smallest(signed, initial=0) < 0:
        doubled ^= signed >> 63
    return doubled.view(np.uint64)


def varint_size(value: int) -> int:
    """The size in bytes of one signed number's varint."""
    return (value ^ value >> 63).bit_length() // 7 + 1


def length_varint_sizes(lengths: Array) -> Array:
    """The size of each length's varint (-1 and up, below 2**31), from comparisons alone, as uint8."""
    longest = int(largest(lengths, initial=0))
    counts = np.ones(len(lengths), np.uint8)
    for bits in range(6, 31, 7):
        if longest >> bits == 0:
            break
        counts += (lengths >= (1 << bits)).view(np.uint8)
    return counts


def encode_varints(values: Array | int) -> list[VarintField]:
    """The varints of signed values as one field, or two if they may be longer than a word."""
    if isinstance(values, int):
        encoded = encode_varint(values)
        return [constant_field(encoded[start : start + 5]) for start in range(0, len(encoded), 5)]
    return encode_unsigned_varints(zigzag(values))


def encode_unsigned_varints(unsigned: Array) -> list[VarintField]:
    """The same for uint64 values without zigzag: lengths, tags and numbers of Protobuf."""
    highest = int(largest(unsigned, initial=0))
    if highest < len(_TABLE_WORDS):
        # numpy gathers with int64 indexes; any other type is converted first.
        index = unsigned.view(np.int64)
        return [VarintField(_TABLE_WORDS[index], _TABLE_COUNTS[index], _unsigned_varint_size(highest))]
    if highest >> 56 == 0:
        return [_encode_words(unsigned, highest)]
    low = unsigned & np.uint64((1 << SPLIT_BITS) - 1)
    high = unsigned >> np.uint64(SPLIT_BITS)
    # A value that continues in the second field has five full bytes in the first, each with the continuation bit.
    goes_on = high > 0
    first = _encode_words(low, (1 << SPLIT_BITS) - 1)
    first_words = np.where(goes_on, _spread(low, 5) | _MORE[5], first.words)
    second = _encode_words(high, highest >> SPLIT_BITS)
    return [
        VarintField(first_words, np.where(goes_on, np.uint8(5), first.counts), 5),
        VarintField(np.where(goes_on, second.words, np.uint64(0)), np.where(goes_on, second.counts, np.uint8(0)), 5),
    ]


def constant_field(content: bytes) -> VarintField:
    """The same bytes (at most 8) in every row."""
    return VarintField(int.from_bytes(content, "little"), len(content), len(content))


def pack(fields: Sequence[VarintField], row_count: int) -> tuple[Array, Array]:
    """Joins the fields of each row: all bytes, and where each row starts (one more than rows, int32)."""
    words, counts = _combine(fields, row_count)
    starts = np.zeros(row_count + 1, np.int32)
    if len(words) == 1:
        np.cumsum(counts[0], out=starts[1:])
        return words[0].view(np.uint8)[_CUT[counts[0]].view(np.bool_)], starts
    np.cumsum(sum(count.astype(np.int32) for count in counts), out=starts[1:])
    mask = _CUT[np.column_stack(counts).reshape(-1)].view(np.bool_)
    return np.column_stack(words).reshape(-1).view(np.uint8)[mask], starts


def _combine(fields: Sequence[VarintField], row_count: int) -> tuple[list[Array], list[Array]]:
    """Combines as many adjacent fields into one word as surely fit. Returns arrays of one element per row."""
    words: list[Array] = []
    counts: list[Array] = []
    word: Array | int = 0
    count: Array | int = 0
    count_max = 0
    for field in fields:
        if count_max + field.count_max > WORD_BYTES:
            words.append(_as_array(word, row_count, np.uint64))
            counts.append(_as_array(count, row_count, np.uint8))
            word, count, count_max = 0, 0, 0
        word = word | _shift_left(field.words, count)
        count = count + field.counts
        count_max += field.count_max
    words.append(_as_array(word, row_count, np.uint64))
    counts.append(_as_array(count, row_count, np.uint8))
    return words, counts


def _shift_left(words: Array | int, counts: Array | int) -> Array | int:
    if isinstance(words, int):
        if words == 0:
            return 0
        if isinstance(counts, int):
            return words << (8 * counts)
        words = np.full(1, words, np.uint64)
    bits = np.uint64(8 * counts) if isinstance(counts, int) else counts.astype(np.uint64) << np.uint64(3)
    shifted: Array = words << bits
    return shifted


def _as_array(value: Array | int, row_count: int, dtype: Any) -> Array:
    return np.full(row_count, value, dtype) if isinstance(value, int) else value.astype(dtype, copy=False)


def _unsigned_varint_size(unsigned: int) -> int:
    return max(1, -(-unsigned.bit_length() // 7))


def _spread(unsigned: Array, byte_count: int) -> Array:
    """Moves each group of 7 bits to the low end of its byte."""
    words: Array = unsigned & np.uint64(0x7F)
    for index in range(1, byte_count):
        words |= (unsigned & np.uint64(0x7F << (7 * index))) << np.uint64(index)
    return words


def _encode_words(unsigned: Array, highest: int) -> VarintField:
    count_max = _unsigned_varint_size(highest)
    counts = np.ones(len(unsigned), np.uint8)
    for bits in range(7, 7 * count_max, 7):
        counts += unsigned >= np.uint64(1 << bits)
    # All bytes but the last of a varint have the continuation bit.
    return VarintField(_spread(unsigned, count_max) | _MORE[counts - np.uint8(1)], counts, count_max)


_MORE = np.array([int.from_bytes(b"\x80" * count, "little") for count in range(9)], np.uint64)
# Which of a word's 8 bytes are used, by their count: 8 booleans as one number, since gathering numbers is fast.
_CUT = (np.arange(WORD_BYTES)[None, :] < np.arange(WORD_BYTES + 1)[:, None]).view(np.uint64).reshape(-1)
# Zigzag values below 2**15: lengths up to 16 KiB, and offset deltas of that many records.
_TABLE = _encode_words(np.arange(1 << 15, dtype=np.uint64), (1 << 15) - 1)
_TABLE_WORDS: Array = np.asarray(_TABLE.words)
_TABLE_COUNTS: Array = np.asarray(_TABLE.counts)


def binary_array(data: pa.Buffer, starts: Array) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(starts) - 1, [None, pa.py_buffer(starts), data])


def bytes_array(contents: Sequence[bytes]) -> pa.Array:
    """Not `pa.array`, which imports pandas, if that is installed, to see whether it was given one of its objects: half
    a second in each new worker of Spark."""
    starts = np.zeros(len(contents) + 1, np.int32)
    np.cumsum([len(content) for content in contents], out=starts[1:])
    return binary_array(pa.py_buffer(b"".join(contents)), starts)


def indices_array(indices: Array) -> pa.Array:
    """Not `pa.array` either."""
    return pa.Array.from_buffers(
        pa.int64(), len(indices), [None, pa.py_buffer(np.ascontiguousarray(indices, np.int64))]
    )
