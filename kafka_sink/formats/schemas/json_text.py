"""Texts of JSON values, by column: escaped strings, base64, and dates and times (2024-02-29T12:00:00.123Z) without a
Python object per value."""

from __future__ import annotations

import base64
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.formats.records.bytes_column import BYTES_MAX, BytesColumn, TooManyBytes
from kafka_sink.formats.records.pieces import (
    Elements,
    Piece,
    bytes_elements,
    choice,
    constant_elements,
)
from kafka_sink.formats.records.varint import Array, VarintField, binary_array

US_PER_DAY = 86_400_000_000
# Days close together are looked up in a cached table of some years; others are formatted once each.
_BLOCK_DAYS, _BLOCKS_MAX = 4096, 4
# The year of an int64 number of days has up to 17 digits.
_LONGEST_DATE = 32
_SHORT = {0x08: b"\\b", 0x09: b"\\t", 0x0A: b"\\n", 0x0C: b"\\f", 0x0D: b"\\r", 0x22: b'\\"', 0x5C: b"\\\\"}
_LONGEST = 6


def _make_escape_table() -> tuple[Array, Array]:
    """For each byte: the size and bytes of its escaped form."""
    texts = [
        _SHORT[byte] if byte in _SHORT else b"\\u%04X" % byte if byte < 0x20 else bytes([byte]) for byte in range(256)
    ]
    table = np.frombuffer(b"".join(each.ljust(_LONGEST, b"\0") for each in texts), np.uint8)
    return np.array([len(each) for each in texts], np.uint8), table.reshape(256, _LONGEST)


_COUNTS, _TEXTS = _make_escape_table()


def escape_strings(column: BytesColumn) -> Elements:
    """The text between the quotes; empty for a null."""
    first, last = int(column.starts[0]), int(column.starts[-1])
    data = column.data[first:last]
    counts = _COUNTS[data]
    if int(counts.max(initial=1)) == 1:
        return bytes_elements(column)
    ends = np.zeros(len(data) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    if int(ends[-1]) > BYTES_MAX:
        raise TooManyBytes
    content = np.repeat(data, counts)
    special = np.flatnonzero(counts > 1)
    for place in range(_LONGEST):
        longer = special[counts[special] > place]
        content[ends[longer] + place] = _TEXTS[data[longer], place]
    starts = ends[column.starts - first].astype(np.int32)
    present = column.lengths >= 0 if column.has_nulls else None
    return Elements(binary_array(pa.py_buffer(content), starts), len(content), present=present)


def encode_base64(column: BytesColumn) -> Elements:
    contents = [base64.b64encode(column.row(index) or b"") for index in range(len(column))]
    size = sum(map(len, contents))
    if size > BYTES_MAX:
        raise TooManyBytes
    return Elements(pa.array(contents, pa.binary()), size)


# ---- dates and times -------------------------------------------------------------------------------------------------


def _digit_words(count: int) -> Array:
    """The texts of 0 up to 10**count as words, lowest byte first."""
    texts = [f"{number:0{count}d}".encode() for number in range(10**count)]
    return np.array([int.from_bytes(each, "little") for each in texts], np.uint64)


_TWO, _THREE = _digit_words(2), _digit_words(3)


def format_dates(days: Array) -> list[Piece]:
    if not len(days):
        return []
    first, last = int(days.min()) // _BLOCK_DAYS, int(days.max()) // _BLOCK_DAYS
    if last - first < _BLOCKS_MAX:
        texts, indices = _format_blocks(first, last), days - first * _BLOCK_DAYS
    else:
        known, indices = np.unique(days, return_inverse=True)
        texts = _format_each(known)
    return [Elements(texts, _LONGEST_DATE * len(days), indices)]


@lru_cache(maxsize=16)
def _format_blocks(first: int, last: int) -> pa.Array:
    return _format_each(np.arange(first * _BLOCK_DAYS, (last + 1) * _BLOCK_DAYS))


def _format_each(days: Array) -> pa.Array:
    texts = np.datetime_as_string(days.astype("datetime64[D]")).tolist()
    return pa.array([_pad_year(text).encode() for text in texts], pa.binary())


def _pad_year(date: str) -> str:
    """ISO 8601, as Java reads it: at least four digits, and a sign before 0 and after 9999. numpy counts the sign as a
    digit and writes no plus."""
    if len(date) == 10 and date[0] != "-":
        return date
    year = int(date[:-6])
    return f"{year:+05d}{date[-6:]}"


def format_times(array: pa.Array) -> Elements:
    """Times of day. The fraction ends with its last digit that is not 0."""
    texts = array.cast(pa.string())
    if array.type.unit != "s":
        texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
    return bytes_elements(BytesColumn.from_arrow(texts))


def format_intervals(microseconds: Array) -> list[Piece]:
    """From day to second, whichever of these the type has: Arrow does not know."""
    count = len(microseconds)
    # The absolute value of the lowest number fits only without a sign.
    sizes = np.abs(microseconds).view(np.uint64)
    days, rest = np.divmod(sizes, np.uint64(US_PER_DAY))
    times = pa.Array.from_buffers(pa.time64("us"), count, [None, pa.py_buffer(rest.view(np.int64))])
    return [
        constant_elements(b"INTERVAL '", count),
        choice([b"", b"-"], (microseconds < 0).view(np.uint8)),
        bytes_elements(BytesColumn.from_arrow(pa.array(days).cast(pa.string()))),
        constant_elements(b" ", count),
        format_times(times),
        constant_elements(b"' DAY TO SECOND", count),
    ]


def format_timestamps(ending: bytes, microseconds: Array) -> list[Piece]:
    """Always with milliseconds, and with microseconds in rows where they are not 0. `ending`: empty without a zone."""
    days = microseconds // US_PER_DAY
    rest = (microseconds - days * US_PER_DAY).view(np.int64)
    seconds, fraction = np.divmod(rest, 1_000_000)
    minutes, second = np.divmod(seconds, 60)
    hour, minute = np.divmod(minutes, 60)
    milli, micro = np.divmod(fraction, 1000)
    clock = _shift(_TWO[hour], 1) | _shift(_TWO[minute], 4) | np.uint64(_to_word(b"T\0\0:\0\0:"))
    tail = _TWO[second] | _shift(_THREE[milli], 3) | np.uint64(_to_word(b"\0\0."))
    has_micro = micro > 0
    micro_words = np.where(has_micro, _THREE[micro], np.uint64(0))
    return [
        *format_dates(days),
        VarintField(clock, 7, 7),
        VarintField(tail, 6, 6),
        VarintField(micro_words, np.where(has_micro, np.uint8(3), np.uint8(0)), 3),
        constant_elements(ending, len(days)),
    ]


def _to_word(content: bytes) -> int:
    return int.from_bytes(content, "little")


def _shift(words: Array, place: int) -> Array:
    moved: Array = words << np.uint64(8 * place)
    return moved
