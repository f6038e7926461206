"""Protobuf: .proto texts compared with descriptors, columns that fit a field, misfits."""

from __future__ import annotations

import datetime as dt
import importlib
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.confluent.type import decimal_pb2
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
from google.type import date_pb2, money_pb2

from kafka_sink.errors import ConfigError
from kafka_sink.formats.records.scalar import encode_unsigned_varint
from kafka_sink.formats.schemas import protobuf_text, protobuf_types
from kafka_sink.formats.schemas.match import plan
from kafka_sink.formats.schemas.protobuf import ProtobufSchema
from kafka_sink.formats.schemas.protobuf_built_in import BUILT_IN
from kafka_sink.formats.schemas.protobuf_descriptor import read_descriptor_set
from kafka_sink.formats.schemas.protobuf_text import read_files
from kafka_sink.formats.schemas.protobuf_types import ProtoMessage

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
    of_text, of_descriptors = ({name: replace(each, path=()) for name, each in found.types.messages.items()}
                               for found in (schema, again))  # fmt: skip
    assert of_text == of_descriptors
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
        ("message M { int32 a = x; }", "line 1 of the .proto file has something else where a number is expected"),
        ("message M {\n int32 a = 1\n}", "line 3 of the .proto file has '}' where [ or ; is expected"),
        ("message M {", "ends in the middle"),
        ("package p message M { } message N { }", "something else where ; is expected"),
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("message A { }\n/*" * 100_000, "the comment of line 2 of the .proto file is not closed"),
        ("/*/", "the comment of line 1"),
        ('\n"' + '\\"' * 500_000, "ends in the middle"),
        ("message A { }\n'" + "\\x" * 500_000, "the text of line 2 of the .proto file is not closed"),
        (f"package {'a.' * 100_000}a; message M {{ T t = 1; }}", "has a name of more than 1000 characters"),
        (f"message M {{ {'a.' * 100_000}a t = 1; }}", "has a name of more than 1000 characters"),
    ],
)
def test_what_is_not_closed_and_what_is_too_long_is_read_once(text: str, said: str) -> None:
    """Looking for the end from each beginning takes a minute and more; a test has a time limit."""
    with pytest.raises(ConfigError) as raised:
        ProtobufSchema.parse(text)
    assert said in str(raised.value) and len(str(raised.value)) < 200


def test_options_that_mean_nothing_here_are_not_copied_to_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    make_field = protobuf_types.make_field
    monkeypatch.setattr(protobuf_text, "make_field", lambda *given: counts.append(len(given[-1])) or make_field(*given))
    options = "".join(f"option o{number} = 1; " for number in range(100))
    text = f"{options} option features.field_presence = IMPLICIT; message M {{ int32 a = 1 [packed = true, (x) = 1]; }}"
    assert ProtobufSchema.parse(f'edition = "2023"; {text}').message.fields[0].has_presence is False
    assert counts == [2]


@pytest.mark.parametrize("secret", ["hunter2", "jdbc:postgres://u:hunter2@h/db"])
def test_a_file_that_is_no_proto_file_is_not_quoted(secret: str) -> None:
    for text in (f"password={secret}\n", f'message {{ "{secret}" }}', f"{secret}", f"package {secret} {secret}",
                 f"message M {{ int32 {secret}", f"message M {{ int32 a = {secret}; }}"):  # fmt: skip
        with pytest.raises(ConfigError) as raised:
            ProtobufSchema.parse(text)
        assert "hunter2" not in str(raised.value)


def test_an_entry_that_a_registry_has_written_as_a_message_is_a_map() -> None:
    text = """message M {
      message LinesEntry { option map_entry = true; string key = 1; int64 value = 2; }
      repeated .M.LinesEntry lines = 1; message Inner { int64 a = 1; } }"""
    kind = pa.struct([("lines", pa.map_(pa.string(), pa.int64()))])
    rows = pa.array([{"lines": [("a", 1)]}], kind)
    found = plan(kind, ProtobufSchema.parse(text)).encode(rows, b"", "value").array.to_pylist()
    of_map = ProtobufSchema.parse("message M { map<string, int64> lines = 1; }")
    assert found == plan(kind, of_map).encode(rows, b"", "value").array.to_pylist()
    assert ProtobufSchema.parse(text, message="Inner").message_indexes == (0, 1)


