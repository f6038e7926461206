"""Keys and values of an Arrow batch by their schemas, in a task. The schemas are part of the driver's plan; no registry
is asked here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from kafka_sink.errors import ConfigError, DataError
from kafka_sink.formats.records.arrays import valid_mask
from kafka_sink.formats.schemas.match import Encoder, plan
from kafka_sink.spark.added_headers import AddedHeader, add_headers, set_column
from kafka_sink.spark.formats import SidePlan


class RowEncoding:
    def __init__(self, sides: Sequence[SidePlan]) -> None:
        self._sides = sides
        self.sides = tuple(side.side for side in sides)
        self._encoders: dict[tuple[str, pa.DataType], Encoder] = {}

    def encode(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Mapping[int, DataError]]:
        """The rows with encoded columns, and the errors of those that do not fit, in order."""
        misfits: dict[int, DataError] = {}
        for side in self._sides:
            column = rows.column(side.side)
            found = self._encoder(side, column.type).encode(column, side.prefix, side.side)
            misfits = {**found.misfits, **misfits}
            rows = set_column(rows, side.side, found.array)
            if side.headers:
                # A null (a tombstone) gets no schema headers.
                rows = add_headers(rows, [AddedHeader(*pair, valid_mask(found.array)) for pair in side.headers])
        return rows, dict(sorted(misfits.items()))

    def to_json(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the columns as JSON, for dead letters: JSON can hold values that do not fit the schema."""
        for side in self._sides:
            column = rows.column(side.side)
            try:
                array = plan(column.type, None).encode(column, b"", side.side).array
            except ConfigError:  # a type that has no JSON form
                array = pa.nulls(len(column), pa.binary())
            rows = set_column(rows, side.side, array)
        return rows

    def _encoder(self, side: SidePlan, kind: pa.DataType) -> Encoder:
        encoder = self._encoders.get((side.side, kind))
        if encoder is None:
            encoder = self._encoders[side.side, kind] = plan(kind, side.schema)
        return encoder
