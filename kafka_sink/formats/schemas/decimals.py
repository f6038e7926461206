"""Decimals: their unscaled numbers as two 64-bit halves, and their big-endian bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_sink.formats.records.arrays import read_numbers, valid_mask
from kafka_sink.formats.records.pieces import Piece, choice
from kafka_sink.formats.records.varint import Array, VarintField
from kafka_sink.formats.schemas.misfit import MisfitScope
from kafka_sink.frozen import frozen

PRECISION_MAX = 38


@frozen
class Halves:
    """Signed 128-bit numbers: `high` signed, `low` unsigned."""

    low: Array
    high: Array

    @property
    def is_narrow(self) -> Array:
        """Those that fit 64 bits."""
        narrow: Array = self.high == (self.low.view(np.int64) >> 63)
        return narrow

    def zero(self, which: Array) -> Halves:
        return Halves(np.where(which, np.uint64(0), self.low), np.where(which, 0, self.high))

    def is_above(self, limit: int) -> Array:
        """Those whose absolute value is above `limit`."""
        high, low = limit >> 64, np.uint64(limit & (2**64 - 1))
        above: Array = (self.high > high) | ((self.high == high) & (self.low > low))
        high, low = -limit >> 64, np.uint64(-limit & (2**64 - 1))
        below: Array = (self.high < high) | ((self.high == high) & (self.low < low))
        return above | below


def read_halves(array: pa.Array, scale: int, precision: int, scope: MisfitScope) -> Halves:
    """The unscaled numbers at a scale not below their own; those that exceed `precision` are 0 and a misfit."""
    if array.type.bit_width != 128:
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    if scale > array.type.scale:
        array = _rescale(array, scale, precision, scope)
    halves = _split(array)
    if array.type.precision <= precision:
        return halves
    is_bad = halves.is_above(10**precision - 1)
    if not is_bad.any():
        return halves
    scope.refuse(is_bad, _misfit_text(precision, scale))
    return halves.zero(is_bad)


def _split(array: pa.Array) -> Halves:
    pairs = read_numbers(array, np.uint64, 2)
    return Halves(np.ascontiguousarray(pairs[0::2]), np.ascontiguousarray(pairs[1::2]).view(np.int64))


def _rescale(array: pa.Array, scale: int, precision: int, scope: MisfitScope) -> pa.Array:
    halves = _split(array)
    is_bad = halves.is_above((10**PRECISION_MAX - 1) // 10 ** (scale - array.type.scale))
    valid = valid_mask(array)
    if valid is not None:
        # The value under a null is undefined.
        is_bad |= ~valid
    if is_bad.any():
        scope.refuse(is_bad, _misfit_text(precision, scale))
        kept = halves.zero(is_bad)
        pairs = np.column_stack((kept.low, kept.high.view(np.uint64)))
        array = pa.Array.from_buffers(array.type, len(array), [None, pa.py_buffer(pairs)])
    return array.cast(pa.decimal128(PRECISION_MAX, scale))


def _misfit_text(precision: int, scale: int) -> str:
    return f"does not fit into decimal({precision},{scale}), which is what the schema says"


def twos_complement_sizes(numbers: Array) -> Array:
    """How many bytes a two's complement number needs, at least 1."""
    magnitudes = numbers ^ (numbers >> 63)
    counts = np.ones(len(numbers), np.uint8)
    largest = int(magnitudes.max(initial=0))
    for bits in range(7, 63, 8):
        if largest >> bits == 0:
            break
        counts += (magnitudes >= (1 << bits)).view(np.uint8)
    return counts


def encode_shortest_decimal(halves: Halves) -> tuple[list[VarintField], Array]:
    """Two's complement, highest byte first, the minimal number of bytes; and their sizes."""
    narrow = halves.is_narrow
    low_signed = halves.low.view(np.int64)
    if narrow.all():
        counts = twos_complement_sizes(low_signed)
        return [VarintField(_to_big_endian(halves.low, counts), counts, int(counts.max(initial=1)))], counts
    high_counts = np.where(narrow, np.uint8(0), twos_complement_sizes(halves.high))
    low_counts = np.where(narrow, twos_complement_sizes(low_signed), np.uint8(8))
    high = _to_big_endian(halves.high.view(np.uint64), np.maximum(high_counts, 1))
    fields = [
        VarintField(np.where(narrow, np.uint64(0), high), high_counts, 8),
        VarintField(_to_big_endian(halves.low, low_counts), low_counts, 8),
    ]
    return fields, high_counts + low_counts


def encode_fixed_decimal(halves: Halves, size: int) -> list[Piece]:
    """Two's complement, highest byte first, in `size` bytes."""
    count = len(halves.low)
    if size <= 8:
        return [VarintField(_to_big_endian(halves.low, np.full(count, size, np.uint8)), size, size)]
    inner = min(size - 8, 8)
    high = _to_big_endian(halves.high.view(np.uint64), np.full(count, inner, np.uint8))
    fields: list[Piece] = [VarintField(high, inner, inner), VarintField(halves.low.byteswap(), 8, 8)]
    if size > 16:
        signs = (halves.high < 0).view(np.uint8)
        fields.insert(0, choice([b"\x00" * (size - 16), b"\xff" * (size - 16)], signs))
    return fields


def _to_big_endian(words: Array, counts: Array) -> Array:
    """The lowest `counts` bytes (1 to 8) of each word, highest first, at the low end."""
    moved: Array = (words << ((np.uint64(8) - counts.astype(np.uint64)) << np.uint64(3))).byteswap()
    return moved
