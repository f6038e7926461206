"""Schemas come from registries and users: any text is read, or refused with a ConfigError."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.errors import ConfigError
from kafka_sink.formats.schemas.avro import AvroSchema
from kafka_sink.formats.schemas.json_schema import JsonSchema
from kafka_sink.formats.schemas.match import plan
from kafka_sink.formats.schemas.protobuf import ProtobufSchema
from kafka_sink.formats.schemas.spark_types import parse_struct

KIND = pa.struct(
    [
        ("a", pa.int64()),
        ("b", pa.list_(pa.string())),
        ("c", pa.struct([("d", pa.date32())])),
        ("e", pa.decimal128(9, 2)),
    ]
)

_WORDS = st.sampled_from(
    [
        "record",
        "enum",
        "fixed",
        "array",
        "map",
        "null",
        "int",
        "string",
        "R",
        "a",
        "b",
        "c",
        "d",
        "bytes",
        "decimal",
        "",
    ]
)
_NAMES = st.sampled_from(
    [
        "type", "name", "fields", "items", "values", "symbols", "size", "default", "logicalType", "precision", "scale",
        "namespace", "properties", "required", "additionalProperties", "elementType", "containsNull", "keyType",
        "valueType", "valueContainsNull", "sqlType", "nullable",
    ]
)  # fmt: skip
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 2**70), st.floats(allow_nan=False), _WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=5)),
    max_leaves=12,
)
_PROTO_WORDS = st.sampled_from(
    re.findall(
        r"\S+",
        """
        syntax = "proto3" "proto2" ; edition package import "x.proto" message A B enum oneof map < > , { } [ ] ( )
        repeated optional required int64 string 1 2 0x10 -1 a b c d option reserved to extend service . A.B group
        """,
    )
)


def _check_that_it_is_read_or_refused(read: Callable[[], Any]) -> None:
    with suppress(ConfigError):
        assert plan(KIND, read()) is not None


@settings(max_examples=100, deadline=None)
@given(_JSON)
def test_json_of_any_shape_is_an_avro_schema_or_refused(found: Any) -> None:
    _check_that_it_is_read_or_refused(lambda: AvroSchema.parse(json.dumps(found)))
    fields = [{"name": "a", "type": found}, {"name": "b", "type": ["null", found]}, {"name": "z", "default": found}]
    _check_that_it_is_read_or_refused(
        lambda: AvroSchema.parse(json.dumps({"type": "record", "name": "R", "fields": fields[:1]}))
    )
    _check_that_it_is_read_or_refused(
        lambda: AvroSchema.parse(json.dumps({"type": "record", "name": "R", "fields": [*fields[:2], *fields[2:]]}))
    )


@settings(max_examples=100, deadline=None)
@given(_JSON)
def test_json_of_any_shape_is_a_json_schema_or_refused(found: Any) -> None:
    _check_that_it_is_read_or_refused(lambda: JsonSchema.parse(json.dumps(found)))
    _check_that_it_is_read_or_refused(
        lambda: JsonSchema.parse(json.dumps({"type": "object", "properties": {"a": found, "c": found}}))
    )


@settings(max_examples=100, deadline=None)
@given(_JSON, st.text(max_size=30))
def test_columns_of_any_shape_are_read_or_refused(found: Any, text: str) -> None:
    with suppress(ConfigError):
        assert pa.types.is_struct(parse_struct(json.dumps({"type": "struct", "fields": [found]})))
    with suppress(ConfigError):
        assert pa.types.is_struct(parse_struct(text))


@settings(max_examples=100, deadline=None)
@given(st.lists(_PROTO_WORDS, max_size=25), st.text(max_size=20))
def test_words_in_any_order_are_a_proto_file_or_refused(words: list[str], text: str) -> None:
    _check_that_it_is_read_or_refused(lambda: ProtobufSchema.parse(" ".join(words)))
    _check_that_it_is_read_or_refused(lambda: ProtobufSchema.parse(f"message M {{ {' '.join(words)} }}"))
    _check_that_it_is_read_or_refused(lambda: ProtobufSchema.parse(text))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_descriptors_or_refused(content: bytes) -> None:
    _check_that_it_is_read_or_refused(lambda: ProtobufSchema.of_descriptors(content))
    framed = b"\x0a" + bytes([len(content)]) + content
    _check_that_it_is_read_or_refused(lambda: ProtobufSchema.of_descriptors(framed))
