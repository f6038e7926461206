"""The column encoder for Protobuf equals the slow twin, and the official package reads its bytes back."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.formats.schemas.match import plan
from kafka_sink.formats.schemas.protobuf import ProtobufSchema

from . import proto_shapes
from .parts import check_a_thousand, in_ten_parts
from .proto_values import SYMBOLS, messages
from .schema_values import raw
from .slow_protobuf import encoded
from .test_schemas_avro import PREFIX, same

_MESSAGES, _ROW_COUNTS, _FILLER_COUNTS = messages(), st.sampled_from([1, 0, 2, 3, 4, 5]), st.integers(0, 2)
_SHAPES = proto_shapes.shapes()
_ARE_NULL = st.sampled_from([False, False, True])


@st.composite
def cases(draw: Any) -> tuple[bytes, pa.Array]:
    descriptors, kind, values = draw(_MESSAGES)
    rows = [None if draw(_ARE_NULL) else values(draw) for _ in range(draw(_ROW_COUNTS))]
    before = [values(draw) for _ in range(draw(_FILLER_COUNTS))]
    return descriptors, pa.array([*before, *rows], kind).slice(len(before))


def _check_against_the_twin(descriptors: bytes, array: pa.Array) -> None:
    schema = ProtobufSchema.of_descriptors(descriptors)
    values = plan(array.type, schema).encode(array, PREFIX, "value")
    assert values.misfits == {}
    wanted = [PREFIX + encoded(schema.types, schema.message, raw(row)) if row.is_valid else None for row in array]
    assert values.array.to_pylist() == wanted


def _check_against_the_package(descriptors: bytes, array: pa.Array) -> None:
    schema = ProtobufSchema.of_descriptors(descriptors)
    values = plan(array.type, schema).encode(array, b"", "value").array.to_pylist()
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.text))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.fullname))
    for value, row in zip(values, array, strict=True):
        if value is not None:
            message: Any = made.FromString(value)
            assert same(_read(message), _filled(message.DESCRIPTOR, raw(row)))
            # The package sorts the entries of maps differently, so only the lengths can be compared.
            assert len(message.SerializeToString()) == len(value)


def _check_indexes(shape: proto_shapes.Shape) -> None:
    """A text is counted as Confluent's registry counts it for its readers, descriptors as they are, and the text that a
    registry makes of descriptors as the descriptors."""
    of_protoc = proto_shapes.file_descriptor(shape, entries_last=False)
    content = descriptor_pb2.FileDescriptorSet(file=[of_protoc]).SerializeToString()
    in_text = proto_shapes.indexes(proto_shapes.file_descriptor(shape, entries_last=True))
    in_descriptors = proto_shapes.indexes(of_protoc)
    for name in proto_shapes.names(shape):
        text = ProtobufSchema.parse(proto_shapes.text(shape), message=name)
        descriptors = ProtobufSchema.of_descriptors(content, name)
        stored = ProtobufSchema.parse(proto_shapes.text(shape, with_entries=True), message=name)
        assert (text.fullname, text.message_indexes) == (name, in_text[name])
        assert (descriptors.fullname, descriptors.message_indexes) == (name, in_descriptors[name])
        assert (stored.fullname, stored.message_indexes) == (name, in_descriptors[name])
        assert descriptors.counts_entries == (in_text[name] != in_descriptors[name]) and not text.counts_entries
        assert text.message_rank == descriptors.message_rank == stored.message_rank


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _read(message: Any) -> Any:
    """The message as a reader sees it."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if _is_map(field):
            is_message = field.message_type.fields_by_name["value"].message_type is not None
            found[field.name] = {key: _read(value[key]) if is_message else value[key] for key in value}
        elif field.is_repeated:
            found[field.name] = [_read(each) if field.message_type is not None else each for each in value]
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _read(value) if field.message_type is not None else value
    return found


def _filled(descriptor: Any, row: dict[str, Any]) -> dict[str, Any]:
    """The row as a reader must see it: a null field without presence is 0 or empty."""
    found: dict[str, Any] = {}
    for field in descriptor.fields:
        value = row.get(field.name)
        if _is_map(field):
            part = field.message_type.fields_by_name["value"]
            found[field.name] = {key: _seen(part, each) for key, each in value or []}
        elif field.is_repeated:
            found[field.name] = [_seen(field, each) for each in value or []]
        elif value is None:
            found[field.name] = None if field.has_presence else field.default_value
        else:
            found[field.name] = _seen(field, value)
    return found


def _seen(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _filled(field.message_type, value)
    return SYMBOLS[value] if field.enum_type is not None else value


@settings(max_examples=60, deadline=None)
@given(cases())
def test_whole_columns_and_single_values_give_the_same_bytes(case: tuple[bytes, pa.Array]) -> None:
    _check_against_the_twin(*case)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_official_package_reads_back_what_was_written(case: tuple[bytes, pa.Array]) -> None:
    _check_against_the_package(*case)


@pytest.mark.parametrize(
    "shape",
    [
        ((("map", ()),),),
        (((), "map", ()),),
        (((), (), "map"),),
        (("map", ("map", (), "map", ("map", ())), "map", ()),),
        ((), ("map", "map", ((), "map", ())), ("map", ())),
    ],
)
def test_a_message_behind_a_map_is_counted_as_its_readers_count_it(shape: proto_shapes.Shape) -> None:
    _check_indexes(shape)


@settings(max_examples=60)
@given(_SHAPES)
def test_messages_and_maps_in_any_order_are_counted_as_their_readers_count_them(shape: proto_shapes.Shape) -> None:
    _check_indexes(shape)


@pytest.mark.slow
@in_ten_parts
def test_ten_thousand_orders_of_messages_and_maps(part: int, pytestconfig: pytest.Config) -> None:
    check_a_thousand(part, pytestconfig, _SHAPES, _check_indexes)


@pytest.mark.slow
@in_ten_parts
def test_ten_thousand_messages_and_rows(part: int, pytestconfig: pytest.Config) -> None:
    check_a_thousand(part, pytestconfig, cases(), _check_in_both_ways)


def _check_in_both_ways(case: tuple[bytes, pa.Array]) -> None:
    _check_against_the_twin(*case)
    _check_against_the_package(*case)
