"""A node encodes arrays of one type within a schema: it returns the bytes of every element, as pieces. Nulls are left
to the owner of a node, which calls it by `encode_present`; in a node their bytes are undefined.

Each format has its own nodes. They are functions; what they need to know of the schema is bound with `partial`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from kafka_sink.formats.records.arrays import read_numbers, valid_mask
from kafka_sink.formats.records.bytes_column import BytesColumn, to_plain
from kafka_sink.formats.records.pieces import Piece, mask_pieces
from kafka_sink.formats.records.varint import Array
from kafka_sink.formats.schemas.misfit import MisfitScope
from kafka_sink.frozen import frozen

UNITS_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_MS_PER_DAY = 86_400_000


ValueNode = Callable[[pa.Array, MisfitScope], list[Piece]]


def encode_null(array: pa.Array, scope: MisfitScope) -> list[Piece]:
    return []


def encode_present(
    node: ValueNode, array: pa.Array, scope: MisfitScope, null_refused: str | None = None
) -> tuple[list[Piece], Array | None]:
    """The elements without nulls, and which those are (None: all). `null_refused`: a null does not fit, and why."""
    array = to_plain(array)
    valid = valid_mask(array)
    if valid is not None and null_refused is not None:
        scope.refuse(~valid, null_refused)
    return mask_pieces(node(array, scope.where(valid)), valid), valid


@frozen
class Numbers:
    """How whole numbers are read from an array: multiplied or divided (rounding down) to change their unit; outside of
    [low, high] they do not fit."""

    multiply: int = 1
    divide: int = 1
    low: int | None = None
    high: int | None = None

    def read(self, array: pa.Array, scope: MisfitScope) -> Array:
        """As 64-bit numbers; those that do not fit are 0 and misfits."""
        raw = read_numbers(array)
        if raw.dtype == np.uint64:
            scope.refuse(raw > np.uint64(2**63 - 1), "is above what 64 bits with a sign can hold")
        numbers: Array = raw.astype(np.int64)
        if self.divide > 1:
            return numbers // self.divide
        if self.multiply > 1:
            limit = (2**63 - 1) // self.multiply
            numbers = self._zero_misfits(numbers, (numbers > limit) | (numbers < -limit), scope) * self.multiply
        if self.low is not None and self.high is not None and len(numbers):
            is_outside = (numbers < self.low) | (numbers > self.high)
            numbers = self._zero_misfits(numbers, is_outside, scope)
        return numbers

    def _zero_misfits(self, numbers: Array, is_bad: Array, scope: MisfitScope) -> Array:
        if not is_bad.any():
            return numbers
        scope.refuse(is_bad, "is out of the range of its type in the schema")
        return np.where(is_bad, 0, numbers)


def integers(kind: pa.DataType, bits: int = 64) -> Numbers | None:
    """A column of whole numbers for a signed type with `bits`. None: it has no such numbers."""
    if not pa.types.is_integer(kind):
        return None
    has_all = bits == 64 or kind.bit_width < bits or kind == pa.int32()
    return Numbers() if has_all else Numbers(low=-(2 ** (bits - 1)), high=2 ** (bits - 1) - 1)


def is_float(kind: pa.DataType, size: int = 8) -> bool:
    """Which fits a float of `size` bytes."""
    return bool(pa.types.is_float32(kind) or (pa.types.is_float64(kind) and size == 8))


def timestamps(kind: pa.DataType, unit: str) -> Numbers:
    """A timestamp, a duration or a time of day in another unit."""
    has, wants = UNITS_PER_SECOND[kind.unit], UNITS_PER_SECOND[unit]
    return Numbers(max(1, wants // has), max(1, has // wants))


def days(kind: pa.DataType) -> Numbers:
    return Numbers() if pa.types.is_date32(kind) else Numbers(divide=_MS_PER_DAY)


def refuse_invalid_utf8(array: pa.Array, scope: MisfitScope) -> pa.Array:
    """The same array, with U+FFFD for bytes that are not UTF-8: their rows are reported as misfits, and a dead letter
    still shows the rest of the text. Spark's strings need not be UTF-8, and readers of all formats may fail on them."""
    try:
        array.validate(full=True)
    except pa.ArrowException:
        contents = array.cast(pa.large_binary()).to_pylist()
        texts = [None if content is None else content.decode(errors="replace").encode() for content in contents]
        is_bad = np.array([content != text for content, text in zip(contents, texts, strict=True)], np.bool_)
        scope.refuse(is_bad, "is not UTF-8")
        return pa.array(texts, pa.large_binary())
    return array


def symbol_numbers(array: pa.Array, numbers: Mapping[str, int], scope: MisfitScope) -> Array:
    """Maps texts by a table; one that is not in it is 0 and a misfit."""
    encoded = BytesColumn.from_arrow(array).elements().dictionary_encode()
    known = [numbers.get(symbol.decode(errors="replace")) for symbol in encoded.dictionary.to_pylist()]
    indices = encoded.indices.to_numpy()
    is_unknown = np.array([number is None for number in known], np.bool_)
    if is_unknown.any():
        scope.refuse(is_unknown[indices], "is no symbol of its enum in the schema")
    found: Array = np.array([number or 0 for number in known], np.int64)[indices]
    return found
