"""Every codec and level with each kind of key, value, headers and timestamp; two foreign readers read them back equal.

Each test has one topic, with a partition per codec level, so that the console consumer (which takes ten seconds to
start and to end) runs once for all of them. The broker's own log dump shows that the batches have the wanted codec.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from kafka_sink import Producer
from tests.chaos.extent import NEWEST_MAINLY
from tests.support.view_types import BINARY_VIEWS, STRING_VIEWS
from tools.foreign_reader import ForeignRecord, read_topic, read_topic_java
from tools.java import dump_log_segments, run_class
from tools.kafka_cluster import KafkaCluster

TIMEOUT_S = 120
LEVELS: tuple[tuple[str, int | None], ...] = (
    ("none", None), ("gzip", None), ("gzip", 1), ("gzip", 9), ("snappy", None), ("lz4", None), ("lz4", 1),
    ("lz4", 17), ("zstd", None), ("zstd", -5), ("zstd", 19),
)  # fmt: skip

ODD = b"tab\t line\n backslash\\ comma, colon: zero\x00 high\xff"
Headers = tuple[tuple[str, bytes | None], ...]
KEYS = (None, b"", b"key", ODD)
VALUES = (None, b"", b"value " * 40, ODD)
HEADERS: tuple[Headers, ...] = (
    (),
    (("one", b"1"),),
    (("b", b"first"), ("a", b"second"), ("empty", b"")),
    (("twice", b"1"), ("twice", b"2"), ("twice", b"1")),
    (("nothing", None), ("odd", ODD)),
)
# The far past and the far future share one batch: timestamps are deltas within it.
GIVEN_MS = (0, 1, 1_700_000_000_123, 253_402_300_799_999)


@dataclass(frozen=True)
class Row:
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None  # None: now


def matrix() -> list[Row]:
    kinds = itertools.product(KEYS, VALUES, HEADERS, (True, False))
    return [
        Row(key, value, headers, GIVEN_MS[number % len(GIVEN_MS)] if is_given else None)
        for number, (key, value, headers, is_given) in enumerate(kinds)
    ]


def options(kafka: KafkaCluster, codec: str, level: int | None) -> dict[str, object]:
    found: dict[str, object] = {"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec}
    return found if level is None else {**found, f"compression.{codec}.level": level}


def table(rows: Sequence[Row], partition: int) -> pa.Table:
    headers = [[{"key": name, "value": value} for name, value in row.headers] for row in rows]
    return pa.table(
        {
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
            "headers": pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            "timestamp": pa.array([row.timestamp_ms for row in rows], pa.int64()),
            "partition": pa.array([partition] * len(rows), pa.int32()),
        }
    )


def check_equal(found: Sequence[ForeignRecord], rows: Sequence[Row], span_ms: tuple[int, int], where: str) -> None:
    assert len(found) == len(rows), where
    for index, (record, row) in enumerate(zip(found, rows, strict=True)):
        seen = (record.offset, record.key, record.value, record.headers)
        assert seen == (index, row.key, row.value, row.headers), f"{where}, row {index}"
        if row.timestamp_ms is None:
            assert span_ms[0] <= record.timestamp_ms <= span_ms[1], f"{where}, row {index}"
        else:
            assert record.timestamp_ms == row.timestamp_ms, f"{where}, row {index}"


def by_partition(records: Sequence[ForeignRecord]) -> dict[int, list[ForeignRecord]]:
    return {number: list(group) for number, group in itertools.groupby(records, key=lambda record: record.partition)}


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def codecs_in_log(kafka: KafkaCluster, topic: str, partitions: Sequence[int]) -> list[set[str]]:
    """For each partition the codecs of all its batches, as shown by the broker's own tool."""
    logs = ",".join(str(kafka.data_folder(1) / f"{topic}-{one}" / f"{0:020d}.log") for one in partitions)
    dump = run_class(kafka.version, dump_log_segments(kafka.version), ["--files", logs]).decode()
    _, *of_partitions = re.split("^Dumping ", dump, flags=re.MULTILINE)
    return [{name.lower() for name in re.findall(r"compresscodec: (\w+)", one)} for one in of_partitions]


