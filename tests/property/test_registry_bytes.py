"""confluent-kafka reads our frames back. Any answer of a registry gives a schema, or an error of ours that names the
registry or the subject."""

from __future__ import annotations

import io
import json

from confluent_kafka.schema_registry import dual_schema_id_deserializer
from confluent_kafka.schema_registry.common.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.errors import KafkaSinkError
from kafka_sink.formats.registry.answer import RegistryAnswer
from kafka_sink.formats.registry.framing import MessagePosition, make_frame
from kafka_sink.formats.registry.request import LATEST
from kafka_sink.formats.registry.resolution import SchemaQuery, resolve_schema
from kafka_sink.formats.registry.schema import AVRO, JSON, PROTOBUF, Schema

SOURCE, SUBJECT = "the schema registry http://registry:8081", "orders-value"
SIDES = {"key": MessageField.KEY, "value": MessageField.VALUE}
GOOD = {"subject": SUBJECT, "version": 1, "id": 1, "schema": '"int"', "schemaType": AVRO, "references": []}
ids = st.integers(0, 2**31 - 1)
paths = st.lists(st.integers(0, 2**20), min_size=1, max_size=6).map(tuple)


@given(ids, st.one_of(st.none(), paths))
def test_a_prefix_is_read_back_by_confluent(schema_id: int, path: tuple[int, ...] | None) -> None:
    kind = AVRO if path is None else PROTOBUF
    message = None if path is None else MessagePosition(path, 0, "x")
    made = make_frame("prefix", "value", kind, schema_id=schema_id, message=message)
    read = SchemaId(kind)
    rest = read.from_bytes(io.BytesIO(made.prefix + b"payload"))
    assert (read.id, rest.read()) == (schema_id, b"payload")
    assert read.message_indexes == (None if path is None else list(path))


@given(st.uuids(), st.one_of(st.none(), paths), st.sampled_from(sorted(SIDES)))
def test_a_header_is_read_back_by_confluent(guid: object, path: tuple[int, ...] | None, side: str) -> None:
    kind = JSON if path is None else PROTOBUF
    message = None if path is None else MessagePosition(path, 0, "x")
    made = make_frame("header", side, kind, guid=str(guid), message=message)
    read = SchemaId(kind)
    context = SerializationContext("topic", SIDES[side], list(made.headers))
    rest = dual_schema_id_deserializer(made.prefix + b"payload", context, read)
    assert (str(read.guid), rest.read()) == (str(guid), b"payload")
    assert read.message_indexes == (None if path is None else list(path))


@given(ids, paths)
def test_message_indexes_are_confluents_bytes(schema_id: int, path: tuple[int, ...]) -> None:
    ours = make_frame("prefix", "value", PROTOBUF, schema_id=schema_id, message=MessagePosition(path, 0, "x"))
    assert ours.prefix == SchemaId(PROTOBUF, schema_id, None, list(path)).id_to_bytes()


# ---- answers ---------------------------------------------------------------------------------------------------------


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
answers = st.one_of(
    st.binary(max_size=50),
    anything.map(lambda said: json.dumps(said).encode()),
    st.fixed_dictionaries({}, optional=dict.fromkeys([*GOOD, "guid", "is_compatible", "messages"], anything)).map(
        lambda said: json.dumps({**GOOD, **said}).encode()
    ),
)


@given(st.sampled_from([200, 302, 401, 403, 404, 409, 422, 500]), st.lists(answers, min_size=1), st.booleans())
def test_no_answer_is_worse_than_an_error_of_ours(status: int, bodies: list[bytes], registers: bool) -> None:
    left = list(bodies)
    for question in (
        SchemaQuery("value", SUBJECT, version=LATEST, needs_guid=True),
        SchemaQuery("value", SUBJECT, Schema(AVRO, '"int"'), registers=registers, needs_guid=True),
        SchemaQuery("value", SUBJECT, identity=1),
    ):
        try:
            found = resolve_schema(question, lambda _: RegistryAnswer(SOURCE, status, left.pop() if left else b"{}"))
        except KafkaSinkError as error:
            assert SOURCE in str(error) or SUBJECT in str(error)
        else:
            assert isinstance(found.schema.text, str) and found.schema.kind in (AVRO, PROTOBUF, JSON)
