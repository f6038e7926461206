"""A digest of a task's keys and values, in their order: enough to detect that a batch comes again with other rows.

It is a checksum, not a proof. The bytes of a column are contiguous in Arrow, so a whole column is one call at full
memory speed. It continues from one Arrow batch to the next, so it does not depend on how Spark splits rows into
batches.
"""

from __future__ import annotations

import pyarrow as pa

from kafka_sink.formats.records.arrays import OFFSET_TYPES, read_bytes
from kafka_sink.formats.records.checksum import crc32c

DIGESTED = ("key", "value")


class RowDigest:
    def __init__(self) -> None:
        self._checksums = dict.fromkeys(DIGESTED, 0)

    def add(self, rows: pa.RecordBatch) -> None:
        for name in DIGESTED:
            index = rows.schema.get_field_index(name)
            if index >= 0:
                self._checksums[name] = _extend_checksum(self._checksums[name], rows.column(index))

    @property
    def value(self) -> int:
        """63 bits: fits a signed 64-bit integer of a JSON reader."""
        return (self._checksums["key"] << 31) ^ self._checksums["value"]


def _extend_checksum(checksum: int, column: pa.Array) -> int:
    """A column that is neither binary nor text does not change it."""
    if column.type not in OFFSET_TYPES:  # Spark sends no other types
        return checksum
    data, starts = read_bytes(column)
    return crc32c(data[int(starts[0]) : int(starts[-1])].data, checksum)
