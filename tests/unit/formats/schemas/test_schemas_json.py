"""JSON: texts of values that the random tests do not cover, and rows that do not fit a JSON schema."""

from __future__ import annotations

import json
import math
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.formats.schemas.json_schema import JsonSchema
from kafka_sink.formats.schemas.match import plan


def texts(array: pa.Array) -> list[str]:
    return [value.decode() for value in plan(array.type, None).encode(array, b"", "value").array.to_pylist()]


def misfits(array: pa.Array, schema: Any) -> dict[int, str]:
    found = plan(array.type, JsonSchema.parse(json.dumps(schema))).encode(array, b"", "value").misfits
    return {row: str(error) for row, error in found.items()}


def test_keys_of_maps_are_quoted_once_whatever_number_they_are() -> None:
    keys = pa.array([[(math.nan, 1), (math.inf, 2), (-math.inf, 3), (1.5, 4)]], pa.map_(pa.float64(), pa.int32()))
    assert texts(keys) == ['{"NaN":1,"Infinity":2,"-Infinity":3,"1.5":4}']


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (-719_528, "0000-01-01"),
        (-719_529, "-0001-12-31"),
        (-1_000_000, "-0768-02-04"),
        (2_932_896, "9999-12-31"),
        (2_932_897, "+10000-01-01"),
        (-5_000_000, "-11720-06-19"),
    ],
)
def test_a_year_has_four_digits_or_a_sign(days: int, text: str) -> None:
    """As Java's LocalDate reads it."""
    assert texts(pa.array([days], pa.date32())) == [f'"{text}"']
    assert texts(pa.array([days, 0], pa.date32())) == [f'"{text}"', '"1970-01-01"']
    moment = pa.array([days * 86_400_000_000], pa.timestamp("us", tz="UTC"))
    assert texts(moment) == [f'"{text}T00:00:00.000Z"']


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [
        (pa.time64("ns"), 3_723_123_456_789, "01:02:03.123456789"),
        (pa.time64("ns"), 3_600_000_000_000, "01:00:00"),
        (pa.time64("us"), 36_900_000, "00:00:36.9"),
        (pa.time32("ms"), 600_000, "00:10:00"),
        (pa.time32("s"), 600, "00:10:00"),
        (pa.duration("us"), 93_784_500_000, "INTERVAL '1 02:03:04.5' DAY TO SECOND"),
        (pa.duration("us"), -1, "INTERVAL '-0 00:00:00.000001' DAY TO SECOND"),
        (pa.duration("us"), -(2**63), "INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND"),
    ],
)
def test_times_of_day_and_intervals_are_as_in_spark(kind: pa.DataType, number: int, text: str) -> None:
    assert texts(pa.array([number], kind)) == [f'"{text}"']


def test_text_that_is_not_utf_8_loses_only_the_bytes_that_are_not() -> None:
    """A dead letter shows it."""
    array = pa.StructArray.from_arrays([pa.array([b"a\xffb", "é".encode(), None]).view(pa.string())], ["s"])
    found = plan(array.type, None).encode(array, b"", "value")
    assert list(found.misfits) == [0]
    lists = pa.ListArray.from_arrays(pa.array([0, 0, 1], pa.int32()), array.field(0))
    (error,) = plan(lists.type, None).encode(lists, b"", "value").misfits.values()
    assert str(error) == "value[] of row 1 is not UTF-8"
    assert [json.loads(value) for value in found.array.to_pylist()] == [{"s": "a\ufffdb"}, {"s": "é"}, {}]


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"properties": {"x": {"type": ["array", "object"]}}}])
@pytest.mark.parametrize("wrapped", ["array", "map", "number"])
def test_within_a_schema_every_number_is_a_number(schema: Any, wrapped: str) -> None:
    kind, value = {
        "array": (pa.list_(pa.float64()), [[1.0], [0.0, math.nan]]),
        "map": (pa.map_(pa.string(), pa.float32()), [[("a", 1.0)], [("a", math.inf)]]),
        "number": (pa.float64(), [1.0, math.nan]),
    }[wrapped]
    if wrapped == "number" and "properties" in schema:
        schema = {"properties": {"x": True}}
    array = pa.array([{"x": each} for each in value], pa.struct([("x", kind)]))
    (row, said), *more = misfits(array, schema).items()
    assert (row, more) == (1, []) and "is not a finite number" in said


@pytest.mark.parametrize(
    ("said", "fits"), [({}, True), ({"type": ["integer", "null"]}, True), (True, True), ({"type": "integer"}, False)]
)
@pytest.mark.parametrize("wrapped", ["items", "additionalProperties"])
def test_a_null_among_items_must_be_allowed_by_the_schema(wrapped: str, said: Any, fits: bool) -> None:
    kind, values = {
        "items": (pa.list_(pa.int32()), [[1], None, [1, None]]),
        "additionalProperties": (pa.map_(pa.string(), pa.int32()), [[("a", 1)], None, [("a", None)]]),
    }[wrapped]
    array = pa.array([{"x": each} for each in values], pa.struct([("x", kind)]))
    found = misfits(array, {"properties": {"x": {wrapped: said}}})
    path = "value.x[]" if wrapped == "items" else "value.x{}"
    assert found == ({} if fits else {2: f"{path} of row 2 is null, and the schema has no null there"})


NULL = {"type": "null"}
TEXT = {"type": "string"}


