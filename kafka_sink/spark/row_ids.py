"""An id for each row, for readers that see rows more than once: the same whenever, wherever and however often the row
is written.

It is the text of the user's column; or else a digest of what the row is, not of where it was: BLAKE2b with 16 bytes, as
hexadecimal digits, of

    lengths of key, value and timestamp in 8 bytes each, big-endian (-1: null)      key      value
    the timestamp in place of its length: milliseconds, -1 if there is none

A cryptographic digest, since rows may be made by strangers: nobody can make a row that a reader takes for another one.
One call for each row: no library has such a digest for whole columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.errors import DataError
from kafka_sink.errors.table.writes import ROW_ID_MISSING
from kafka_sink.formats.records.bytes_column import to_plain
from kafka_sink.formats.records.timestamps import milliseconds
from kafka_sink.formats.records.varint import Array
from kafka_sink.options.sink_options import ROW_ID

ID_BYTES = 16


def take_row_ids(rows: pa.RecordBatch, column: str | None) -> tuple[pa.RecordBatch, pa.Array, Mapping[int, DataError]]:
    """The rows without the column of their ids, the ids as text, and the errors of rows without one. `column`: the
    option's value, for messages."""
    if column is None:
        return rows, digests(rows), {}
    ids = to_plain(rows.column(ROW_ID)).cast(pa.string())
    is_bad = pc.fill_null(pc.equal(pc.binary_length(ids), 0), True).to_numpy(zero_copy_only=False)
    misfits = {
        row: DataError(f"row {row} has no id in the column {column}", ROW_ID_MISSING, row=row, column=column)
        for row in np.flatnonzero(is_bad).tolist()
    }
    return rows.select([name for name in rows.schema.names if name != ROW_ID]), ids, misfits


def digests(rows: pa.RecordBatch) -> pa.Array:
    count = rows.num_rows
    parts = [
        to_plain(rows.column(name)).cast(pa.large_binary()) for name in ("key", "value") if name in rows.schema.names
    ]
    joined = pc.binary_join_element_wise(
        _heads(rows), *(part.fill_null(b"") for part in parts), pa.scalar(b"", pa.large_binary())
    )
    data = memoryview(joined.buffers()[2] or b"")
    ends = np.frombuffer(joined.buffers()[1], np.int64)[joined.offset : joined.offset + count + 1].tolist()
    found = [blake2b(data[begin:end], digest_size=ID_BYTES).digest() for begin, end in pairwise(ends)]
    text = b"".join(found).hex().encode()
    offsets = np.arange(count + 1, dtype=np.int32) * (2 * ID_BYTES)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def _heads(rows: pa.RecordBatch) -> pa.Array:
    count = rows.num_rows
    numbers = np.full((count, 3), -1, ">i8")
    for place, name in enumerate(("key", "value")):
        if name in rows.schema.names:
            numbers[:, place] = _lengths(to_plain(rows.column(name)))
    if "timestamp" in rows.schema.names:
        numbers[:, 2] = milliseconds(to_plain(rows.column("timestamp"))).fill_null(-1).to_numpy(zero_copy_only=False)
    offsets = np.arange(count + 1, dtype=np.int64) * numbers.itemsize * 3
    return pa.Array.from_buffers(
        pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(numbers))]
    )


def _lengths(column: pa.Array) -> Array:
    lengths: Array = pc.binary_length(column).cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return lengths
