"""Changes of a table as records, by column, in a task: what becomes of an insert, an update, a delete.

                upsert              debezium
    insert      the row             before null, after the row, op c
    update      the row             before of before.column, after the row, op u
    read        the row             before null, after the row, op r
    delete      a tombstone         before the row, after null, op d; behind it a tombstone
    the row before an update        nothing

A tombstone is a record without a value; compaction removes it together with the older records of its key. It follows
the delete in the same Arrow batch and has the same key, so it comes next to it in the same partition. If one of the two
cannot be sent, neither is (unsendable.py). The row-wise reference is tests/property/slow_changes.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.errors import DataError
from kafka_sink.errors.table.writes import CHANGE_UNKNOWN
from kafka_sink.formats.records.bytes_column import to_plain
from kafka_sink.formats.records.timestamps import milliseconds
from kafka_sink.formats.records.varint import Array
from kafka_sink.options.sink_options import BEFORE, DEBEZIUM, OPERATION, ChangeOptions

CREATE, UPDATE, READ, DELETE, PREIMAGE, UNKNOWN = range(6)
# Debezium's letters, by the numbers above.
LETTERS = ("c", "u", "r", "d")
# In lower case: of Delta's change data feed, of Iceberg's changelog, of Flink, of Debezium, and what people write.
OPERATIONS: Mapping[str, int] = {
    "insert": CREATE, "create": CREATE, "c": CREATE, "i": CREATE, "+i": CREATE,
    "update_postimage": UPDATE, "update_after": UPDATE, "update": UPDATE, "upsert": UPDATE, "u": UPDATE, "+u": UPDATE,
    "read": READ, "snapshot": READ, "r": READ,
    "delete": DELETE, "d": DELETE, "-d": DELETE,
    "update_preimage": PREIMAGE, "update_before": PREIMAGE, "-u": PREIMAGE,
}  # fmt: skip


class Changes(NamedTuple):
    """Records, still without their encoding, and the errors of those that are no change. `is_second`: the tombstone
    behind the event of the same row."""

    records: pa.RecordBatch
    misfits: Mapping[int, DataError]
    is_second: Array


class ChangeRows:
    def __init__(self, options: ChangeOptions) -> None:
        self._options = options
        self._words = pa.array(list(OPERATIONS), pa.string())
        self._numbers = np.array([*OPERATIONS.values(), UNKNOWN], np.int8)
        self._letters = pa.array([*LETTERS], pa.string())

    def apply(self, rows: pa.RecordBatch) -> Changes:
        words = to_plain(rows.column(OPERATION)).cast(pa.string())
        found = pc.fill_null(pc.index_in(pc.ascii_lower(words), value_set=self._words), len(self._words))
        operations = self._numbers[found.to_numpy(zero_copy_only=False)]
        is_delete = operations == DELETE
        copies = np.where(operations == PREIMAGE, 0, 1)
        if self._options.envelope == DEBEZIUM:
            copies[is_delete] = 2
        places = np.repeat(np.arange(len(copies)), copies)
        is_second = np.zeros(len(places), np.bool_)
        is_second[1:] = places[1:] == places[:-1]
        kept = [name for name in rows.schema.names if name not in ("value", OPERATION, BEFORE)]
        records = _take(rows.select(kept), places)
        if self._options.envelope == DEBEZIUM:
            value = self._debezium(rows, words, operations, places, is_second)
        else:
            value = _take_unless(to_plain(rows.column("value")), places, is_delete[places])
        records = pa.RecordBatch.from_arrays([*records.columns, value], [*kept, "value"])
        return Changes(records, self._misfits(records, words, operations, places), is_second)

    def _debezium(
        self, rows: pa.RecordBatch, words: pa.Array, operations: Array, places: Array, is_tombstone: Array
    ) -> pa.StructArray:
        row = to_plain(rows.column("value"))
        is_delete = operations[places] == DELETE
        parts = {
            "before": _before(rows, row, places, is_delete),
            "after": _take_unless(row, places, is_delete),
            "op": self._letter(words, operations, places),
        }
        if "timestamp" in rows.schema.names:
            parts["ts_ms"] = milliseconds(to_plain(rows.column("timestamp"))).take(pa.array(places))
        return pa.StructArray.from_arrays(list(parts.values()), list(parts), mask=pa.array(is_tombstone))

    def _letter(self, words: pa.Array, operations: Array, places: Array) -> pa.Array:
        """An unknown word stays, for the dead letter."""
        numbers = operations[places]
        letters = self._letters.take(pa.array(np.minimum(numbers, DELETE)))
        is_unknown = numbers == UNKNOWN
        return pc.if_else(pa.array(is_unknown), words.take(pa.array(places)), letters) if is_unknown.any() else letters

    def _misfits(
        self, records: pa.RecordBatch, words: pa.Array, operations: Array, places: Array
    ) -> Mapping[int, DataError]:
        misfits = {}
        column = self._options.operation_column
        for row in np.flatnonzero(operations[places] == UNKNOWN).tolist():
            # Spark's strings may hold any bytes.
            word = words[int(places[row])].cast(pa.binary()).as_py()
            shown = "null" if word is None else repr(word.decode(errors="replace")[:40])
            text = f"row {row}: {shown} in the column {column} names no operation"
            misfits[row] = DataError(text, CHANGE_UNKNOWN, row=row, column=column)
        key = to_plain(records.column("key"))
        if key.null_count:
            for row in np.flatnonzero(key.is_null().to_numpy(zero_copy_only=False)).tolist():
                text = f"row {row} has no key, and a change of a table needs one"
                misfits[row] = DataError(text, CHANGE_UNKNOWN, row=row, column="key")
        return misfits


def _before(rows: pa.RecordBatch, row: pa.Array, places: Array, is_delete: Array) -> pa.Array:
    """That of the user's column; of a delete without one the row itself."""
    if BEFORE not in rows.schema.names:
        return _take_unless(row, places, ~is_delete)
    given = to_plain(rows.column(BEFORE))
    has_given = given.is_valid().to_numpy(zero_copy_only=False)[places]
    sources = np.where(has_given, len(row) + places, places)
    # Of what is never null in a table, an outer join makes something that can be. Arrow refuses to cast that back.
    kind = with_nulls(row.type)
    return _take_unless(pa.concat_arrays([row.cast(kind), given.cast(kind)]), sources, ~(has_given | is_delete))


def with_nulls(kind: pa.DataType) -> pa.DataType:
    """The type with fields that can be null, in every depth of its structs."""
    if pa.types.is_struct(kind):
        fields = (kind.field(place) for place in range(kind.num_fields))
        return pa.struct([pa.field(each.name, with_nulls(each.type)) for each in fields])
    if pa.types.is_map(kind):
        return pa.map_(with_nulls(kind.key_type), with_nulls(kind.item_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(with_nulls(kind.value_type))
    if pa.types.is_list(kind):
        return pa.list_(with_nulls(kind.value_type))
    return kind


def _take(rows: pa.RecordBatch, places: Array) -> pa.RecordBatch:
    return rows if _is_all(places, rows.num_rows) else rows.take(pa.array(places))


def _take_unless(column: pa.Array, places: Array, is_null: Array) -> pa.Array:
    if _is_all(places, len(column)) and not is_null.any():
        return column
    return column.take(pa.array(places, mask=is_null))


def _is_all(places: Array, count: int) -> bool:
    """Each row once. They are in order, so there is nothing else that many can be."""
    return len(places) == count and bool((places == np.arange(count)).all())
