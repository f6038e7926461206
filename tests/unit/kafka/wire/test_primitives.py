"""Primitive readers and writers at their limits."""

from __future__ import annotations

import pytest

from kafka_sink.errors import LocalProtocolError, RemoteProtocolError
from kafka_sink.kafka.wire.primitives import (
    array_length_codec,
    bytes_codec,
    primitive_codec,
    read_uvarint,
    string_codec,
    write_uvarint,
)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**21, 2**28, 2**31 - 1, 2**32 - 1])
def test_a_varint_is_read_back(value: int) -> None:
    out = bytearray(b"x")
    write_uvarint(out, value)
    assert read_uvarint(bytes(out), 1) == (value, len(out))
    with pytest.raises(RemoteProtocolError, match="inside a varint"):
        read_uvarint(bytes(out[:-1]), 1)


def test_a_padded_varint_is_read() -> None:
    assert read_uvarint(b"\x81\x80\x80\x80\x00", 0) == (1, 5)


@pytest.mark.parametrize("data", [b"\xff" * 5, b"\x80" * 6, b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00"])
def test_a_varint_of_more_than_32_bits_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="32 bits"):
        read_uvarint(data, 0)


@pytest.mark.parametrize("flexible", [False, True])
def test_null_is_read_only_where_it_is_allowed(flexible: bool) -> None:
    null = b"\0" if flexible else b"\xff\xff"
    assert string_codec(flexible, True)[0](null, 0) == (None, len(null))
    with pytest.raises(RemoteProtocolError, match="null"):
        string_codec(flexible, False)[0](null, 0)
    null = b"\0" if flexible else b"\xff\xff\xff\xff"
    assert bytes_codec(flexible, True)[0](null, 0) == (None, len(null))
    with pytest.raises(RemoteProtocolError, match="null"):
        bytes_codec(flexible, False)[0](null, 0)


@pytest.mark.parametrize("flexible", [False, True])
def test_null_is_written_only_where_it_is_allowed(flexible: bool) -> None:
    for codec in (string_codec, bytes_codec):
        out = bytearray()
        codec(flexible, True)[1](out, None)
        assert codec(flexible, True)[0](bytes(out), 0) == (None, len(out))
        with pytest.raises(LocalProtocolError, match="needed, not NoneType"):
            codec(flexible, False)[1](out, None)


def test_a_negative_length_other_than_null_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="length of -2"):
        string_codec(False, True)[0](b"\xff\xfe", 0)
    with pytest.raises(RemoteProtocolError, match="length of -2"):
        bytes_codec(False, True)[0](b"\xff\xff\xff\xfe", 0)


def test_a_length_beyond_the_end_is_refused_with_both_sizes() -> None:
    with pytest.raises(RemoteProtocolError, match="length of 2147483647 at byte 4, 1 bytes are left"):
        bytes_codec(False, False)[0](b"\x7f\xff\xff\xffx", 0)


def test_a_string_that_is_not_utf8_is_refused() -> None:
    for data in (b"\x00\x01\xff", b"\x00\x03\xed\xa0\x80", b"\x00\x02\xc0\x80"):
        with pytest.raises(RemoteProtocolError, match="not UTF-8"):
            string_codec(False, False)[0](data, 0)


@pytest.mark.parametrize("flexible", [False, True])
def test_a_string_has_the_same_limit_in_both_directions(flexible: bool) -> None:
    read, write, _ = string_codec(flexible, False)
    out = bytearray()
    write(out, "x" * 32767)
    assert read(bytes(out), 0) == ("x" * 32767, len(out))
    with pytest.raises(LocalProtocolError, match="32768 bytes, at most 32767"):
        write(out, "ü" * 16384)
    if flexible:
        too_long = bytearray()
        write_uvarint(too_long, 32768 + 1)
        with pytest.raises(RemoteProtocolError, match="length of 32768"):
            read(bytes(too_long) + b"x" * 32768, 0)


def test_a_lone_surrogate_is_our_error() -> None:
    with pytest.raises(LocalProtocolError, match="lone surrogate"):
        string_codec(True, False)[1](bytearray(), "\ud800")


def test_bytes_are_written_from_any_buffer() -> None:
    read, write, _ = bytes_codec(True, False)
    for value in (b"abc", bytearray(b"abc"), memoryview(b"abc")):
        out = bytearray()
        write(out, value)
        assert read(bytes(out), 0) == (b"abc", 4)
    with pytest.raises(LocalProtocolError, match="bytes are needed, not str"):
        write(bytearray(), "abc")


@pytest.mark.parametrize(("primitive", "wrong"), [("int8", 128), ("int16", 40000), ("int32", 2**31), ("int64", "1")])
def test_a_number_that_does_not_fit_is_our_error(primitive: str, wrong: object) -> None:
    with pytest.raises(LocalProtocolError, match=primitive):
        primitive_codec(primitive, False, False)[1](bytearray(), wrong)


@pytest.mark.parametrize("wrong", [b"", bytes(15), bytes(17), "x" * 16, None])
def test_a_uuid_has_sixteen_bytes(wrong: object) -> None:
    with pytest.raises(LocalProtocolError, match="16 bytes"):
        primitive_codec("uuid", False, False)[1](bytearray(), wrong)
    with pytest.raises(RemoteProtocolError, match="15 bytes are left"):
        primitive_codec("uuid", False, False)[0](bytes(15), 0)


@pytest.mark.parametrize("primitive", ["bool", "int8", "int16", "int32", "int64", "uuid", "string", "bytes", "records"])
@pytest.mark.parametrize("flexible", [False, True])
def test_the_least_size_is_that_of_the_default(primitive: str, flexible: bool) -> None:
    read, write, size_min = primitive_codec(primitive, flexible, True)
    out = bytearray()
    value = {"string": "", "bytes": b"", "records": b"", "uuid": bytes(16), "bool": False}.get(primitive, 0)
    write(out, value)
    assert len(out) == size_min
    assert read(bytes(out), 0) == (value, len(out))


def test_an_array_length_ends_with_the_data() -> None:
    for data in (b"", b"\0\0\0"):
        with pytest.raises(RemoteProtocolError, match="inside a number"):
            array_length_codec(False)[0](data, 0)
        with pytest.raises(RemoteProtocolError, match="inside a number"):
            string_codec(False, False)[0](data[:1], 0)
