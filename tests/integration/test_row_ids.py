"""Ids that rows keep in every attempt, task, order and run; what a reader does with them, by the code of the page."""

from __future__ import annotations

import hashlib
import random
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructType, TimestampType

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import ConfigError, DataError
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.producer.pool import POOL
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.row_ids import digests
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.testing import EmbeddedBroker
from tests.support.page_blocks import code_blocks
from tools.foreign_reader import end_offsets, read_topic

PAIR = StructType().add("key", StringType()).add("value", BinaryType())
SCHEMA = (
    StructType().add("key", StringType()).add("value", StringType()).add("timestamp", TimestampType())
    .add("headers", ArrayType(PAIR)).add("number", LongType())
)  # fmt: skip
KINDS = {
    "key": pa.string(), "value": pa.string(), "timestamp": pa.timestamp("us", "UTC"),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])), "number": pa.int64(),
}  # fmt: skip
IDS = {"row.id.header": "row-id"}
EVENT = {"cloudevents.type": "t", "cloudevents.source": "s"}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1, topics={"t": 3, "one": 1}) as broker:
        yield broker
    POOL.close()


def batch(numbers: Sequence[int | None]) -> pa.RecordBatch:
    rows = [
        {"key": None if number is None or number % 4 == 0 else f"k{number}", "value": f"row {number}", "number": number,
         "timestamp": 1_000_000 * (number or 0), "headers": None}
        for number in numbers
    ]  # fmt: skip
    return pa.RecordBatch.from_pydict({name: pa.array([row[name] for row in rows], KINDS[name]) for name in KINDS})


def write(
    broker: EmbeddedBroker, batches: Sequence[pa.RecordBatch], topic: str = "t", attempt: int = 0, **more: str
) -> None:
    where = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, "delivery.guarantee": "at-least-once"}
    options = parse_sink_options({**where, **more})
    columns = choose_columns(SCHEMA, topic, options.formats, options.envelope)
    write_task(options, columns, iter(batches), TaskPlace(BatchKey("q", 1), "run", attempt, attempt))


def choose_with(options: dict[str, str]) -> None:
    parsed = parse_sink_options({"kafka.bootstrap.servers": "b:9092", "topic": "t", **options})
    choose_columns(SCHEMA, "t", None, parsed.envelope)


def ids(broker: EmbeddedBroker, topic: str = "t", name: str = "row-id") -> dict[str, list[str]]:
    """By value."""
    found: dict[str, list[str]] = {}
    for record in read_topic(broker.bootstrap_servers, topic):
        of_row = [value.decode() for header, value in record.headers if header == name and value is not None]
        assert len(of_row) == 1
        found.setdefault((record.value or b"").decode(), []).append(of_row[0])
    return found


def slow_id(key: bytes | None, value: bytes | None, timestamp_ms: int) -> str:
    lengths = [-1 if part is None else len(part) for part in (key, value)]
    head = struct.pack(">qqq", *lengths, timestamp_ms)
    return hashlib.blake2b(head + (key or b"") + (value or b""), digest_size=16).hexdigest()


def test_a_row_has_one_id_in_whatever_order_batch_and_task_it_comes(broker: EmbeddedBroker) -> None:
    numbers = list(range(100))
    write(broker, [batch(numbers)], **IDS)
    random.Random(3).shuffle(numbers)
    write(broker, [batch(numbers[:7]), batch(numbers[7:60])], attempt=1, **IDS)
    write(broker, [batch(numbers[60:])], attempt=2, **IDS)
    found = ids(broker)
    assert len(found) == 100 and {len(each) for each in found.values()} == {2}
    assert all(len(set(each)) == 1 for each in found.values()) and len({each[0] for each in found.values()}) == 100


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_the_digest_is_the_documented_one(kind: pa.DataType) -> None:
    keys, values = [b"k", b"", None, "é".encode(), b"k"], [b"v", None, b"", b"v" * 1000, None]
    rows = pa.RecordBatch.from_pydict(
        {"key": pa.array(keys, pa.binary()).cast(kind), "value": pa.array(values, pa.binary()).cast(kind)}
    )
    wanted = [slow_id(key, value, -1) for key, value in zip(keys, values, strict=True)]
    assert digests(rows).to_pylist() == wanted and len(set(wanted)) == 5
    assert digests(rows.slice(2, 2)).to_pylist() == wanted[2:4]
    assert digests(rows.slice(0, 0)).to_pylist() == []
    timed = rows.append_column("timestamp", pa.array([0, 1999, None, 5, 6], pa.timestamp("us", "UTC")))
    times = [0, 1, -1, 0, 0]
    assert digests(timed).to_pylist() == [slow_id(*row) for row in zip(keys, values, times, strict=True)]


