"""Where a long column of rows is cut: into pieces of equal size, about as large as wanted.

The number of pieces is rounded to the nearest, not up. Each piece has a fixed cost, some 0.3 ms. Spark ends an Arrow
batch with the first row beyond a limit, and with pieces of exactly that limit each batch would have a second piece of a
few rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafka_sink.formats.records.columns import RECORD_OVERHEAD_BYTES_MAX, RecordColumns


def cut_rows(
    columns: RecordColumns, wanted_bytes: int, *, bytes_max: int | None = None, rows_max: int | None = None
) -> Iterator[tuple[int, int]]:
    """Start and stop of each piece, by upper bounds of the record sizes.

    A piece has at most one and a half times `wanted_bytes`, plus its largest row. It never has more than `bytes_max`,
    except for a single row, or more than `rows_max` rows.
    """
    row_count = columns.row_count
    if not row_count:
        return
    rows_max = row_count if rows_max is None else min(rows_max, row_count)
    total = columns.bytes_max
    count = max(1, round(total / wanted_bytes))
    if count == 1 and row_count <= rows_max and (bytes_max is None or total <= bytes_max):
        yield 0, row_count
        return
    sizes = columns.sizes
    if isinstance(sizes, int):
        step = -(-row_count // count)
        if bytes_max is not None:
            step = min(step, bytes_max // (sizes + RECORD_OVERHEAD_BYTES_MAX))
        step = max(1, min(step, rows_max))
        yield from ((start, min(start + step, row_count)) for start in range(0, row_count, step))
        return
    sizes = sizes + RECORD_OVERHEAD_BYTES_MAX
    ends = np.cumsum(sizes, dtype=np.int64)
    # With room for one row more than its share, a piece is never smaller than its share, and `count` pieces are enough.
    limit = -(-total // count) + int(sizes.max())
    if bytes_max is not None:
        limit = min(limit, bytes_max)
    start = before = 0
    while start < row_count:
        fit = int(ends.searchsorted(before + limit, side="right"))
        stop = min(max(start + 1, fit), start + rows_max)
        yield start, stop
        start, before = stop, int(ends[stop - 1])