@pytest.mark.parametrize(
    "said",
    [
        {"type": ["string", "null"]},
        {"anyOf": [TEXT, NULL]},
        {"anyOf": [{"$ref": "#/$defs/Name"}, NULL], "title": "Name"},
        {"oneOf": [NULL, TEXT]},
        {"$ref": "#/$defs/Optional"},
        {"enum": ["a", None]},
        {},
        True,
    ],
)
def test_a_null_is_written_where_a_property_is_required_and_may_be_null(said: Any) -> None:
    schema = {
        "type": "object", "properties": {"x": said, "y": said}, "required": ["x"],
        "$defs": {"Name": TEXT, "Optional": {"anyOf": [TEXT, NULL]}},
    }  # fmt: skip
    for kind in (pa.string(), pa.null()):
        rows = [{"x": None, "y": None}, *([] if kind == pa.null() else [{"x": "a", "y": "a"}])]
        array = pa.array(rows, pa.struct([("x", kind), ("y", kind)]))
        values = plan(array.type, JsonSchema.parse(json.dumps(schema))).encode(array, b"", "value")
        assert values.misfits == {}
        assert values.array.to_pylist() == [b'{"x":null}', b'{"x":"a","y":"a"}'][: len(rows)]
        for text in values.array.to_pylist():
            jsonschema.Draft202012Validator(schema).validate(json.loads(text))


@pytest.mark.parametrize(
    "said",
    [
        TEXT,
        {"anyOf": [TEXT, {"type": "integer"}]},
        {"oneOf": [NULL, {"type": ["string", "null"]}]},
        {"allOf": [{"type": ["string", "null"]}, TEXT]},
        {"type": ["string", "null"], "not": NULL},
        {"type": ["string", "null"], "enum": ["a"]},
        {"const": "a"},
        {"$ref": "https://example.org/name.json"},
        {"$ref": "#/$defs/none"},
        {"$ref": "#/properties/x"},
    ],
)
def test_a_null_that_a_required_property_does_not_surely_allow_does_not_fit(said: Any) -> None:
    schema = {"type": "object", "properties": {"x": said}, "required": ["x"]}
    array = pa.array([{"x": "a"}, {"x": None}], pa.struct([("x", pa.string())]))
    assert misfits(array, schema) == {1: "value.x of row 1 is null, and the schema requires it"}
    with pytest.raises(ConfigError, match="requires the property x, which has no column"):
        misfits(pa.array([{"x": None}], pa.struct([("x", pa.null())])), schema)


def test_an_optional_model_is_checked_behind_its_reference() -> None:
    """As pydantic writes `address: Address | None`."""
    address = {
        "type": "object", "properties": {"city": {"anyOf": [TEXT, NULL]}, "zip": TEXT}, "required": ["city", "zip"],
    }  # fmt: skip
    schema = {
        "$defs": {"Address": address}, "type": "object", "required": ["address"],
        "properties": {"address": {"anyOf": [{"$ref": "#/$defs/Address"}, NULL]}},
    }  # fmt: skip
    kind = pa.struct([("address", pa.struct([("city", pa.string()), ("zip", pa.string())]))])
    array = pa.array([{"address": {"city": None, "zip": "1"}}, {"address": None}, {"address": {"zip": None}}], kind)
    values = plan(kind, JsonSchema.parse(json.dumps(schema))).encode(array, b"", "value")
    assert values.array.to_pylist()[:2] == [b'{"address":{"city":null,"zip":"1"}}', b'{"address":null}']
    assert {row: str(error) for row, error in values.misfits.items()} == {
        2: "value.address.zip of row 2 is null, and the schema requires it"
    }
    with pytest.raises(ConfigError, match=r"column address\.zip has type bigint, which is integer in JSON"):
        plan(pa.struct([("address", pa.struct([("city", pa.string()), ("zip", pa.int64())]))]),
             JsonSchema.parse(json.dumps(schema)))  # fmt: skip


def test_choices_that_double_with_each_step_are_given_up() -> None:
    choices = {f"c{number}": {"anyOf": [{"$ref": f"#/$defs/c{number + 1}"}] * 2} for number in range(100)}
    schema = {"$defs": choices, "type": "object", "properties": {"x": choices["c0"]}, "required": ["x"]}
    assert misfits(pa.array([{"x": "a"}]), schema) == {}
    turning = {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "properties": {"x": {"$ref": "#/$defs/a"}},
    }
    assert misfits(pa.array([{"x": "a"}]), turning) == {}


def test_a_property_that_a_pattern_may_allow_is_not_refused() -> None:
    array = pa.array([{"x_1": 1}])
    closed = {"additionalProperties": False}
    with pytest.raises(ConfigError, match="the schema has no property for column x_1"):
        misfits(array, closed)
    assert misfits(array, {**closed, "patternProperties": {"^x_": {"type": "integer"}}}) == {}


@pytest.mark.parametrize("schema", [None, JsonSchema.parse("{}")])
def test_two_columns_of_one_name_are_refused_because_readers_keep_one(schema: JsonSchema | None) -> None:
    twice = pa.struct([("id", pa.int32()), ("ID", pa.int32()), ("id", pa.string())])
    for kind, name in ((twice, "id"), (pa.struct([("x", pa.list_(twice))]), r"x\[\]\.id")):
        with pytest.raises(ConfigError, match=f"two columns are called {name}; rename one"):
            plan(kind, schema)
    kind = pa.struct([("id", pa.int64()), ("ID", pa.int64())])
    assert texts(pa.array([{"id": 1, "ID": 2}], kind)) == ['{"id":1,"ID":2}']


def test_an_array_without_elements_may_have_an_empty_buffer_of_offsets() -> None:
    """The Arrow format allows it, and some writers use it."""
    empty = pa.py_buffer(b"")
    items = pa.Array.from_buffers(pa.string(), 0, [None, empty, empty])
    lists = pa.Array.from_buffers(pa.list_(pa.string()), 0, [None, empty], children=[items])
    for inner in (items, lists):
        assert texts(pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), inner)) == ["[]", "[]"]
