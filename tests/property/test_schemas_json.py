"""The column encoder for JSON equals the slow twin, a parser reads its texts, and a derived schema accepts them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.formats.schemas.json_schema import JsonSchema, derive_json_schema
from kafka_sink.formats.schemas.match import plan

from .parts import check_a_thousand, in_ten_parts
from .schema_values import raw, structs
from .slow_json import encoded

_STRUCTS = structs()
_SPELLINGS = st.sampled_from([None, "type", "anyOf", "oneOf", "$ref", "anything"])


def _check_against_the_twin(array: pa.Array) -> None:
    values = plan(array.type, None).encode(array, b"", "value")
    assert values.misfits == {}
    wanted = [encoded(array.type, raw(row)).encode() if row.is_valid else None for row in array]
    assert values.array.to_pylist() == wanted
    for value in values.array.to_pylist():
        assert value is None or isinstance(json.loads(value), dict)


def _check_against_a_validator(array: pa.Array) -> None:
    schema = derive_json_schema(array.type, "Row")
    values = plan(array.type, schema).encode(array, b"", "value")
    validator: Any = jsonschema.Draft7Validator(dict(schema.found))
    for row, value in enumerate(values.array.to_pylist()):
        if value is not None and row not in values.misfits:
            assert list(validator.iter_errors(json.loads(value))) == []


@st.composite
def _given_schemas(draw: Any) -> tuple[pa.Array, dict[str, Any]]:
    """A schema as people and libraries write it: properties that may be null are required, or not, in each spelling."""
    array = draw(_STRUCTS)
    definitions: dict[str, Any] = {}
    said = _spell(draw, dict(derive_json_schema(array.type, "Row").found), definitions)
    return array, {**said, "$defs": definitions}


def _spell(draw: Any, said: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    said = {**said, "required": list(said.get("required", ()))}
    for word in ("items", "additionalProperties"):
        if isinstance(said.get(word), dict):
            said[word] = _spell(draw, said[word], definitions)
    properties = {name: _spell(draw, inner, definitions) for name, inner in said.get("properties", {}).items()}
    for name in [name for name in properties if name not in said["required"]]:
        spelling = draw(_SPELLINGS)
        if spelling is not None:
            properties[name] = _spell_optional(spelling, properties[name], definitions)
            said["required"].append(name)
    return {**said, "properties": properties} if properties else said


def _spell_optional(spelling: str, said: dict[str, Any], definitions: dict[str, Any]) -> Any:
    if said["type"] == "null" or spelling == "anything":
        return said if said["type"] == "null" else {}
    if spelling == "type":
        return {**said, "type": [said["type"], "null"]}
    if spelling == "$ref":
        name = f"D{len(definitions)}"
        definitions[name] = said
        said, spelling = {"$ref": f"#/$defs/{name}"}, "anyOf"
    return {spelling: [said, {"type": "null"}]}


def _check_a_given_schema(case: tuple[pa.Array, dict[str, Any]]) -> None:
    """Rows that were not refused are valid, and a null is refused nowhere, since all of them are allowed."""
    array, schema = case
    values = plan(array.type, JsonSchema.parse(json.dumps(schema))).encode(array, b"", "value")
    validator: Any = jsonschema.Draft202012Validator(schema)
    for row, value in enumerate(values.array.to_pylist()):
        if value is not None and row not in values.misfits:
            assert list(validator.iter_errors(json.loads(value))) == []
    assert not [str(error) for error in values.misfits.values() if "null" in str(error)]


@settings(max_examples=60, deadline=None)
@given(_given_schemas())
def test_a_validator_accepts_what_is_written_by_a_schema_with_required_properties_that_may_be_null(
    case: tuple[pa.Array, dict[str, Any]],
) -> None:
    _check_a_given_schema(case)


@pytest.mark.slow
@in_ten_parts
def test_ten_thousand_given_schemas(part: int, pytestconfig: pytest.Config) -> None:
    check_a_thousand(part, pytestconfig, _given_schemas(), _check_a_given_schema)


@settings(max_examples=60, deadline=None)
@given(structs())
def test_whole_columns_and_single_values_give_the_same_text(array: pa.Array) -> None:
    _check_against_the_twin(array)


@settings(max_examples=30, deadline=None)
@given(structs())
def test_a_validator_accepts_what_a_derived_schema_describes(array: pa.Array) -> None:
    _check_against_a_validator(array)


@pytest.mark.slow
@in_ten_parts
def test_ten_thousand_types_and_rows(part: int, pytestconfig: pytest.Config) -> None:
    check_a_thousand(part, pytestconfig, structs(), _check_in_both_ways)


def _check_in_both_ways(array: pa.Array) -> None:
    _check_against_the_twin(array)
    _check_against_a_validator(array)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_numbers_of_every_magnitude_are_json(kind: pa.DataType) -> None:
    """From some power between 1e7 and 1e16 on, Arrow writes an exponent, and then perhaps no decimal point."""
    draws = [sign * digits * 10.0**power for power in range(-12, 30) for digits in (1, 1.5, 123456) for sign in (1, -1)]
    column = pa.array([*draws, 0.0, None], pa.float64()).cast(kind)
    texts = plan(kind, None).encode(column, b"", "value").array.to_pylist()
    assert [None if text is None else json.loads(text) for text in texts[:-1]] == [
        pytest.approx(value, rel=1e-6 if kind == pa.float32() else 0) for value in column.to_pylist()[:-1]
    ]
    assert texts[-1] is None
    _check_against_the_twin(pa.StructArray.from_arrays([column], ["n"]))
