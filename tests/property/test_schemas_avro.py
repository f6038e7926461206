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

from kafka_sink.schemas.avro import AvroSchema
from kafka_sink.schemas.derive import derive_avro_schema
from kafka_sink.schemas.match import plan

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
