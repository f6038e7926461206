"""From the arguments of `send` to the bytes of a row. Errors contain topic and field, never the content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka_sink.errors import DataError, LocalProtocolError
from kafka_sink.errors.table.writes import ROW_HEADERS, ROW_PARTITION, ROW_TIMESTAMP
from kafka_sink.formats.records.columns import RecordColumns
from kafka_sink.kafka.wire.primitives import encode_string
from kafka_sink.options.producer_options import INT_MAX, LONG_MAX, Serializer
from kafka_sink.producer.collector import HeaderPairs
from kafka_sink.producer.interceptors import HeaderList

# Overhead of a row besides its bytes: record framing and bookkeeping in a batch.
ROW_OVERHEAD_BYTES = 32


def serialize(field: str, topic: str, content: Any, serializer: Serializer | None) -> bytes | None:
    """Without a serializer bytes are unchanged, and text becomes UTF-8."""
    if serializer is not None:
        try:
            content = serializer(content)
        except Exception as error:
            name = getattr(serializer, "__qualname__", type(serializer).__name__)
            text = f"the {field} of a record for topic {topic} was not serialized: {name} raised {type(error).__name__}"
            raise DataError(text, column=field) from error
    if content is None or type(content) is bytes:
        return content
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    if isinstance(content, str) and serializer is None:
        try:
            return content.encode()
        except UnicodeEncodeError:
            raise DataError(f"the {field} of a record for topic {topic} is no valid text", column=field) from None
    wanted = "bytes or None" if serializer is not None else "bytes, str or None, or a serializer"
    raise DataError(
        f"the {field} of a record for topic {topic} is of type {type(content).__name__}; needed is {wanted}",
        column=field,
    )


def read_headers(topic: str, headers: HeaderList) -> tuple[HeaderPairs | None, int]:
    """Checked pairs and an upper bound of their bytes. Order and duplicates are kept."""
    if not isinstance(headers, Iterable):
        raise _headers_error(topic, type(headers).__name__)
    pairs = []
    byte_count = 0
    for item in headers.items() if isinstance(headers, Mapping) else headers:
        try:
            name, content = item
        except (TypeError, ValueError):
            raise _headers_error(topic, type(item).__name__) from None
        if not isinstance(name, str):
            raise _headers_error(topic, f"a name of type {type(name).__name__}")
        serialize("name of a header", topic, name, None)
        pair = name, serialize(f"header {name!a}", topic, content, None)
        pairs.append(pair)
        byte_count += 4 * len(name) + len(pair[1] or b"") + 2 * 5
    return tuple(pairs) or None, byte_count


def _headers_error(topic: str, found: str) -> DataError:
    text = f"headers of a record for topic {topic}: expected pairs of a name and bytes or None, not {found}"
    return DataError(text, ROW_HEADERS, column="headers")


def check_row(topic: str, timestamp_ms: int | None, partition: int | None) -> None:
    if not isinstance(topic, str) or not topic:
        raise DataError(f"a topic must be text that is not empty, not {type(topic).__name__}", column="topic")
    if timestamp_ms is not None and not (type(timestamp_ms) is int and 0 <= timestamp_ms <= LONG_MAX):
        raise DataError(
            "timestamp_ms must be a number of milliseconds since 1970, not negative", ROW_TIMESTAMP, column="timestamp"
        )
    if partition is not None and not (type(partition) is int and 0 <= partition <= INT_MAX):
        raise DataError(f"partition {partition!r} is no number in 0..{INT_MAX}", ROW_PARTITION, column="partition")


def check_string(what: str, given: Any, column: str) -> None:
    """Here the user gets an error. In the engine what no request can hold would spoil other requests too."""
    try:
        encode_string(given)
    except LocalProtocolError as error:
        raise DataError(f"{what} cannot be sent: {error}", column=column) from None


def check_size(
    topic: str, key: bytes | None, value: bytes | None, headers: HeaderPairs | None, request_bytes_max: int
) -> None:
    """Uses the encoder's measure, so that nothing accepted here is refused there."""
    columns = RecordColumns.from_rows([key], [value], [headers] if headers else None)
    try:
        columns.check_record_sizes(request_bytes_max)
    except DataError as error:
        raise DataError(str(error).replace("of row 0 ", f"for topic {topic} "), error.entry) from None
