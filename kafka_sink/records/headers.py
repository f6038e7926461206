"""Encodes the headers column: per row the header count, then key and value of each header.

Accepts list<struct<key, value>> (fields by these names, or else by position) and map<key, value>. Order and duplicates
are kept; a null list means no headers; a null header value is valid; a header key that is null or not UTF-8 is an
error. Spark's strings may hold any bytes, and some readers end at a key that they cannot decode.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_sink.error_table.writes import ROW_HEADERS
from kafka_sink.errors import DataError
from kafka_sink.records.bytes_column import BytesColumn, check_bytes_type, plain_type, to_plain, wrong_type_error
from kafka_sink.records.taking import take_elements
from kafka_sink.records.varint import Array, largest, length_elements

COLUMN = "headers"
HEADERS_TYPES = "list<struct<key: string, value: binary>> and map<string, binary or string>"
ASCII_MAX = 127
_EMPTY = pa.array([b""], pa.binary())


def check_headers_type(kind: pa.DataType) -> None:
    """Raises `DataError` if headers cannot have this type."""
    kind = plain_type(kind)
    types = pa.types
    if types.is_null(kind):
        return
    if types.is_map(kind):
        key_type, value_type = kind.key_type, kind.item_type
    elif types.is_list(kind) or types.is_large_list(kind):
        entry_type = kind.value_type
        if not types.is_struct(entry_type) or entry_type.num_fields != 2:
            raise wrong_type_error(COLUMN, kind, HEADERS_TYPES)
        key_type, value_type = (entry_type.field(index).type for index in _key_and_value_index(entry_type))
    else:
        raise wrong_type_error(COLUMN, kind, HEADERS_TYPES)
    check_bytes_type(key_type, f"{COLUMN}.key", text_only=True)
    check_bytes_type(value_type, f"{COLUMN}.value")


def encode_header_column(array: pa.Array, first_row: int) -> BytesColumn:
    """`first_row` is the number of the first one in errors."""
    array = to_plain(array)
    if array.null_count == len(array):
        return _no_headers(len(array))
    list_starts = array.offsets.to_numpy()
    first, last = int(list_starts[0]), int(list_starts[-1])
    counts = np.diff(list_starts)
    if array.null_count:
        counts[array.is_null().to_numpy(zero_copy_only=False)] = 0
    row_count, header_count = len(array), int(counts.sum())
    if header_count == 0:
        return _no_headers(row_count)
    # Maps header i (over all rows) to its row and its position in the list's values; under null lists there may be
    # values that belong to no row.
    ends = np.cumsum(counts)
    rows = np.repeat(np.arange(row_count), counts)
    sources = np.arange(header_count) + np.repeat(list_starts[:-1] - first - (ends - counts), counts)
    keys, values = _split_entries(array, first, last, sources, rows, first_row)

    count_elements, count_index = length_elements(counts)
    key_lengths, key_length_index = length_elements(keys.lengths)
    value_lengths, value_length_index = length_elements(values.lengths)
    parts = [count_elements, key_lengths, keys.elements(), value_lengths, values.elements(), _EMPTY]
    bases = np.cumsum([0, *(len(part) for part in parts)])

    # Each row has one element (the count) and four per header.
    index = np.empty(row_count + 4 * header_count, np.int64)
    row_positions = np.arange(row_count) + 4 * (ends - counts)
    positions = 4 * np.arange(header_count) + rows + 1
    index[row_positions] = bases[0] + count_index
    index[positions] = bases[1] + key_length_index[sources]
    index[positions + 1] = bases[2] + sources
    index[positions + 2] = bases[3] + value_length_index[sources]
    index[positions + 3] = np.where(values.lengths[sources] < 0, bases[5], bases[4] + sources)
    return _take_rows(parts, index, row_positions)


def _no_headers(row_count: int) -> BytesColumn:
    return BytesColumn.of(
        np.zeros(row_count, np.uint8), np.arange(row_count + 1, dtype=np.int32), np.ones(row_count, np.int32)
    )


def _take_rows(parts: list[pa.Array], index: Array, row_positions: Array) -> BytesColumn:
    """The indexed elements of `parts`; each row has those from its position to the next row's."""
    joined = take_elements(pa.concat_arrays(parts), pa.array(index))
    _, starts_buffer, data_buffer = joined.buffers()
    element_starts = np.frombuffer(starts_buffer, np.int32)
    starts = np.append(element_starts[row_positions], element_starts[len(index)])
    return BytesColumn.of(np.frombuffer(data_buffer, np.uint8), starts, np.diff(starts))


def _split_entries(
    array: pa.Array, first: int, last: int, sources: Array, rows: Array, first_row: int
) -> tuple[BytesColumn, BytesColumn]:
    if pa.types.is_map(array.type):
        keys, values = array.keys.slice(first, last - first), array.items.slice(first, last - first)
    else:
        entries = array.values.slice(first, last - first)
        if entries.null_count:
            _refuse(entries.is_null().to_numpy(zero_copy_only=False)[sources], rows, first_row, "a null header")
        key_index, value_index = _key_and_value_index(entries.type)
        keys, values = entries.field(key_index), entries.field(value_index)
    key_column = BytesColumn.from_arrow(keys)
    if key_column.has_nulls:
        _refuse(key_column.lengths[sources] < 0, rows, first_row, "a header whose key is null")
    if int(largest(key_column.data, initial=0)) > ASCII_MAX:
        _refuse(~_find_utf8(key_column)[sources], rows, first_row, "a header whose key is no text in UTF-8")
    return key_column, BytesColumn.from_arrow(values)


def _find_utf8(names: BytesColumn) -> Array:
    encoded = names.elements().dictionary_encode()
    is_text = [name.decode(errors="replace").encode() == name for name in encoded.dictionary.to_pylist()]
    found: Array = np.array(is_text, np.bool_)[encoded.indices.to_numpy()]
    return found


def _key_and_value_index(entry_type: pa.StructType) -> tuple[int, int]:
    names = [entry_type.field(index).name for index in range(2)]
    return (1, 0) if names == ["value", "key"] else (0, 1)


def _refuse(is_bad: Array, rows: Array, first_row: int, what: str) -> None:
    bad = np.flatnonzero(is_bad)
    if len(bad):
        row = first_row + int(rows[bad[0]])
        raise DataError(f"column {COLUMN} has {what} in row {row}", ROW_HEADERS, row=row, column=COLUMN)
