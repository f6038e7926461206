"""Few large Arrow batches instead of many small ones.

The fixed cost of a `send_arrow` call is the same for ten rows and for ten thousand. Spark's batches may be small: a
filter leaves few rows, and for wide rows a low `spark.sql.execution.arrow.maxRecordsPerBatch` makes Spark's own side
faster (docs/performance.md). Concatenating them is cheaper than sending each alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from kafka_sink.records.assembler import CHUNK_BYTES

# The offsets of a joined column have 32 bits.
JOINED_MAX_BYTES = 1 << 30


def gather_batches(arrow_batches: Iterable[pa.RecordBatch], bytes_min: int = CHUNK_BYTES) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order. Batches are joined until they have `bytes_min`; empty ones are dropped."""
    waiting: list[pa.RecordBatch] = []
    byte_count = 0
    for arrow_batch in arrow_batches:
        if not arrow_batch.num_rows:
            continue
        if waiting and byte_count + arrow_batch.nbytes > JOINED_MAX_BYTES:
            yield _join(waiting)
            waiting, byte_count = [], 0
        waiting.append(arrow_batch)
        byte_count += arrow_batch.nbytes
        if byte_count >= bytes_min:
            yield _join(waiting)
            waiting, byte_count = [], 0
    if waiting:
        yield _join(waiting)


def _join(arrow_batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(arrow_batches) == 1:
        return arrow_batches[0]
    (joined,) = pa.Table.from_batches(arrow_batches).combine_chunks().to_batches()
    return joined
