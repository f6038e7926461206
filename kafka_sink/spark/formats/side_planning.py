"""Formats and schemas on the driver: which schema a column is written with, and how readers find it.

The registry is asked here, before any task, and nowhere else. The result is all that a task needs.
"""

from __future__ import annotations

import pyarrow as pa

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.commits import SCHEMA_MISMATCH, SCHEMA_RULES
from kafka_sink.formats.registry import schema as registered
from kafka_sink.formats.registry.framing import HEADER, PREFIX, MessagePosition, make_frame
from kafka_sink.formats.registry.schema import ResolvedSchema
from kafka_sink.formats.schemas.avro import AvroSchema
from kafka_sink.formats.schemas.derive import derive_avro_schema
from kafka_sink.formats.schemas.json_schema import JsonSchema, derive_json_schema
from kafka_sink.formats.schemas.match import Schema, plan
from kafka_sink.formats.schemas.protobuf import ProtobufSchema
from kafka_sink.kafka.io.warn_once import warn_once
from kafka_sink.options.format_names import AVRO, JSON, JSON_SCHEMA, PROTOBUF
from kafka_sink.options.format_options import RegistryOptions, SideFormat
from kafka_sink.options.host.files import read_file
from kafka_sink.spark.formats import SidePlan
from kafka_sink.spark.formats.schema_registry import is_file_name, resolve, schema_text

# The same as in Spark's to_avro.
RECORD_NAME = "topLevelRecord"
# Suffixes of descriptor files, as written by protoc --descriptor_set_out; others are texts.
_DESCRIPTORS = (".desc", ".pb", ".protoset", ".bin")
# Formats in the words of a registry, and of people.
_KINDS = {AVRO: registered.AVRO, PROTOBUF: registered.PROTOBUF, JSON_SCHEMA: registered.JSON}
_TITLES = {registered.AVRO: "Avro", registered.PROTOBUF: "Protobuf", registered.JSON: "JSON"}


def plan_side(
    side: str, chosen: SideFormat, registry: RegistryOptions | None, kind: pa.DataType, topic: str | None
) -> tuple[SidePlan, ResolvedSchema | None]:
    """Raises `ConfigError` if the column does not fit its schema. JSON without a schema resolves to none."""
    try:
        return _plan_side(side, chosen, registry, kind, topic)
    except ConfigError as error:
        raise ConfigError(f"{side}.format={chosen.format}: {error}", error.entry) from None


def _plan_side(
    side: str, chosen: SideFormat, registry: RegistryOptions | None, kind: pa.DataType, topic: str | None
) -> tuple[SidePlan, ResolvedSchema | None]:
    if chosen.format == JSON:
        plan(kind, None)
        return SidePlan(side, None), None
    given = _read_schema(chosen)
    is_derived = given is None and chosen.query.identity is None and chosen.query.version is None
    if is_derived:
        given = derive_schema(chosen.format, kind, chosen.record_name or chosen.envelope_name)
    if given is not None:
        # Before anything is registered.
        _check_fit(chosen, kind, given)
    resolved = resolve(
        registry,
        chosen,
        None if given is None else registered.Schema(_KINDS[chosen.format], given.text),
        topic=topic,
        record_name=chosen.record_name if given is None else given.fullname,
        is_derived=is_derived,
        reads_back=isinstance(given, ProtobufSchema) and given.counts_entries,
    )
    _check_rules(side, chosen, resolved)
    schema = _choose_schema(chosen, given, resolved)
    _check_fit(chosen, kind, schema)
    framed = make_frame(
        chosen.framing,
        side,
        resolved.schema.kind,
        schema_id=resolved.schema_id,
        guid=resolved.guid,
        message=_message_position(schema),
    )
    return SidePlan(side, schema, framed.prefix, framed.headers, resolved.schema_id), resolved


def _check_fit(chosen: SideFormat, kind: pa.DataType, schema: Schema) -> None:
    """Raises `ConfigError` if the column does not fit, or if readers would not agree on the value."""
    plan(kind, schema)
    is_bare_bytes = isinstance(schema, AvroSchema) and schema.type.kind == "bytes"
    if is_bare_bytes and chosen.framing in (PREFIX, HEADER):
        side = chosen.query.side
        raise ConfigError(
            f"the schema is bytes and nothing else, and with the framing {chosen.framing} readers differ in how these "
            "are encoded: Confluent's clients expect them alone, others, and its older ones for Python, after Avro's "
            f"length. Nothing was written. Write a record, struct({side}) AS {side}, or without a schema, "
            f"{side}.format=binary; a decimal also as CAST({side} AS STRING)",
            SCHEMA_MISMATCH,
        )


def _check_rules(side: str, chosen: SideFormat, resolved: ResolvedSchema) -> None:
    """Rules for readers, and those between two versions, are no obstacle."""
    rules = "; ".join(str(rule) for rule in resolved.rules or () if rule.is_for_writers)
    if not rules:
        return
    identity = chosen.query.identity
    name = f"the schema of {resolved.subject!r}" if identity is None else f"the schema {identity}"
    if chosen.query.needs_rules:
        raise ConfigError(
            f"{name} has rules that a writer must apply, and this sink applies none: {rules}. Write with a client that "
            "applies them, or set schema.rules=ignore to write the rows as they are",
            SCHEMA_RULES,
        )
    warn_once(f"{side}: schema.rules=ignore, so rows are written without what {name} demands of a writer: {rules}")


def derive_schema(format_name: str, kind: pa.DataType, record_name: str | None) -> Schema:
    name = record_name or RECORD_NAME
    return derive_avro_schema(kind, name) if format_name == AVRO else derive_json_schema(kind, name)


def _read_schema(chosen: SideFormat) -> Schema | None:
    try:
        return _read_given(chosen)
    except ConfigError as error:
        named = f"{chosen.query.side}.schema={chosen.text}"
        if chosen.text is None or not is_file_name(chosen.text) or named in str(error):
            raise
        raise ConfigError(f"{named}: {error}", error.entry) from None


def _read_given(chosen: SideFormat) -> Schema | None:
    name = chosen.text
    if chosen.format == PROTOBUF and name is not None and name.endswith(_DESCRIPTORS):
        return ProtobufSchema.of_descriptors(read_file(f"{chosen.query.side}.schema", name), chosen.record_name)
    text = schema_text(chosen)
    return None if text is None else _parse_schema(chosen, text, {})


def _parse_schema(chosen: SideFormat, text: str, references: dict[str, str]) -> Schema:
    if chosen.format == AVRO:
        return AvroSchema.parse(text, references)
    if chosen.format == PROTOBUF:
        return ProtobufSchema.parse(text, references, chosen.record_name)
    return JsonSchema.parse(text, references)


def _choose_schema(chosen: SideFormat, given: Schema | None, resolved: ResolvedSchema) -> Schema:
    """The registry's schema. If it equals the given one, that is parsed already."""
    if resolved.schema.kind != _KINDS[chosen.format]:
        raise ConfigError(f"the schema in the registry is {_TITLES[resolved.schema.kind]}", SCHEMA_MISMATCH)
    if given is not None and resolved.schema.text == given.text:
        return given
    return _parse_schema(chosen, resolved.schema.text, dict(resolved.dependencies))


def _message_position(schema: Schema) -> MessagePosition | None:
    if not isinstance(schema, ProtobufSchema):
        return None
    return MessagePosition(schema.message_indexes, schema.message_rank, schema.fullname.rpartition(".")[2])
