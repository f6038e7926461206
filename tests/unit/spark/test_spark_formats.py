"""Formats in a task and on the driver, without a running Spark: choosing columns, encoding values, adding headers."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

from kafka_sink.errors import ConfigError, DataError
from kafka_sink.formats.registry.schema import AVRO, ResolvedSchema, Schema
from kafka_sink.formats.schemas.avro import AvroSchema
from kafka_sink.options.format_options import FormatOptions
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark.columns import WrittenColumns, choose_columns
from kafka_sink.spark.encoding import RowEncoding
from kafka_sink.spark.formats import SidePlan, side_planning
from kafka_sink.spark.formats.side_planning import plan_side
from kafka_sink.spark.task import select_columns
from kafka_sink.spark.unsendable import split_misfits

LONG = AvroSchema.parse('{"type":"record","name":"R","fields":[{"name":"id","type":"int"}]}')
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def formats(**options: str) -> FormatOptions | None:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return parse_sink_options({"kafka.bootstrap.servers": "h:1", **named}).formats


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def refusal(frame: StructType, **options: str) -> str:
    with pytest.raises(ConfigError) as raised:
        choose_columns(frame, "t", formats(**options))
    return str(raised.value)


FRAME = schema(key=StringType(), id=LongType(), topic=StringType(), name=StringType(), partition=IntegerType())


# ---- columns ---------------------------------------------------------------------------------------------------------


def test_without_a_column_value_all_that_mean_nothing_else_are_the_record() -> None:
    found = choose_columns(FRAME, "t", formats(value_format="avro"))
    assert found == WrittenColumns(("key", "partition"), (0, 4), (), (("id", 1), ("name", 3)))
    assert choose_columns(FRAME, None, formats(value_format="avro")).record == found.record


def test_a_column_value_of_any_type_is_the_value() -> None:
    frame = schema(value=StructType([]), x=LongType())
    assert choose_columns(frame, "t", formats(value_format="avro")) == WrittenColumns(("value",), (0,), ("x",))
    everything = choose_columns(frame, "t", formats(value_format="json", value_columns="*"))
    assert everything == WrittenColumns((), (), ("value",), (("x", 1),))


def test_columns_that_are_named_are_the_record_whatever_they_are_called() -> None:
    found = choose_columns(FRAME, "t", formats(value_format="avro", value_columns="name,key"))
    assert found.record == (("name", 3), ("key", 0))
    assert (found.names, found.ignored) == (("key", "partition"), ("id",))


@pytest.mark.parametrize(
    ("frame", "options", "said"),
    [
        (FRAME, {"value_format": "avro", "value_columns": "x,id"}, "value.columns names x; the DataFrame has"),
        (schema(key=StringType()), {"value_format": "json"}, "no column is left for the value"),
        (schema(id=LongType()), {}, "or set value.format"),
        (schema(value=LongType()), {}, "to_json(struct(*)) AS value, or set value.format"),
        (schema(id=LongType()), {"value_format": "json", "key_format": "avro"}, "there is no column key"),
        (schema(value=LongType()), {"value_format": "string"}, "and the format is string: CAST(value AS string)"),
        (schema(id=LongType()), {"value_format": "binary"}, "column id has type bigint, and the format is binary"),
        (schema(a=StringType(), b=StringType()), {"value_format": "string"}, "writes one column, not the columns a, b"),
        (schema(value=StringType(), key=LongType()), {"value_format": "string"}, "column key has the unsupported type"),
    ],
)
def test_columns_that_a_format_cannot_write_are_told(frame: StructType, options: dict[str, str], said: str) -> None:
    assert said in refusal(frame, **options)


def test_one_column_can_be_the_value_as_it_is() -> None:
    found = choose_columns(schema(line=StringType()), "t", formats(value_format="string"))
    assert found == WrittenColumns(("value",), (0,), ())
    keyed = choose_columns(schema(value=BinaryType(), key=BinaryType()), "t", formats(key_format="binary"))
    assert keyed.names == ("value", "key")


def test_the_record_is_put_together_by_place() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(["k"]), pa.array([1]), pa.array(["n"])], ["key", "id", "name"])
    found = select_columns(rows, WrittenColumns(("key",), (0,), (), (("name", 2), ("id", 1))))
    assert found.to_pylist() == [{"key": "k", "value": {"name": "n", "id": 1}}]


# ---- planning --------------------------------------------------------------------------------------------------------


def side(kind: pa.DataType, **options: str) -> SidePlan:
    found = formats(**options)
    assert found is not None and found.value is not None
    return plan_side("value", found.value, found.registry, kind, "t")[0]


def test_a_schema_and_its_id_are_enough_and_a_plan_survives_the_way_to_a_task() -> None:
    kind = pa.struct([("id", pa.int32())])
    plan = side(kind, value_format="avro", value_schema=LONG.text, value_schema_id="42")
    plan = pickle.loads(pickle.dumps(plan))
    assert (plan.prefix, plan.headers) == (b"\x00\x00\x00\x00\x2a", ())
    rows = pa.RecordBatch.from_arrays([pa.array([{"id": 1}], kind)], ["value"])
    encoded, misfits = RowEncoding([plan]).encode(rows)
    assert (encoded.column("value").to_pylist(), misfits) == ([b"\x00\x00\x00\x00\x2a\x02"], {})


def test_a_schema_in_a_file_is_read_on_the_driver(tmp_path: Any) -> None:
    path = tmp_path / "a.proto"
    path.write_text('syntax = "proto3"; message A { int32 x = 1; } message B { int32 id = 1; }')
    plan = side(
        pa.struct([("id", pa.int32())]),
        value_format="protobuf",
        value_schema=str(path),
        value_record_name="B",
        value_schema_id="1",
    )
    assert plan.prefix == b"\x00\x00\x00\x00\x01\x02\x02"
    with pytest.raises(ConfigError, match="there is no such file"):
        side(pa.struct([]), value_format="avro", value_schema=str(tmp_path / "none.avsc"))


DECIMAL = '{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}'


@pytest.mark.parametrize("framing", ["prefix", "header"])
@pytest.mark.parametrize(
    ("kind", "text"),
    [(pa.binary(), '"bytes"'), (pa.string(), '{"type":"bytes"}'), (pa.decimal128(9, 2), DECIMAL)],
    ids=["binary", "string", "decimal"],
)
@pytest.mark.parametrize("source", ["text", "columns", "registry"])
def test_bytes_alone_are_refused_in_confluents_framings_because_readers_differ_about_their_length(
    framing: str, kind: pa.DataType, text: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clients write and read them raw, other readers with Avro's length. A schema that is given or derived is not
    registered: no registry is there."""
    options = {"schema_registry_url": "http://127.0.0.1:1", "schema_registry_max_retries": "0"}
    options |= {"value_format": "avro", "value_schema_framing": framing}
    if source == "registry":
        found = ResolvedSchema(Schema(AVRO, text), "t-value", 1, 7, "c99f7e42-386d-12ce-ae93-285caaaa88be")
        monkeypatch.setattr(side_planning, "resolve", lambda *_, **__: found)
        options["use_latest_version"] = "true"
    else:
        options["auto_register_schemas"] = "true"
        if source == "text" or kind == pa.string():
            options["value_schema"] = text
    with pytest.raises(ConfigError, match=r"value\.format=avro: .*struct\(value\) AS value") as raised:
        side(kind, **options)
    assert raised.value.name == "PKS-7002"


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ('"bytes"', {"value_schema_framing": "none"}, b"\x04\xca\xfe"),
        ('"bytes"', {"value_schema_framing": "apicurio", "value_schema_id": "1"}, bytes(8) + b"\x01\x04\xca\xfe"),
        ('{"type":"fixed","name":"F","size":2}', {"value_schema_id": "1"}, bytes(4) + b"\x01\xca\xfe"),
        ('["null","bytes"]', {"value_schema_id": "1"}, bytes(4) + b"\x01\x02\x04\xca\xfe"),
    ],
)
def test_bytes_whose_encoding_all_readers_know_are_written(text: str, options: dict[str, str], expected: bytes) -> None:
    plan = side(pa.binary(), value_format="avro", value_schema=text, **options)
    rows = pa.RecordBatch.from_arrays([pa.array([b"\xca\xfe"], pa.binary())], ["value"])
    assert RowEncoding([plan]).encode(rows)[0].column("value").to_pylist() == [expected]


