"""Arrow arrays as numpy arrays: validity, numbers, list offsets. Only this module handles the offsets of slices.

None of it imports `pyarrow.compute`, which makes a Python function with a docstring for each of Arrow's 300 kernels:
20 ms, a third of this package's load time in a new task. `take`, `fill_null` and `dictionary_encode` of an array import
it to call one of them, so nulls are filled by numpy, and two kernels are called by their names. If pyarrow has moved
`call_function`, the methods are used. Nor does any of it import pandas, as `array.to_numpy` may: half a second.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kafka_sink.formats.records.varint import Array

try:
    from pyarrow._compute import call_function
except ImportError:
    call_function = None

# The types with one block of bytes, and offsets of 32 or 64 bits.
OFFSET_TYPES = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())
_LARGE_IDS = frozenset(kind.id for kind in (pa.large_binary(), pa.large_string(), pa.large_list(pa.null())))


def valid_mask(array: pa.Array) -> Array | None:
    """None means that no element is null."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.bool_)
    if not array.null_count:
        return None
    return _unpack_bits(array.buffers()[0], array)


def read_numbers(array: pa.Array, dtype: Any = None, width: int = 1) -> Array:
    """The numbers of their own type, those of dates and times as integers; undefined under a null. `width` of them are
    one element."""
    buffer, kind = array.buffers()[1], array.type
    if dtype is None:
        letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
        dtype = f"{letter}{kind.bit_width // 8}"
    if buffer is None:
        return np.zeros(len(array) * width, dtype)
    return np.frombuffer(buffer, dtype)[array.offset * width : (array.offset + len(array)) * width]


def read_integers(array: pa.Array) -> tuple[Array, Array | None]:
    """Integers, or dates and times as such, with -1 for a null; and which of them are valid. None: all."""
    numbers, valid = read_numbers(array), valid_mask(array)
    return numbers if valid is None else np.where(valid, numbers, numbers.dtype.type(-1)), valid


def read_float_words(array: pa.Array, size: int) -> Array:
    """Numbers as floats of 4 or 8 bytes, each at the low end of a word."""
    numbers = read_numbers(array)
    return numbers.astype("<f4").view("<u4").astype(np.uint64) if size == 4 else numbers.astype("<f8").view("<u8")


def read_flags(array: pa.Array) -> Array:
    buffer = array.buffers()[1]
    return np.zeros(len(array), np.bool_) if buffer is None else _unpack_bits(buffer, array)


def read_lists(array: pa.Array) -> tuple[Array, list[pa.Array]]:
    """Where the items of each element begin (one more than elements, from 0), and the items of this slice: one array,
    or keys and values of a map."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        offsets = np.arange(len(array) + 1, dtype=np.int64) * kind.list_size
        first = array.offset * kind.list_size
        return offsets, [array.values.slice(first, len(array) * kind.list_size)]
    children = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
    offsets = _read_offsets(array).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets - first, [child.slice(first, last - first) for child in children]


def read_bytes(array: pa.Array) -> tuple[Array, Array]:
    """The bytes of a column of `OFFSET_TYPES`, and where each element begins (one more than elements)."""
    data = array.buffers()[2]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8), _read_offsets(array)


def take_elements(array: pa.Array, indices: pa.Array) -> Any:
    """Elements by index. One outside the array is an error, as in `take`."""
    return array.take(indices) if call_function is None else call_function("take", [array, indices])


def distinct_elements(array: pa.Array) -> tuple[list[Any], Array]:
    """Of an array without nulls: its distinct elements as they first appear, and where among them each element is."""
    encoded = array.dictionary_encode() if call_function is None else call_function("dictionary_encode", [array])
    return encoded.dictionary.to_pylist(), read_numbers(encoded.indices)


def _read_offsets(array: pa.Array) -> Array:
    buffer = array.buffers()[1]
    if buffer is None or not len(array):  # the buffers of an empty array may be missing, or empty
        return np.zeros(1, np.int32)
    dtype = np.int64 if array.type.id in _LARGE_IDS else np.int32
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array) + 1]


def _unpack_bits(buffer: pa.Buffer, array: pa.Array) -> Array:
    first = array.offset // 8
    skipped = array.offset - first * 8
    packed = np.frombuffer(buffer, np.uint8)[first : (array.offset + len(array) + 7) // 8]
    bits = np.unpackbits(packed, bitorder="little")[skipped : skipped + len(array)]
    return bits.view(np.bool_)
