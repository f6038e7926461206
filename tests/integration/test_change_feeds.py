"""Changes of a table as a task writes them: read by librdkafka, decoded by json and fastavro, compared with what each
envelope promises. Without Spark; with Spark and Delta: tests/spark/test_delta_changes.py."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType, TimestampType

from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.errors import ConfigError, DataError
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.producer.pool import POOL
from kafka_sink.spark.planning import plan_export
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.testing import EmbeddedBroker, EmbeddedRegistry
from tests.support.page_blocks import code_blocks
from tools.foreign_reader import ForeignRecord, read_topic

ROW = StructType().add("id", LongType()).add("name", StringType())
SCHEMA = (
    StructType().add("key", StringType()).add("timestamp", TimestampType()).add("_change_type", StringType())
    .add("id", LongType()).add("name", StringType()).add("before", ROW)
)  # fmt: skip
KINDS = {
    "key": pa.string(), "timestamp": pa.timestamp("us", "UTC"), "_change_type": pa.string(), "id": pa.int64(),
    "name": pa.string(), "before": pa.struct([("id", pa.int64()), ("name", pa.string())]),
}  # fmt: skip
ANN, BOB, BEN = ({"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}, {"id": 2, "name": "ben"})
CHANGES: Sequence[tuple[str, dict[str, Any], dict[str, Any] | None]] = (
    ("insert", ANN, None), ("insert", BOB, None), ("update_preimage", BOB, None), ("update_postimage", BEN, BOB),
    ("delete", ANN, None), ("delete", BEN, None), ("insert", ANN, None),
)  # fmt: skip
DEBEZIUM = {"envelope": "debezium", "before.column": "before", "value.columns": "id,name"}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1, topics={"t": 1, "dead": 1}) as broker:
        yield broker
    POOL.close()


def batch(changes: Sequence[tuple[str | None, dict[str, Any], dict[str, Any] | None]] = CHANGES) -> pa.RecordBatch:
    rows = [
        {"key": str(row["id"]), "timestamp": number * 1_000_999, "_change_type": word, **row, "before": before}
        for number, (word, row, before) in enumerate(changes)
    ]
    return pa.RecordBatch.from_pydict({name: pa.array([row[name] for row in rows], KINDS[name]) for name in KINDS})


def write(broker: EmbeddedBroker, *batches: pa.RecordBatch, schema: StructType = SCHEMA, **more: str) -> TaskReceipt:
    settings = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "topic": "t",
        "delivery.guarantee": "at-least-once",
    }
    planned = plan_export({**settings, **more}, schema)
    return write_task(planned.options, planned.columns, iter(batches), TaskPlace(BatchKey("", "b"), "run", 0, 0))


def read(broker: EmbeddedBroker, topic: str = "t") -> list[ForeignRecord]:
    return read_topic(broker.bootstrap_servers, topic)


def decoded(records: Sequence[ForeignRecord]) -> list[tuple[str | None, Any]]:
    return [
        (None if each.key is None else each.key.decode(), None if each.value is None else json.loads(each.value))
        for each in records
    ]


def test_upserts_are_rows_and_tombstones(broker: EmbeddedBroker) -> None:
    receipt = write(broker, batch(), **{"envelope": "upsert", "value.format": "json", "value.columns": "id,name"})
    assert decoded(read(broker)) == [("1", ANN), ("2", BOB), ("2", BEN), ("1", None), ("2", None), ("1", ANN)]
    assert receipt.row_count == 6


def test_values_that_the_user_has_made_become_tombstones_as_well(broker: EmbeddedBroker) -> None:
    schema = StructType().add("value", StringType()).add("key", StringType()).add("op", StringType())
    rows = pa.RecordBatch.from_pydict({"value": ["a", "b"], "key": ["1", "1"], "op": ["u", "d"]})
    write(broker, rows, schema=schema, **{"envelope": "upsert", "operation.column": "op"})
    assert [record.value for record in read(broker)] == [b"a", None]


def debezium_events(with_times: bool) -> list[tuple[str, Any]]:
    def event(op: str, number: int, before: Any, after: Any) -> dict[str, Any]:
        made = {"before": before, "after": after, "op": op}
        return {**made, "ts_ms": number * 1_000_999 // 1000} if with_times else made

    return [
        ("1", event("c", 0, None, ANN)), ("2", event("c", 1, None, BOB)), ("2", event("u", 3, BOB, BEN)),
        ("1", event("d", 4, ANN, None)), ("1", None), ("2", event("d", 5, BEN, None)), ("2", None),
        ("1", event("c", 6, None, ANN)),
    ]  # fmt: skip


def test_debezium_s_events_have_both_rows_and_a_tombstone_behind_each_delete(broker: EmbeddedBroker) -> None:
    write(broker, batch(), **DEBEZIUM, **{"value.format": "json"})
    records = read(broker)
    assert decoded(records) == debezium_events(with_times=True)
    # What is null is written where Debezium writes it.
    assert records[0].value == b'{"before":null,"after":{"id":1,"name":"ann"},"op":"c","ts_ms":0}'
    assert [each.timestamp_ms for each in records] == [0, 1000, 3002, 4003, 4003, 5004, 5004, 6005]


def test_events_in_avro_have_the_derived_schema_of_the_envelope(broker: EmbeddedBroker) -> None:
    with EmbeddedRegistry() as registry:
        register = {"schema.registry.url": registry.url, "auto.register.schemas": "true", "value.format": "avro"}
        write(broker, batch(), **DEBEZIUM, **register)
        (text,) = registry.do(lambda core: [each.content.text for each in core.store.versions("t-value")])
    schema = fastavro.parse_schema(json.loads(text))
    values = [
        None if each.value is None else fastavro.schemaless_reader(io.BytesIO(each.value[5:]), schema)
        for each in read(broker)
    ]
    assert values == [event for _, event in debezium_events(with_times=True)]


@pytest.mark.parametrize(
    ("topic", "named", "name"),
    [
        ("t", {}, "t.Envelope"),
        ("shop.orders-2", {}, "shop.orders_2.Envelope"),
        ("2026..x", {}, "_2026._.x.Envelope"),
        (None, {"value.subject.name": "s"}, "changes.Envelope"),
        ("t", {"value.record.name": "shop.Order"}, "shop.Order"),
    ],
)
@pytest.mark.parametrize("value_format", ["avro", "json-schema"])
def test_a_derived_schema_of_events_has_the_name_by_which_connect_s_transforms_know_them(
    broker: EmbeddedBroker, topic: str | None, named: dict[str, str], name: str, value_format: str
) -> None:
    """ExtractNewRecordState passes on whatever is not called so, unchanged."""
    settings = {"kafka.bootstrap.servers": broker.bootstrap_servers, **DEBEZIUM, "value.format": value_format, **named}
    settings |= {"delivery.guarantee": "at-least-once"} | ({"topic": topic} if topic is not None else {})
    if topic not in (None, "t"):
        broker.create_topic(str(topic), 1)
    schema = SCHEMA if topic is not None else StructType([*SCHEMA.fields, *StructType().add("topic", "string").fields])
    with EmbeddedRegistry() as registry:
        register = {"schema.registry.url": registry.url, "auto.register.schemas": "true"}
        plan_export({**settings, **register}, schema)
        subject = named.get("value.subject.name", f"{topic}-value")
        (text,) = registry.do(lambda core: [each.content.text for each in core.store.versions(subject)])
    found = json.loads(text)
    full = found["title"] if value_format == "json-schema" else ".".join([found.get("namespace", ""), found["name"]])
    assert full.lstrip(".") == name


@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
def test_a_row_that_is_no_change_is_refused_or_becomes_a_dead_letter(broker: EmbeddedBroker, envelope: str) -> None:
    rows = batch([("update_preimage", ANN, None), ("insert", ANN, None), ("odd", BOB, None), (None, BEN, None)])
    options = {"envelope": envelope, "value.format": "json", "value.columns": "id,name"}
    with pytest.raises(DataError, match="row 1: 'odd' in the column _change_type names no operation") as raised:
        write(broker, rows, **options)
    assert raised.value.name == "PKS-2010"
    letters = {"record.errors": "dead-letter", "dead.letter.topic": "dead"}
    receipt = write(broker, rows, **options, **letters)
    assert sum(receipt.record_errors.values()) == 2 and len(read(broker)) == 1
    (odd, null) = (json.loads(record.value or b"") for record in read(broker, "dead"))
    wanted = ({"after": BOB, "op": "odd"}, {"after": BEN}) if envelope == "debezium" else (BOB, BEN)
    assert tuple({name: each[name] for name in each if name != "ts_ms"} for each in (odd, null)) == wanted


def test_a_change_without_a_key_is_refused(broker: EmbeddedBroker) -> None:
    rows = batch([("insert", ANN, None)])
    rows = rows.set_column(0, "key", pa.array([None], pa.string()))
    with pytest.raises(DataError, match="row 0 has no key, and a change of a table needs one"):
        write(broker, rows, **{"envelope": "upsert", "value.format": "json"})


def test_a_batch_of_preimages_alone_writes_nothing(broker: EmbeddedBroker) -> None:
    rows = batch([("update_preimage", ANN, None)])
    receipt = write(broker, rows, batch([("insert", BOB, None)]), **{"envelope": "upsert", "value.format": "json"})
    assert receipt.row_count == 1 == len(read(broker))


EVENT = {"cloudevents": "binary", "cloudevents.type": "t", "cloudevents.source": "s"}


class Message:
    """As the page's code knows it."""

    def __init__(self, record: ForeignRecord) -> None:
        self.record = record

    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        return self.record.headers


