"""The column encoder for Avro equals the slow twin, and fastavro reads its bytes back."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.formats.schemas.avro import AvroSchema
from kafka_sink.formats.schemas.derive import derive_avro_schema
from kafka_sink.formats.schemas.match import plan

from .parts import check_a_thousand, in_ten_parts
from .schema_values import raw, structs
from .slow_avro import encoded

PREFIX = b"\x00\x00\x00\x00\x2a"


def _check_against_the_twin(array: pa.Array) -> None:
    schema = derive_avro_schema(array.type, "test.Row")
    values = plan(array.type, schema).encode(array, PREFIX, "value")
    assert values.misfits == {}
    wanted = [
        PREFIX + encoded(schema.type, array.type, raw(row)) if row.is_valid else None for row in array
    ]  # fmt: skip
    assert values.array.to_pylist() == wanted


def _check_against_fastavro(array: pa.Array) -> None:
    schema = derive_avro_schema(array.type, "test.Row")
    values = plan(array.type, schema).encode(array, b"", "value").array.to_pylist()
    parsed = fastavro.parse_schema(json.loads(schema.text))
    for value, row in zip(values, array, strict=True):
        if value is None:
            assert not row.is_valid
            continue
        stream = io.BytesIO(value)
        assert same(fastavro.schemaless_reader(stream, parsed, None), expected(row))
        assert stream.read() == b""


def expected(scalar: pa.Scalar) -> Any:
    """The value as fastavro returns it: maps are dicts, intervals are numbers."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {kind.field(index).name: expected(scalar[index]) for index in range(kind.num_fields)}
    if pa.types.is_map(kind):
        return {entry["key"].as_py(): expected(entry["value"]) for entry in scalar.values}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [expected(each) for each in scalar.values]
    return scalar.value if pa.types.is_duration(kind) else scalar.as_py()


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (one == other and math.copysign(1, one) == math.copysign(1, other)) or (one != one and other != other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


class _Extended:
    """A derived schema with more fields, for which there are no columns: with defaults of every type, and of the record
    itself. `expect` fills in what a reader must see."""

    def __init__(self, draw: Any, derived: dict[str, Any]) -> None:
        self._draw = draw
        # By record: names and values of the fields that were added.
        self._added: dict[str, dict[str, Any]] = {}
        self._count = 0
        self.schema = self._extend(derived)

    def _extend(self, said: Any) -> Any:
        if isinstance(said, list):
            return [self._extend(each) for each in said]
        if not isinstance(said, dict):
            return said
        for word in ("items", "values"):
            if word in said:
                said = {**said, word: self._extend(said[word])}
        if said["type"] != "record":
            return said
        added: dict[str, Any] = {}
        fields = [{**field, "type": self._extend(field["type"])} for field in said["fields"]]
        for _ in range(self._draw(_EXTRA_COUNTS)):
            kind, default, value = self._make_default(said["name"])
            self._count += 1
            added[f"extra_{self._count}"] = value
            more = {} if default is _NONE else {"default": default}
            fields.append({"name": f"extra_{self._count}", "type": kind, **more})
        self._added[said["name"]] = added
        return {**said, "fields": fields}

    def _make_default(self, record: str, depth: int = 0) -> tuple[Any, Any, Any]:
        """A type, its default as JSON, and what a reader sees."""
        choice = self._draw(_DEFAULT_KINDS)
        if choice == "itself":
            return ["null", record], self._draw(_NO_OR_NULL), None
        if choice in ("array", "map") and depth < 3:
            kind, default, value = self._make_default(record, depth + 1)
            if default is _NONE:
                default = None
            if choice == "array":
                return {"type": "array", "items": kind}, [default, default], [value, value]
            return {"type": "map", "values": kind}, {"k": default}, {"k": value}
        if choice == "record" and depth < 3:
            self._count += 1
            name = f"E{self._count}"
            inner = [self._make_default(record, depth + 1) for _ in range(2)]
            fields = [
                {"name": f"f{number}", "type": kind, "default": None if default is _NONE else default}
                for number, (kind, default, _) in enumerate(inner)
            ]
            given = {f"f{number}": each[1] for number, each in enumerate(inner) if self._draw(_YES_OR_NO)}
            default = {field: None if each is _NONE else each for field, each in given.items()}
            made = {"type": "record", "name": name, "fields": fields}
            return made, default, {f"f{number}": value for number, (_, _, value) in enumerate(inner)}
        if choice == "named":
            self._count += 1
            name = f"E{self._count}"
            if self._draw(_YES_OR_NO):
                return {"type": "enum", "name": name, "symbols": ["A", "B"]}, "B", "B"
            return {"type": "fixed", "name": name, "size": 2}, "\u00ff\u0001", b"\xff\x01"
        return self._draw(_SIMPLE_DEFAULTS)

    def expect(self, said: Any, value: Any) -> Any:
        if isinstance(said, list):
            return value if value is None else self.expect(next(each for each in said if each != "null"), value)
        if value is None or not isinstance(said, dict):
            return value
        if said["type"] == "record":
            columns = {field["name"]: field["type"] for field in said["fields"] if field["name"] in value}
            seen = {name: self.expect(kind, value[name]) for name, kind in columns.items()}
            return {**seen, **self._added[said["name"]]}
        if said["type"] == "array":
            return [self.expect(said["items"], each) for each in value]
        if said["type"] == "map":
            return {name: self.expect(said["values"], each) for name, each in value.items()}
        return value


_NONE = object()
_STRUCTS = structs()
_EXTRA_COUNTS, _YES_OR_NO = st.sampled_from([1, 0, 2, 3]), st.booleans()
_DEFAULT_KINDS = st.sampled_from(["simple", "itself", "array", "map", "record", "named", "simple"])
_NO_OR_NULL = st.sampled_from([_NONE, None])
_SIMPLE_DEFAULTS = st.sampled_from(
    [
        ("int", -70, -70), ("long", 2**62, 2**62), ("string", "\u00e9\"", "\u00e9\""), ("boolean", True, True),
        ("double", 1.5, 1.5), ("float", 2, 2.0), ("bytes", "\u00ff\u0000", b"\xff\x00"), ("null", None, None),
        (["null", "long"], None, None), (["long", "null"], 3, 3), (["int", "string"], 4, 4),
    ]
)  # fmt: skip


@st.composite
def _extended_schemas(draw: Any) -> tuple[pa.Array, _Extended]:
    array = draw(_STRUCTS)
    return array, _Extended(draw, json.loads(derive_avro_schema(array.type, "Row").text))


def _check_defaults(case: tuple[pa.Array, _Extended]) -> None:
    array, extended = case
    schema = AvroSchema.parse(json.dumps(extended.schema))
    values = plan(array.type, schema).encode(array, b"", "value").array.to_pylist()
    parsed = fastavro.parse_schema(extended.schema)
    for value, row in zip(values, array, strict=True):
        if value is not None:
            stream = io.BytesIO(value)
            found = fastavro.schemaless_reader(stream, parsed, None)
            assert same(found, extended.expect(extended.schema, expected(row)))
            assert stream.read() == b""


@settings(max_examples=60, deadline=None)
@given(_extended_schemas())
def test_fastavro_reads_the_defaults_of_fields_without_a_column(case: tuple[pa.Array, _Extended]) -> None:
    _check_defaults(case)


@pytest.mark.slow
@in_ten_parts
def test_ten_thousand_schemas_with_defaults_and_references_to_themselves(
    part: int, pytestconfig: pytest.Config
) -> None:
    check_a_thousand(part, pytestconfig, _extended_schemas(), _check_defaults)


@settings(max_examples=60, deadline=None)
@given(structs())
def test_whole_columns_and_single_values_give_the_same_bytes(array: pa.Array) -> None:
    _check_against_the_twin(array)


@settings(max_examples=60, deadline=None)
@given(structs())
def test_fastavro_reads_back_what_was_written(array: pa.Array) -> None:
    _check_against_fastavro(array)


@pytest.mark.slow
@in_ten_parts
def test_ten_thousand_schemas_and_rows(part: int, pytestconfig: pytest.Config) -> None:
    check_a_thousand(part, pytestconfig, structs(), _check_in_both_ways)


def _check_in_both_ways(array: pa.Array) -> None:
    _check_against_the_twin(array)
    _check_against_fastavro(array)


def test_a_schema_that_was_parsed_and_printed_is_the_same_schema() -> None:
    text = '{"type":"record","name":"a.B","fields":[{"name":"x","type":["null","int"],"default":null}]}'
    schema = AvroSchema.parse(text.replace(":", " : "))
    assert schema.text == text and schema.fullname == "a.B"
