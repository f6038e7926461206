"""Rows that can never be sent, found and set apart: record.errors = drop and dead-letter.

The same checks that would refuse a whole Arrow batch are asked about smaller and smaller parts of it, until what they
refuse is a single row. So there is no second set of rules here, and a batch without such a row costs one check.

Rows that do not fit the schema of their value or key are found by the encoder, before all this. Their letters hold the
column as JSON.

A dead letter keeps key, value and headers of its row as far as they can be sent at all, and says in headers of its own
what was wrong and where the row came from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafka_sink.errors import ConfigError, DataError
from kafka_sink.options import ProducerOptions
from kafka_sink.options.sink_table import TopicName
from kafka_sink.producer.producer import Producer
from kafka_sink.records.columns import columns_by_topic

if TYPE_CHECKING:
    from kafka_sink.spark.encoding import RowEncoding

HEADER_PREFIX = "pykafka-sink."
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
# For the sink's own headers, whose longest is the error's text.
_LETTER_OVERHEAD_BYTES = 2048
_REASONS = {None: "too large", "topic": "no topic", "partition": "no such partition"}


@dataclass(frozen=True)
class Unsendable:
    """`rows` with what is wrong with each; `positions` are their places in the Arrow batch."""

    rows: pa.RecordBatch
    positions: list[int]
    errors: list[DataError]

    def moved(self, places: Sequence[int]) -> Unsendable:
        """The same, where place i of what was looked at is `places[i]` of the Arrow batch."""
        return replace(self, positions=[places[position] for position in self.positions])

    def counts(self) -> Mapping[str, int]:
        return Counter(reason_of(error) for error in self.errors)

    def letters(
        self, *, place: Mapping[str, str], topic: str | None, first_row: int, request_bytes_max: int
    ) -> pa.RecordBatch:
        keys, values, headers = [], [], []
        for row, position, error in zip(_as_binary(self.rows).to_pylist(), self.positions, self.errors, strict=True):
            about = {
                "error": str(error).replace(f"row {error.row}", f"row {first_row + position}", 1),
                "reason": reason_of(error),
                "topic": topic or _as_text(row.get("topic")),
                "row": str(first_row + position),
                **place,
            }
            if row.get("partition") is not None:
                about["partition"] = str(row["partition"])
            key, value = row.get("key"), row["value"]
            kept = [] if error.column == "headers" else _pairs(row.get("headers"))
            room = request_bytes_max - _LETTER_OVERHEAD_BYTES - sum(len(each) + len(said or b"") for each, said in kept)
            if _size(key) + _size(value) > room:
                about["value.bytes"] = str(_size(value))
                value = None
            if _size(key) > room:
                about["key.bytes"] = str(_size(key))
                key, kept = None, []
            own = [(HEADER_PREFIX + name, said.encode()) for name, said in about.items() if said is not None]
            keys.append(key)
            values.append(value)
            headers.append([{"key": name, "value": said} for name, said in (*kept, *own)])
        arrays = [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(headers, _HEADERS)]
        return pa.RecordBatch.from_arrays(arrays, ["key", "value", "headers"])


def sorted_out(
    rows: pa.RecordBatch, topic: str | None, producer: Producer, options: ProducerOptions
) -> tuple[pa.RecordBatch, Unsendable | None]:
    """What can be sent, and what cannot."""
    check = _Check(topic, producer, options)
    found = list(_refused(rows, 0, check))
    if not found:
        return rows, None
    positions = [position for position, _ in found]
    is_bad = set(positions)
    good = pa.array([index for index in range(rows.num_rows) if index not in is_bad], pa.int64())
    return rows.take(good), Unsendable(rows.take(pa.array(positions, pa.int64())), positions, [e for _, e in found])


def without_misfits(
    rows: pa.RecordBatch, given: pa.RecordBatch, misfits: Mapping[int, DataError], encoding: RowEncoding
) -> tuple[pa.RecordBatch, list[int], Unsendable]:
    """The encoded rows that fit their schema, their places, and those that do not: what was given of them as text."""
    kept = [index for index in range(rows.num_rows) if index not in misfits]
    unfit = encoding.told(given.take(pa.array(list(misfits), pa.int64())))
    return rows.take(pa.array(kept, pa.int64())), kept, Unsendable(unfit, list(misfits), list(misfits.values()))


def reason_of(error: DataError) -> str:
    return _REASONS.get(error.column, f"bad {error.column}")


def _refused(rows: pa.RecordBatch, first: int, check: _Check) -> Iterator[tuple[int, DataError]]:
    try:
        check.rows(rows)
    except DataError as error:
        if rows.num_rows == 1:
            yield first, error
            return
        half = rows.num_rows // 2
        yield from _refused(rows.slice(0, half), first, check)
        yield from _refused(rows.slice(half), first + half, check)


class _Check:
    """Everything that `send_arrow` refuses, without sending."""

    def __init__(self, topic: str | None, producer: Producer, options: ProducerOptions) -> None:
        self._topic = topic
        self._producer = producer
        self._request_bytes_max = options.max_request_size
        self._partition_counts: dict[str, int] = {}

    def rows(self, rows: pa.RecordBatch) -> None:
        for topic, columns in columns_by_topic(rows, topic=self._topic):
            columns.check_record_sizes(self._request_bytes_max)
            self._check_topic_name(topic)
            if columns.partitions is None:
                continue
            highest = int(columns.partitions.max(initial=-1))
            if highest >= self._partition_count(topic):
                row = int(columns.row_ids[int(columns.partitions.argmax())])
                text = f"row {row} names partition {highest}; topic {topic} has {self._partition_count(topic)}"
                raise DataError(text, row=row, column="partition")

    def _check_topic_name(self, topic: str) -> None:
        try:
            TopicName().parse("topic", topic)
        except ConfigError as error:
            raise DataError(str(error), column="topic") from None

    def _partition_count(self, topic: str) -> int:
        if topic not in self._partition_counts:
            self._partition_counts[topic] = len(self._producer.partitions_for(topic))
        return self._partition_counts[topic]


def _as_binary(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Spark's strings may hold bytes that are no UTF-8. They are sent as they are, and Python must not decode them."""
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


def _as_text(cell: bytes | None) -> str | None:
    return None if cell is None else cell.decode(errors="replace")


def _size(cell: bytes | None) -> int:
    return 0 if cell is None else len(cell)


def _pairs(cell: Any) -> list[tuple[str, bytes | None]]:
    """Headers as they come from a list of structs or from a map."""
    entries = [(entry["key"], entry["value"]) if isinstance(entry, dict) else entry for entry in cell or ()]
    return [(name.decode(errors="replace"), said) for name, said in entries]