@NEWEST_MAINLY  # batches are stored as they are sent, by both versions
def test_every_codec_level_key_value_header_and_timestamp_is_read_back_equal(
    kafka: KafkaCluster, topic_name: str
) -> None:
    """Even partitions are written by send(), odd ones by send_arrow()."""
    kafka.create_topic(topic_name, partitions=2 * len(LEVELS))
    rows = matrix()
    started_ms = wall_ms()
    for number, (codec, level) in enumerate(LEVELS):
        with Producer(options(kafka, codec, level)) as producer:
            futures = [
                producer.send(
                    topic_name, value=row.value, key=row.key, headers=row.headers or None,
                    timestamp_ms=row.timestamp_ms, partition=2 * number,
                )
                for row in rows
            ]  # fmt: skip
            arrow_future = producer.send_arrow(table(rows, 2 * number + 1), topic=topic_name)
            assert [future.result(TIMEOUT_S).offset for future in futures] == list(range(len(rows)))
            ranges = arrow_future.result(TIMEOUT_S).partitions
            assert [(where, found.first_offset, found.record_count) for where, found in ranges.items()] == [
                ((topic_name, 2 * number + 1), 0, len(rows))
            ]
    span_ms = (started_ms, wall_ms())

    records = read_topic(kafka.bootstrap_servers, topic_name)
    for partition, found in by_partition(records).items():
        check_equal(found, rows, span_ms, f"{LEVELS[partition // 2]}, partition {partition}")
    assert len(by_partition(records)) == 2 * len(LEVELS)
    assert read_topic_java(kafka.bootstrap_servers, topic_name, version=kafka.version) == records
    by_arrow = [2 * number + 1 for number in range(len(LEVELS))]
    assert codecs_in_log(kafka, topic_name, by_arrow) == [{codec} for codec, _ in LEVELS]