def test_a_column_is_the_id_and_replaces_a_header_of_its_name(broker: EmbeddedBroker) -> None:
    rows = batch([1, 2])
    own = pa.array([[{"key": "row-id", "value": b"old"}, {"key": "x", "value": b"y"}]] * 2, KINDS["headers"])
    rows = rows.set_column(rows.schema.get_field_index("headers"), "headers", own)
    write(broker, [rows], "one", **IDS, **{"row.id.column": "number", "header.a": "b"})
    headers = [record.headers for record in read_topic(broker.bootstrap_servers, "one")]
    assert headers == [(("x", b"y"), ("row-id", b"%d" % number), ("a", b"b")) for number in (1, 2)]


def test_a_row_without_its_id_is_refused_by_name(broker: EmbeddedBroker) -> None:
    with pytest.raises(DataError, match="row 1 has no id in the column number") as raised:
        write(broker, [batch([1, None])], **IDS, **{"row.id.column": "number"})
    assert raised.value.name == "PKS-2011"


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_the_id_of_an_event_follows_unless_it_is_set(broker: EmbeddedBroker, mode: str) -> None:
    quoted = batch([1])
    quoted = quoted.set_column(quoted.schema.get_field_index("value"), "value", pa.array(['"text"']))
    write(broker, [quoted], "one", **IDS, **EVENT, cloudevents=mode)
    write(broker, [quoted], "one", **IDS, **EVENT, cloudevents=mode, **{"cloudevents.id.column": "number"})
    first, second = read_topic(broker.bootstrap_servers, "one")
    wanted = slow_id(b"k1", b'"text"', 1000)
    for record, event_id in ((first, wanted), (second, "1")):
        headers = dict(record.headers)
        assert headers["row-id"] == wanted.encode()
        if mode == "binary":
            assert headers["ce_id"] == event_id.encode()
        else:
            assert f'"id":"{event_id}"'.encode() in (record.value or b"")


def test_the_warning_of_ambiguous_ids_is_not_for_them() -> None:
    options = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "delivery.guarantee": "at-least-once", **EVENT}
    assert parse_sink_options({**options, "cloudevents": "binary"}).notices
    assert not parse_sink_options({**options, "cloudevents": "binary", **IDS}).notices


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"row.id.column": "number"}, "row.id.column needs row.id.header"),
        ({"row.id.header": "ce_id"}, "this header has another meaning"),
        ({**IDS, "header.row-id": "x"}, "are both set for one header"),
        ({**IDS, "row.id.column": "headers"}, "row.id.column=headers has type array"),
    ],
)
def test_what_names_no_row_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        choose_with(options)


def test_the_reader_of_the_page_sees_each_row_once_though_tasks_and_batches_were_repeated(
    broker: EmbeddedBroker,
) -> None:
    """At least once, behind a shuffle: an attempt that fails half-way has written other rows than the first half of the
    next one."""
    names: dict[str, Any] = {}
    (recipe,) = (block.code for block in code_blocks("docs/headers.md") if "def each_once" in block.code)
    exec(recipe, names)
    dice, numbers = random.Random(5), list(range(400))
    for attempt, count in enumerate((150, 300, 400, 400)):
        dice.shuffle(numbers)
        write(broker, [batch(numbers[:count])], attempt=attempt, **IDS)
    ends = end_offsets(broker.bootstrap_servers, "t")
    assert sum(ends.values()) == 1250
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "isolation.level": "read_uncommitted"}
    )
    consumer.assign([TopicPartition("t", partition, 0) for partition in ends])
    seen: dict[bytes, bool] = {}
    rows: Counter[bytes] = Counter()
    read = 0
    while read < 1250:
        records = consumer.consume(100, timeout=1)
        read += len(records)
        rows.update(record.value() for record in names["each_once"](records, seen))
    consumer.close()
    assert rows == Counter(b"row %d" % number for number in range(400))
