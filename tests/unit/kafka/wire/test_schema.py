"""Rows compiled per version: defaults, dropped fields, tags, bounds."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from kafka_sink.errors import LocalProtocolError, RemoteProtocolError
from kafka_sink.kafka.wire.schema import Codec, compile_fields, parse_fields

ROWS = parse_fields(
    """
code: int16
leader_id: int32, 1+, default -1
throttle_time_ms: int32, 2+, ignorable
name: string, 0-2
topic_id: uuid, 3+, ignorable
items: []struct, 1+, nullable 2+
    number: int8
    label: string, nullable 2+
sizes: []int32, 1+
hint: string, 3+, tag 0, nullable, default null, ignorable
leader: struct, 3+, tag 2
    id: int32, default -1
    epoch: int32, default -1
features: []struct, 3+, tag 5, ignorable
    name: string
""".splitlines()
)
FLEXIBLE_SINCE = 3


def codec(version: int) -> Codec:
    return compile_fields(ROWS, version, version >= FLEXIBLE_SINCE)


def encode(version: int, value: dict[str, Any]) -> bytes:
    out = bytearray()
    codec(version).write(out, value)
    return bytes(out)


def decode(version: int, data: bytes) -> dict[str, Any]:
    value, position = codec(version).read(data, 0)
    assert position == len(data)
    return dict(value)


def test_an_empty_mapping_means_all_defaults() -> None:
    assert encode(0, {}) == b"\0\0" + b"\0\0"
    assert encode(1, {}) == b"\0\0" + b"\xff" * 4 + b"\0\0" + b"\0" * 4 + b"\0" * 4
    assert encode(3, {}) == b"\0\0" + b"\xff" * 4 + b"\0" * 4 + bytes(16) + b"\x01" + b"\x01" + b"\0"


def test_decoding_fills_in_what_the_version_lacks() -> None:
    decoded = decode(0, encode(0, {"code": 7}))
    assert decoded == {
        "code": 7, "leader_id": -1, "throttle_time_ms": 0, "name": "", "topic_id": bytes(16), "items": [],
        "sizes": [], "hint": None, "leader": {"id": -1, "epoch": -1}, "features": [],
    }  # fmt: skip


def test_defaults_of_two_messages_share_no_containers() -> None:
    first, second = decode(0, encode(0, {})), decode(0, encode(0, {}))
    first["items"].append(1)
    first["leader"]["id"] = 5
    assert second["items"] == [] and second["leader"] == {"id": -1, "epoch": -1}


def test_an_ignorable_field_is_dropped_where_the_version_lacks_it() -> None:
    assert encode(0, {"throttle_time_ms": 5, "topic_id": b"i" * 16, "hint": "h"}) == encode(0, {})


def test_a_default_is_dropped_where_the_version_lacks_the_field() -> None:
    leader = {"id": -1}
    assert encode(0, {"leader_id": -1, "items": [], "sizes": (), "leader": leader}) == encode(0, {})
    assert encode(3, {"name": ""}) == encode(3, {})


@pytest.mark.parametrize(
    ("version", "value"),
    [
        (0, {"leader_id": 4}),
        (0, {"items": [{}]}),
        (0, {"items": None}),
        (0, {"sizes": [1]}),
        (2, {"leader": {"id": 1}}),
        (3, {"name": "x"}),
    ],
)
def test_a_value_that_would_be_lost_is_our_error(version: int, value: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError, match=f"field '{next(iter(value))}' is not in this version"):
        encode(version, value)


def test_a_key_of_no_version_is_our_error_and_the_known_ones_are_named() -> None:
    with pytest.raises(LocalProtocolError, match="no field 'error_code' in any version; fields: code, leader_id"):
        encode(1, {"error_code": 1})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"code": 40000}, "40000"),
        ({"code": None}, "None"),
        ({"sizes": "12"}, "sizes: a list is needed, not str"),
        ({"sizes": [2**31]}, "sizes: 2147483648 is no int32"),
        ({"items": {}}, "items: a list is needed, not dict"),
        ({"items": [3]}, "items: a mapping is needed, not int"),
        ({"items": [{"label": b"x"}]}, "items: label: a string is needed, not bytes"),
        ({"items": None}, "items: a list is needed, not NoneType"),
        ({"items": [{"label": None}]}, "items: label: a string is needed, not NoneType"),
    ],
)
def test_a_value_of_the_wrong_type_is_our_error_and_names_the_field(value: dict[str, Any], text: str) -> None:
    with pytest.raises(LocalProtocolError, match=text):
        encode(1, value)


def test_null_is_allowed_since_the_version_of_the_row() -> None:
    value = {"items": [{"label": None}]}
    assert decode(2, encode(2, value))["items"] == [{"number": 0, "label": None}]
    assert decode(2, encode(2, {"items": None}))["items"] is None
    with pytest.raises(RemoteProtocolError, match="null"):
        decode(1, b"\0\0" + b"\0" * 4 + b"\0\0" + b"\xff" * 4 + b"\0" * 4)


def test_tagged_fields_are_written_in_order_and_only_if_not_default() -> None:
    plain = encode(3, {})
    assert encode(3, {"leader": {"id": -1, "epoch": -1}, "hint": None, "features": []}) == plain
    tagged = encode(3, {"features": [], "leader": {"epoch": 9}, "hint": "hi"})
    assert tagged == plain[:-1] + b"\x02" + b"\x00\x03\x03hi" + b"\x02\x09" + b"\xff" * 4 + b"\0\0\0\x09" + b"\0"
    decoded = decode(3, tagged)
    assert decoded["hint"] == "hi" and decoded["leader"] == {"id": -1, "epoch": 9} and decoded["features"] == []


def test_unknown_tagged_fields_of_rows_with_a_fixed_size_are_skipped() -> None:
    """Rows without tagged fields are read at once, these one after the other."""
    rows = compile_fields(parse_fields(["offsets: []struct", "    index: int32"]), 0, True)
    plain, tagged = b"\0\0\0\x07" + b"\0", b"\0\0\0\x08" + b"\x01\x05\x02hi"
    for elements in ((plain, plain), (tagged, plain), (plain, tagged)):
        data = bytes([len(elements) + 1]) + b"".join(elements) + b"\0"
        expected = [{"index": element[3]} for element in elements]
        assert rows.read(data, 0) == ({"offsets": expected}, len(data))


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = encode(3, {})
    assert decode(3, plain[:-1] + b"\x02\x01\x02ab\xff\xff\x03\x00") == decode(3, plain)


@pytest.mark.parametrize(
    ("section", "text"),
    [
        (b"\x02\x01\x00\x01\x00", "tag 1 after tag 1"),
        (b"\x02\x07\x00\x01\x00", "tag 1 after tag 7"),
        (b"\xff\xff\xff\xff\x0f\x01\x00", "4294967295 tagged fields"),
        (b"\x01\x07\x05abc", "length of 5"),
        (b"\x01\x00\x03\x02hi", "takes 2 of its 3 bytes"),
        (b"\x01\x00\x01\x03hi", "length of 2"),
        (b"\x01\x02\x04\xff\xff\xff\xff", "inside a number"),
    ],
)
def test_a_malformed_tag_section_is_refused(section: bytes, text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        codec(3).read(encode(3, {})[:-1] + section, 0)


def read_traced(data: bytes, peaks: list[int]) -> None:
    tracemalloc.start()
    try:
        codec(3).read(data, 0)
    finally:
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


def test_a_count_larger_than_the_bytes_allow_is_refused_before_anything_is_allocated() -> None:
    head = b"\0\0" + b"\0" * 4 + b"\0" * 4 + bytes(16)
    peaks: list[int] = []
    for count in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f"):
        # `raises` compiles its pattern, and the pattern cache sometimes grows by 20 kB, which must not be counted.
        with pytest.raises(RemoteProtocolError, match="1000 bytes are left"):
            read_traced(head + count + b"\x01" * 1000, peaks)
    assert max(peaks) < 20_000


def test_the_count_check_knows_the_least_size_of_an_element() -> None:
    # Elements of `items` take at least 3 bytes in version 1: 4 elements need 12, and there are 11.
    data = b"\0\0" + b"\0" * 4 + b"\0\0" + b"\0\0\0\x04" + b"\0" * 11
    with pytest.raises(RemoteProtocolError, match="length of 4 at byte 12, 11 bytes are left"):
        codec(1).read(data, 0)


def test_memory_is_linear_in_the_message() -> None:
    peaks = []
    for count in (1000, 4000):
        data = encode(3, {"items": [{"number": 1, "label": "x"}] * count})
        tracemalloc.start()
        decode(3, data)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert 3 < peaks[1] / peaks[0] < 5


def test_elements_without_size_cannot_be_declared() -> None:
    with pytest.raises(LocalProtocolError, match="would not be bounded"):
        compile_fields(parse_fields(["holes: []struct", "    late: int8, 9+"]), 0, False)
