"""Timestamps of rows as Kafka counts them: milliseconds since 1970, rounded down."""

from __future__ import annotations

import pyarrow as pa


def milliseconds(column: pa.Array) -> pa.Array:
    """Of a bigint, or of a timestamp; nulls stay. Spark's timestamps are microseconds."""
    if not pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    micros = column.cast(pa.timestamp("us", column.type.tz), safe=False).view(pa.int64())
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(micros.fill_null(0).to_numpy(zero_copy_only=False) // 1000, mask=is_null)
