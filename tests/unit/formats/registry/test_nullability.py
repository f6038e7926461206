"""The schema that allows the nulls of two: of all pairs of one shape of columns, and of schemas that differ in more."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.formats.registry.nullability import allow_nulls_of_both
from kafka_sink.formats.registry.schema import AVRO, JSON, PROTOBUF, Reference, Schema
from kafka_sink.formats.schemas.derive import derive_avro_schema
from kafka_sink.formats.schemas.json_schema import derive_json_schema

PLACES = 6
Flags = tuple[bool, ...]


def columns(has_null: Flags) -> pa.DataType:
    """Every place where a column of Spark may or may not be null."""
    text, struct, inner, items, item, value = has_null
    of_struct = pa.struct([pa.field("n", pa.int32(), inner)])
    return pa.struct([
        pa.field("text", pa.string(), text),
        pa.field("at", pa.date32(), False),
        pa.field("struct", of_struct, struct),
        pa.field("items", pa.list_(pa.field("element", pa.struct([pa.field("b", pa.binary())]), item)), items),
        pa.field("map", pa.map_(pa.string(), pa.field("value", pa.float64(), value)), False),
    ])  # fmt: skip


@cache
def derived(kind: str, has_null: Flags) -> Schema:
    if kind == AVRO:
        return Schema(AVRO, derive_avro_schema(columns(has_null), "shop.Order").text)
    return Schema(JSON, derive_json_schema(columns(has_null), "shop.Order").text)


ALL = tuple(itertools.product((False, True), repeat=PLACES))
NEVER, ALWAYS = (False,) * PLACES, (True,) * PLACES


def content(schema: Schema) -> Any:
    return json.loads(schema.text)


@pytest.mark.parametrize("kind", [AVRO, JSON])
def test_it_is_the_one_that_is_derived_where_the_columns_of_either_may_be_null(kind: str) -> None:
    for one, other in itertools.product(ALL, ALL):
        both = tuple(map(max, one, other))
        registered, made = derived(kind, one), derived(kind, other)
        found = allow_nulls_of_both(registered, made)
        assert found is not None
        assert content(found) == content(derived(kind, both)), (one, other)
        if both in (one, other):
            assert found is (registered if both == one else made)


@pytest.mark.parametrize("kind", [AVRO, JSON])
def test_the_spelling_of_a_registry_does_not_matter_and_its_text_stays(kind: str) -> None:
    def reordered(found: Any) -> Any:
        if isinstance(found, dict):
            return {name: reordered(found[name]) for name in reversed(found)}
        return [reordered(each) for each in found] if isinstance(found, list) else found

    spelled = Schema(kind, json.dumps(reordered(content(derived(kind, ALWAYS))), indent=2))
    assert allow_nulls_of_both(spelled, derived(kind, NEVER)) is spelled


def change(kind: str, edit: Callable[[Any], object]) -> Schema:
    found = content(derived(kind, ALWAYS))
    edit(found)
    return Schema(kind, json.dumps(found))


DIFFERENT = {
    "another name": change(AVRO, lambda found: found.update(name="Other")),
    "another namespace": change(AVRO, lambda found: found.pop("namespace")),
    "a comment": change(AVRO, lambda found: found.update(doc="orders")),
    "a comment on a field": change(AVRO, lambda found: found["fields"][0].update(doc="text")),
    "a field more": change(AVRO, lambda found: found["fields"].append({"name": "more", "type": "int"})),
    "a field less": change(AVRO, lambda found: found["fields"].pop()),
    "fields that are none": change(AVRO, lambda found: found.update(fields=[1] * 5)),
    "no list of fields": change(AVRO, lambda found: found.update(fields={})),
    "no fields": change(AVRO, lambda found: found.pop("fields")),
    "a field without a type": change(AVRO, lambda found: found["fields"][0].pop("type")),
    "another order of fields": change(AVRO, lambda found: found["fields"].reverse()),
    "another type": change(AVRO, lambda found: found["fields"][0].update(type=["null", "bytes"])),
    "another default": change(AVRO, lambda found: found["fields"][1].update(default=0)),
    "another order of branches": change(AVRO, lambda found: found["fields"][0]["type"].reverse()),
    "a branch more": change(AVRO, lambda found: found["fields"][0]["type"].append("int")),
    "no items": change(AVRO, lambda found: found["fields"][3]["type"][1].pop("items")),
    "no record": Schema(AVRO, '"string"'),
    "no JSON": Schema(AVRO, "record"),
    "deep JSON": Schema(AVRO, "[" * 200_000),
    "a schema of Protobuf": Schema(PROTOBUF, 'syntax = "proto3"; message M {}'),
    "a title": change(JSON, lambda found: found.update(title="Other")),
    "open properties": change(JSON, lambda found: found.pop("additionalProperties")),
    "a property more": change(JSON, lambda found: found["properties"].update(more={"type": "string"})),
    "a property of true": change(JSON, lambda found: found["properties"].update(text=True)),
    "no properties": change(JSON, lambda found: found.update(properties=[])),
    "another type of JSON": change(JSON, lambda found: found["properties"]["text"].update(type="number")),
    "more types": change(JSON, lambda found: found["properties"]["items"]["items"].update(type=["object", "string"])),
    "true": Schema(JSON, "true"),
}


@pytest.mark.parametrize("difference", DIFFERENT)
@pytest.mark.parametrize("has_null", [NEVER, ALWAYS])
def test_schemas_that_differ_in_more_are_two(difference: str, has_null: Flags) -> None:
    registered = DIFFERENT[difference]
    kind = AVRO if registered.kind == PROTOBUF else registered.kind
    assert allow_nulls_of_both(registered, derived(kind, has_null)) is None


def test_a_schema_that_refers_to_others_and_one_of_another_format_are_others() -> None:
    made = derived(AVRO, NEVER)
    assert allow_nulls_of_both(Schema(AVRO, made.text, (Reference("a", "b", 1),)), made) is None
    assert allow_nulls_of_both(derived(JSON, ALWAYS), made) is None
    protobuf = Schema(PROTOBUF, "{}")
    assert allow_nulls_of_both(protobuf, protobuf) is None


@pytest.mark.parametrize("required", [["text", "at"], "at", [1, "at"], None])
def test_what_the_registry_says_of_required_properties_is_no_more_than_a_list_of_names(required: Any) -> None:
    known = change(JSON, lambda found: found.update(required=required))
    found = allow_nulls_of_both(known, derived(JSON, ALWAYS))
    assert found is not None and content(found).get("required", []) in (["at", "map"], ["at"], [])