def cast(column: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    """The table with one column as another Arrow type; a plain cast cannot make dictionaries."""

    def change(data: pa.Table) -> pa.Table:
        array = data[column].combine_chunks()
        if pa.types.is_dictionary(kind):
            array = array.dictionary_encode()
        else:
            array = pa.array(array.to_pylist(), kind)
        return data.set_column(data.schema.names.index(column), column, array)

    return change


def all_bytes(kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    return lambda data: cast("key", kind)(cast("value", kind)(data))


def sliced(data: pa.Table) -> pa.Table:
    """The same rows as a slice of longer arrays; the rows on both sides must not be sent."""
    return pa.concat_tables([data.slice(0, 3), data, data.slice(0, 5)]).combine_chunks().slice(3, data.num_rows)


def chunked(data: pa.Table) -> pa.Table:
    """Chunk boundaries at different rows in different columns, with empty chunks among them."""
    columns = {}
    for number, name in enumerate(data.schema.names):
        column = data[name].combine_chunks()
        cuts = [0, 1 + number, 1 + number, 7 + 2 * number, len(column)]
        columns[name] = pa.chunked_array([column.slice(a, b - a) for a, b in itertools.pairwise(cuts)], column.type)
    return pa.table(columns)


def headers_as_map(data: pa.Table) -> pa.Table:
    pairs = [[(header["key"], header["value"]) for header in headers] for headers in data["headers"].to_pylist()]
    column = pa.array(pairs, pa.map_(pa.string(), pa.binary()))
    return data.set_column(data.schema.names.index("headers"), "headers", column)


def timestamps_as(unit: str) -> Callable[[pa.Table], pa.Table]:
    return cast("timestamp", pa.timestamp(unit))


def as_record_batch(data: pa.Table) -> pa.RecordBatch:
    return data.combine_chunks().to_batches()[0]


TEXT_KEYS = (None, "", "key", "schlüssel")
TEXT_VALUES = (None, "", "value " * 40, "日本語 \n\t")
FORMS: tuple[tuple[str, Callable[[pa.Table], pa.Table | pa.RecordBatch]], ...] = (
    ("string", all_bytes(pa.string())),
    ("binary", all_bytes(pa.binary())),
    ("large_string", all_bytes(pa.large_string())),
    ("large_binary", all_bytes(pa.large_binary())),
    *((str(view), all_bytes(view)) for view in (*STRING_VIEWS, *BINARY_VIEWS)),
    ("dictionary", all_bytes(pa.dictionary(pa.int32(), pa.binary()))),
    ("sliced", sliced),
    ("chunked", chunked),
    ("sliced and chunked", lambda data: sliced(chunked(data))),
    ("sliced dictionary", lambda data: sliced(all_bytes(pa.dictionary(pa.int32(), pa.binary()))(data))),
    *(("chunked views", lambda data, view=view: chunked(all_bytes(view)(data))) for view in STRING_VIEWS),
    ("map headers", headers_as_map),
    ("sliced map headers", lambda data: sliced(headers_as_map(data))),
    ("timestamps in ms", timestamps_as("ms")),
    ("record batch", as_record_batch),
)


def test_every_arrow_form_of_the_same_rows_is_read_back_equal(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=len(FORMS))
    rows = [
        Row(None if key is None else key.encode(), None if value is None else value.encode(), headers, timestamp_ms)
        for (key, value, headers), timestamp_ms in zip(
            itertools.product(TEXT_KEYS, TEXT_VALUES, HEADERS), itertools.cycle((1_700_000_000_123, None, 7))
        )
    ]
    started_ms = wall_ms()
    with Producer(options(kafka, "lz4", None)) as producer:
        futures = [
            producer.send_arrow(form(table(rows, partition)), topic=topic_name)
            for partition, (_, form) in enumerate(FORMS)
        ]
        assert [future.result(TIMEOUT_S).row_count for future in futures] == [len(rows)] * len(FORMS)
    span_ms = (started_ms, wall_ms())
    records = by_partition(read_topic(kafka.bootstrap_servers, topic_name))
    for partition, (name, _) in enumerate(FORMS):
        check_equal(records[partition], rows, span_ms, name)


def test_rows_of_one_call_go_to_the_topics_their_column_names_in_order(kafka_4: KafkaCluster, topic_name: str) -> None:
    names = [f"{topic_name}-{suffix}" for suffix in ("a", "b", "c")]
    for name in names:
        kafka_4.create_topic(name)
    row_count = 3000
    data = pa.table(
        {
            "topic": pa.array([names[(number * number) % 3] for number in range(row_count)]).dictionary_encode(),
            "value": pa.array([b"%d" % number for number in range(row_count)], pa.binary()),
            "ignored": pa.array(range(row_count)),
        }
    )
    with Producer(options(kafka_4, "zstd", None)) as producer:
        result = producer.send_arrow(data).result(TIMEOUT_S)
    assert sum(found.record_count for found in result.partitions.values()) == row_count
    for index, name in enumerate(names):
        expected = [b"%d" % number for number in range(row_count) if (number * number) % 3 == index]
        assert [record.value for record in read_topic(kafka_4.bootstrap_servers, name)] == expected


@NEWEST_MAINLY
def test_many_rows_over_many_batches_keep_their_order_and_bytes(kafka: KafkaCluster, topic_name: str) -> None:
    """Many full batches with five requests in flight; half of the rows by send(), half by send_arrow()."""
    kafka.create_topic(topic_name, partitions=3)
    values = [b"%d:" % number + ODD * (number % 9) for number in range(20_000)]
    with Producer({**options(kafka, "snappy", None), "linger.ms": 1}) as producer:
        for start in range(0, len(values), 2000):
            for number in range(start, start + 1000):
                producer.send(topic_name, value=values[number], partition=number % 3)
            numbers = range(start + 1000, start + 2000)
            columns = {"value": [values[number] for number in numbers], "partition": [number % 3 for number in numbers]}
            producer.send_arrow(pa.table(columns), topic=topic_name)
        producer.flush(timeout_s=TIMEOUT_S)
    for partition, records in by_partition(read_topic(kafka.bootstrap_servers, topic_name)).items():
        assert [record.value for record in records] == values[partition::3]
