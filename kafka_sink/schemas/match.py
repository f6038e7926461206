"""A column and a schema put together: `plan` is asked on the driver before any task, and again where rows are."""

from __future__ import annotations

import pyarrow as pa

from kafka_sink.records.bytes_column import plain_type
from kafka_sink.schemas.avro import AvroSchema
from kafka_sink.schemas.avro_match import slot_of
from kafka_sink.schemas.encoder import Encoder
from kafka_sink.schemas.json_match import json_slot
from kafka_sink.schemas.jsonschema import JsonSchema
from kafka_sink.schemas.naming import Problems
from kafka_sink.schemas.node import ValueNode
from kafka_sink.schemas.protobuf import ProtobufSchema
from kafka_sink.schemas.protobuf_match import message_node

Schema = AvroSchema | JsonSchema | ProtobufSchema


def plan(kind: pa.DataType, schema: Schema | None) -> Encoder:
    """Raises `ConfigError` with every column that does not fit, its type, and what would fit. No schema is JSON."""
    problems = Problems()
    kind = plain_type(kind)
    if isinstance(schema, AvroSchema):
        slot: ValueNode = slot_of(kind, schema.type, "", problems)
        problems.tell("Avro")
    elif isinstance(schema, ProtobufSchema):
        slot = message_node(kind, schema, problems)
        problems.tell("Protobuf")
    else:
        slot = json_slot(kind, None if schema is None else schema.found, "", problems)
        problems.tell("JSON")
    return Encoder(slot)
