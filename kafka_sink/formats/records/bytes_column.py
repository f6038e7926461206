"""A column of nullable byte strings as flat arrays: one block of bytes, start and length of each row.

All Arrow types for a key, a value, a header part or a topic are converted to this form, so that the rest of the package
does not deal with Arrow types. The bytes that Arrow may have under a null stay in the block and are never read: the
length of a null is -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa

from kafka_sink.errors import DataError
from kafka_sink.errors.table.writes import COLUMN_TYPE
from kafka_sink.formats.records.arrays import OFFSET_TYPES, read_bytes, take_elements, valid_mask
from kafka_sink.formats.records.varint import Array, binary_array, indices_array, largest, length_varint_sizes, smallest
from kafka_sink.frozen import frozen

# Offsets have 32 bits.
BYTES_MAX = 2**31 - 1
STRING_TYPES = "string, large_string or (from pyarrow 18 on) string_view"
BYTES_TYPES = f"binary, large_binary, binary_view, fixed_size_binary, {STRING_TYPES}"
_TEXT_TYPES = (pa.string(), pa.large_string())
_BINARY_TYPES = (pa.binary(), pa.large_binary())


class TooManyBytes(DataError):
    def __init__(self) -> None:
        super().__init__("a column of 2 GiB and more cannot be encoded at once: send fewer rows")


@frozen
class BytesColumn:
    """`starts` has one element more than rows. `shortest` and `longest` are over `lengths`, in which -1 is null."""

    data: Array
    starts: Array
    lengths: Array
    shortest: int
    longest: int

    @classmethod
    def of(cls, data: Array, starts: Array, lengths: Array) -> BytesColumn:
        return cls(data, starts, lengths, int(smallest(lengths, initial=2**31 - 1)), int(largest(lengths, initial=-1)))

    @classmethod
    def from_arrow(cls, array: pa.Array) -> BytesColumn:
        """The type is one that `check_bytes_type` accepts."""
        array = to_plain(array)
        if array.type not in OFFSET_TYPES:
            array = array.cast(pa.large_binary())
        data, starts = read_bytes(array)
        lengths = starts[1:] - starts[:-1]
        valid = valid_mask(array)
        if valid is not None:
            lengths[~valid] = -1
        return cls.of(data, starts, lengths)

    @classmethod
    def concat(cls, columns: Sequence[BytesColumn]) -> BytesColumn:
        if len(columns) == 1:
            return columns[0]
        blocks = [column.data[column.starts[0] : column.starts[-1]] for column in columns]
        ends = np.cumsum([len(block) for block in blocks])
        # Widened first: before NumPy 2 the sum of an array and a number has the type of the array.
        starts = [
            column.starts[:-1].astype(np.int64) + (end - len(block) - int(column.starts[0]))
            for column, block, end in zip(columns, blocks, ends, strict=True)
        ]
        return cls.of(
            np.concatenate(blocks),
            np.concatenate([*starts, ends[-1:]]),
            np.concatenate([column.lengths for column in columns]),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def has_nulls(self) -> bool:
        return self.shortest < 0

    @property
    def is_equal_length(self) -> bool:
        return self.shortest == self.longest

    def slice(self, start: int, stop: int) -> BytesColumn:
        return BytesColumn.of(self.data, self.starts[start : stop + 1], self.lengths[start:stop])

    def take(self, rows: Array) -> BytesColumn:
        starts, data = pa.py_buffer(np.ascontiguousarray(self.starts, np.int64)), pa.py_buffer(self.data)
        elements = pa.Array.from_buffers(pa.large_binary(), len(self), [None, starts, data])
        taken = BytesColumn.from_arrow(take_elements(elements, indices_array(rows)))
        return BytesColumn.of(taken.data, taken.starts, self.lengths[rows])

    def elements(self) -> pa.Array:
        """The rows as a plain Arrow array without nulls. Raises `TooManyBytes` from 2 GiB on."""
        if self.starts.dtype == np.int32:
            return binary_array(pa.py_buffer(self.data), np.ascontiguousarray(self.starts))
        first, last = int(self.starts[0]), int(self.starts[-1])
        if last - first > BYTES_MAX:
            raise TooManyBytes
        return binary_array(pa.py_buffer(self.data[first:last]), (self.starts - first).astype(np.int32))

    def views(self, rows: Array) -> list[memoryview]:
        """Views of the bytes of these rows; empty for a null."""
        content = self.data.data
        starts = self.starts[:-1][rows]
        ends = starts + (np.maximum(self.lengths[rows], 0) if self.has_nulls else self.lengths[rows])
        return [content[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def sizes(self) -> Array | int:
        """Encoded size of each row, including the length varint; one number if all rows have the same."""
        if self.is_equal_length:
            lengths = self.lengths[:1]
            return int(length_varint_sizes(lengths)[0]) + max(self.longest, 0)
        counts = length_varint_sizes(self.lengths).astype(np.int64)
        counts += np.maximum(self.lengths, 0) if self.has_nulls else self.lengths
        return counts

    def row(self, index: int) -> bytes | None:
        length = int(self.lengths[index])
        start = int(self.starts[index])
        return None if length < 0 else self.data[start : start + length].tobytes()


def to_plain(array: pa.Array) -> pa.Array:
    """Resolves extension types, dictionary and run-end encoding."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    if pa.types.is_run_end_encoded(array.type):
        # Imported here: it takes as long as the rest of this package, and Spark never sends such arrays.
        import pyarrow.compute as pc

        return pc.run_end_decode(array)
    return array


def _is_view(kind: pa.DataType, name: str) -> bool:
    """A view that this pyarrow can cast. Before 16 it has no views."""
    return str(kind) == name and _can_be_cast(kind)


@cache
def _can_be_cast(view: pa.DataType) -> bool:
    try:
        pa.array([], view).cast(pa.large_binary())
    except pa.ArrowNotImplementedError:  # before pyarrow 18
        return False
    return True


def plain_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return kind.value_type
    return kind


def check_bytes_type(kind: pa.DataType, column: str, *, text_only: bool = False) -> None:
    kind = plain_type(kind)
    is_accepted = kind in _TEXT_TYPES or pa.types.is_null(kind) or _is_view(kind, "string_view")
    if not text_only:
        is_accepted = is_accepted or kind in _BINARY_TYPES or pa.types.is_fixed_size_binary(kind)
        is_accepted = is_accepted or _is_view(kind, "binary_view")
    if not is_accepted:
        raise wrong_type_error(column, kind, STRING_TYPES if text_only else BYTES_TYPES)


def wrong_type_error(column: str, kind: pa.DataType, accepted: str) -> DataError:
    return DataError(f"column {column} has type {kind}; accepted are {accepted}", COLUMN_TYPE, column=column)
