"""Protobuf: .proto texts compared with descriptors, columns that fit a field, misfits."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import (
    any_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf import descriptor_pb2 as pb

from kafka_sink.errors import ConfigError
from kafka_sink.records.scalar import encode_unsigned_varint
from kafka_sink.schemas.match import plan
from kafka_sink.schemas.protobuf import ProtobufSchema

TEXT = """
// A comment; "with quotes".
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import public 'shop/common.proto';
option java_package = "com.shop";
message Order {
  option deprecated = true;
  reserved 2, 9 to 11; reserved "old";
  message Line { string sku = 1; repeated Line parts = 2; enum Unit { NONE = 0; KG = 1 [deprecated = true]; } }
  int64 id = 1 [json_name = "ID"];
  optional string note = 3;
  repeated sint32 counts = 4;
  repeated double prices = 5 [packed = false, (my.option) = {a: 1, b: "x;y"}];
  map<string, Line> lines = 6;
  oneof payment { string card = 7; .shop.Money cash = 8; }
  Line.Unit unit = 0x10;
  /* block
     comment */ shop.Color color = 17;
  google.protobuf.Timestamp seen = 18;
  map<int32, bool> more_flags = 19;
}
service Orders { rpc Get (Order) returns (Order) { option (x) = 1; } }
message Second { message Inner { bool b = 1; } fixed64 f = 1; }
enum Last { A = 0; B = -1; };
"""
COMMON = """
syntax = "proto2";
package shop;
message Money { required int64 cents = 1; repeated int32 p = 2; }
enum Color { RED = 1; BLUE = 2; }
"""


def test_a_text_says_what_the_descriptor_of_the_same_file_says() -> None:
    schema = ProtobufSchema.parse(TEXT, {"shop/common.proto": COMMON})
    again = ProtobufSchema.of_descriptors(_descriptors())
    assert schema.types.messages == again.types.messages
    assert schema.types.enums == again.types.enums
    assert (schema.fullname, schema.message_indexes) == ("shop.v1.Order", (0,))
    for name, indexes, rank in (("shop.v1.Second.Inner", (1, 0), 5), ("Line", (0, 0), 1), ("Second", (1,), 4)):
        found = ProtobufSchema.parse(TEXT, {"shop/common.proto": COMMON}, name)
        assert (found.message_indexes, found.message_rank) == (indexes, rank)
        assert ProtobufSchema.of_descriptors(_descriptors(), name).message_indexes == indexes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("message M { Other o = 1; }", "names a type Other that neither it nor a schema that it refers to defines"),
        ("message M { int32 a = x; }", "'x' where a number is expected"),
        ("message M { int32 a = 1 }", "'}' where [ or ; is expected"),
        ("message M {", "ends in the middle"),
        ("package p message M { } message N { }", "'message' where ; is expected"),
        ("message M { repeated group G = 1 { } }", "M has a group"),
        ("enum E { A = 0; }", "has no message in it"),
        ("message M { " * 200 + "}" * 200, "nested too deep"),
        ("message M { int32 a = 0; }", "field a of M has the number 0"),
        ("message M { int32 a = -1; }", "field a of M has the number -1"),
        ("message M { int32 a = 536870912; }", "allowed is 1 to 536870911"),
        ("message M { int32 a = 1; string b = 1; }", "M has two fields of the name b or the number 1"),
        ("message M { int32 a = 1; string a = 2; }", "M has two fields of the name a or the number 2"),
    ],
)
def test_what_is_no_proto_file_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ProtobufSchema.parse(text)
    assert said in str(raised.value)


def _deep_descriptors(levels: int) -> bytes:
    content = b"\x0a\x01M"
    for tag in [b"\x0a\x01M\x1a"] * levels + [b"\x22", b"\x0a"]:
        content = tag + encode_unsigned_varint(len(content)) + content
    return content


@pytest.mark.parametrize(
    "content", [b"", b"\x0a", b"\xff" * 20, b"\x0a\x03\x08\x01\x01", b"\x08\x01", _deep_descriptors(2000)]
)
def test_what_is_no_descriptor_set_is_refused(content: bytes) -> None:
    assert ProtobufSchema.of_descriptors(_deep_descriptors(10)).fullname == "M"
    with pytest.raises(ConfigError, match="FileDescriptorSet"):
        ProtobufSchema.of_descriptors(content)


@pytest.mark.parametrize(("number", "kind"), [(11, pa.struct([])), (14, pa.string())])
def test_descriptors_without_those_of_an_import_are_told(number: Any, kind: pa.DataType) -> None:
    file = pb.FileDescriptorProto(name="m.proto")
    message = file.message_type.add(name="M")
    message.field.add(name="x", number=1, type=number, label=1, type_name=".other.T")
    message.field.add(name="y", number=2, type=5, label=1)
    schema = ProtobufSchema.of_descriptors(pb.FileDescriptorSet(file=[file]).SerializeToString())
    assert plan(pa.struct([("y", pa.int32())]), schema)
    with pytest.raises(ConfigError, match=r"do not define other\.T: write them with protoc --include_imports"):
        plan(pa.struct([("x", kind)]), schema)


def test_a_message_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"no message X; it has A, A\.B"):
        ProtobufSchema.parse("message A { message B { } }", message="X")


@pytest.mark.parametrize("package", ["", "package p; "])
def test_a_short_name_is_that_of_the_outermost_message(package: str) -> None:
    text = f"{package}message A {{ message X {{ }} }} message X {{ }}"
    assert ProtobufSchema.parse(text, message="X").message_indexes == (1,)
    assert ProtobufSchema.parse(text, message="A.X").message_indexes == (0, 0)
    assert ProtobufSchema.parse(text).message_indexes == (0,)


def one(text: str, kind: pa.DataType, *values: Any) -> tuple[list[bytes], dict[int, str]]:
    schema = ProtobufSchema.parse(f'syntax = "proto3"; {text}')
    array = pa.array([{"x": value} for value in values], pa.struct([("x", kind)]))
    found = plan(array.type, schema).encode(array, b"", "value")
    return found.array.to_pylist(), {row: str(error) for row, error in found.misfits.items()}


def test_times_and_wrapped_values_are_read_by_the_package() -> None:
    moment = dt.datetime(1969, 12, 31, 23, 59, 58, 250000, dt.timezone.utc)
    imports = 'import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto"; '
    (value, null), _ = one(
        imports + "message M { google.protobuf.Timestamp x = 1; }", pa.timestamp("us", "UTC"), moment, None
    )
    assert timestamp_pb2.Timestamp.FromString(value[2:]).ToDatetime(dt.timezone.utc) == moment
    assert null == b""
    for length in (dt.timedelta(seconds=-1, microseconds=-5), dt.timedelta(days=3, microseconds=1), dt.timedelta(0)):
        (value,), _ = one(
            'import "google/protobuf/duration.proto"; message M { google.protobuf.Duration x = 1; }',
            pa.duration("us"),
            length,
        )
        assert duration_pb2.Duration.FromString(value[2:]).ToTimedelta() == length
    values, _ = one(imports + "message M { google.protobuf.Int32Value x = 1; }", pa.int32(), 0, None, -7)
    assert values[:2] == [b"\x0a\x00", b""]
    assert wrappers_pb2.Int32Value.FromString(values[2][2:]).value == -7


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("struct", {"fields": [("a", {"number_value": 1.5}), ("b", None)]}, None),
        ("struct", {"fields": [("a", {"number_value": 1.5})]}, struct_pb2.Struct(fields={"a": {"number_value": 1.5}})),
        ("any", {"type_url": "t/x", "value": b"\xff"}, any_pb2.Any(type_url="t/x", value=b"\xff")),
        ("field_mask", {"paths": ["a", "b.c"]}, field_mask_pb2.FieldMask(paths=["a", "b.c"])),
        ("empty", {}, empty_pb2.Empty()),
    ],
)
def test_types_that_protobuf_brings_itself_need_no_reference(name: str, value: Any, expected: Any) -> None:
    kinds = {
        "struct": pa.struct([("fields", pa.map_(pa.string(), pa.struct([("number_value", pa.float64())])))]),
        "any": pa.struct([("type_url", pa.string()), ("value", pa.binary())]),
        "field_mask": pa.struct([("paths", pa.list_(pa.string()))]),
        "empty": pa.struct([]),
    }
    title = {"struct": "Struct", "any": "Any", "field_mask": "FieldMask", "empty": "Empty"}[name]
    text = f'import "google/protobuf/{name}.proto"; message M {{ google.protobuf.{title} x = 1; }}'
    (content,), misfits = one(text, kinds[name], value)
    if expected is None:
        assert misfits
    else:
        assert content[0] == 0x0A and type(expected).FromString(content[2:]) == expected and not misfits


def _delimited(of_file: bool) -> pb.FileDescriptorProto:
    """A message field with delimited encoding (start and end tags), and a map, whose values never have it."""
    edition = pb.Edition.EDITION_2023
    file = pb.FileDescriptorProto(name=f"{of_file}.proto", package=f"d{of_file}", edition=edition, syntax="editions")
    outer, inner = file.message_type.add(name="M"), file.message_type.add(name="N")
    entry = outer.nested_type.add(name="TimesEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, label=1, type_name=f".d{of_file}.N")
    inner.field.add(name="x", number=1, type=5, label=1)
    outer.field.add(name="times", number=1, type=11, label=3, type_name=f".d{of_file}.M.TimesEntry")
    one = outer.field.add(name="one", number=2, type=11, label=1, type_name=f".d{of_file}.N")
    (file if of_file else one).options.features.message_encoding = pb.FeatureSet.DELIMITED
    return file


@pytest.mark.parametrize("of_file", [True, False])
@pytest.mark.parametrize("is_text", [True, False])
def test_a_message_between_start_and_end_is_refused_and_a_map_is_written(of_file: bool, is_text: bool) -> None:
    file = _delimited(of_file)
    schema = ProtobufSchema.of_descriptors(pb.FileDescriptorSet(file=[file]).SerializeToString(), "M")
    if is_text:
        feature = "features.message_encoding = DELIMITED"
        schema = ProtobufSchema.parse(
            f'edition = "2023"; package d{of_file}; {f"option {feature};" if of_file else ""}'
            f"message M {{ map<string, N> times = 1; N one = 2 {'' if of_file else f'[{feature}]'}; }}"
            "message N { int32 x = 1; }"
        )
    number = pa.struct([("x", pa.int32())])
    with pytest.raises(ConfigError, match=r"field one .*DELIMITED.* is not supported"):
        plan(pa.struct([("one", number)]), schema)
    array = pa.array([{"times": [("a", {"x": 7})]}], pa.struct([("times", pa.map_(pa.string(), number))]))
    content = plan(array.type, schema).encode(array, b"", "value").array[0].as_py()
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"d{of_file}.M"))
    assert made.FromString(content).times["a"].x == 7


@pytest.mark.parametrize(
    "option",
    [
        "option features.repeated_field_encoding = EXPANDED;",
        "option features = { message_encoding: LENGTH_PREFIXED, repeated_field_encoding: EXPANDED };",
    ],
)
def test_features_of_a_file_hold_for_its_fields(option: str) -> None:
    schema = ProtobufSchema.parse(
        f'edition = "2023"; {option} message M {{ repeated int32 a = 1; int32 b = 2 [features = {{ '
        "field_presence: IMPLICIT }]; repeated int32 c = 3 [features.repeated_field_encoding = PACKED]; }"
    )
    file = pb.FileDescriptorProto(name="f.proto", edition=pb.Edition.EDITION_2023, syntax="editions")
    file.options.features.repeated_field_encoding = pb.FeatureSet.EXPANDED
    message = file.message_type.add(name="M")
    message.field.add(name="a", number=1, type=5, label=3)
    message.field.add(name="b", number=2, type=5, label=1).options.features.field_presence = pb.FeatureSet.IMPLICIT
    packed = message.field.add(name="c", number=3, type=5, label=3)
    packed.options.features.repeated_field_encoding = pb.FeatureSet.PACKED
    again = ProtobufSchema.of_descriptors(pb.FileDescriptorSet(file=[file]).SerializeToString())
    assert schema.message == again.message
    items = pa.list_(pa.int32())
    array = pa.array([{"a": [1, 2], "b": 0, "c": [3]}], pa.struct([("a", items), ("b", pa.int32()), ("c", items)]))
    content = plan(array.type, schema).encode(array, b"", "value").array[0].as_py()
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("M"))
    assert content == made(a=[1, 2], b=0, c=[3]).SerializeToString() == b"\x08\x01\x08\x02\x1a\x01\x03"


def test_words_of_edition_2024_are_read() -> None:
    schema = ProtobufSchema.parse(
        'edition = "2024"; import option "a/options.proto"; local enum E { NONE = 0; } '
        "export message M { local message N { int32 x = 1; } N n = 1; E e = 2; local.Type t = 3; } "
        "message local { message Type { } }"
    )
    assert [(field.name, field.type_name) for field in schema.message.fields] == [
        ("n", "M.N"), ("e", "E"), ("t", "local.Type"),
    ]  # fmt: skip


def test_options_of_an_extension_range_are_skipped_over() -> None:
    schema = ProtobufSchema.parse(
        'message M { extensions 4 to 9 [verification = DECLARATION, declaration = { number: 4, full_name: ".a.b" }]; '
        "optional int32 x = 1; }"
    )
    assert [field.name for field in schema.message.fields] == ["x"]


CLOSED = "option features.enum_type = CLOSED;"


@pytest.mark.parametrize(
    ("head", "own", "is_closed"),
    [
        ('syntax = "proto2";', "", True),
        ('syntax = "proto3";', "", False),
        ('edition = "2023";', "", False),
        ('edition = "2023";', CLOSED, True),
        (f'edition = "2023"; {CLOSED}', "", True),
        (f'edition = "2023"; {CLOSED}', "option features.enum_type = OPEN;", False),
    ],
)
def test_a_number_that_a_closed_enum_does_not_have_does_not_fit(head: str, own: str, is_closed: bool) -> None:
    """A reader would see no value."""
    schema = ProtobufSchema.parse(f"{head} enum E {{ {own} A = 0; B = -2; }} message M {{ repeated E e = 1; }}")
    file = pb.FileDescriptorProto(name="e.proto")
    file.syntax = "editions" if "edition" in head else head.split('"')[1]
    if file.syntax == "editions":
        file.edition = pb.Edition.EDITION_2023
    enum = file.enum_type.add(name="E")
    for number, name in ((0, "A"), (-2, "B")):
        enum.value.add(name=name, number=number)
    if CLOSED in head:
        file.options.features.enum_type = pb.FeatureSet.CLOSED
    if own:
        enum.options.features.enum_type = pb.FeatureSet.CLOSED if own == CLOSED else pb.FeatureSet.OPEN
    file.message_type.add(name="M").field.add(name="e", number=1, type=14, label=3, type_name=".E")
    again = ProtobufSchema.of_descriptors(pb.FileDescriptorSet(file=[file]).SerializeToString())
    assert again.types.enums == schema.types.enums
    array = pa.array([{"e": [0, -2]}, {"e": [-2, 7]}], pa.struct([("e", pa.list_(pa.int32()))]))
    found = plan(array.type, schema).encode(array, b"", "value")
    said = {row: str(error) for row, error in found.misfits.items()}
    assert said == ({1: "value.e[] of row 1 is no number of its enum in the schema"} if is_closed else {})
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("M"))
    assert [list(made.FromString(each.as_py()).e) for each in found.array] == [[0, -2], [-2] if is_closed else [-2, 7]]


def test_an_enum_is_written_by_name_or_number() -> None:
    text = "enum E { A = 0; B = 300; } message M { E x = 1; }"
    assert one(text, pa.string(), "B", "A", None) == ([b"\x08\xac\x02", b"", b""], {})
    assert one(text, pa.int32(), 300)[0] == [b"\x08\xac\x02"]
    assert one(text, pa.string(), "B", "C")[1] == {1: "value.x of row 1 is no symbol of its enum in the schema"}


@pytest.mark.parametrize(
    ("text", "kind", "values", "said"),
    [
        ("message M { int32 x = 1; }", pa.int64(), [1, 2**31], "value.x of row 1 is out of the range"),
        ("message M { uint32 x = 1; }", pa.int32(), [1, -1], "value.x of row 1 is out of the range"),
        ("message M { uint64 x = 1; }", pa.int64(), [1, -1], "value.x of row 1 is out of the range"),
        (
            "message M { repeated string x = 1; }",
            pa.list_(pa.string()),
            [[], ["a", None]],
            "value.x[] of row 1 is null",
        ),
        (
            "message M { map<string, int32> x = 1; }",
            pa.map_(pa.string(), pa.int32()),
            [{}, {"a": None}],
            "value.x{} of",
        ),
    ],
)
def test_a_row_that_does_not_fit_is_found(text: str, kind: pa.DataType, values: list[Any], said: str) -> None:
    _, misfits = one(text, kind, *values)
    assert list(misfits) == [1]
    assert said in misfits[1]


def test_a_oneof_has_one_value_and_a_required_field_has_any() -> None:
    schema = ProtobufSchema.parse("message M { oneof o { int32 a = 1; string b = 2; } required int32 c = 3; }")
    rows = [{"a": 1, "b": None, "c": 0}, {"a": 0, "b": "", "c": 1}, {"a": None, "b": "", "c": None}]
    array = pa.array(rows, pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.int32())]))
    found = plan(array.type, schema).encode(array, b"", "value")
    assert found.array[0].as_py() == b"\x08\x01\x18\x00"
    assert {row: str(error) for row, error in found.misfits.items()} == {
        1: "value.o of row 1 has several values, and a oneof has one",
        2: "value.c of row 2 is null, and the field is required",
    }


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("int32 x = 1;", pa.string(), "column x has type string, the schema says int32; what fits there: tinyint"),
        ("repeated int32 x = 1;", pa.int32(), "the schema says repeated int32; what fits there: array of tinyint"),
        ("map<string, int32> x = 1;", pa.list_(pa.int32()), "the schema says map<string, int32>"),
        ("float x = 1;", pa.float64(), "the schema says float; what fits there: float"),
        ("string y = 1;", pa.string(), "the schema has no field for column x; it has y"),
    ],
)
def test_a_column_that_cannot_fit_is_refused(text: str, kind: pa.DataType, said: str) -> None:
    schema = ProtobufSchema.parse(f"message M {{ {text} }}".replace("message", 'syntax = "proto3"; message', 1))
    with pytest.raises(ConfigError) as raised:
        plan(pa.struct([("x", kind)]), schema)
    assert said in str(raised.value)


def test_a_message_needs_a_struct_and_its_required_fields() -> None:
    schema = ProtobufSchema.parse("message M { required int32 c = 3; }")
    with pytest.raises(ConfigError, match="a Protobuf message needs a struct"):
        plan(pa.string(), schema)
    for kind in (pa.struct([]), pa.struct([("c", pa.null())])):
        with pytest.raises(ConfigError, match="no column for field c, which is required"):
            plan(kind, schema)


def _descriptors() -> bytes:
    """The descriptors that protoc would make of TEXT and COMMON."""
    common = pb.FileDescriptorProto(name="shop/common.proto", package="shop")
    money = common.message_type.add(name="Money")
    money.field.add(name="cents", number=1, type=3, label=2)
    money.field.add(name="p", number=2, type=5, label=3)
    color = common.enum_type.add(name="Color")
    color.value.add(name="RED", number=1)
    color.value.add(name="BLUE", number=2)
    file = pb.FileDescriptorProto(name="order.proto", package="shop.v1", syntax="proto3")
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=9, label=1)
    line.field.add(name="parts", number=2, type=11, label=3, type_name=".shop.v1.Order.Line")
    unit = line.enum_type.add(name="Unit")
    unit.value.add(name="NONE", number=0)
    unit.value.add(name="KG", number=1)
    for name, key, value in (("LinesEntry", 9, 11), ("MoreFlagsEntry", 5, 8)):
        entry = order.nested_type.add(name=name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=key, label=1)
        entry.field.add(name="value", number=2, type=value, label=1)
    order.nested_type[1].field[1].type_name = ".shop.v1.Order.Line"
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="note", number=3, type=9, label=1, proto3_optional=True, oneof_index=1)
    order.field.add(name="counts", number=4, type=17, label=3)
    order.field.add(name="prices", number=5, type=1, label=3).options.packed = False
    order.field.add(name="lines", number=6, type=11, label=3, type_name=".shop.v1.Order.LinesEntry")
    order.field.add(name="card", number=7, type=9, label=1, oneof_index=0)
    order.field.add(name="cash", number=8, type=11, label=1, oneof_index=0, type_name=".shop.Money")
    order.field.add(name="unit", number=16, type=14, label=1, type_name=".shop.v1.Order.Line.Unit")
    order.field.add(name="color", number=17, type=14, label=1, type_name=".shop.Color")
    order.field.add(name="seen", number=18, type=11, label=1, type_name=".google.protobuf.Timestamp")
    order.field.add(name="more_flags", number=19, type=11, label=3, type_name=".shop.v1.Order.MoreFlagsEntry")
    order.oneof_decl.add(name="payment")
    order.oneof_decl.add(name="_note")
    second = file.message_type.add(name="Second")
    second.nested_type.add(name="Inner").field.add(name="b", number=1, type=8, label=1)
    second.field.add(name="f", number=1, type=6, label=1)
    last = file.enum_type.add(name="Last")
    last.value.add(name="A", number=0)
    last.value.add(name="B", number=-1)
    moment = pb.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    return pb.FileDescriptorSet(file=[moment, common, file]).SerializeToString()
