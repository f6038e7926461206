"""Escapes JSON strings, by column; and base64 for binary."""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa

from kafka_sink.records.bytes_column import BytesColumn
from kafka_sink.records.varint import Array, binary_array
from kafka_sink.schemas.pieces import BYTES_MAX, Elements, TooManyBytes, bytes_elements

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
