"""Which Protobuf field a column can be written as: docs/schemas.md has the table."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from kafka_sink.formats.records.bytes_column import plain_type
from kafka_sink.formats.records.scalar import encode_unsigned_varint
from kafka_sink.formats.schemas import protobuf_nodes as nodes
from kafka_sink.formats.schemas.naming import Problems, find_columns, is_bytes, is_list, is_text, join_path, spark_name
from kafka_sink.formats.schemas.node import UNITS_PER_SECOND, Numbers, ValueNode, integers, is_float
from kafka_sink.formats.schemas.protobuf import ProtobufSchema
from kafka_sink.formats.schemas.protobuf_nodes import ContentNode
from kafka_sink.formats.schemas.protobuf_types import (
    FIXED,
    LENGTH_DELIMITED,
    ProtoEnum,
    ProtoField,
    ProtoMessage,
    ProtoTypes,
)

_FITS = {
    "bool": "boolean", "float": "float", "double": "double, float", "string": "string", "bytes": "binary, string",
    "enum": "string (the name), int (the number)", "message": "struct",
    **dict.fromkeys(("int32", "sint32", "sfixed32"), "tinyint, smallint, int, bigint if every value is small enough"),
    **dict.fromkeys(("uint32", "fixed32"), "tinyint, smallint, int, bigint if no value is below 0 or too large"),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), "tinyint, smallint, int, bigint"),
    **dict.fromkeys(("uint64", "fixed64"), "tinyint, smallint, int, bigint if no value is below 0"),
}  # fmt: skip
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_WRAPPER_ENDING = "Value"
_VARINT, _LENGTH = 0, 2


def match_protobuf(kind: pa.DataType, schema: ProtobufSchema, problems: Problems) -> ValueNode:
    kind = plain_type(kind)
    if not pa.types.is_struct(kind):
        problems.add(f"the column has type {spark_name(kind)}, a Protobuf message needs a struct")
        return partial(nodes.encode_message, (), ())
    return _Matcher(schema.types, problems).message(kind, schema.message, "")


class _Matcher:
    def __init__(self, types: ProtoTypes, problems: Problems) -> None:
        self._types = types
        self._problems = problems

    def message(self, kind: pa.DataType, message: ProtoMessage, path: str) -> ValueNode:
        members: list[nodes.ProtoMember] = []
        columns = find_columns(kind, [field.name for field in message.fields], path, self._problems)
        for field, index in sorted(zip(message.fields, columns, strict=True), key=lambda pair: pair[0].number):
            inner = join_path(path, field.name)
            if index is None or pa.types.is_null(column := plain_type(kind.field(index).type)):
                if field.is_required:
                    self._problems.add(f"there is no column for field {inner}, which is required")
                continue
            if field.is_delimited and field.type == "message" and self._types.map_entry(field) is None:
                self._problems.add(
                    f"field {inner} is written between a start and an end (message_encoding = DELIMITED), which is not "
                    f"supported; leave the column out (drop, or the option value.columns)"
                )
                continue
            node = self._match_field(column, field, inner)
            if node is None:
                self._add_mismatch(inner, column, field)
            else:
                members.append(nodes.ProtoMember(field.name, index, node, field.oneof, field.is_required))
        oneofs = [member.oneof for member in members if member.oneof]
        several = sorted({name for name in oneofs if oneofs.count(name) > 1})
        return partial(nodes.encode_message, tuple(members), tuple(several))

    def _match_field(self, kind: pa.DataType, field: ProtoField, path: str) -> ValueNode | None:
        if not field.is_repeated:
            content = self._match_content(kind, field, path)
            if content is None:
                return None
            return partial(nodes.encode_single, _encode_tag(field), content, field.has_presence)
        entry = self._types.map_entry(field)
        if entry is not None:
            return self._match_map(kind, field, entry, path)
        content = self._match_content(plain_type(kind.value_type), field, f"{path}[]") if is_list(kind) else None
        if content is None:
            return None
        is_packed = field.is_packed and field.type not in LENGTH_DELIMITED
        encode = nodes.encode_packed if is_packed else nodes.encode_repeated
        return partial(encode, _encode_tag(field, is_packed), content)

    def _match_map(self, kind: pa.DataType, field: ProtoField, entry: ProtoMessage, path: str) -> ValueNode | None:
        if not pa.types.is_map(kind):
            return None
        key_field, value_field = sorted(entry.fields, key=lambda each: each.number)
        key = self._match_content(plain_type(kind.key_type), key_field, f"{path}{{key}}")
        value = self._match_content(plain_type(kind.item_type), value_field, f"{path}{{}}")
        if key is None or value is None:
            return None
        parts = (_encode_tag(key_field), key), (_encode_tag(value_field), value)
        return partial(nodes.encode_map, _encode_tag(field), *parts)

    def _match_content(self, kind: pa.DataType, field: ProtoField, path: str) -> ContentNode | None:
        if field.type == "message":
            return self._match_message_content(kind, field, path)
        if field.type == "enum":
            return _match_enum(kind, self._types.enums[field.type_name])
        if field.type in ("float", "double"):
            size = FIXED[field.type]
            return partial(nodes.encode_float, size) if is_float(kind, size) else None
        if field.type == "bool":
            return nodes.encode_boolean if pa.types.is_boolean(kind) else None
        if field.type == "string":
            return nodes.encode_text if is_text(kind) else None
        if field.type == "bytes":
            return nodes.encode_binary if is_text(kind) or is_bytes(kind) else None
        return _match_integer(kind, field.type)

    def _match_message_content(self, kind: pa.DataType, field: ProtoField, path: str) -> ContentNode | None:
        types = pa.types
        message = self._types.messages[field.type_name]
        if types.is_struct(kind):
            return partial(nodes.encode_nested, self.message(kind, message, path))
        is_moment = message.fullname == _TIMESTAMP and types.is_timestamp(kind) and kind.tz is not None
        is_duration = message.fullname == _DURATION and types.is_duration(kind)
        if is_moment or is_duration:
            moment = partial(nodes.encode_moment, UNITS_PER_SECOND[kind.unit], is_duration)
            return partial(nodes.encode_nested, moment)
        is_wrapper = message.fullname.startswith("google.protobuf.") and message.fullname.endswith(_WRAPPER_ENDING)
        if not is_wrapper or len(message.fields) != 1:
            return None
        wrapped = message.fields[0]
        content = self._match_content(kind, wrapped, path)
        if content is None:
            return None
        # The column itself is the only field of the message.
        return partial(nodes.encode_nested, partial(nodes.encode_single, _encode_tag(wrapped), content, False))

    def _add_mismatch(self, path: str, kind: pa.DataType, field: ProtoField) -> None:
        fits = _FITS[field.type]
        if field.type_name == _TIMESTAMP:
            fits = "timestamp, struct"
        entry = self._types.map_entry(field)
        declared = f"{field.type} {field.type_name}".strip()
        if entry is not None:
            parts = [f"{part.type} {part.type_name}".strip() for part in entry.fields]
            declared, fits = f"map<{', '.join(parts)}>", f"map<{', '.join(_FITS[part.type] for part in entry.fields)}>"
        elif field.is_repeated:
            declared, fits = f"repeated {declared}", f"array of {fits}"
        self._problems.add_mismatch(path, kind, declared, fits)


def _match_enum(kind: pa.DataType, enum: ProtoEnum) -> ContentNode | None:
    if is_text(kind):
        return partial(nodes.encode_enum, enum.numbers)
    numbers = integers(kind, 32)
    if numbers is None:
        return None
    return partial(nodes.encode_varint, numbers, False, tuple(enum.numbers.values()) if enum.is_closed else None)


def _match_integer(kind: pa.DataType, name: str) -> ContentNode | None:
    bits = 64 if name.endswith("64") else 32
    numbers = integers(kind, bits)
    if numbers is None:
        return None
    if name.startswith(("uint", "fixed")):
        # Spark's bigint has at most 63 bits for a positive number.
        numbers = Numbers(low=0, high=2 ** min(bits, 63) - 1)
    if name in FIXED:
        return partial(nodes.encode_fixed, numbers, FIXED[name])
    return partial(nodes.encode_varint, numbers, name.startswith("sint"), None)


def _encode_tag(field: ProtoField, is_packed: bool = False) -> bytes:
    if is_packed or field.type in LENGTH_DELIMITED:
        wire = _LENGTH
    elif field.type in FIXED:
        wire = 1 if FIXED[field.type] == 8 else 5
    else:
        wire = _VARINT
    return encode_unsigned_varint(field.number << 3 | wire)