LETTERS = {"record.errors": "dead-letter", "dead.letter.topic": "dead"}
# Ids of 32 bits, where the column has 64.
NARROW = {
    "type": "record", "name": "Envelope", "fields": [
        {"name": "before", "type": ["null", {"type": "record", "name": "Row", "fields": [
            {"name": "id", "type": "int"}, {"name": "name", "type": "string"},
        ]}]},
        {"name": "after", "type": ["null", "Row"]}, {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}  # fmt: skip


@pytest.fixture(params=["does not fit its schema", "is too large", "has no key"])
def half_bad(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[pa.RecordBatch, dict[str, str]]:
    """Three deletes, of which the second one cannot be sent."""
    bad = {
        "does not fit its schema": {"id": 2**40, "name": "big"},
        "is too large": {"id": 2, "name": "x" * 3000},
        "has no key": BOB,
    }[request.param]
    rows = batch([("delete", ANN, None), ("delete", bad, None), ("delete", {"id": 3, "name": "cid"}, None)])
    if request.param == "has no key":
        rows = rows.set_column(0, "key", pa.array(["1", None, "3"]))
    path = tmp_path / "narrow.avsc"
    path.write_text(json.dumps(NARROW))
    schema = {"value.format": "avro", "value.schema": str(path), "value.schema.id": "1"}
    return rows, {**DEBEZIUM, **schema, "kafka.max.request.size": "2000"}


@pytest.mark.parametrize("errors", [LETTERS, {"record.errors": "drop"}], ids=["dead-letter", "drop"])
def test_a_delete_that_cannot_be_sent_leaves_neither_event_nor_tombstone_and_one_letter(
    broker: EmbeddedBroker, half_bad: tuple[pa.RecordBatch, dict[str, str]], errors: dict[str, str]
) -> None:
    """A tombstone alone would take the key away from who reads the table, and nobody who reads events would know."""
    rows, options = half_bad
    receipt = write(broker, rows, **options, **errors)
    assert [(each.key, each.value is None) for each in read(broker)] == [
        (b"1", False), (b"1", True), (b"3", False), (b"3", True),
    ]  # fmt: skip
    assert sum(receipt.record_errors.values()) == 1
    letters = read(broker, "dead")
    assert len(letters) == (errors is LETTERS)
    assert [dict(each.headers)["pykafka-sink.row"] for each in letters] == [b"2"] * len(letters)


@pytest.mark.parametrize(
    "named",
    [
        {"row.id.header": "row-id", "row.id.column": "change"},
        {"row.id.header": "row-id", "row.id.column": "change", **EVENT},
        {"row.id.header": "row-id", "row.id.column": "change", "cloudevents.id.column": "change", **EVENT},
    ],
    ids=["row-id", "event-by-row-id", "event-by-column"],
)
def test_a_reader_that_drops_repeated_ids_finds_each_change_and_each_tombstone(
    broker: EmbeddedBroker, named: dict[str, str]
) -> None:
    """By the code of the page. The feed comes twice, as with a task that is repeated."""
    changes = batch().append_column("change", pa.array([f"v{number}" for number in range(len(CHANGES))]))
    schema = StructType([*SCHEMA.fields, *StructType().add("change", StringType()).fields])
    for _ in range(2):
        write(broker, changes, schema=schema, **DEBEZIUM, **{"value.format": "json"}, **named)
    names: dict[str, Any] = {}
    exec(next(block.code for block in code_blocks("docs/headers.md") if "def each_once" in block.code), names)
    records = read(broker)
    once = names["each_once"]([Message(each) for each in records], {})
    assert decoded([each.record for each in once]) == debezium_events(with_times=True)
    for header in ("row-id", *(["ce_id"] if "cloudevents" in named else [])):
        ids = [dict(each.headers)[header] for each in records]
        assert len(set(ids)) == 8 and ids.count(b"v4/tombstone") == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"envelope": "odd"}, "envelope"),
        ({"operation.column": "op"}, "operation.column needs envelope"),
        ({"envelope": "upsert", "before.column": "before"}, "before.column needs envelope=debezium"),
        ({"envelope": "debezium"}, "envelope=debezium needs value.format: avro, json, json-schema, protobuf"),
        ({"envelope": "debezium", "value.format": "string"}, "envelope=debezium needs value.format"),
        (
            {"envelope": "upsert", "cloudevents": "structured", "cloudevents.type": "t", "cloudevents.source": "s"},
            "a delete would be no tombstone",
        ),
        ({"envelope": "upsert", "row.id.header": "row-id"}, "envelope=upsert and row.id.header need row.id.column"),
        ({**DEBEZIUM, "value.format": "json", "row.id.header": "row-id"}, "row.id.header need row.id.column"),
    ],
)
def test_options_that_make_no_sense_together_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_sink_options({"kafka.bootstrap.servers": "b:9092", "topic": "t", **options})


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        (StructType().add("id", LongType()).add("_change_type", StringType()), {}, "=upsert needs a column key"),
        (StructType().add("key", StringType()).add("id", LongType()), {}, "operation.column=_change_type: there is no"),
        (
            StructType().add("key", StringType()).add("id", LongType()).add("_change_type", LongType()), {},
            "operation.column=_change_type has type bigint",
        ),
        (
            StructType().add("key", StringType()).add("id", LongType()).add("_change_type", StringType())
            .add("before", ROW),
            {"envelope": "debezium", "before.column": "before"},
            "before.column=before has type struct<id:bigint,name:string>, and the row after the change has",
        ),
    ],
)  # fmt: skip
def test_columns_that_are_missing_or_do_not_fit_are_named(
    broker: EmbeddedBroker, schema: StructType, options: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        write(broker, schema=schema, **{"envelope": "upsert", "value.format": "json", **options})
