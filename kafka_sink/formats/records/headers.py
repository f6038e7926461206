"""Encodes the headers column: per row the header count, then key and value of each header.

Accepts list<struct<key, value>> (fields by these names, or else by position) and map<key, value>. Order and duplicates
are kept; a null list means no headers; a null header value is valid; a header key that is null or not UTF-8 is an
error. Spark's strings may hold any bytes, and some readers end at a key that they cannot decode.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from kafka_sink.errors import DataError, RowsRefused
from kafka_sink.errors.table.writes import ROW_HEADERS
from kafka_sink.formats.records.arrays import distinct_elements, read_lists, valid_mask
from kafka_sink.formats.records.bytes_column import (
    BytesColumn,
    check_bytes_type,
    plain_type,
    to_plain,
    wrong_type_error,
)
from kafka_sink.formats.records.pieces import bytes_elements, join_pieces, length_elements, mask_pieces
from kafka_sink.formats.records.varint import Array, largest

COLUMN = "headers"
HEADERS_TYPES = "list<struct<key: string, value: binary>> and map<string, binary or string>"
ASCII_MAX = 127


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
    row_count = len(array)
    if array.null_count == row_count:
        return _no_headers(row_count)
    valid = valid_mask(array)
    offsets, parts = read_lists(array)
    counts = np.diff(offsets)
    if valid is not None:
        counts[~valid] = 0
    if not counts.any():
        return _no_headers(row_count)
    # Under null lists there may be headers that belong to no row.
    keys, values = _read_entries(array.type, parts, partial(_refuse, offsets, valid, first_row))
    pieces = [part for column in (keys, values) for part in (length_elements(column.lengths), bytes_elements(column))]
    entries = join_pieces(pieces, len(keys)).elements(offsets)
    rows = join_pieces([length_elements(counts), *mask_pieces([entries], valid)], row_count)
    return BytesColumn.of(rows.data, rows.starts, np.diff(rows.starts))


def _no_headers(row_count: int) -> BytesColumn:
    return BytesColumn.of(
        np.zeros(row_count, np.uint8), np.arange(row_count + 1, dtype=np.int32), np.ones(row_count, np.int32)
    )


def _read_entries(
    kind: pa.DataType, parts: list[pa.Array], refuse: Callable[[Array, str], None]
) -> tuple[BytesColumn, BytesColumn]:
    """Keys and values of all headers."""
    if not pa.types.is_map(kind):
        (entries,) = parts
        valid = valid_mask(entries)
        if valid is not None:
            refuse(~valid, "a null header")
        parts = [entries.field(index) for index in _key_and_value_index(entries.type)]
    keys, values = BytesColumn.from_arrow(parts[0]), BytesColumn.from_arrow(parts[1])
    if keys.has_nulls:
        refuse(keys.lengths < 0, "a header whose key is null")
    if int(largest(keys.data, initial=0)) > ASCII_MAX:
        refuse(~_find_utf8(keys), "a header whose key is no text in UTF-8")
    return keys, values


def _find_utf8(names: BytesColumn) -> Array:
    distinct, index = distinct_elements(names.elements())
    is_text = np.array([name.decode(errors="replace").encode() == name for name in distinct], np.bool_)
    found: Array = is_text[index]
    return found


def _key_and_value_index(entry_type: pa.StructType) -> tuple[int, int]:
    names = [entry_type.field(index).name for index in range(2)]
    return (1, 0) if names == ["value", "key"] else (0, 1)


def _refuse(offsets: Array, valid: Array | None, first_row: int, is_bad: Array, what: str) -> None:
    rows = np.searchsorted(offsets, np.flatnonzero(is_bad), side="right") - 1
    if valid is not None:
        rows = rows[valid[rows]]

    def error_of(row: int, _: int) -> DataError:
        return DataError(f"column {COLUMN} has {what} in row {row}", ROW_HEADERS, row=row, column=COLUMN)

    if len(rows):
        raise RowsRefused((first_row + rows).tolist(), error_of)
