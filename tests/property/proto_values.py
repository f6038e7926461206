"""Random Protobuf messages as descriptors, with matching Arrow types and rows.

Every strategy here is created once: creating one per example costs more than drawing from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2 as pb
from hypothesis import strategies as st

_F = pb.FieldDescriptorProto
# Draws one value.
Values = Callable[[Any], Any]
SYMBOLS = {"ZERO": 0, "ONE": 1, "BIG": 300, "BELOW": -1}


def _ints(low: int, high: int) -> st.SearchStrategy[int]:
    return st.one_of(st.integers(low, high), st.integers(max(low, -3), 3), st.sampled_from([low, high]))


_SIGNED_32, _SIGNED_64 = _ints(-(2**31), 2**31 - 1), _ints(-(2**63), 2**63 - 1)
_LEAVES = [
    (_F.TYPE_BOOL, pa.bool_(), st.booleans()),
    *((kind, pa.int32(), _SIGNED_32) for kind in (_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32)),
    *((kind, pa.int64(), _SIGNED_64) for kind in (_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64)),
    *((kind, pa.int64(), _ints(0, 2**32 - 1)) for kind in (_F.TYPE_UINT32, _F.TYPE_FIXED32)),
    *((kind, pa.int64(), _ints(0, 2**63 - 1)) for kind in (_F.TYPE_UINT64, _F.TYPE_FIXED64)),
    (_F.TYPE_FLOAT, pa.float32(), st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0]))),
    (_F.TYPE_DOUBLE, pa.float64(), st.one_of(st.floats(), st.sampled_from([0.0, -0.0]))),
    (_F.TYPE_STRING, pa.string(), st.one_of(st.text(max_size=5), st.just("é" * 9000))),
    (_F.TYPE_BYTES, pa.binary(), st.binary(max_size=5)),
    (_F.TYPE_ENUM, pa.string(), st.sampled_from(sorted(SYMBOLS))),
]
_KEYS = st.sampled_from(
    [
        (_F.TYPE_STRING, pa.string(), st.lists(st.text(max_size=3), max_size=3, unique=True)),
        (_F.TYPE_INT64, pa.int64(), st.lists(st.integers(-5, 5), max_size=3, unique=True)),
    ]
)
_LEAF_KINDS = st.sampled_from(_LEAVES)
_SYNTAXES, _SHAPES = st.sampled_from(["proto3", "proto2"]), st.sampled_from(["single", "single", "repeated", "map"])
_NUMBERS = st.lists(st.sampled_from([1, 2, 15, 16, 2047, 2048, 40000]), min_size=1, max_size=4, unique=True)
_FOURTHS, _ITEM_COUNTS, _YES_OR_NO = st.integers(0, 3), st.integers(0, 3), st.booleans()
_ARE_NULL = st.sampled_from([False, False, True])


@st.composite
def messages(draw: Any) -> tuple[bytes, pa.DataType, Values]:
    """A serialized FileDescriptorSet, the struct type of its first message, and a function that draws a row."""
    syntax = draw(_SYNTAXES)
    file = pb.FileDescriptorProto(name="test.proto", package="test.pkg", syntax=syntax)
    enum = file.enum_type.add(name="Mood")
    for name, number in SYMBOLS.items():
        enum.value.add(name=name, number=number)
    kind, values = _message(draw, file.message_type.add(name="Row"), "test.pkg.Row", syntax, 0)
    return pb.FileDescriptorSet(file=[file]).SerializeToString(), kind, values


def _message(draw: Any, message: Any, fullname: str, syntax: str, depth: int) -> tuple[pa.DataType, Values]:
    fields, values = [], {}
    for number in draw(_NUMBERS):
        name = f"f{number}"
        field = message.field.add(name=name, number=number, label=_F.LABEL_OPTIONAL)
        shape = draw(_SHAPES)
        if shape == "map":
            kind, values[name] = _map(draw, message, field, fullname, syntax, depth)
        else:
            kind, values[name] = _single(draw, message, field, fullname, syntax, depth)
        if shape == "repeated":
            field.label = _F.LABEL_REPEATED
            if field.type not in (_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE) and draw(_YES_OR_NO):
                field.options.packed = draw(_YES_OR_NO)
            kind, values[name] = pa.list_(kind), _some(values[name])
        elif shape == "single" and syntax == "proto3" and field.type != _F.TYPE_MESSAGE and draw(_YES_OR_NO):
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
        fields.append((name, kind))
    if draw(_YES_OR_NO):
        # A message of its own type, for which there is no column.
        message.field.add(
            name="itself", number=50_000, label=_F.LABEL_OPTIONAL, type=_F.TYPE_MESSAGE, type_name=f".{fullname}"
        )
    return pa.struct(fields), lambda draw: {
        name: None if draw(_ARE_NULL) else each(draw) for name, each in values.items()
    }


def _some(values: Values) -> Values:
    return lambda draw: [values(draw) for _ in range(draw(_ITEM_COUNTS))]


def _single(draw: Any, message: Any, field: Any, fullname: str, syntax: str, depth: int) -> tuple[pa.DataType, Values]:
    if depth < 3 and draw(_FOURTHS) == 0:
        inner = message.nested_type.add(name=f"M{field.number}")
        field.type, field.type_name = _F.TYPE_MESSAGE, f".{fullname}.M{field.number}"
        return _message(draw, inner, f"{fullname}.M{field.number}", syntax, depth + 1)
    field.type, kind, values = draw(_LEAF_KINDS)
    if field.type == _F.TYPE_ENUM:
        field.type_name = ".test.pkg.Mood"
    return kind, lambda draw: draw(values)


def _map(draw: Any, message: Any, field: Any, fullname: str, syntax: str, depth: int) -> tuple[pa.DataType, Values]:
    entry = message.nested_type.add(name=f"F{field.number}Entry")
    entry.options.map_entry = True
    field.label, field.type = _F.LABEL_REPEATED, _F.TYPE_MESSAGE
    field.type_name = f".{fullname}.F{field.number}Entry"
    key_type, key_kind, keys = draw(_KEYS)
    entry.field.add(name="key", number=1, label=_F.LABEL_OPTIONAL, type=key_type)
    value = entry.field.add(name="value", number=2, label=_F.LABEL_OPTIONAL)
    kind, values = _single(draw, message, value, fullname, syntax, depth)
    if value.type == _F.TYPE_MESSAGE:
        # Two fields may not define the same message.
        message.nested_type[-1].name = f"V{field.number}"
        raise_to = f".{fullname}.V{field.number}"
        _rename(message.nested_type[-1], value.type_name, raise_to)
        value.type_name = raise_to
    return pa.map_(key_kind, pa.field("value", kind, False)), lambda draw: [(key, values(draw)) for key in draw(keys)]


def _rename(message: Any, old: str, new: str) -> None:
    for field in message.field:
        if field.type_name == old or field.type_name.startswith(old + "."):
            field.type_name = new + field.type_name[len(old) :]
    for nested in message.nested_type:
        _rename(nested, old, new)
