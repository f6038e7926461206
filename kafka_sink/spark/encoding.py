"""Keys and values of an Arrow batch by their schemas, in a task. What the driver has settled comes with the plan; no
registry is asked here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from kafka_sink.admin.side_plan import SidePlan
from kafka_sink.errors import ConfigError, DataError
from kafka_sink.records.bytes_column import plain
from kafka_sink.records.varint import Array
from kafka_sink.schemas.arrays import lists_of, valid_of
from kafka_sink.schemas.encoder import Encoder
from kafka_sink.schemas.match import plan

_ENTRY = pa.struct([("key", pa.string()), ("value", pa.binary())])


class RowEncoding:
    def __init__(self, sides: Sequence[SidePlan]) -> None:
        self._sides = sides
        self._encoders: dict[tuple[str, pa.DataType], Encoder] = {}

    def encoded(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Mapping[int, DataError]]:
        """The rows with bytes in place of the columns, and those that do not fit, in order."""
        misfits: dict[int, DataError] = {}
        for side in self._sides:
            column = rows.column(side.side)
            found = self._encoder(side, column.type).encode(column, side.prefix, side.side)
            misfits = {**found.misfits, **misfits}
            rows = _with_column(rows, side.side, found.array)
            if side.headers:
                rows = _with_headers(rows, side.headers, found.array)
        return rows, dict(sorted(misfits.items()))

    def told(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with JSON in place of the columns, for dead letters: whatever is in them can be told so."""
        for side in self._sides:
            column = rows.column(side.side)
            try:
                array = plan(column.type, None).encode(column, b"", side.side).array
            except ConfigError:  # a type that JSON has no text for
                array = pa.nulls(len(column), pa.binary())
            rows = _with_column(rows, side.side, array)
        return rows

    def _encoder(self, side: SidePlan, kind: pa.DataType) -> Encoder:
        encoder = self._encoders.get((side.side, kind))
        if encoder is None:
            encoder = self._encoders[side.side, kind] = plan(kind, side.schema)
        return encoder


def _with_column(rows: pa.RecordBatch, name: str, array: pa.Array) -> pa.RecordBatch:
    names = rows.schema.names
    arrays = [array if each == name else column for each, column in zip(names, rows.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names)


def _with_headers(rows: pa.RecordBatch, headers: Sequence[tuple[str, bytes]], encoded: pa.Array) -> pa.RecordBatch:
    """Behind the headers that a row has itself. Those of a null (a tombstone) say nothing and are left out."""
    names = [*rows.schema.names]
    count = rows.num_rows
    if "headers" in names:
        offsets, entries = _entries(rows.column("headers"))
    else:
        offsets, entries = np.zeros(count + 1, np.int64), pa.array([], _ENTRY)
    added = pa.array([{"key": name, "value": content} for name, content in headers], _ENTRY)
    valid = valid_of(encoded)
    has_value = np.ones(count, np.bool_) if valid is None else valid
    counts = np.diff(offsets)
    joined = np.zeros(count + 1, np.int64)
    np.cumsum(counts + has_value * len(added), out=joined[1:])
    own = np.arange(len(entries)) + np.repeat(joined[:-1] - offsets[:-1], counts)
    places = np.empty(int(joined[-1]), np.int64)
    places[own] = np.arange(len(entries))
    for number in range(len(added)):
        places[joined[1:][has_value] - len(added) + number] = len(entries) + number
    taken = pa.concat_arrays([entries, added]).take(pa.array(places))
    array = pa.ListArray.from_arrays(pa.array(joined, pa.int32()), taken)
    if "headers" in names:
        return _with_column(rows, "headers", array)
    return pa.RecordBatch.from_arrays([*rows.columns, array], [*names, "headers"])


def _entries(column: pa.Array) -> tuple[Array, pa.Array]:
    """All headers of all rows side by side, as structs of key and value, and where those of each row begin. A null
    list has none, whatever lies under it."""
    column = plain(column)
    offsets, children = lists_of(column)
    keys, values = children if len(children) == 2 else plain(children[0]).flatten()
    entries = pa.StructArray.from_arrays([keys.cast(pa.string()), values.cast(pa.binary())], fields=list(_ENTRY))
    valid = valid_of(column)
    if valid is None:
        return offsets, entries
    counts = np.diff(offsets)
    kept = np.zeros(len(offsets), np.int64)
    np.cumsum(np.where(valid, counts, 0), out=kept[1:])
    return kept, entries.take(pa.array(np.flatnonzero(np.repeat(valid, counts))))
