"""A column and a schema put together: `plan` is asked on the driver before any task, and again where rows are."""

from __future__ import annotations

import pyarrow as pa

from kafka_sink.records.bytes_column import plain_type
from kafka_sink.schemas.avro import AvroSchema
from kafka_sink.schemas.avro_match import slot_of
from kafka_sink.schemas.encoder import Encoder
from kafka_sink.schemas.naming import Problems


def plan(kind: pa.DataType, schema: AvroSchema) -> Encoder:
    """Raises `ConfigError` with every column that does not fit, its type, and what would fit."""
    problems = Problems()
    slot = slot_of(plain_type(kind), schema.type, "", problems)
    problems.tell("Avro")
    return Encoder(slot)
