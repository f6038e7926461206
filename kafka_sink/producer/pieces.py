"""Splits the rows of a large append call into pieces that fit into buffer.memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafka_sink.records.columns import RECORD_OVERHEAD_BYTES_MAX, RecordColumns


def cut_pieces(columns: RecordColumns, bytes_max: int, rows_max: int) -> Iterator[tuple[int, int]]:
    """Start and stop of each piece: within the limits, or a single row."""
    sizes, row_count = columns.sizes, columns.row_count
    if isinstance(sizes, int):
        step = max(1, min(rows_max, bytes_max // (sizes + RECORD_OVERHEAD_BYTES_MAX)))
        yield from ((start, min(start + step, row_count)) for start in range(0, row_count, step))
        return
    ends = np.cumsum(sizes + RECORD_OVERHEAD_BYTES_MAX, dtype=np.int64)
    start = 0
    while start < row_count:
        before = int(ends[start - 1]) if start else 0
        fit = int(ends.searchsorted(before + bytes_max, side="right"))
        stop = min(max(start + 1, fit), start + rows_max)
        yield start, stop
        start = stop
