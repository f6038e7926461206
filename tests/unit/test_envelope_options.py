"""The options of headers, row ids and CloudEvents: what they come to, and what cannot be."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from kafka_sink.errors import ConfigError
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import EnvelopeOptions
from kafka_sink.spark.columns import choose_columns

EVENT = {"cloudevents.type": "shop.order", "cloudevents.source": "/shop"}
BINARY, STRUCTURED = {**EVENT, "cloudevents": "binary"}, {**EVENT, "cloudevents": "structured"}
OTLP = {"metrics.otlp.endpoint": "http://127.0.0.1:1"}
HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
SCHEMA = (
    StructType().add("key", StringType()).add("headers", HEADERS).add("order", StringType()).add("rank", IntegerType())
    .add("value", StringType()).add("day", DateType())
)  # fmt: skip


def parsed(options: dict[str, str]) -> EnvelopeOptions:
    envelope = parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t", **options}).envelope
    assert envelope is not None
    return envelope


@pytest.mark.parametrize(
    ("options", "content_type", "has_own_json"),
    [
        (BINARY, None, False),
        (STRUCTURED, "application/json", False),
        ({**BINARY, "value.format": "json"}, "application/json", True),
        ({**STRUCTURED, "value.format": "json"}, "application/json", True),
        ({**BINARY, "value.format": "avro"}, "application/avro", False),
        ({**BINARY, "value.format": "json-schema"}, "application/json", False),
        ({**BINARY, "value.format": "protobuf", "value.schema": "message M {}"}, "application/protobuf", False),
    ],
)
def test_an_event_says_what_its_data_is_made_of(
    options: dict[str, str], content_type: str | None, has_own_json: bool
) -> None:
    envelope = parsed(options)
    assert (envelope.content_type, envelope.has_own_json) == (content_type, has_own_json)


def test_what_is_set_is_what_a_task_gets() -> None:
    envelope = parsed(
        {
            **BINARY, **OTLP, "header.b": "${query.id}-${batch.id}", "header.a": "", "row.id.header": " Row-Id ",
            "row.id.column": "order", "cloudevents.id.column": "order", "traceparent.column": "trace",
            "traceparent.task": "true",
        }
    )  # fmt: skip
    assert envelope.headers == (("a", ""), ("b", "${query.id}-${batch.id}"))
    assert (envelope.row_id_header, envelope.row_id_column) == ("Row-Id", "order")
    assert envelope.attributes == (("source", "/shop"), ("type", "shop.order"))
    assert envelope.attribute_columns == (("id", "order"),)
    assert (envelope.traceparent_column, envelope.has_traceparent_of_task) == ("trace", True)
    assert not parsed({"header.a": "b"}).has_traceparent_of_task


@pytest.mark.parametrize(
    "options",
    [
        {"header.traceparent": "x"},
        {**BINARY, "value.format": "avro"},
        {**BINARY, "cloudevents.datacontenttype.column": "order"},
        {"header.row-id": "x", "row.id.header": "other"},
    ],
)
def test_what_only_looks_like_a_contradiction_is_taken(options: dict[str, str]) -> None:
    assert parsed(options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cloudevents": "binary", "cloudevents.source": "/"}, "needs cloudevents.type"),
        ({"cloudevents": "both", **EVENT}, "one of binary, structured"),
        (EVENT, "set cloudevents=binary or structured"),
        ({"cloudevents": "binary", **EVENT, "cloudevents.type.column": "order"}, "are both set"),
        ({"cloudevents": "binary", **EVENT, "cloudevents.specversion": "2"}, "it is 1.0"),
        ({"cloudevents": "binary", **EVENT, "cloudevents.a_b": "2"}, "small letters and digits"),
        ({"cloudevents": "structured", **EVENT, "value.format": "avro", "value.schema": '"int"'}, "value.format=json"),
        ({"cloudevents": "structured", **EVENT, "cloudevents.datacontenttype.column": "x"}, "same for all rows"),
        ({"header.x": "${env:HOME}"}, r"\$\{env:HOME\} is no placeholder"),
        ({"header.": "x"}, "a header needs a name"),
        (
            {"cloudevents": "binary", **EVENT, "cloudevents.id.column": "nothing"},
            "no such column. The DataFrame has the columns key",
        ),
        ({"traceparent.column": "nothing"}, "traceparent.column=nothing: there is no such column"),
        ({"traceparent.column": "rank"}, r"has type int: CAST\(rank AS STRING\)"),
        ({"traceparent.column": "order", "header.traceparent": "x"}, "header.traceparent and traceparent.column are"),
        ({"traceparent.task": "true"}, "nothing uses it without metrics.otlp.endpoint"),
        (
            {**OTLP, "traceparent.task": "true", "header.traceparent": "x"},
            "header.traceparent and traceparent.task are",
        ),
        ({"cloudevents": "binary", **EVENT, "cloudevents.id.column": "headers"}, r"CAST\(headers AS STRING\)"),
        ({"cloudevents": "binary", **EVENT, "cloudevents.time.column": "day"}, r"CAST\(day AS TIMESTAMP\)"),
        ({"cloudevents": "binary", **EVENT, "cloudevents.time.column": "local"}, r"CAST\(local AS TIMESTAMP\)"),
        ({"header.row-id": "x", "row.id.header": "Row-Id"}, "header.Row-Id and row.id.header are both set"),
        ({"row.id.header": "ce_id"}, "row.id.header=ce_id: this header has another meaning"),
        ({"row.id.header": "traceparent"}, "this header has another meaning"),
        ({"row.id.column": "order"}, "row.id.column needs row.id.header"),
        ({"cloudevents": "structured"}, r"cloudevents=structured needs cloudevents.source, or cloudevents.source.col"),
        ({**BINARY, "cloudevents.id": "${row.id}"}, r"no placeholder; there are \$\{query.id\} and \$\{batch.id\}"),
        ({**BINARY, "cloudevents.data_base64.column": "order"}, "data_base64.column cannot be set: it is the value"),
        ({"cloudevents.id.column": "order"}, "^cloudevents.id: set cloudevents=binary or structured"),
        ({**BINARY, "cloudevents.": "x"}, "small letters and digits"),
        ({"traceparent.column": "day"}, r"CAST\(day AS STRING\)"),
    ],
)
def test_what_cannot_be_is_refused_before_any_task(options: dict[str, str], text: str) -> None:
    def plan() -> None:
        parsed = parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t", **options})
        schema = StructType([*SCHEMA.fields, StructField("local", TimestampNTZType())])
        choose_columns(schema, "t", parsed.formats, parsed.envelope)

    with pytest.raises(ConfigError, match=text):
        plan()
