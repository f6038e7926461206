"""Schemas that users give, as text or file: Protobuf descriptors, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from kafka_sink.errors import ConfigError
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark.formats import SidePlan
from kafka_sink.spark.formats.side_planning import plan_side
from kafka_sink.testing import EmbeddedRegistry, RegistryFault
from tests.property import proto_shapes

KIND = pa.struct([("id", pa.int64())])
# A map stands before the message that is written.
SHAPE: proto_shapes.Shape = (("map", ()),)
SECRET = "hunter2"


def planned(kind: pa.DataType = KIND, **options: str) -> SidePlan:
    named = {name.replace("_", "."): value for name, value in options.items()}
    formats = parse_sink_options({"kafka.bootstrap.servers": "h:1", **named}).formats
    assert formats is not None and formats.value is not None
    return plan_side("value", formats.value, formats.registry, kind, "t")[0]


@pytest.fixture
def descriptors(tmp_path: Path) -> str:
    file = proto_shapes.file_descriptor(SHAPE, entries_last=False)
    path = tmp_path / "shop.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return str(path)


def prefix(schema_id: int, *indexes: int) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + bytes(each << 1 for each in (len(indexes), *indexes))


@pytest.mark.parametrize("register", ["true", "false"])
@pytest.mark.parametrize(
    ("stored", "index"),
    [
        (None, 1),  # a registry that keeps the descriptors
        (proto_shapes.text(SHAPE, with_entries=True), 1),  # Confluent's
        (proto_shapes.text(SHAPE), 0),  # the same, if it normalizes schemas
    ],
)
def test_a_message_of_descriptors_is_counted_in_what_the_registry_has_made_of_them(
    embedded_registry: EmbeddedRegistry, descriptors: str, stored: str | None, index: int, register: str
) -> None:
    options = {"value_format": "protobuf", "value_schema": descriptors, "value_record_name": "M1",
               "schema_registry_url": embedded_registry.url}  # fmt: skip
    if register == "false":
        planned(pa.struct([]), **options, auto_register_schemas="true")
    if stored is not None:
        body = json.dumps({"schema": stored, "schemaType": "PROTOBUF"}).encode()
        embedded_registry.do(lambda core: core.faults.append(RegistryFault("/schemas/ids/1", body=body)))
    found = planned(pa.struct([]), **options, auto_register_schemas=register)
    assert found.prefix == prefix(1, 0, index)


def test_a_text_needs_no_second_question(embedded_registry: EmbeddedRegistry) -> None:
    options = {"value_format": "protobuf", "value_schema": proto_shapes.text(SHAPE), "value_record_name": "M1",
               "schema_registry_url": embedded_registry.url, "auto_register_schemas": "true"}  # fmt: skip
    assert planned(pa.struct([]), **options).prefix == prefix(1, 0, 0)
    assert len(embedded_registry.requests()) == 1


@pytest.mark.parametrize(
    "content",
    [
        f"password={SECRET}\n",
        json.dumps(SECRET),
        json.dumps([SECRET]),
        json.dumps({"password": SECRET}),
        json.dumps({"fields": [SECRET], "type": {"password": SECRET}}),
        json.dumps({"type": "record", "name": "R", "fields": [{"password": SECRET}]}),
        json.dumps({"type": "record", "name": "R", "fields": SECRET}),
        json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "password": SECRET}]}),
        f"{{'password': '{SECRET}'}}",
        f'{{"password": "{SECRET}"',
        f"KafkaClient {{ LoginModule required password={SECRET}; }};",
    ],
)
@pytest.mark.parametrize("format_name", ["avro", "protobuf", "json-schema"])
def test_the_error_about_a_file_that_is_no_schema_names_the_file_and_not_its_content(
    tmp_path: Path, format_name: str, content: str
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(content)
    options = {"value_format": format_name, "value_schema": str(path), "value_schema_id": "1"}
    try:
        planned(**options)
    except ConfigError as error:
        assert SECRET not in str(error)
        assert f"value.schema={path}" in str(error) or error.name == "PKS-7002"
    else:
        assert format_name == "json-schema"  # any object is one


@pytest.mark.parametrize(
    ("format_name", "said"),
    [("avro", "an Avro schema is JSON, and this is not: Expecting value at line 2, column 3"),
     ("json-schema", "a JSON schema is JSON, and this is not: Expecting value at line 2, column 3"),
     ("protobuf", "line 2 of the .proto file has something else where = is expected")],
)  # fmt: skip
def test_the_position_in_a_file_is_told(tmp_path: Path, format_name: str, said: str) -> None:
    path = tmp_path / "order.avsc"
    path.write_text("syntax\nx" if format_name == "protobuf" else "[\n  x]")
    with pytest.raises(ConfigError) as raised:
        planned(value_format=format_name, value_schema=str(path), value_schema_id="1")
    assert str(raised.value) == f"value.format={format_name}: value.schema={path}: {said}"
    assert raised.value.name == "PKS-7001"
