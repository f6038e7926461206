"""Avro: valid schemas, columns that fit them, and the bytes of cases that the random tests do not cover."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import math
import pickle
import struct
import uuid
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.formats.schemas import avro_match
from kafka_sink.formats.schemas.avro import AvroSchema
from kafka_sink.formats.schemas.derive import derive_avro_schema
from kafka_sink.formats.schemas.match import plan
from tests.support.view_types import STRING_VIEWS

D = decimal.Decimal


def record(*fields: Any, **more: Any) -> AvroSchema:
    made = [{"name": name, "type": kind, **rest} for name, kind, rest in (*((*field, {})[:3] for field in fields),)]
    return AvroSchema.parse(json.dumps({"type": "record", "name": "R", "fields": made, **more}))


def encoded(array: pa.Array, schema: AvroSchema) -> list[bytes | None]:
    found = plan(array.type, schema).encode(array, b"", "value")
    assert found.misfits == {}
    values: list[bytes | None] = found.array.to_pylist()
    return values


def read_back(array: pa.Array, schema: AvroSchema) -> list[Any]:
    parsed = fastavro.parse_schema(json.loads(schema.text))
    return [fastavro.schemaless_reader(io.BytesIO(value or b""), parsed, None) for value in encoded(array, schema)]


def one(kind: pa.DataType, *values: Any, schema: Any) -> list[Any]:
    array = pa.array([{"x": value} for value in values], pa.struct([("x", kind)]))
    return [row["x"] for row in read_back(array, record(("x", schema)))]


def misfits(kind: pa.DataType, *values: Any, schema: Any) -> dict[int, str]:
    array = pa.array([{"x": value} for value in values], pa.struct([("x", kind)]))
    found = plan(array.type, record(("x", schema))).encode(array, b"", "value").misfits
    return {row: str(error) for row, error in found.items()}


# ---- columns that fit ------------------------------------------------------------------------------------------------

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 4}
FIXED_DECIMAL = {"type": "fixed", "name": "F", "size": 20, "logicalType": "decimal", "precision": 38, "scale": 2}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FIXED_UUID = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
TEXT_UUID = {"type": "string", "logicalType": "uuid"}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")
NOON = dt.datetime(1969, 12, 31, 12, 0, 0, 123456)


@pytest.mark.parametrize(
    ("kind", "schema", "value", "expected"),
    [
        (pa.int8(), "int", -128, -128),
        (pa.int64(), "int", -(2**31), -(2**31)),
        (pa.int32(), "long", 5, 5),
        (pa.int16(), "float", 3, 3.0),
        (pa.int32(), "double", -7, -7.0),
        (pa.float32(), "double", 0.5, 0.5),
        (pa.string(), "bytes", "é", "é".encode()),
        (pa.string(), ENUM, "B", "B"),
        (pa.binary(), {"type": "fixed", "name": "F", "size": 3}, b"abc", b"abc"),
        (pa.decimal128(6, 2), DECIMAL, D("-12.50"), D("-12.5000")),
        (pa.decimal128(38, 2), FIXED_DECIMAL, -D(10) ** 35, -D(10) ** 35),
        (pa.decimal128(5, 2), {**FIXED_DECIMAL, "size": 3, "precision": 5}, D("-1.01"), D("-1.01")),
        (pa.decimal128(5, 2), {**DECIMAL, "precision": 100}, D("-1.01"), D("-1.0100")),
        (pa.decimal128(20, 2), {**FIXED_DECIMAL, "size": 12, "precision": 20}, D("-1.01"), D("-1.01")),
        (pa.string(), {"type": "string", "logicalType": "uuid"}, str(UUID), UUID),
        (pa.string(), {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, str(UUID), UUID.bytes),
        (pa.int32(), {"type": "int", "logicalType": "date"}, 1, dt.date(1970, 1, 2)),
        (pa.timestamp("us", "UTC"), {"type": "long", "logicalType": "timestamp-millis"}, NOON,
         NOON.replace(microsecond=123000, tzinfo=dt.timezone.utc)),
        (pa.timestamp("us"), {"type": "long", "logicalType": "local-timestamp-micros"}, NOON, NOON),
        (pa.timestamp("us", "UTC"), "long", NOON, -43199877),
        (pa.time64("ns"), {"type": "long", "logicalType": "time-micros"}, dt.time(1, 2, 3, 4), dt.time(1, 2, 3, 4)),
        (pa.duration("us"), "long", dt.timedelta(seconds=-1), -1_000_000),
        (pa.string(), ["null", "int", "string"], "a", "a"),
        (pa.int32(), ["long", "int", "null"], 1, 1),
        (pa.int32(), ["null", "string", "double"], 4, 4.0),
        (pa.int32(), ["int", "null"], None, None),
        (pa.null(), ["string", "null"], None, None),
        (pa.null(), "null", None, None),
        (pa.dictionary(pa.int8(), pa.string()), "string", "a", "a"),
        (pa.large_string(), "string", "a", "a"),
        *((view, "string", "a", "a") for view in STRING_VIEWS),
        (pa.list_(pa.int8(), 2), {"type": "array", "items": "int"}, [1, 2], [1, 2]),
    ],
)  # fmt: skip
def test_a_value_is_read_back_as_the_schema_says(kind: pa.DataType, schema: Any, value: Any, expected: Any) -> None:
    assert one(kind, value, schema=schema) == [expected]


def test_the_branch_that_is_meant_is_taken_and_not_the_first_that_would_do() -> None:
    array = pa.array([{"x": 1}], pa.struct([("x", pa.int32())]))
    assert encoded(array, record(("x", ["long", "null", "int"]))) == [b"\x04\x02"]
    array = pa.array([{"x": D("1.25")}], pa.struct([("x", pa.decimal128(5, 2))]))
    assert encoded(array, record(("x", ["null", FIXED_DECIMAL, DECIMAL])))[0] == b"\x04\x04\x30\xd4"
    times = [{"type": "int", "logicalType": "time-millis"}, {"type": "long", "logicalType": "time-micros"}]
    assert one(pa.time64("ns"), dt.time(1, 2, 3, 4), schema=["null", *times]) == [dt.time(1, 2, 3, 4)]


def test_a_branch_that_does_not_fit_is_passed_over_whatever_its_type() -> None:
    named = [FIXED_UUID, ENUM, {"type": "fixed", "name": "F3", "size": 3}]
    nested = [{"type": "array", "items": "int"}, {"type": "map", "values": "int"}]
    scalars = ["null", "boolean", "int", "long", "float", "double", "bytes"]
    branches = [*named, *nested, *scalars, {"type": "record", "name": "N", "fields": []}]
    assert one(pa.struct([]), {}, schema=branches) == [{}]
    assert one(pa.binary(), b"ab", schema=branches) == [b"ab"]
    assert one(pa.date32(), dt.date(1970, 1, 3), schema=branches) == [2]
    with pytest.raises(ConfigError, match="binary of that many bytes; "):
        plan(pa.struct([("x", pa.decimal128(5, 2))]), record(("x", branches)))


@pytest.mark.parametrize(
    ("kind", "schema", "said"),
    [
        (pa.int64(), "string", "column x has type bigint, the schema says string; what fits there: string"),
        (pa.int64(), ["null"], "column x has type bigint, the schema says [null]; what fits there: void"),
        (pa.float64(), "float", "column x has type double, the schema says float"),
        (pa.string(), {"type": "fixed", "name": "F", "size": 3}, "fixed F; what fits there: binary of that many bytes"),
        (pa.duration("us"), "int", "column x has type interval day to second, the schema says int"),
        (pa.time64("us"), "long", "column x has type time, the schema says long"),
        (pa.int64(), "double", "column x has type bigint, the schema says double"),
        (pa.decimal128(10, 5), DECIMAL, "decimal(10,5), the schema says bytes decimal(10,4)"),
        (pa.timestamp("us"), {"type": "long", "logicalType": "timestamp-micros"}, "has type timestamp_ntz"),
        (pa.struct([("a", pa.int8())]), {"type": "map", "values": "int"}, "struct<a:tinyint>, the schema says map of"),
        (pa.map_(pa.int32(), pa.int32()), {"type": "map", "values": "int"}, "map<int,int>, the schema says map of int"),
        (pa.list_(pa.int64()), {"type": "array", "items": "string"}, "column x[] has type bigint"),
        (pa.bool_(), ["null", "string", "int"], "column x has type boolean, the schema says [null, string, int]"),
        (pa.decimal128(5, 2), {**FIXED_DECIMAL, "size": 2, "precision": 5}, "what fits there: decimal"),
        (pa.decimal128(5, 2), {**FIXED_DECIMAL, "size": 2**30, "precision": 5}, "what fits there: decimal"),
        (pa.decimal128(5, 2), {**DECIMAL, "precision": 2**70, "scale": 2**69}, "what fits there: decimal"),
    ],
)
def test_a_column_that_cannot_fit_is_refused_by_name_and_type(kind: pa.DataType, schema: Any, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        plan(pa.struct([("x", kind)]), record(("x", schema)))
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "schema", "values", "row", "said"),
    [
        (pa.int64(), "int", [1, 2**31], 1, "value.x of row 1 is out of the range of its type in the schema"),
        (pa.int32(), "int", [1, None], 1, "value.x of row 1 is null, and the schema has no null there"),
        (pa.string(), ENUM, ["A", "C"], 1, "value.x of row 1 is no symbol of its enum in the schema"),
        (pa.binary(), {"type": "fixed", "name": "F", "size": 3}, [b"abc", b"ab"], 1, "does not have 3 bytes"),
        (pa.decimal128(12, 4), DECIMAL, [D("1"), D("-1000000")], 1, "does not fit into decimal(10,4)"),
        (pa.decimal128(38, 0), FIXED_DECIMAL, [D(1), D(10) ** 37], 1, "does not fit into decimal(38,2)"),
        (pa.decimal128(38, 0), DECIMAL, [D(1), D(10) ** 36], 1, "does not fit into decimal(10,4)"),
        (pa.string(), FIXED_UUID, [str(UUID), "1"], 1, "is no UUID"),
        (pa.string(), FIXED_UUID, [UUID.hex, UUID.hex[:30] + "  "], 1, "is no UUID"),
        (pa.string(), FIXED_UUID, [str(UUID), "-" + UUID.hex[:31] + "-"], 1, "is no UUID"),
        (pa.large_string(), TEXT_UUID, [str(UUID), UUID.hex], 1, "is no UUID"),
        *((view, ["null", TEXT_UUID], [None, f"{UUID}\n"], 1, "is no UUID") for view in STRING_VIEWS),
        (pa.timestamp("s", "UTC"), NANOS, [1, 2**40], 1, "out of the range"),
        (pa.list_(pa.int64()), {"type": "array", "items": "int"}, [[], [1], [2, 2**40]], 2, "value.x[] of row 2"),
        (pa.map_(pa.string(), pa.int64()), {"type": "map", "values": "int"}, [{}, {"k": 2**40}], 1, "value.x{} of"),
    ],
)
def test_a_row_that_does_not_fit_is_found_by_row_and_path(
    kind: pa.DataType, schema: Any, values: list[Any], row: int, said: str
) -> None:
    found = misfits(kind, *values, schema=schema)
    assert list(found) == [row]
    assert said in found[row]


def test_what_lies_under_a_null_is_nobodys_fault() -> None:
    inner = pa.array([1, 2**40, 3], pa.int64())
    nulls = pa.py_buffer(b"\x05")
    struct_array = pa.Array.from_buffers(pa.struct([("a", pa.int64())]), 3, [nulls], children=[inner])
    lists = pa.Array.from_buffers(
        pa.list_(pa.int64()), 3, [nulls, pa.py_buffer(struct.pack("<4i", 0, 1, 2, 3))], children=[inner]
    )
    rows = pa.StructArray.from_arrays([struct_array, lists, inner], ["s", "l", "n"])
    of_struct = {"type": "record", "name": "S", "fields": [{"name": "a", "type": "int"}]}
    schema = record(
        ("s", ["null", of_struct]), ("l", ["null", {"type": "array", "items": "int"}]), ("n", "long")
    )  # fmt: skip
    assert read_back(rows, schema)[1] == {"s": None, "l": None, "n": 2**40}


def test_text_that_is_not_utf_8_is_a_misfit_and_its_neighbours_are_not() -> None:
    data = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(struct.pack("<4i", 0, 1, 2, 3)), pa.py_buffer(b"a\xffb")]
    )
    rows = pa.StructArray.from_arrays([data], ["x"])
    found = plan(rows.type, record(("x", "string"))).encode(rows, b"", "value")
    assert {row: str(error) for row, error in found.misfits.items()} == {1: "value.x of row 1 is not UTF-8"}
    assert (found.array[0].as_py(), found.array[2].as_py()) == (b"\x02a", b"\x02b")


# ---- names, defaults -------------------------------------------------------------------------------------------------


def test_columns_find_their_fields_by_name_in_whatever_order_and_capitals() -> None:
    array = pa.array([{"B": 2, "a": 1}], pa.struct([("B", pa.int32()), ("a", pa.int32())]))
    assert encoded(array, record(("a", "int"), ("b", "int"))) == [b"\x02\x04"]


def test_a_column_is_written_to_the_field_of_its_name_and_to_no_other() -> None:
    array = pa.array([{"id": 1}], pa.struct([("id", pa.int32())]))
    assert encoded(array, record(("ID", "int", {"default": -1}), ("id", "int"))) == [b"\x01\x02"]


def test_a_field_without_a_column_has_its_default_or_null_or_is_told() -> None:
    array = pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))
    nested = {"type": "record", "name": "N", "fields": [{"name": "q", "type": "long", "default": -1}]}
    defaults = [
        ("s", "string", "é"), ("b", "bytes", "\u00ff"), ("d", "double", 1.5), ("f", "float", "NaN"),
        ("l", {"type": "array", "items": "int"}, [1, 2]), ("m", {"type": "map", "values": "int"}, {"k": 1}),
        ("e", ENUM, "B"), ("n", nested, {}), ("u", ["null", "int"], None), ("v", ["int", "null"], 3),
        ("t", "boolean", True), ("x", {"type": "fixed", "name": "X", "size": 1}, "\u0001"),
    ]  # fmt: skip
    schema = record(("a", "int"), *((name, kind, {"default": value}) for name, kind, value in defaults))
    (found,) = read_back(array, schema)
    assert math.isnan(found.pop("f"))
    assert found == {
        "a": 1, "s": "é", "b": b"\xff", "d": 1.5, "l": [1, 2], "m": {"k": 1}, "e": "B", "n": {"q": -1}, "u": None,
        "v": 3, "t": True, "x": b"\x01",
    }  # fmt: skip
    assert encoded(array, record(("z", ["int", "null"]), ("a", "int"))) == [b"\x02\x02"]
    with pytest.raises(ConfigError, match="there is no column for field z of type int"):
        plan(array.type, record(("a", "int"), ("z", "int")))
    with pytest.raises(ConfigError, match="the default of field z does not fit its type int"):
        plan(array.type, record(("a", "int"), ("z", "int", {"default": "x"})))
    for kind, value in (("string", "\ud800"), ("double", 10**400), ("R", {"a": 1})):
        with pytest.raises(ConfigError, match="the default of field z does not fit its type"):
            plan(array.type, record(("a", "int"), ("z", kind, {"default": value})))


def test_two_columns_that_could_be_one_field_are_told() -> None:
    with pytest.raises(ConfigError, match="field a could be each of the columns A, A"):
        plan(pa.struct([("A", pa.int8()), ("A", pa.int8())]), record(("a", "int")))


def test_a_column_that_could_be_two_fields_is_told() -> None:
    with pytest.raises(ConfigError, match="column id could be field ID or another that differs only in case"):
        plan(pa.struct([("id", pa.int8())]), record(("ID", "int", {"default": 0}), ("Id", "int", {"default": 0})))
    array = pa.array([{"id": 1, "Id": 2}], pa.struct([("Id", pa.int8()), ("id", pa.int8())]))
    assert encoded(array, record(("id", "int"), ("ID", "int"))) == [b"\x02\x04"]


# ---- shapes of arrays ------------------------------------------------------------------------------------------------


def test_slices_are_the_same_rows() -> None:
    rows = [{"x": number, "y": [str(number)] * (number % 3)} for number in range(600)]
    kind = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    array = pa.array(rows, kind)
    encoder = plan(kind, derive_avro_schema(kind, "R"))
    whole = encoder.encode(array, b"p", "value").array.to_pylist()
    for first in (1, 8, 300, 600):
        assert encoder.encode(array.slice(first), b"p", "value").array.to_pylist() == whole[first:]


def test_misfits_of_later_parts_are_counted_from_the_first_row(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = pa.struct([("x", pa.int64()), ("y", pa.string())])
    array = pa.array([{"x": 2**40 * (number % 2), "y": "b" * 20} for number in range(4)], kind)
    monkeypatch.setattr("kafka_sink.formats.records.pieces.BYTES_MAX", 60)
    found = plan(kind, record(("x", "int"), ("y", "string"))).encode(array, b"", "value")
    assert list(found.misfits) == [1, 3]
    assert "of row 3 is out" in str(found.misfits[3])


def test_a_null_row_stays_null_and_a_value_without_a_record_has_a_schema_of_its_own() -> None:
    schema = derive_avro_schema(pa.string(), "ignored")
    assert schema.text == '"string"'
    found = plan(pa.string(), schema).encode(pa.array(["a", None, ""]), b"\0\0\0\0\1", "key")
    assert found.array.to_pylist() == [b"\0\0\0\0\1\x02a", None, b"\0\0\0\0\1\x00"]


def test_long_strings_long_prefixes_and_deep_types() -> None:
    kind: pa.DataType = pa.string()
    value: Any = "é" * 600_000
    for _ in range(40):
        kind, value = pa.struct([("n", pa.list_(kind))]), {"n": [value]}
    array = pa.array([value, value], kind)
    schema = derive_avro_schema(kind, "R")
    found = plan(kind, schema).encode(array, b"p" * 18, "value").array
    parsed = fastavro.parse_schema(json.loads(schema.text))
    assert found[1].as_py()[:18] == b"p" * 18
    assert fastavro.schemaless_reader(io.BytesIO(found[1].as_py()[18:]), parsed, None) == value


def test_rows_that_are_more_than_a_block_holds_go_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = pa.struct([("x", pa.string()), ("y", pa.string())])
    array = pa.array([{"x": "a" * number, "y": "b"} for number in range(50)], kind)
    encoder = plan(kind, derive_avro_schema(kind, "R"))
    whole = encoder.encode(array, b"", "value").array.to_pylist()
    monkeypatch.setattr("kafka_sink.formats.records.pieces.BYTES_MAX", 400)
    assert encoder.encode(array, b"", "value").array.to_pylist() == whole
    monkeypatch.setattr("kafka_sink.formats.records.pieces.BYTES_MAX", 30)
    assert min(encoder.encode(array, b"", "value").misfits) > 10


def test_a_column_that_is_more_than_a_block_holds_goes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    array = pa.array(["a" * number for number in range(50)], pa.large_string())
    encoder = plan(array.type, derive_avro_schema(array.type, "ignored"))
    whole = encoder.encode(array, b"", "value").array.to_pylist()
    monkeypatch.setattr("kafka_sink.formats.records.bytes_column.BYTES_MAX", 400)
    assert encoder.encode(array, b"", "value").array.to_pylist() == whole


def test_numbers_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    array = pa.array([{"x": 1.0, "y": 2.0}] * 3)
    encoder = plan(array.type, record(("x", "double"), ("y", "double")))
    whole = encoder.encode(array, b"", "value").array.to_pylist()
    monkeypatch.setattr("kafka_sink.formats.records.pieces.BYTES_MAX", 40)
    assert encoder.encode(array, b"", "value").array.to_pylist() == whole
    monkeypatch.setattr("kafka_sink.formats.records.pieces.BYTES_MAX", 10)
    assert list(encoder.encode(array, b"", "value").misfits) == [0, 1, 2]


# ---- schemas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "an Avro schema is JSON"),
        ('{"name":"x"}', "no Avro type"),
        ('"strng"', "names a type that it does not define"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":["null","strng"]}]}',
            "names a type strng that it does not define (field a of R)",
        ),
        ('["null","null"]', "different branches"),
        ('{"type":"record","name":"1","fields":[]}', "is no name in Avro"),
        ('{"type":"record","name":"R"}', "an Avro record R without fields"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}', "two fields"),
        ('{"type":"array","items":{"type":"fixed","name":"F","size":-1}}', "no number of bytes"),
        ('{"type":"enum","name":"E","symbols":[]}', "not a list of Avro names"),
        ('{"type":"enum","name":"E","symbols":[null]}', "not a list of Avro names"),
        (
            '{"type":"record","name":"R","fields":[{"name":null,"type":"int"}]}',
            "the name of field 1 of R is no name in Avro",
        ),
        ("[" * 300 + "]" * 300, "nested more than 200 deep"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        AvroSchema.parse(text)
    assert said in str(raised.value)


def test_schemas_refer_to_others_in_whatever_order_and_to_themselves() -> None:
    references = {
        "a.Outer": '{"type":"record","name":"a.Outer","fields":[{"name":"inner","type":"a.Inner"}]}',
        "a.Inner": '{"type":"record","name":"Inner","namespace":"a","fields":[{"name":"x","type":"int"}]}',
    }
    schema = AvroSchema.parse(
        '{"type":"record","name":"a.R","fields":[{"name":"o","type":"Outer"},'
        '{"name":"next","type":["null","R"],"default":null}]}',
        references,
    )
    kind = pa.struct([("o", pa.struct([("inner", pa.struct([("x", pa.int32())]))]))])
    kind = pa.struct([*kind, ("next", kind)])
    array = pa.array([{"o": {"inner": {"x": 1}}, "next": {"o": {"inner": {"x": 2}}}}], kind)
    assert encoded(array, schema) == [b"\x02\x02\x04\x00"]
    assert pickle.loads(pickle.dumps(schema)).fullname == "a.R"
    assert encoded(array, pickle.loads(pickle.dumps(schema))) == [b"\x02\x02\x04\x00"]
    assert pickle.loads(pickle.dumps(schema)).references == references
    with pytest.raises(ConfigError, match=r"cannot be read \(b\)"):
        AvroSchema.parse('"int"', {"b": '"c"'})


def test_a_schema_as_deep_as_is_read_gets_to_a_task() -> None:
    kind: Any = "int"
    for number in range(190):
        kind = {"type": "record", "name": f"R{number}", "fields": [{"name": "x", "type": kind}]}
    schema = AvroSchema.parse(json.dumps(kind))
    assert pickle.loads(pickle.dumps(schema)).text == schema.text


def test_a_logical_type_that_does_not_fit_its_type_is_left_aside() -> None:
    assert AvroSchema.parse('{"type":"string","logicalType":"date"}').type.logical == ""
    assert AvroSchema.parse('{"type":"bytes","logicalType":"decimal","precision":0}').type.logical == ""
    assert AvroSchema.parse('{"type":"long","logicalType":"new-thing"}').type.logical == ""


def test_a_schema_is_derived_with_names_that_generated_classes_can_have() -> None:
    inner = pa.struct([pa.field("b", pa.struct([("c", pa.date32())]), False)])
    kind = pa.struct(
        [pa.field("a", inner), pa.field("a_b", pa.list_(inner)), pa.field("z", pa.decimal128(9, 2), False)]
    )
    schema = derive_avro_schema(kind, "shop.Order")
    names = json.dumps(json.loads(schema.text)).split('"name": "')[1:]
    assert [name.partition('"')[0] for name in names if name[0] == "O"] == [
        "Order", "Order_a", "Order_a_b", "Order_a_b_", "Order_a_b__b",
    ]  # fmt: skip
    assert schema.fullname == "shop.Order"
    with pytest.raises(ConfigError, match="'1x' is no name in Avro"):
        derive_avro_schema(kind, "1x")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (pa.struct([("a-b", pa.int8())]), "column a-b has a name that Avro does not allow"),
        (pa.struct([("a", pa.int8()), ("a", pa.int8())]), "two columns are called a"),
        (pa.struct([("m", pa.map_(pa.int32(), pa.int8()))]), "map_entries(m)"),
        (pa.struct([("h", pa.float16())]), "column h has type halffloat, which Avro lacks"),
    ],
)
def test_columns_for_which_there_is_no_schema_are_told(kind: pa.DataType, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        derive_avro_schema(kind, "R")
    assert said in str(raised.value)


def _doubling(levels: int, leaf: Any) -> str:
    """Records of two fields of the record before, each with an empty default."""
    kind: Any = {"type": "record", "name": "R0", "fields": [{"name": "v", **leaf}]}
    for level in range(1, levels):
        fields = [{"name": "a", "type": kind, "default": {}}, {"name": "b", "type": f"R{level - 1}", "default": {}}]
        kind = {"type": "record", "name": f"R{level}", "fields": fields}
    fields = [{"name": "x", "type": kind, "default": {}}, {"name": "id", "type": "long"}]
    return json.dumps({"type": "record", "name": "Top", "fields": fields})


@pytest.mark.parametrize(
    "leaf",
    [{"type": "int", "default": 0}, {"type": "null", "default": None}, {"type": "string", "default": "x" * 100_000}],
)
def test_defaults_that_double_with_each_level_are_refused_before_they_are_made(leaf: Any) -> None:
    kind = pa.struct([("id", pa.int64())])
    with pytest.raises(ConfigError, match="the default of field x is larger than 1000000 bytes or 100000 values"):
        plan(kind, AvroSchema.parse(_doubling(60, leaf)))
    assert plan(kind, AvroSchema.parse(_doubling(4, leaf)))


def test_branches_of_unions_in_unions_are_tried_once_for_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"U{number}" for number in range(30)]
    records = [
        {"type": "record", "name": name, "fields": [{"name": "x", "type": ["null", *names[: number + 1]]}]}
        for number, name in enumerate(names)
    ]
    text = json.dumps({"type": "record", "name": "Top", "fields": [{"name": "x", "type": ["null", *records]}]})
    kind = pa.struct([("y", pa.int64())])
    for _ in range(5):
        kind = pa.struct([("x", kind)])
    calls: list[str] = []
    find = avro_match.find_columns
    monkeypatch.setattr(avro_match, "find_columns", lambda *given: calls.append(given[2]) or find(*given))
    with pytest.raises(ConfigError, match=r"column x has type struct"):
        plan(kind, AvroSchema.parse(text))
    assert len(calls) <= 1 + 6 * len(names)
