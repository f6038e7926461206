"""The rows of one append call as flat columns: key, value, headers, timestamp, partition.

All checks of column contents are here: `DataError` contains column, row and type, never a value. Knows nothing of
brokers or a topic's partitions; `routing` assigns partitions, `encoder` makes the records.

`row_ids` numbers the rows as the caller counts them. They stay with the rows through slicing, splitting by topic and
grouping, so that an error or an offset can be assigned to its row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from kafka_sink.errors import ConfigError, DataError, RowsRefused
from kafka_sink.errors.table.writes import (
    ROW_PARTITION,
    ROW_TIMESTAMP,
    ROW_TOO_LARGE,
    ROW_WITHOUT_TOPIC,
    TOPIC_MISSING,
    VALUE_MISSING,
)
from kafka_sink.formats.records.arrays import distinct_elements, read_integers
from kafka_sink.formats.records.batch import HEADER_BYTES, NO_TIMESTAMP
from kafka_sink.formats.records.bytes_column import (
    BytesColumn,
    check_bytes_type,
    plain_type,
    to_plain,
    wrong_type_error,
)
from kafka_sink.formats.records.headers import check_headers_type, encode_header_column
from kafka_sink.formats.records.scalar import Headers, encode_headers
from kafka_sink.formats.records.varint import Array, length_varint_sizes, varint_size
from kafka_sink.frozen import frozen

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
_UNITS_PER_MS = {"us": 1000, "ns": 1_000_000}
_NUMBER_TYPES = {
    "timestamp": ((pa.types.is_timestamp, pa.types.is_int64, pa.types.is_null), TIMESTAMP_TYPES),
    "partition": ((pa.types.is_int32, pa.types.is_int64, pa.types.is_null), INTEGER_TYPES),
}

ArrowData = pa.RecordBatch | pa.Table


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
        try:
            return cls.of(
                data.num_rows,
                _read_bytes(data, "key"),
                _read_bytes(data, "value"),
                _read_headers(data),
                _read_timestamps(data),
                _read_partitions(data),
            )
        except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
            # More than 2 GiB in one array of headers or of a dictionary, or an index outside its dictionary.
            raise DataError(f"the rows cannot be read: {error}; if they are very many, send fewer at once") from None

    @classmethod
    def from_rows(
        cls,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[Headers | None] | None = None,
    ) -> RecordColumns:
        """The caller has checked the types."""
        return cls.of(
            len(values),
            _bytes_from_rows(keys),
            _bytes_from_rows(values),
            None if headers is None or not any(headers) else _headers_from_rows(headers),
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
        row_count = len(self.row_ids)
        total = self.sizes * row_count if isinstance(self.sizes, int) else int(self.sizes.sum())
        return total + RECORD_OVERHEAD_BYTES_MAX * row_count

    def check_record_sizes(self, request_bytes_max: int, buffer_bytes_max: int | None = None) -> None:
        """Each record must fit a request of its own (Java's client uses the same size), and the memory for records."""
        says = f"bytes in a request; max.request.size allows {request_bytes_max}"
        self._refuse_larger(request_bytes_max, HEADER_BYTES + RECORD_OVERHEAD_BYTES_MAX, says)
        if buffer_bytes_max is not None and buffer_bytes_max < request_bytes_max:
            says = f"bytes and never fits into buffer.memory={buffer_bytes_max}"
            self._refuse_larger(buffer_bytes_max, RECORD_OVERHEAD_BYTES_MAX, says)

    def _refuse_larger(self, bytes_max: int, overhead_bytes: int, says: str) -> None:
        sizes = self.sizes + overhead_bytes
        largest = sizes if isinstance(sizes, int) else int(sizes.max(initial=0))
        if largest <= bytes_max or not self.row_count:
            return
        each = np.broadcast_to(sizes, self.row_count)
        larger = np.flatnonzero(each > bytes_max)
        found = each[larger]

        def error_of(row: int, place: int) -> DataError:
            return DataError(f"the record of row {row} takes {found[place]} {says}", ROW_TOO_LARGE, row=row)

        raise RowsRefused(self.row_ids[larger].tolist(), error_of)

    def timestamp_span_ms(self) -> int:
        """The largest difference between two rows' own timestamps."""
        if self.timestamps is None:
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
            check_bytes_type(schema.field(name).type, name, text_only=name == "topic")
    if "headers" in names:
        check_headers_type(schema.field("headers").type)
    for name, (kinds, accepted) in _NUMBER_TYPES.items():
        if name in names and not any(is_kind(plain_type(schema.field(name).type)) for is_kind in kinds):
            raise wrong_type_error(name, plain_type(schema.field(name).type), accepted)


def columns_by_topic(data: ArrowData, *, topic: str | None) -> list[tuple[str, RecordColumns]]:
    """All rows for `topic`; without it, split by the column topic, in the order in which the topics first appear."""
    if not isinstance(data, ArrowData):
        raise DataError(f"rows must come as a pyarrow RecordBatch or Table, not {type(data).__name__}")
    columns = RecordColumns.from_arrow(data)
    if topic is not None:
        return [(topic, columns)]
    if "topic" not in data.schema.names:
        raise ConfigError("no topic: set the option topic or add a column topic", TOPIC_MISSING)
    names = BytesColumn.concat([BytesColumn.from_arrow(chunk) for chunk in _chunks(data, "topic")])
    if names.has_nulls:
        raise RowsRefused(np.flatnonzero(names.lengths < 0).tolist(), _no_topic_error)
    distinct, index = distinct_elements(names.elements())
    topics = _decode_topics(distinct, index)
    if len(topics) == 1:
        return [(topics[0], columns)]
    return [(name, columns.take(np.flatnonzero(index == number))) for number, name in enumerate(topics)]


def _no_topic_error(row: int, _: int) -> DataError:
    text = f"null topic in row {row}: set the option topic or fill the column topic"
    return DataError(text, ROW_WITHOUT_TOPIC, row=row, column="topic")


def _decode_topics(names: Sequence[bytes], index: Array) -> list[str]:
    """`index` says which of the names each row has."""
    is_text = np.array([name.decode(errors="replace").encode() == name for name in names], np.bool_)
    if not is_text.all():
        raise RowsRefused(np.flatnonzero(~is_text[index]).tolist(), _topic_text_error)
    return [name.decode() for name in names]


def _topic_text_error(row: int, _: int) -> DataError:
    return DataError(f"the topic of row {row} is not UTF-8", row=row, column="topic")


def _record_sizes(key: BytesColumn | None, value: BytesColumn | None, headers: BytesColumn | None) -> Array | int:
    total: Array | int = 1 if headers is None else headers.longest if headers.is_equal_length else headers.lengths
    for column in (key, value):
        total = total + (1 if column is None else column.sizes())
    return total


# ---- from Arrow ------------------------------------------------------------------------------------------------


def _chunks(data: ArrowData, name: str) -> list[pa.Array]:
    column = data.column(name)
    if isinstance(column, pa.ChunkedArray):
        # Any type may be null, and Arrow has no empty array for some types.
        return [*column.chunks] or [pa.nulls(0)]
    return [column]


def _read_bytes(data: ArrowData, name: str) -> BytesColumn | None:
    if name not in data.schema.names:
        return None
    column = BytesColumn.concat([BytesColumn.from_arrow(chunk) for chunk in _chunks(data, name)])
    return None if column.longest < 0 else column


def _read_headers(data: ArrowData) -> BytesColumn | None:
    if "headers" not in data.schema.names:
        return None
    blocks = []
    first_row = 0
    for chunk in _chunks(data, "headers"):
        blocks.append(encode_header_column(chunk, first_row))
        first_row += len(chunk)
    column = BytesColumn.concat(blocks)
    # One byte is the number of headers, 0.
    return None if column.longest <= 1 else column


def _read_timestamps(data: ArrowData) -> Array | None:
    array = _read_numbers(data, "timestamp")
    if array is None:
        return None
    unit = array.type.unit if pa.types.is_timestamp(array.type) else "ms"
    numbers = _check_numbers("timestamp", array, (2**63 - 1) // (_MS_PER_SECOND if unit == "s" else 1))
    if unit == "ms":
        return numbers
    if unit == "s":
        return np.where(numbers < 0, NO_TIMESTAMP, numbers * _MS_PER_SECOND)
    # Rounds down, which keeps "none" at -1.
    return numbers // _UNITS_PER_MS[unit]


def _read_partitions(data: ArrowData) -> Array | None:
    array = _read_numbers(data, "partition")
    numbers = None if array is None else _check_numbers("partition", array, 2**31 - 1)
    return None if numbers is None else numbers.astype(np.int32, copy=False)


def _read_numbers(data: ArrowData, name: str) -> pa.Array | None:
    """None: there is no such column, or all of it is null, which means the same."""
    if name not in data.schema.names:
        return None
    chunks = [to_plain(chunk) for chunk in _chunks(data, name)]
    array = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    return None if array.null_count == len(array) else array


def _check_numbers(column: str, array: pa.Array, highest: int) -> Array:
    """The numbers, -1 for a null."""
    numbers, valid = read_integers(array)
    if int(numbers.min()) < 0:
        is_negative = numbers < 0
        _refuse(column, is_negative if valid is None else is_negative & valid, "is negative")
    if int(numbers.max()) > highest:
        _refuse(column, numbers > highest, f"is above {highest}")
    return numbers


def _refuse(column: str, is_bad: Array, what: str) -> None:
    def error_of(row: int, _: int) -> DataError:
        text = f"column {column} {what} in row {row}: {_EXPECTED[column]}"
        return DataError(text, _ENTRIES[column], row=row, column=column)

    if bad := np.flatnonzero(is_bad).tolist():
        raise RowsRefused(bad, error_of)


# ---- from rows -------------------------------------------------------------------------------------------------


def _bytes_from_rows(contents: Sequence[bytes | None]) -> BytesColumn | None:
    """Without `pa.array`, which would import pandas (see `bytes_array`)."""
    present = [content for content in contents if content is not None]
    if not present:
        return None
    lengths = np.array([-1 if content is None else len(content) for content in contents], np.int64)
    starts = np.zeros(len(contents) + 1, np.int64)
    np.cumsum(np.maximum(lengths, 0), out=starts[1:])
    return BytesColumn.of(np.frombuffer(b"".join(present), np.uint8), starts, lengths)


def _headers_from_rows(rows: Sequence[Headers | None]) -> BytesColumn:
    blocks = [encode_headers(headers or ()) for headers in rows]
    starts = np.zeros(len(blocks) + 1, np.int64)
    np.cumsum([len(block) for block in blocks], out=starts[1:])
    return BytesColumn.of(np.frombuffer(b"".join(blocks), np.uint8), starts, np.diff(starts))
