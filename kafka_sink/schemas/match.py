"""Matches a column with a schema. `plan` runs on the driver before any task, and again in each task."""

from __future__ import annotations

import pyarrow as pa

from kafka_sink.records.bytes_column import plain_type
from kafka_sink.schemas.avro import AvroSchema
from kafka_sink.schemas.avro_match import match_avro
from kafka_sink.schemas.encoder import Encoder
from kafka_sink.schemas.json_match import match_json
from kafka_sink.schemas.jsonschema import JsonSchema
from kafka_sink.schemas.naming import Problems
from kafka_sink.schemas.node import ValueNode
from kafka_sink.schemas.protobuf import ProtobufSchema
from kafka_sink.schemas.protobuf_match import match_protobuf

Schema = AvroSchema | JsonSchema | ProtobufSchema


def plan(kind: pa.DataType, schema: Schema | None) -> Encoder:
    """Raises `ConfigError` with every column that does not fit, its type, and what would fit. No schema means JSON."""
    problems = Problems()
    kind = plain_type(kind)
    if isinstance(schema, AvroSchema):
        slot: ValueNode = match_avro(kind, schema.type, "", problems)
        problems.raise_any("Avro")
    elif isinstance(schema, ProtobufSchema):
        slot = match_protobuf(kind, schema, problems)
        problems.raise_any("Protobuf")
    else:
        slot = match_json(kind, None if schema is None else schema.found, "", problems)
        problems.raise_any("JSON")
    return Encoder(slot)
