"""Files that .proto files import without sending them to a registry: those that come with Protobuf, Google's common
types, and Confluent's. A registry of Confluent and its clients have them built in, too.

tests/unit/formats/schemas/test_schemas_protobuf.py compares all of them with the descriptors of the official packages.
"""

from __future__ import annotations

from collections.abc import Mapping

_WRAPPED = {
    "Double": "double", "Float": "float", "Int64": "int64", "UInt64": "uint64", "Int32": "int32", "UInt32": "uint32",
    "Bool": "bool", "String": "string", "Bytes": "bytes",
}  # fmt: skip
_MOMENT = "message %s { int64 seconds = 1; int32 nanos = 2; }"
_PROTOBUF = {
    "timestamp": _MOMENT % "Timestamp",
    "duration": _MOMENT % "Duration",
    "wrappers": " ".join(f"message {name}Value {{ {kind} value = 1; }}" for name, kind in _WRAPPED.items()),
    "any": "message Any { string type_url = 1; bytes value = 2; }",
    "empty": "message Empty { }",
    "field_mask": "message FieldMask { repeated string paths = 1; }",
    "source_context": "message SourceContext { string file_name = 1; }",
    "struct": "message Struct { map<string, Value> fields = 1; } enum NullValue { NULL_VALUE = 0; } message Value { "
    "oneof kind { NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4; "
    "Struct struct_value = 5; ListValue list_value = 6; } } message ListValue { repeated Value values = 1; }",
}
_TYPE = {
    "calendar_period": "enum CalendarPeriod { CALENDAR_PERIOD_UNSPECIFIED = 0; DAY = 1; WEEK = 2; FORTNIGHT = 3; "
    "MONTH = 4; QUARTER = 5; HALF = 6; YEAR = 7; }",
    "color": 'import "google/protobuf/wrappers.proto"; message Color { float red = 1; float green = 2; float blue = 3; '
    "google.protobuf.FloatValue alpha = 4; }",
    "date": "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "datetime": 'import "google/protobuf/duration.proto"; message DateTime { int32 year = 1; int32 month = 2; '
    "int32 day = 3; int32 hours = 4; int32 minutes = 5; int32 seconds = 6; int32 nanos = 7; oneof time_offset { "
    "google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; } } message TimeZone { string id = 1; "
    "string version = 2; }",
    "dayofweek": "enum DayOfWeek { DAY_OF_WEEK_UNSPECIFIED = 0; MONDAY = 1; TUESDAY = 2; WEDNESDAY = 3; THURSDAY = 4; "
    "FRIDAY = 5; SATURDAY = 6; SUNDAY = 7; }",
    "decimal": "message Decimal { string value = 1; }",
    "expr": "message Expr { string expression = 1; string title = 2; string description = 3; string location = 4; }",
    "fraction": "message Fraction { int64 numerator = 1; int64 denominator = 2; }",
    "interval": 'import "google/protobuf/timestamp.proto"; message Interval { '
    "google.protobuf.Timestamp start_time = 1; google.protobuf.Timestamp end_time = 2; }",
    "latlng": "message LatLng { double latitude = 1; double longitude = 2; }",
    "localized_text": "message LocalizedText { string text = 1; string language_code = 2; }",
    "money": "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }",
    "month": "enum Month { MONTH_UNSPECIFIED = 0; JANUARY = 1; FEBRUARY = 2; MARCH = 3; APRIL = 4; MAY = 5; JUNE = 6; "
    "JULY = 7; AUGUST = 8; SEPTEMBER = 9; OCTOBER = 10; NOVEMBER = 11; DECEMBER = 12; }",
    "phone_number": "message PhoneNumber { message ShortCode { string region_code = 1; string number = 2; } "
    "oneof kind { string e164_number = 1; ShortCode short_code = 2; } string extension = 3; }",
    "postal_address": "message PostalAddress { int32 revision = 1; string region_code = 2; string language_code = 3; "
    "string postal_code = 4; string sorting_code = 5; string administrative_area = 6; string locality = 7; "
    "string sublocality = 8; repeated string address_lines = 9; repeated string recipients = 10; "
    "string organization = 11; }",
    "quaternion": "message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }",
    "timeofday": "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }",
}
_CONFLUENT = {
    "confluent/meta.proto": "package confluent; message Meta { string doc = 1; map<string, string> params = 2; "
    "repeated string tags = 3; repeated Rule rules = 4; } message Rule { string name = 1; string doc = 2; "
    "string expr = 3; string sql = 4; }",
    "confluent/type/decimal.proto": "package confluent.type; message Decimal { bytes value = 1; uint32 precision = 2; "
    "int32 scale = 3; }",
    "confluent/type/variant.proto": "package confluent.type; message Variant { bytes metadata = 1; bytes value = 2; }",
    # The first path of that file.
    "confluent/types/decimal.proto": 'import public "confluent/type/decimal.proto";',
}
BUILT_IN: Mapping[str, str] = {
    **{f"google/protobuf/{name}.proto": f'syntax = "proto3"; package google.protobuf; {body}'
       for name, body in _PROTOBUF.items()},
    **{f"google/type/{name}.proto": f'syntax = "proto3"; package google.type; {body}' for name, body in _TYPE.items()},
    **{path: f'syntax = "proto3"; {body}' for path, body in _CONFLUENT.items()},
}  # fmt: skip
