"""The options of formats: their combined effect, and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.options.format_names import FORMAT_NAMES
from kafka_sink.options.format_options import FormatOptions
from kafka_sink.options.format_table import FORMAT_OPTIONS
from kafka_sink.options.parse_sink import parse_sink_options

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
REGISTRY = {"schema.registry.url": "http://127.0.0.1:8081"}


def parsed(settings: dict[str, str]) -> FormatOptions:
    found = parse_sink_options({**SERVERS, **settings}).formats
    assert found is not None
    return found


def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as raised:
        parse_sink_options({**SERVERS, **settings})
    return str(raised.value)


def test_without_an_option_of_formats_there_are_none() -> None:
    assert parse_sink_options(SERVERS).formats is None


def test_the_table_and_the_names_are_the_same() -> None:
    assert tuple(FORMAT_OPTIONS) == FORMAT_NAMES


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"value.format": "json"}, lambda got: got.value.format == "json" and got.key is None),
        ({"Value.Format": " avro "}, lambda got: got.value.format == "avro"),
        ({"value.format": "avro", "value.columns": "a, b"}, lambda got: got.value.columns == ("a", "b")),
        ({"value.format": "avro", "value.columns": "*"}, lambda got: got.value.columns == ("*",)),
        ({"value.format": "avro", "value.record.name": "a.B"}, lambda got: got.value.record_name == "a.B"),
        ({"value.format": "avro", "recordName": "B"}, lambda got: got.value.record_name == "B"),
        ({"value.format": "avro", "avroSchema": '"int"'}, lambda got: got.value.text == '"int"'),
        ({"key.format": "avro", "key.record.name": "K"}, lambda got: (got.key.record_name, got.value) == ("K", None)),
        (
            {"value.format": "protobuf", "descFilePath": "a.desc", "messageName": "M"},
            lambda got: (got.value.text, got.value.record_name) == ("a.desc", "M"),
        ),
        ({"value.format": "avro", **REGISTRY}, lambda got: got.registry.url == ("http://127.0.0.1:8081",)),
    ],
)
def test_an_option_reaches_what_planning_gets(settings: dict[str, str], found: Any) -> None:
    assert found(parsed(settings))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"value.format": "xml"}, "avro, protobuf, json, json-schema, string, binary"),
        ({"value.columns": "a"}, "value.columns needs value.format"),
        ({"value.format": "avro", "value.columns": ""}, "names no column, or one twice"),
        ({"value.format": "avro", "value.columns": "a,a"}, "names no column, or one twice"),
        ({"value.format": "avro", "value.columns": "a,*"}, "is either * or a list of names"),
        ({"value.format": "json", "value.schema": "{}"}, "value.schema needs value.format to be one of avro"),
        ({"value.schema.id": "1", "value.schema": '"int"'}, "and it is not set"),
        ({"value.format": "string", "value.record.name": "R"}, "value.record.name needs value.format"),
        ({"value.format": "json", **REGISTRY}, "neither value.format nor key.format is one of"),
        ({"value.format": "protobuf"}, "field numbers cannot be made from columns"),
        ({"value.format": "json-schema", "value.schema": "{}", "value.record.name": "R"}, "here one is given"),
        ({"value.format": "avro", "avroSchema": '"int"', "value.schema": '"long"'}, "mean the same"),
        ({"value.format": "avro", "use.latest.version": "true"}, "use.latest.version needs schema.registry.url"),
        ({"value.formt": "avro"}, "did you mean value.format?"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: dict[str, str], said: str) -> None:
    assert said in refusal(settings)


def test_problems_of_formats_are_told_with_all_others() -> None:
    text = refusal({"topik": "t", "value.format": "xml"})
    assert "topik" in text and "value.format" in text


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"value.format": "xml", "key.format": "yaml", "topik": "x"}, ("topik", "value.format", "key.format")),
        (
            {"value.format": "avro", **REGISTRY, "schema.registry.max.retries": "x", "schema.registry.urls": "x"},
            ("schema.registry.max.retries", "schema.registry.urls"),
        ),
        (
            {"value.format": "avro", "key.format": "avro", "auto.register.schemas": "true",
             "use.latest.version": "true", "value.schema.id": "1", "value.schema.version": "2"},
            ("auto.register.schemas and use.latest.version", "value.schema.id and value.schema.version"),
        ),
        (
            {"value.format": "protobuf", "value.columns": "a,a", "key.format": "protobuf"},
            ("value.columns names", "key.format=protobuf needs"),
        ),
        ({"header.": "x", "cloudevents.type": "t", "topik": "t"}, ("topik", "header.", "cloudevents.type")),
    ],
)  # fmt: skip
def test_several_problems_are_told_in_one_list(settings: dict[str, str], parts: tuple[str, ...]) -> None:
    heading, *lines = refusal(settings).split("\n- ")
    assert heading == f"{len(parts)} problems with the options:"
    assert [part in line for part, line in zip(parts, lines, strict=True)] == [True] * len(parts)


def test_an_attribute_may_be_called_column() -> None:
    event = {**SERVERS, "cloudevents": "binary", "cloudevents.type.column": "t", "cloudevents.source": "s"}
    constant = parse_sink_options({**event, "cloudevents.column": "a text"}).envelope
    assert constant is not None and constant.attributes == (("column", "a text"), ("source", "s"))
    of_rows = parse_sink_options({**event, "cloudevents.column.column": "c"}).envelope
    assert of_rows is not None and of_rows.attribute_columns == (("column", "c"), ("type", "t"))


def test_values_of_secrets_are_in_no_text() -> None:
    options = parsed(
        {"value.format": "avro", **REGISTRY, "schema.registry.basic.auth.user.info": "user:hunter2"}
    )  # fmt: skip
    assert "hunter2" not in repr(options) and json.dumps(repr(options))
