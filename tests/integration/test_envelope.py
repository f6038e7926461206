"""Headers, CloudEvents and traces as a task writes them; librdkafka, the official CloudEvents package and
OpenTelemetry's read them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.errors import DataError
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.producer.pool import POOL
from kafka_sink.spark.added_headers import AddedHeader, add_headers, set_column
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.envelope import TraceHeader, is_traceparent
from kafka_sink.spark.formats import SidePlan
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.telemetry.metrics.trace_ids import TraceIds
from kafka_sink.testing import EmbeddedBroker
from tools.foreign_reader import ForeignRecord, read_topic

PLACE = TaskPlace(BatchKey("q-1", 7), "run", 3, 11)
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
UTC = dt.timezone.utc
EVENT = {"cloudevents.type": "shop.order", "cloudevents.source": "/shop"}
WHEN = dt.datetime(2024, 2, 29, 12, 30, 1, 250000, UTC)
HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
SCHEMA = (
    StructType().add("key", StringType()).add("value", StringType()).add("headers", HEADERS).add("order", StringType())
    .add("seen", TimestampType()).add("rank", IntegerType()).add("paid", BooleanType())
)  # fmt: skip
KINDS = [pa.string(), pa.string(), PAIRS, pa.string(), pa.timestamp("us", "Europe/Berlin"), pa.int32(), pa.bool_()]
ROWS = [
    ["k1", '{"a": 1}', [{"key": "own", "value": b"1"}], "o-1", WHEN, 5, True],
    ["k2", '"text"', None, "o-2", None, None, None],
    [None, None, [], "o-3", WHEN, -1, False],
]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1) as broker:
        yield broker
    POOL.close()


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.nodeid))}"
    broker.create_topic(name, 1)
    broker.create_topic(f"{name}-dead", 1)
    return name


def batch(rows: list[list[Any]] = ROWS) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(cells, kind) for cells, kind in zip(columns, KINDS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, [field.name for field in SCHEMA.fields])


def write(
    broker: EmbeddedBroker, topic: str, given: pa.RecordBatch, more: dict[str, str], place: TaskPlace | None = None
) -> TaskReceipt:
    where = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
    options = parse_sink_options({**where, **more})
    columns = choose_columns(SCHEMA, topic, options.formats, options.envelope)
    if options.formats is not None:
        columns = replace(columns, sides=(SidePlan("value", None),))
    return write_task(replace(options, formats=None), columns, [given], place or PLACE)


def read(broker: EmbeddedBroker, topic: str) -> list[ForeignRecord]:
    return read_topic(broker.bootstrap_servers, topic)


def event(record: ForeignRecord) -> BaseCloudEvent:
    headers = {name: value or b"" for name, value in record.headers}
    return from_kafka_event(KafkaMessage(headers, record.key, record.value or b""))


# ---- constant headers ------------------------------------------------------------------------------------------------


def test_constant_headers_stand_behind_those_of_the_row(broker: EmbeddedBroker, topic: str) -> None:
    write(broker, topic, batch(), {"header.batch": "${query.id}/${batch.id}", "header.empty": "", "header.x": "é"})
    constant = (("batch", b"q-1/7"), ("empty", b""), ("x", "é".encode()))
    assert [record.headers for record in read(broker, topic)] == [(("own", b"1"), *constant), constant, constant]


row_headers = st.lists(
    st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=2), st.binary(max_size=2)), max_size=3))
)


@settings(max_examples=60, deadline=None)
@given(row_headers, st.data())
def test_headers_are_added_to_whole_columns_as_to_single_rows(
    given_headers: list[list[tuple[str, bytes]] | None], data: st.DataObject
) -> None:
    count = len(given_headers)
    added, twin = [], [list(each or ()) for each in given_headers]
    for number in range(data.draw(st.integers(0, 3))):
        cells = data.draw(st.lists(st.one_of(st.none(), st.binary(max_size=2)), min_size=count, max_size=count))
        is_constant = data.draw(st.booleans())
        column = pa.array(cells, pa.binary())
        content = b"same" if is_constant else column
        added.append(AddedHeader(f"h{number}", content, column.is_valid().to_numpy(zero_copy_only=False)))
        for own, cell in zip(twin, cells, strict=True):
            if cell is not None:
                own.append((f"h{number}", b"same" if is_constant else cell))
    entries = [None if own is None else [{"key": key, "value": value} for key, value in own] for own in given_headers]
    rows = pa.RecordBatch.from_arrays([pa.array(entries, PAIRS)], ["headers"])
    found = add_headers(rows, added).column("headers").to_pylist()
    assert [[(pair["key"], pair["value"]) for pair in own or ()] for own in found] == twin


# ---- CloudEvents -----------------------------------------------------------------------------------------------------

ATTRIBUTES = {
    **EVENT, "cloudevents.id.column": "order", "cloudevents.time.column": "seen", "cloudevents.rank.column": "rank",
    "cloudevents.paid.column": "paid", "cloudevents.batch": "${batch.id}",
    "cloudevents.subject": "Zürich 100 %",
}  # fmt: skip


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_the_official_package_reads_every_attribute(broker: EmbeddedBroker, topic: str, mode: str) -> None:
    write(
        broker, topic, batch(), {**ATTRIBUTES, "cloudevents": mode, "cloudevents.datacontenttype": "application/json"}
    )
    first, second, third = events = [event(record) for record in read(broker, topic)]
    assert [each.get_id() for each in events] == ["o-1", "o-2", "o-3"]
    assert {(each.get_type(), each.get_source(), each.get_specversion()) for each in events} == {
        ("shop.order", "/shop", "1.0")
    }
    # The package sets the time of reading if an event has none.
    assert (first.get_time(), third.get_time()) == (WHEN, WHEN) != (second.get_time(), WHEN)
    assert {each.get_subject() for each in events} == {"Zürich 100 %"}
    assert [str(each.get_extension("batch")) for each in events] == ["7"] * 3
    as_types = {
        "binary": (["5", None, "-1"], ["true", None, "false"]),
        "structured": ([5, None, -1], [True, None, False]),
    }
    found = tuple([each.get_extension(name) for each in events] for name in ("rank", "paid"))
    assert found == as_types[mode]
    assert (first.get_data(), second.get_data()) == ({"a": 1}, "text")
    assert not third.get_data()
    keys = [record.key for record in read(broker, topic)]
    assert keys == [b"k1", b"k2", None]


def test_in_binary_mode_the_value_stays_what_it_is(broker: EmbeddedBroker, topic: str) -> None:
    write(broker, topic, batch(), {**EVENT, "cloudevents": "binary", "cloudevents.subject": "s"})
    records = read(broker, topic)
    assert [record.value for record in records] == [b'{"a": 1}', b'"text"', None]
    assert dict(records[0].headers) == {
        "own": b"1", "ce_specversion": b"1.0", "ce_source": b"/shop", "ce_type": b"shop.order", "ce_subject": b"s",
        "ce_id": b"q-1-7-3-0",
    }  # fmt: skip


def test_in_structured_mode_the_value_is_one_json_object(broker: EmbeddedBroker, topic: str) -> None:
    write(broker, topic, batch(), {**EVENT, "cloudevents": "structured"})
    records = read(broker, topic)
    about = {"specversion": "1.0", "type": "shop.order", "source": "/shop", "datacontenttype": "application/json"}
    assert [json.loads(record.value or b"") for record in records] == [
        {**about, "id": "q-1-7-3-0", "data": {"a": 1}},
        {**about, "id": "q-1-7-3-1", "data": "text"},
        {**about, "id": "q-1-7-3-2"},
    ]
    assert records[1].headers == (("content-type", b"application/cloudevents+json; charset=UTF-8"),)


def test_events_of_two_sinks_that_use_one_label_have_different_ids(broker: EmbeddedBroker, topic: str) -> None:
    for sink in ("people-eu", "people-us"):
        place = replace(PLACE, key=BatchKey("", "2026-11-26"), named_sink_id=sink)
        write(broker, topic, batch(), {**EVENT, "cloudevents": "binary"}, place)
    ids = [dict(record.headers)["ce_id"] for record in read(broker, topic)]
    assert ids[0] == b"people-eu/2026-11-26-3-0"
    assert len(set(ids)) == len(ids) == 2 * len(ROWS)


def test_columns_as_json_are_the_data(broker: EmbeddedBroker, topic: str) -> None:
    formats = {"value.format": "json", "value.columns": "order,rank"}
    write(broker, topic, batch(), {**EVENT, **formats, "cloudevents": "structured"})
    data = [event(record).get_data() for record in read(broker, topic)]
    assert data == [{"order": "o-1", "rank": 5}, {"order": "o-2"}, {"order": "o-3", "rank": -1}]


@pytest.mark.parametrize(("kind", "expected"), [(pa.string(), "Zürich"), (pa.binary(), "Zürich".encode())])
def test_data_that_is_no_json_is_told_as_text_or_base64(
    broker: EmbeddedBroker, topic: str, kind: pa.DataType, expected: Any
) -> None:
    given_batch = batch()
    values = pa.array(["Zürich"] * 3).cast(kind)
    given_batch = set_column(given_batch, "value", values)
    write(
        broker, topic, given_batch, {**EVENT, "cloudevents": "structured", "cloudevents.datacontenttype": "text/plain"}
    )
    assert [event(record).get_data() for record in read(broker, topic)] == [expected] * 3


@pytest.mark.parametrize(
    "content",
    [b'\xef\xbb\xbf{"a": 1}', '{"a": 1}'.encode("utf-16"), '{"a": 1}'.encode("utf-16-le"), b'"\xed\xa0\x80"'],
)
def test_json_in_another_encoding_than_utf_8_makes_no_event(broker: EmbeddedBroker, topic: str, content: bytes) -> None:
    given_batch = batch()
    given_batch = set_column(given_batch, "value", pa.array([b"{}", content, b"{}"]))
    with pytest.raises(DataError, match="value of row 1 is no JSON"):
        write(broker, topic, given_batch, {**EVENT, "cloudevents": "structured"})


def test_a_number_of_any_length_is_json(broker: EmbeddedBroker, topic: str) -> None:
    number = "1" * 5000
    given_batch = batch()
    given_batch = set_column(given_batch, "value", pa.array([number.encode()] * 3))
    write(broker, topic, given_batch, {**EVENT, "cloudevents": "structured"})
    assert all(f'"data":{number}}}'.encode() in (record.value or b"") for record in read(broker, topic))


# ---- traces ----------------------------------------------------------------------------------------------------------

GOOD, OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", f"00-{'a' * 32}-{'b' * 16}-00"
OTLP = {"metrics.otlp.endpoint": "http://127.0.0.1:1"}


def traced(texts: list[str | None], headers: list[Any]) -> pa.RecordBatch:
    rows = [[None, "v", own, text, None, None, None] for text, own in zip(texts, headers, strict=True)]
    return batch(rows)


def own(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value.encode()} for key, value in pairs]


def test_a_column_becomes_the_header_traceparent_and_wins_over_the_one_that_a_row_has(
    broker: EmbeddedBroker, topic: str
) -> None:
    had = own(("a", "1"), ("traceparent", OTHER), ("b", "2"))
    given_batch = traced([GOOD, None, GOOD, "no trace"], [had, had, None, had])
    write(broker, topic, given_batch, {"traceparent.column": "order", "header.x": "y"})
    x, kept = ("x", b"y"), (("a", b"1"), ("traceparent", OTHER.encode()), ("b", b"2"))
    assert [record.headers for record in read(broker, topic)] == [
        (("a", b"1"), ("b", b"2"), x, ("traceparent", GOOD.encode())),
        (*kept, x),
        (x, ("traceparent", GOOD.encode())),
        (*kept, x),
    ]


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_an_event_and_its_record_each_have_a_trace(broker: EmbeddedBroker, topic: str, mode: str) -> None:
    """As in the CloudEvents extension Distributed Tracing: one trace is the event's, the other its transport's."""
    options = {**EVENT, "cloudevents": mode, "cloudevents.traceparent": OTHER, "traceparent.column": "order"}
    write(broker, topic, traced([GOOD], [None]), {**options, "cloudevents.datacontenttype": "text/plain"})
    (record,) = read(broker, topic)
    assert [value for name, value in record.headers if name == "traceparent"] == [GOOD.encode()]
    assert event(record).get_extension("traceparent") == OTHER


def test_records_without_a_trace_get_that_of_their_task(broker: EmbeddedBroker, topic: str) -> None:
    had = own(("traceparent", OTHER))
    options = {**OTLP, "traceparent.column": "order", "traceparent.task": "true", "query.id": "q", "batch.id": "b"}
    write(broker, topic, traced([GOOD, None, None, "?"], [None, had, None, None]), {**options, "sink.id": "s"})
    of_task = TraceIds("s", "", PLACE.key, PLACE.run).traceparent_of_task(PLACE.spark_partition, PLACE.attempt)
    assert is_traceparent(pa.array([of_task])).all()
    headers = [dict(record.headers)["traceparent"] for record in read(broker, topic)]
    assert headers == [GOOD.encode(), OTHER.encode(), of_task, of_task]


def test_what_is_no_traceparent_is_told_once_and_costs_no_row(
    broker: EmbeddedBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    header = TraceHeader("trace", None)
    for first_row in (10, 14):
        header.add_to(pa.RecordBatch.from_pydict({"traceparent": [GOOD, None, "x", "y"]}), first_row)
    assert [record.getMessage().partition(" have a")[0] for record in caplog.records] == [
        "traceparent.column=trace: row 12, and 1 more of the 4 rows that came with it,"
    ]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (GOOD, True),
        (OTHER, True),
        (GOOD.upper(), False),
        (GOOD[:-1], False),
        (f"{GOOD}-more", False),
        (f"{GOOD}\n", False),
        (f"01{GOOD[2:]}-more", True),
        (f"cc{GOOD[2:]}-", True),
        (f"fe{GOOD[2:]}", True),
        (f"ff{GOOD[2:]}", False),
        (f"01{GOOD[2:]}.more", False),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", False),
        (f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01", False),
        ("00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01", False),
        ("", False),
    ],
)
def test_a_traceparent_is_what_opentelemetry_takes_for_one(text: str, is_one: bool) -> None:
    assert is_traceparent(pa.array([text, None])).tolist() == [is_one, False]
    context = get_current_span(TraceContextTextMapPropagator().extract({"traceparent": text})).get_span_context()
    # OpenTelemetry ignores a line feed at the end.
    assert context.is_valid == (is_one or text.endswith("\n"))


texts = st.one_of(st.none(), st.sampled_from([GOOD, OTHER, "", "x", f"ff{GOOD[2:]}"]))
names = st.sampled_from(["traceparent", "Traceparent", "a"])
some_headers = st.one_of(st.none(), st.lists(st.tuples(names, st.binary(max_size=2)), max_size=3))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(texts, some_headers)), st.booleans(), st.booleans(), st.booleans())
def test_traces_are_written_to_whole_columns_as_to_single_rows(
    given_rows: list[tuple[str | None, Any]], has_column: bool, has_span: bool, has_headers: bool
) -> None:
    twin = []
    for text, headers in given_rows:
        found = list(headers or ()) if has_headers else []
        if has_column and text in (GOOD, OTHER):
            found = [pair for pair in found if pair[0] != "traceparent"] + [("traceparent", text.encode())]
        if has_span and all(name != "traceparent" for name, _ in found):
            found.append(("traceparent", b"span"))
        twin.append(found)
    columns: dict[str, pa.Array] = {"value": pa.array([b""] * len(given_rows), pa.binary())}
    if has_headers:
        entries = [None if each is None else [{"key": k, "value": v} for k, v in each] for _, each in given_rows]
        columns["headers"] = pa.array(entries, PAIRS)
    if has_column:
        columns["traceparent"] = pa.array([text for text, _ in given_rows], pa.string())
    given_batch = pa.RecordBatch.from_pydict(columns)
    header = TraceHeader("c" if has_column else None, b"span" if has_span else None)
    # Also a slice, as Arrow may pass it.
    for first in {0, len(given_rows) // 2}:
        written = header.add_to(given_batch.slice(first), first)
        assert "traceparent" not in written.schema.names
        cells = written.column("headers").to_pylist() if "headers" in written.schema.names else [None] * len(written)
        assert [[(pair["key"], pair["value"]) for pair in cell or ()] for cell in cells] == twin[first:]


BAD = [
    ["k", "{}", None, "o-1", None, None, None],
    ["k", "{]", None, "o-2", None, None, None],
    ["k", "{}", None, None, None, None, None],
    ["k", "NaN", None, "", None, None, None],
]


def test_rows_that_make_no_event_follow_record_errors(broker: EmbeddedBroker, topic: str) -> None:
    options = {**EVENT, "cloudevents": "structured", "cloudevents.id.column": "order"}
    with pytest.raises(DataError, match="value of row 1 is no JSON") as raised:
        write(broker, topic, batch(BAD), options)
    assert (raised.value.row, raised.value.name) == (1, "PKS-2009")
    dead = {"record.errors": "dead-letter", "dead.letter.topic": f"{topic}-dead"}
    receipt = write(broker, topic, batch(BAD), {**options, **dead, "delivery.guarantee": "at-least-once"})
    assert receipt.record_errors == {"bad value": 1, "bad cloudevents.id": 2}
    assert [event(record).get_id() for record in read(broker, topic)] == ["o-1"]
    letters = read(broker, f"{topic}-dead")
    assert [letter.value for letter in letters] == [b"{]", b"{}", b"NaN"]
    said = [dict(letter.headers)["pykafka-sink.row"] for letter in letters]
    assert said == [b"1", b"2", b"3"]


@pytest.mark.parametrize("year_begin_us", [253_402_300_800_000_000, 2_000_000_000_000_000_000, -62_167_219_200_000_001])
def test_a_time_without_a_text_makes_no_event(broker: EmbeddedBroker, topic: str, year_begin_us: int) -> None:
    """Python has no date for it, and Arrow writes it as another year."""
    rows = batch([["k", "{}", None, "o-1", None, None, None], ["k", "[]", None, "o-2", None, None, None]])
    last_of_9999 = 253_402_300_799_999_999
    times = pa.array([year_begin_us, last_of_9999], pa.int64()).view(rows.schema.field("seen").type)
    rows = set_column(rows, "seen", times)
    options = {**EVENT, "cloudevents": "binary", "cloudevents.id.column": "order", "cloudevents.time.column": "seen"}
    with pytest.raises(DataError, match="row 0 has a time in time whose year is not one of 0 to 9999"):
        write(broker, topic, rows, options)
    dead = {"record.errors": "dead-letter", "dead.letter.topic": f"{topic}-dead"}
    receipt = write(broker, topic, rows, {**options, **dead, "delivery.guarantee": "at-least-once"})
    assert receipt.record_errors == {"bad cloudevents.time": 1}
    assert [dict(record.headers)["ce_time"] for record in read(broker, topic)] == [b"9999-12-31T23:59:59.999999Z"]
    assert [letter.value for letter in read(broker, f"{topic}-dead")] == [b"{}"]