@pytest.mark.parametrize("path", sorted(BUILT_IN))
def test_files_that_need_no_reference_are_those_of_the_official_packages(path: str) -> None:
    """Also in the order of fields of a oneof, and in what is written for 0."""
    module = path.removesuffix(".proto").replace("/", ".") + "_pb2"
    name = module if module.startswith("google.") else f"confluent_kafka.schema_registry.{module}"
    file = importlib.import_module(name).DESCRIPTOR
    needed = [file, *file.dependencies]
    descriptors = pb.FileDescriptorSet()
    for each in reversed(needed):
        each.CopyToProto(descriptors.file.add())
    own, imported = read_files(BUILT_IN[path], {})
    wanted_own, wanted_imported = read_descriptor_set(descriptors.SerializeToString())[1:]
    assert _by_name(own) == _by_name(wanted_own)
    known = _by_name(wanted_imported)
    assert all(known[each.fullname] == each for each in map(_without_path, imported))


def _without_path(found: Any) -> Any:
    return replace(found, path=()) if isinstance(found, ProtoMessage) else found


def _by_name(types: Any) -> dict[str, Any]:
    return {each.fullname: _without_path(each) for each in types}


def test_a_message_of_googles_common_types_and_of_confluents_is_written() -> None:
    text = """syntax = "proto3"; import "google/type/date.proto"; import "google/type/money.proto";
    import "confluent/meta.proto"; import "confluent/type/decimal.proto"; import "confluent/types/decimal.proto";
    message M { google.type.Date day = 1; google.type.Money price = 2 [(confluent.field_meta).tags = "PII"];
    confluent.type.Decimal exact = 3; }"""
    kind = pa.struct(
        [
            ("day", pa.struct([("year", pa.int32()), ("month", pa.int32()), ("day", pa.int32())])),
            ("price", pa.struct([("currency_code", pa.string()), ("units", pa.int64()), ("nanos", pa.int32())])),
            ("exact", pa.struct([("value", pa.binary()), ("precision", pa.int32()), ("scale", pa.int32())])),
        ]
    )
    row = {"day": {"year": 2024, "month": 2, "day": 29}, "price": {"currency_code": "EUR", "units": 3, "nanos": 5},
           "exact": {"value": b"\x01", "precision": 3, "scale": 2}}  # fmt: skip
    (found,) = plan(kind, ProtobufSchema.parse(text)).encode(pa.array([row], kind), b"", "value").array.to_pylist()
    day = date_pb2.Date(year=2024, month=2, day=29).SerializeToString()
    price = money_pb2.Money(currency_code="EUR", units=3, nanos=5).SerializeToString()
    exact = decimal_pb2.Decimal(value=b"\x01", precision=3, scale=2).SerializeToString()
    wanted = [bytes([tag, len(each)]) + each for tag, each in ((10, day), (18, price), (26, exact))]
    assert found == b"".join(wanted)


_SECOND = 1_000_000


@pytest.mark.parametrize(
    ("kind", "type_name", "good", "bad", "said"),
    [
        (
            pa.timestamp("us", tz="UTC"), "Timestamp",
            [-62_135_596_800 * _SECOND, 253_402_300_800 * _SECOND - 1, 0],
            [-62_135_596_800 * _SECOND - 1, 253_402_300_800 * _SECOND, 2**63 - 1, -(2**63)],
            "is not in the years 1 to 9999",
        ),
        (
            pa.duration("us"), "Duration",
            [-315_576_000_000 * _SECOND, 315_576_000_000 * _SECOND, -1, -315_576_000_000 * _SECOND - 999_999],
            [-315_576_000_001 * _SECOND, 315_576_000_001 * _SECOND, 2**63 - 1, -(2**63)],
            "is not within 10,000 years",
        ),
    ],
)  # fmt: skip
def test_a_time_that_protobuf_cannot_hold_does_not_fit(
    kind: pa.DataType, type_name: str, good: list[int], bad: list[int], said: str
) -> None:
    """Readers fail on such bytes: Java's Timestamps and the JSON of every language."""
    name = type_name.lower()
    text = f'import "google/protobuf/{name}.proto"; message M {{ google.protobuf.{type_name} t = 1; }}'
    column = pa.array([*good, *bad, None], kind)
    array = pa.StructArray.from_arrays([column], ["t"])
    found = plan(array.type, ProtobufSchema.parse(text)).encode(array, b"", "value")
    assert list(found.misfits) == list(range(len(good), len(good) + len(bad)))
    first = found.misfits[len(good)]
    assert str(first).startswith(f"value.t of row {len(good)} {said}") and first.column == "value"
    made = {"Timestamp": timestamp_pb2.Timestamp, "Duration": duration_pb2.Duration}[type_name]
    for row, content in enumerate(found.array.to_pylist()[:-1]):
        message: Any = made.FromString(content[2:])
        if row < len(good):
            assert message.ToJsonString()
        else:
            with pytest.raises(ValueError, match="range"):
                message.ToJsonString()


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