def test_columns_that_do_not_fit_are_told_with_the_format_and_register_nothing() -> None:
    options = {"schema_registry_url": "http://127.0.0.1:1", "schema_registry_max_retries": "0"}
    with pytest.raises(ConfigError, match=r"value\.format=avro: .* column id has type string"):
        side(
            pa.struct([("id", pa.string())]),
            value_format="avro",
            value_schema=LONG.text,
            auto_register_schemas="true",
            **options,
        )


# ---- tasks -----------------------------------------------------------------------------------------------------------


def test_rows_that_do_not_fit_are_told_in_order_and_set_apart_as_json() -> None:
    kind = pa.struct([("id", pa.int64())])
    rows = pa.RecordBatch.from_arrays(
        [pa.array([{"id": 2**40}, {"id": 1}, None, {"id": None}], kind), pa.array(["a", "b", "c", "d"])],
        ["value", "key"],
    )
    encoding = RowEncoding([SidePlan("value", LONG)])
    encoded, misfits = encoding.encode(rows)
    assert list(misfits) == [0, 3]
    kept, places, unfit = split_misfits(encoded, rows, misfits, encoding)
    assert kept.to_pylist() == [{"value": b"\x02", "key": "b"}, {"value": None, "key": "c"}]
    assert (places, unfit.positions) == ([1, 2], [0, 3])
    assert unfit.rows.column("value").to_pylist() == [b'{"id":1099511627776}', b"{}"]
    letters = unfit.make_letters(place={}, topic="t", first_row=100, bytes_max=10_000)
    said = [dict(row["headers"][0].items())["value"] for row in letters.to_pylist()]
    assert said[1] == b"value.id of row 103 is null, and the schema has no null there"


