"""Finds and separates rows that can never be sent: record.errors = drop and dead-letter.

The checks are those of `send_arrow`, so there is no second set of rules, and a batch without such a row costs one
check. Each names all the rows that it refuses. They are left out, and the rest is checked again: a row gets the error
that it would get alone, and a batch costs one check for each kind of error, however many its rows.

Rows that do not fit the schema of their value or key are found by the encoder, before all this. Their dead letters have
the column as JSON.

A row may be two records, one behind the other: the event of a delete and its tombstone. They are sent both or not at
all, and such a row has one letter.

A dead letter keeps key, value, headers and timestamp of its row byte for byte, as far as they can be sent, and has
headers for the error and the origin of the row (formats/records/dead_letter.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kafka_sink.errors import ConfigError, DataError, RowsRefused
from kafka_sink.errors.table.writes import CHANGE_UNKNOWN, EVENT_INCOMPLETE, ROW_ID_MISSING, ROW_PARTITION
from kafka_sink.formats.records.columns import RecordColumns, columns_by_topic
from kafka_sink.formats.records.dead_letter import (
    ERROR,
    HEADER_PREFIX,
    JSON,
    KEY_BYTES,
    NO_PARTITION,
    PARTITION,
    REASON,
    UNFINISHED,
    VALUE_BYTES,
)
from kafka_sink.formats.records.scalar import encode_headers
from kafka_sink.formats.records.varint import Array, indices_array
from kafka_sink.options import ProducerOptions
from kafka_sink.options.values import TOPIC_NAME
from kafka_sink.producer.producer import Producer
from kafka_sink.spark.ledger_rows import check_values, ledger_row_error

if TYPE_CHECKING:
    from kafka_sink.spark.encoding import RowEncoding

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
# Columns of which a letter has the content. Python's dates end long before those of other columns.
_KEPT = frozenset({"key", "value", "headers", "topic", "partition"})
# What a record has besides key, value and headers (request header included), and the two headers for sizes.
_LETTER_OVERHEAD_BYTES = 256
# Of a text in a header. A topic's name has up to 249 characters; a column topic may hold anything.
_TEXT_CHARACTERS_MAX = 1000
# Rows of which the letter is not the record that they should have become: a replay would write something else.
_NOT_FINISHED = {CHANGE_UNKNOWN: "a change", EVENT_INCOMPLETE: "an event", ROW_ID_MISSING: "a record with an id"}
_REASONS = {None: "too large", "topic": "no topic", "partition": NO_PARTITION}


@dataclass(frozen=True)
class Unsendable:
    """`rows` with their errors; `positions` are their indices in the Arrow batch. `json_sides`: columns that hold
    JSON of values that could not be encoded."""

    rows: pa.RecordBatch
    positions: list[int]
    errors: list[DataError]
    json_sides: tuple[str, ...] = ()

    def renumber(self, places: Sequence[int]) -> Unsendable:
        """The same with positions in the whole Arrow batch, of which row i of a selection is row `places[i]`."""
        return replace(self, positions=[places[position] for position in self.positions])

    def counts(self) -> Mapping[str, int]:
        return Counter(reason_of(error) for error in self.errors)

    def make_letters(
        self, *, place: Mapping[str, str], topic: str | None, first_row: int, bytes_max: int
    ) -> pa.RecordBatch:
        keys, values, headers = [], [], []
        timestamps, bad_timestamps = _timestamps(self.rows)
        rows = _as_binary(self.rows.select([name for name in self.rows.schema.names if name in _KEPT])).to_pylist()
        for number, (row, position, error) in enumerate(zip(rows, self.positions, self.errors, strict=True)):
            own_topic = row.get("topic")
            about = {
                ERROR: str(error).replace(f"row {error.row}", f"row {first_row + position}", 1),
                REASON: reason_of(error),
                "topic": topic if topic or own_topic is None else own_topic.decode(errors="replace"),
                "row": str(first_row + position),
                **place,
            }
            if row.get("partition") is not None:
                about[PARTITION] = str(row["partition"])
            if bad_timestamps[number] is not None:
                about["timestamp"] = bad_timestamps[number]
            about |= {f"{side}.format": JSON for side in self.json_sides}
            if error.entry in _NOT_FINISHED:
                about[UNFINISHED] = _NOT_FINISHED[error.entry]
            key, value = row.get("key"), row["value"]
            kept, own = _pairs(row.get("headers")), _own_headers(about)
            room = bytes_max - _LETTER_OVERHEAD_BYTES - len(encode_headers([*kept, *own]))
            sizes = {}
            key_size, value_size = len(key or b""), len(value or b"")
            if key_size + value_size > room:
                sizes[VALUE_BYTES] = str(value_size)
                value = None
            if key_size > room:
                sizes[KEY_BYTES] = str(key_size)
                key, kept = None, []
            own += _own_headers(sizes)
            keys.append(key)
            values.append(value)
            headers.append([{"key": name, "value": content} for name, content in (*kept, *own)])
        arrays = [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(headers, _HEADERS), timestamps]
        return pa.RecordBatch.from_arrays(arrays, ["key", "value", "headers", "timestamp"])


def split_unsendable(
    rows: pa.RecordBatch,
    topic: str | None,
    producer: Producer,
    options: ProducerOptions,
    ledgers: Collection[str] = (),
    is_second: Array | None = None,
) -> tuple[pa.RecordBatch, Unsendable | None]:
    """The sendable rows, and the others. `is_second`: the record belongs to the row of the one before."""
    known_count = cache(lambda name: len(producer.partitions_for(name)))
    # Asked only if a row needs it: the producer may know the topic from before partitions were added.
    partition_count = cache(lambda name: len(producer.partitions_for(name, anew=True)))

    def check_topic(name: str, columns: RecordColumns) -> None:
        columns.check_record_sizes(options.max_request_size, options.buffer_memory)
        if name in ledgers:
            raise RowsRefused(columns.row_ids.tolist(), lambda *_: ledger_row_error(name))
        try:
            TOPIC_NAME.parse("topic", name)
        except ConfigError as error:
            wrong_name = DataError(str(error), error.entry, column="topic")
            raise RowsRefused(columns.row_ids.tolist(), lambda *_: wrong_name) from None
        if columns.partitions is not None:
            check_partitions(name, columns.row_ids, columns.partitions)

    def check_partitions(name: str, rows: Array, partitions: Array) -> None:
        count = known_count(name)
        if int(partitions.max(initial=-1)) < count:
            return
        count = max(count, partition_count(name))
        missing = np.flatnonzero(partitions >= count)
        numbers = partitions[missing]

        def error_of(row: int, place: int) -> DataError:
            text = f"row {row} names partition {numbers[place]}; topic {name} has {partition_count(name)}"
            return DataError(text, ROW_PARTITION, row=row, column="partition")

        if len(missing):
            raise RowsRefused(rows[missing].tolist(), error_of)

    def check_rows(part: pa.RecordBatch) -> dict[int, DataError]:
        """Every check of `send_arrow`, without sending."""
        if topic is None:
            check_values(part)
        refused: dict[int, DataError] = {}
        for name, columns in columns_by_topic(part, topic=topic):
            try:
                check_topic(name, columns)
            except RowsRefused as error:
                refused |= error.by_row()
        return refused

    found = _by_row(_find_refused(rows, check_rows), is_second)
    if not found:
        return rows, None
    good = pa.array(_find_kept(rows, found, is_second), pa.int64())
    bad = rows.take(pa.array(list(found), pa.int64()))
    return rows.take(good), Unsendable(bad, list(found), list(found.values()))


def split_misfits(
    rows: pa.RecordBatch,
    given: pa.RecordBatch,
    misfits: Mapping[int, DataError],
    encoding: RowEncoding | None,
    is_second: Array | None = None,
) -> tuple[pa.RecordBatch, list[int], Unsendable]:
    """The rows that fit their schema and envelope, their indices, and the other rows: unchanged, but with text for the
    values to be encoded."""
    misfits = _by_row(misfits, is_second)
    kept = _find_kept(rows, misfits, is_second)
    unfit = given.take(pa.array(list(misfits), pa.int64()))
    json_sides: tuple[str, ...] = ()
    if encoding is not None:
        unfit, json_sides = encoding.to_json(unfit), encoding.sides
    unsendable = Unsendable(unfit, list(misfits), list(misfits.values()), json_sides)
    return rows.take(pa.array(kept, pa.int64())), kept, unsendable


def _by_row(errors: Mapping[int, DataError], is_second: Array | None) -> Mapping[int, DataError]:
    """By the first record of each row: the error of that, or else of the second."""
    if is_second is None or not is_second.any():
        return errors
    first = {place: error for place, error in errors.items() if not is_second[place]}
    second = {place - 1: error for place, error in errors.items() if is_second[place]}
    return dict(sorted({**second, **first}.items()))


def _find_kept(rows: pa.RecordBatch, errors: Mapping[int, DataError], is_second: Array | None) -> list[int]:
    def is_left_out(place: int) -> bool:
        return place in errors or (is_second is not None and bool(is_second[place]) and place - 1 in errors)

    return [place for place in range(rows.num_rows) if not is_left_out(place)]


def reason_of(error: DataError) -> str:
    return _REASONS.get(error.column, f"bad {error.column}")


def _find_refused(
    rows: pa.RecordBatch, check_rows: Callable[[pa.RecordBatch], dict[int, DataError]]
) -> dict[int, DataError]:
    """In the order of the rows. `check_rows` returns or raises what it refuses."""
    found: dict[int, DataError] = {}
    waiting = [(rows, np.arange(rows.num_rows))]
    while waiting:
        part, places = waiting.pop()
        try:
            refused = check_rows(part)
        except RowsRefused as error:
            refused = error.by_row()
        except DataError as error:
            # It is about no single row, as where all of them take too much memory.
            half = part.num_rows // 2
            if half:
                waiting += [(part.slice(0, half), places[:half]), (part.slice(half), places[half:])]
            else:
                found[int(places[0])] = error
            continue
        found.update((int(places[row]), error) for row, error in refused.items())
        if 0 < len(refused) < part.num_rows:
            kept = np.delete(np.arange(part.num_rows), list(refused))
            waiting.append((part.take(indices_array(kept)), places[kept]))
    return dict(sorted(found.items()))


def _as_binary(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Spark's strings may hold invalid UTF-8. They are sent unchanged, and Python must not decode them."""
    columns = []
    for column in rows.columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            columns.append(column.cast(pa.binary()))
        elif pa.types.is_map(column.type):
            columns.append(column.cast(pa.map_(pa.binary(), pa.binary())))
        elif pa.types.is_list(column.type):
            columns.append(column.cast(pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, rows.schema.names)


def _timestamps(rows: pa.RecordBatch) -> tuple[pa.Array, list[str | None]]:
    """Milliseconds, null if the row has none; and the text of invalid timestamps."""
    count = rows.num_rows
    if "timestamp" not in rows.schema.names:
        return pa.nulls(count, pa.int64()), [None] * count
    column = rows.column("timestamp")
    unit_per_second = 1000
    if pa.types.is_timestamp(column.type):
        unit_per_second = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[column.type.unit]
        column = column.view(pa.int64())
    found: list[int | None] = [None if n is None else n * 1000 // unit_per_second for n in column.to_pylist()]
    is_bad = [ms is not None and not 0 <= ms < 2**63 for ms in found]
    kept = [None if bad else ms for ms, bad in zip(found, is_bad, strict=True)]
    texts = [str(ms) if bad else None for ms, bad in zip(found, is_bad, strict=True)]
    return pa.array(kept, pa.int64()), texts


def _own_headers(about: Mapping[str, str | None]) -> list[tuple[str, bytes | None]]:
    return [
        (HEADER_PREFIX + name, text[:_TEXT_CHARACTERS_MAX].encode()) for name, text in about.items() if text is not None
    ]


def _pairs(cell: Any) -> list[tuple[str, bytes | None]]:
    """Headers from a list of structs or a map; one without a name cannot be sent."""
    entries = [(entry["key"], entry["value"]) if isinstance(entry, dict) else entry for entry in cell or () if entry]
    return [(name.decode(errors="replace"), content) for name, content in entries if name is not None]
