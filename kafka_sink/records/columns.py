"""The rows of one append call as flat columns: key, value, headers, timestamp, partition.

All checks of column contents are here: `DataError` contains column, row and type, never a value. Knows nothing of
brokers or a topic's partitions; `routing` assigns partitions, `encoder` makes the records.

`row_ids` numbers the rows as the caller counts them. They stay with the rows through slicing, splitting by topic and
grouping, so that an error or an offset can be assigned to its row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from kafka_sink.error_table.writes import (
    ROW_HEADERS,
    ROW_PARTITION,
    ROW_TIMESTAMP,
    ROW_TOO_LARGE,
    ROW_WITHOUT_TOPIC,
    TOPIC_MISSING,
    VALUE_MISSING,
)
from kafka_sink.errors import ConfigError, DataError
from kafka_sink.frozen import frozen
from kafka_sink.records.batch import HEADER_BYTES, NO_TIMESTAMP
from kafka_sink.records.bytes_column import BytesColumn, check_bytes_type, plain_type, to_plain, wrong_type_error
from kafka_sink.records.headers import check_headers_type, encode_header_column
from kafka_sink.records.scalar import Headers, encode_headers
from kafka_sink.records.varint import Array, length_varint_sizes, varint_size

# Maximum size of a record's other fields: length, attributes, timestamp delta, offset delta.
RECORD_OVERHEAD_BYTES_MAX = 5 + 1 + 10 + 5
LARGE_VALUE_BYTES = 3000
# Means "any partition" (as NO_TIMESTAMP means "now"); valid values are never negative.
NO_PARTITION = -1

COLUMN_NAMES = ("key", "value", "headers", "topic", "partition", "timestamp")
INTEGER_TYPES = "int32 and int64"
_ENTRIES = {"timestamp": ROW_TIMESTAMP, "partition": ROW_PARTITION}
_EXPECTED = {
    "timestamp": "Kafka counts milliseconds from 1970 on, and null means now",
    "partition": "partitions count from 0, and null leaves the choice to the key",
}
TIMESTAMP_TYPES = "timestamp of any unit and int64 (milliseconds)"
_MS_PER_SECOND = 1000
_UNITS_PER_MS = {"ms": 1, "us": 1000, "ns": 1_000_000}

ArrowData = pa.RecordBatch | pa.Table
T = TypeVar("T")


@frozen
class RecordColumns:
    """A key or value of None is null in every row; headers of None: no headers; timestamps of None: all now.

    `sizes` are the encoded sizes of key, value and headers; one number if all rows have the same.
    """

    row_ids: Array
    sizes: Array | int
    key: BytesColumn | None
    value: BytesColumn | None
    headers: BytesColumn | None = None
    timestamps: Array | None = None
    partitions: Array | None = None

    @classmethod
    def of(
        cls,
        row_count: int,
        key: BytesColumn | None,
        value: BytesColumn | None,
        headers: BytesColumn | None = None,
        timestamps: Array | None = None,
        partitions: Array | None = None,
    ) -> RecordColumns:
        row_ids = np.arange(row_count, dtype=np.int32)
        return cls(row_ids, _record_sizes(key, value, headers), key, value, headers, timestamps, partitions)

    @classmethod
    def from_arrow(cls, data: ArrowData) -> RecordColumns:
        """Reads the columns value (required), key, headers, timestamp and partition; others are ignored."""
        check_schema(data.schema)
        return cls.of(
            data.num_rows,
            _read_bytes(data, "key"),
            _read_bytes(data, "value"),
            _read_headers(data),
            _read_numbers(data, "timestamp", _read_timestamps),
            _read_numbers(data, "partition", _read_partitions),
        )

    @classmethod
    def from_rows(
        cls,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[Headers | None] | None = None,
        timestamps: Sequence[int | None] | None = None,
        partitions: Sequence[int | None] | None = None,
    ) -> RecordColumns:
        return cls.of(
            len(values),
            _bytes_from_rows("key", keys),
            _bytes_from_rows("value", values),
            None if headers is None else _headers_from_rows(headers),
            None if timestamps is None else _numbers_from_rows("timestamp", timestamps, 2**63 - 1),
            None if partitions is None else _numbers_from_rows("partition", partitions, 2**31 - 1).astype(np.int32),
        )

    @property
    def row_count(self) -> int:
        return len(self.row_ids)

    @property
    def has_large_values(self) -> bool:
        """On average: another copy of each would cost more than some Python per row."""
        value = self.value
        return value is not None and int(value.starts[-1] - value.starts[0]) >= LARGE_VALUE_BYTES * self.row_count

    def slice(self, start: int, stop: int) -> RecordColumns:
        return self._map(lambda column: column.slice(start, stop), lambda array: array[start:stop])

    def take(self, rows: Array) -> RecordColumns:
        return self._map(lambda column: column.take(rows), lambda array: array[rows])

    def _map(self, of_bytes: Callable[[BytesColumn], BytesColumn], of_array: Callable[[Array], Array]) -> RecordColumns:
        return RecordColumns(
            of_array(self.row_ids),
            self.sizes if isinstance(self.sizes, int) else of_array(self.sizes),
            None if self.key is None else of_bytes(self.key),
            None if self.value is None else of_bytes(self.value),
            None if self.headers is None else of_bytes(self.headers),
            None if self.timestamps is None else of_array(self.timestamps),
            None if self.partitions is None else of_array(self.partitions),
        )

    def record_sizes(self, *, timestamp_span_ms: int, records_max: int) -> Array | int:
        """Upper bounds of the record sizes in a batch with these limits of records and time span; nearly exact."""
        body = self.sizes + (1 + varint_size(timestamp_span_ms) + varint_size(records_max))
        if isinstance(body, int):
            return varint_size(body) + body
        body += length_varint_sizes(body)
        return body

    @property
    def bytes_max(self) -> int:
        """Upper bound of the size of all records together, before compression and without batch headers."""
        sizes = self.sizes
        total = sizes * self.row_count if isinstance(sizes, int) else int(sizes.sum())
        return total + RECORD_OVERHEAD_BYTES_MAX * self.row_count

    def check_record_sizes(self, request_bytes_max: int, buffer_bytes_max: int | None = None) -> None:
        """Each record must fit a request of its own (Java's client uses the same size), and the memory for records."""
        found = self._first_larger(request_bytes_max, HEADER_BYTES + RECORD_OVERHEAD_BYTES_MAX)
        says = f"bytes in a request; max.request.size allows {request_bytes_max}"
        if found is None and buffer_bytes_max is not None and buffer_bytes_max < request_bytes_max:
            found = self._first_larger(buffer_bytes_max, RECORD_OVERHEAD_BYTES_MAX)
            says = f"bytes and never fits into buffer.memory={buffer_bytes_max}"
        if found is not None:
            row, size = found
            raise DataError(f"the record of row {row} takes {size} {says}", ROW_TOO_LARGE, row=row)

    def _first_larger(self, bytes_max: int, overhead_bytes: int) -> tuple[int, int] | None:
        """The row of the first record that is larger, and its size."""
        sizes = self.sizes + overhead_bytes
        largest = sizes if isinstance(sizes, int) else int(sizes.max(initial=0))
        if largest <= bytes_max or not self.row_count:
            return None
        index = 0 if isinstance(sizes, int) else int(np.argmax(sizes > bytes_max))
        return int(self.row_ids[index]), sizes if isinstance(sizes, int) else int(sizes[index])

    def timestamp_span_ms(self) -> int:
        """The largest difference between two rows' own timestamps."""
        if self.timestamps is None or not len(self.timestamps):
            return 0
        return int(self.timestamps.max()) - int(self.timestamps.min())


def check_schema(schema: pa.Schema) -> None:
    """Raises `DataError` if a column's type cannot be written; may be called before there are rows."""
    names = schema.names
    if "value" not in names:
        raise DataError("there is no column value", VALUE_MISSING, column="value")
    for name in COLUMN_NAMES:
        if names.count(name) > 1:
            raise DataError(f"there are {names.count(name)} columns {name}", column=name)
    for name in ("key", "value", "topic"):
        if name in names:
            check_bytes_type(_field(schema, name).type, name, text_only=name == "topic")
    if "headers" in names:
        check_headers_type(_field(schema, "headers").type)
    if "timestamp" in names:
        _check_timestamp_type(plain_type(_field(schema, "timestamp").type))
    if "partition" in names:
        _check_partition_type(plain_type(_field(schema, "partition").type))


def columns_by_topic(data: ArrowData, *, topic: str | None) -> list[tuple[str, RecordColumns]]:
    """All rows for `topic`; without it, split by the column topic, in the order in which the topics first appear."""
    if not isinstance(data, ArrowData):
        raise DataError(f"rows must come as a pyarrow RecordBatch or Table, not {type(data).__name__}")
    columns = RecordColumns.from_arrow(data)
    if topic is not None:
        return [(topic, columns)]
    if "topic" not in data.schema.names:
        raise ConfigError("no topic: set the option topic or add a column topic", TOPIC_MISSING)
    names = BytesColumn.concat(
        [BytesColumn.from_arrow(chunk, "topic", text_only=True) for chunk in _chunks(data, "topic")]
    )
    if names.has_nulls:
        row = int(np.argmax(names.lengths < 0))
        raise DataError(
            f"null topic in row {row}: set the option topic or fill the column topic",
            ROW_WITHOUT_TOPIC,
            row=row,
            column="topic",
        )
    encoded = names.elements().dictionary_encode()
    index = encoded.indices.to_numpy()
    topics = [_decode_topic(name, number, index) for number, name in enumerate(encoded.dictionary.to_pylist())]
    if len(topics) == 1:
        return [(topics[0], columns)]
    return [(name, columns.take(np.flatnonzero(index == number))) for number, name in enumerate(topics)]


def _decode_topic(name: bytes, number: int, index: Array) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        row = int(np.argmax(index == number))
        raise DataError(f"the topic of row {row} is not UTF-8", row=row, column="topic") from None


def _record_sizes(key: BytesColumn | None, value: BytesColumn | None, headers: BytesColumn | None) -> Array | int:
    total: Array | int = 1 if headers is None else headers.longest if headers.is_equal_length else headers.lengths
    for column in (key, value):
        total = total + (1 if column is None else column.sizes())
    return total


# ---- from Arrow ------------------------------------------------------------------------------------------------


def _field(schema: pa.Schema, name: str) -> pa.Field:
    """The first field with that name, as in Spark."""
    return schema.field(schema.names.index(name))


def _chunks(data: ArrowData, name: str) -> list[pa.Array]:
    column = data.column(data.schema.names.index(name))
    if isinstance(column, pa.ChunkedArray):
        # Any type may be null, and Arrow has no empty array for some types.
        return [*column.chunks] or [pa.nulls(0)]
    return [column]


def _read_bytes(data: ArrowData, name: str) -> BytesColumn | None:
    if name not in data.schema.names:
        return None
    column = BytesColumn.concat([BytesColumn.from_arrow(chunk, name) for chunk in _chunks(data, name)])
    return None if column.longest < 0 else column


def _read_headers(data: ArrowData) -> BytesColumn | None:
    if "headers" not in data.schema.names:
        return None
    chunks = _chunks(data, "headers")
    blocks = []
    first_row = 0
    for chunk in chunks:
        blocks.append(_read_chunk(encode_header_column, chunk, first_row))
        first_row += len(chunk)
    if all(block is None for block in blocks):
        return None
    return BytesColumn.concat(
        [_no_headers(len(chunk)) if block is None else block for chunk, block in zip(chunks, blocks, strict=True)]
    )


def _no_headers(row_count: int) -> BytesColumn:
    return BytesColumn.of(
        np.zeros(row_count, np.uint8), np.arange(row_count + 1, dtype=np.int32), np.ones(row_count, np.int32)
    )


def _read_numbers(data: ArrowData, name: str, read: Callable[[pa.Array], Array]) -> Array | None:
    if name not in data.schema.names:
        return None
    parts = []
    first_row = 0
    for chunk in _chunks(data, name):
        parts.append(_read_chunk(read, to_plain(chunk), first_row))
        first_row += len(chunk)
    numbers = np.concatenate(parts)
    # All null is the same as a missing column.
    return numbers if int(numbers.max(initial=-1)) >= 0 else None


def _read_chunk(read: Callable[[pa.Array], T], chunk: pa.Array, first_row: int) -> T:
    """`read` numbers rows from the start of the chunk; errors raised here number them from the start of the column."""
    try:
        return read(chunk)
    except DataError as error:
        if error.row is None or first_row == 0:
            raise
        row = first_row + error.row
        text = str(error).replace(f"row {error.row}", f"row {row}")
        raise DataError(text, error.entry, row=row, column=error.column) from None


def _check_timestamp_type(kind: pa.DataType) -> None:
    types = pa.types
    if not (types.is_timestamp(kind) or types.is_int64(kind) or types.is_null(kind)):
        raise wrong_type_error("timestamp", kind, TIMESTAMP_TYPES)


def _check_partition_type(kind: pa.DataType) -> None:
    types = pa.types
    if not (types.is_int32(kind) or types.is_int64(kind) or types.is_null(kind)):
        raise wrong_type_error("partition", kind, INTEGER_TYPES)


def _read_timestamps(array: pa.Array) -> Array:
    numbers = _read_valid_numbers("timestamp", array)
    if not pa.types.is_timestamp(array.type) or not len(numbers):
        return numbers
    if array.type.unit != "s":
        # Rounds down, which keeps "none" at -1.
        return numbers // _UNITS_PER_MS[array.type.unit]
    _refuse_above("timestamp", numbers, (2**63 - 1) // _MS_PER_SECOND)
    return np.where(numbers < 0, NO_TIMESTAMP, numbers * _MS_PER_SECOND)


def _read_partitions(array: pa.Array) -> Array:
    numbers = _read_valid_numbers("partition", array)
    _refuse_above("partition", numbers, 2**31 - 1)
    return numbers.astype(np.int32, copy=False)


def _read_valid_numbers(column: str, array: pa.Array) -> Array:
    """Nulls become -1; a number below 0 is an error."""
    if pa.types.is_null(array.type):
        return np.full(len(array), -1, np.int64)
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    is_null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    numbers: Array = array.fill_null(-1).to_numpy(zero_copy_only=False)
    if int(numbers.min(initial=0)) < 0:
        _refuse_first(column, (numbers < 0) if is_null is None else (numbers < 0) & ~is_null, "is negative")
    return numbers


def _refuse_above(column: str, numbers: Array, highest: int) -> None:
    if int(numbers.max(initial=0)) > highest:
        _refuse_first(column, numbers > highest, f"is above {highest}")


def _refuse_first(column: str, is_bad: Array, what: str) -> None:
    bad = np.flatnonzero(is_bad)
    if len(bad):
        row = int(bad[0])
        text = f"column {column} {what} in row {row}: {_EXPECTED[column]}"
        raise DataError(text, _ENTRIES[column], row=row, column=column)


# ---- from rows -------------------------------------------------------------------------------------------------


def _bytes_from_rows(column: str, contents: Sequence[bytes | None]) -> BytesColumn | None:
    try:
        array = pa.array(contents, pa.large_binary())
    except (pa.ArrowException, TypeError, ValueError):
        raise _not_bytes_error(column, contents) from None
    if array.null_count == len(array) and len(array):
        return None
    return BytesColumn.from_arrow(array, column)


def _not_bytes_error(column: str, contents: Sequence[Any]) -> DataError:
    for row, content in enumerate(contents):
        if content is not None and not isinstance(content, bytes | bytearray | memoryview | str):
            text = f"{column} of row {row} is of type {type(content).__name__}; accepted are bytes and None"
            return DataError(text, row=row, column=column)
    return DataError(f"{column} holds rows that cannot be sent", column=column)


def _headers_from_rows(rows: Sequence[Headers | None]) -> BytesColumn | None:
    if not any(rows):
        return None
    blocks = []
    for row, headers in enumerate(rows):
        try:
            blocks.append(encode_headers(headers or ()))
        except (TypeError, ValueError, AttributeError):
            text = f"headers of row {row} are not pairs of a text and bytes or None"
            raise DataError(text, ROW_HEADERS, row=row, column="headers") from None
    starts = np.zeros(len(blocks) + 1, np.int64)
    np.cumsum([len(block) for block in blocks], out=starts[1:])
    return BytesColumn.of(np.frombuffer(b"".join(blocks), np.uint8), starts, np.diff(starts))


def _numbers_from_rows(column: str, rows: Sequence[int | None], highest: int) -> Array:
    for row, number in enumerate(rows):
        if number is not None and not (isinstance(number, int) and 0 <= number <= highest):
            raise DataError(
                f"{column} of row {row} is no number in 0..{highest}", _ENTRIES.get(column), row=row, column=column
            )
    return np.array([-1 if number is None else number for number in rows], np.int64)