def test_rows_after_those_that_do_not_fit_keep_their_numbers() -> None:
    _, _, unfit = split_misfits(
        pa.RecordBatch.from_arrays([pa.array([b"a", b"b"])], ["value"]),
        pa.RecordBatch.from_arrays([pa.array([1, 2])], ["value"]),
        {0: DataError("value of row 0", row=0, column="value")},
        RowEncoding([]),
    )
    assert unfit.renumber([5, 6]).positions == [5]


@pytest.mark.parametrize("shape", ["none", "list", "map", "large"])
def test_headers_of_the_schema_come_behind_those_of_the_row(shape: str) -> None:
    kind = pa.struct([("id", pa.int32())])
    values = pa.array([{"id": 1}, None, {"id": 2}, {"id": 3}], kind)
    own = [[("a", b"1"), ("b", None)], [("c", b"2")], None, []]
    columns, names = [values], ["value"]
    if shape == "map":
        columns, names = [values, pa.array(own, pa.map_(pa.string(), pa.binary()))], ["value", "headers"]
    elif shape != "none":
        entries = [row and [{"key": key, "value": value} for key, value in row] for row in own]
        made = HEADERS if shape == "list" else pa.large_list(HEADERS.value_type)
        columns, names = [values, pa.array(entries, made)], ["value", "headers"]
    plan = SidePlan("value", LONG, b"", (("x", b"X"), ("y", b"Y")))
    rows, _ = RowEncoding([plan]).encode(pa.RecordBatch.from_arrays(columns, names).slice(0))
    found = [[(entry["key"], entry["value"]) for entry in row] for row in rows.column("headers").to_pylist()]
    before = [[], [], [], []] if shape == "none" else [row or [] for row in own]
    framed = [("x", b"X"), ("y", b"Y")]
    assert found == [before[0] + framed, before[1], before[2] + framed, before[3] + framed]
