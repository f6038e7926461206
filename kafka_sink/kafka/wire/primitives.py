"""Kafka's primitive types as codecs, pairs of functions: read from bytes at a position, append to a bytearray.

A reader gets bytes and a position and returns the value and the next position, or raises RemoteProtocolError; it checks
a length before it allocates for it. A writer raises LocalProtocolError for a value that does not fit. Strings, byte
arrays and arrays differ only in how their length is written: two or four bytes, or ("compact", in flexible versions,
KIP-482) an unsigned varint of the length plus one, with zero for null.

This module knows neither messages nor versions.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error
from typing import Any, NamedTuple

from kafka_sink.errors import LocalProtocolError, RemoteProtocolError

Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[bytearray, Any], None]


class Codec(NamedTuple):
    """`size_min` is the minimum size of a value, to check an array's count before anything is allocated."""

    read: Reader
    write: Writer
    size_min: int


# Format letters of `struct` for the types of fixed width that may share one pack call.
FIXED_FORMATS = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "float64": "d"}
DEFAULTS: dict[str, Any] = {
    "bool": False, "int8": 0, "int16": 0, "int32": 0, "int64": 0, "float64": 0.0,
    "uuid": bytes(16), "string": "", "bytes": b"", "records": None,
}  # fmt: skip

UVARINT_MAX = 0xFFFF_FFFF
# Java applies this limit to every string length, compact or not, so a longer one would be rejected.
STRING_BYTES_MAX = 0x7FFF


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    """At most five bytes; padded forms such as 80 00 are legal."""
    try:
        byte = data[position]
        if byte < 0x80:
            return byte, position + 1
        value = byte & 0x7F
        for shift in (7, 14, 21, 28):
            position += 1
            byte = data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > UVARINT_MAX:
                    break
                return value, position + 1
    except IndexError:
        raise RemoteProtocolError(f"ends inside a varint at byte {position}") from None
    raise RemoteProtocolError(f"a varint at byte {position} does not fit in 32 bits")


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _read_compact_length(data: bytes, position: int) -> tuple[int, int]:
    length, position = read_uvarint(data, position)
    return length - 1, position


def _write_compact_length(out: bytearray, length: int) -> None:
    write_uvarint(out, length + 1)


def _number_codec(primitive: str) -> Codec:
    packer = Struct(">" + FIXED_FORMATS[primitive])

    def read(data: bytes, position: int) -> tuple[Any, int]:
        try:
            return packer.unpack_from(data, position)[0], position + packer.size
        except error:
            raise RemoteProtocolError(f"ends inside a number at byte {position}") from None

    def write(out: bytearray, value: Any) -> None:
        try:
            out += packer.pack(value)
        except error:
            raise LocalProtocolError(f"{value!r} is no {primitive}") from None

    return Codec(read, write, packer.size)


_NUMBERS = {primitive: _number_codec(primitive) for primitive in FIXED_FORMATS}
_COMPACT_LENGTH = Codec(_read_compact_length, _write_compact_length, 1)


def array_length_codec(flexible: bool) -> Codec:
    return _COMPACT_LENGTH if flexible else _NUMBERS["int32"]


def length_error(length: int, data: bytes, position: int) -> RemoteProtocolError:
    if length == -1:
        return RemoteProtocolError(f"null at byte {position}, where null is not allowed")
    return RemoteProtocolError(f"a length of {length} at byte {position}, {len(data) - position} bytes are left")


def encode_string(value: Any) -> bytes:
    if not isinstance(value, str):
        raise LocalProtocolError(f"a string is needed, not {type(value).__name__}")
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise LocalProtocolError("the string holds a lone surrogate and has no UTF-8 form") from None
    if len(encoded) > STRING_BYTES_MAX:
        raise LocalProtocolError(f"the string has {len(encoded)} bytes, at most {STRING_BYTES_MAX} are allowed")
    return encoded


def string_codec(flexible: bool, nullable: bool) -> Codec:
    read_length, write_length, size_min = _COMPACT_LENGTH if flexible else _NUMBERS["int16"]

    def read(data: bytes, position: int) -> tuple[str | None, int]:
        length, position = read_length(data, position)
        end = position + length
        if not 0 <= length <= STRING_BYTES_MAX or end > len(data):
            if length == -1 and nullable:
                return None, position
            raise length_error(length, data, position)
        try:
            return data[position:end].decode(), end
        except UnicodeDecodeError:
            raise RemoteProtocolError(f"a string at byte {position} is not UTF-8") from None

    def write(out: bytearray, value: str | None) -> None:
        if value is None and nullable:
            write_length(out, -1)
            return
        encoded = encode_string(value)
        write_length(out, len(encoded))
        out += encoded

    return Codec(read, write, size_min)


def bytes_codec(flexible: bool, nullable: bool) -> Codec:
    read_length, write_length, size_min = array_length_codec(flexible)

    def read(data: bytes, position: int) -> tuple[bytes | None, int]:
        length, position = read_length(data, position)
        end = position + length
        if length < 0 or end > len(data):
            if length == -1 and nullable:
                return None, position
            raise length_error(length, data, position)
        return data[position:end], end

    def write(out: bytearray, value: bytes | bytearray | memoryview | None) -> None:
        if value is None and nullable:
            write_length(out, -1)
            return
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise LocalProtocolError(f"bytes are needed, not {type(value).__name__}")
        write_length(out, value.nbytes if isinstance(value, memoryview) else len(value))
        out += value

    return Codec(read, write, size_min)


def _read_uuid(data: bytes, position: int) -> tuple[bytes, int]:
    end = position + 16
    if end > len(data):
        raise length_error(16, data, position)
    return data[position:end], end


def _write_uuid(out: bytearray, value: bytes) -> None:
    if not isinstance(value, bytes) or len(value) != 16:
        raise LocalProtocolError("a uuid is needed, 16 bytes")
    out += value


_UUID = Codec(_read_uuid, _write_uuid, 16)


def primitive_codec(primitive: str, flexible: bool, nullable: bool) -> Codec:
    if primitive == "string":
        return string_codec(flexible, nullable)
    if primitive in ("bytes", "records"):
        return bytes_codec(flexible, nullable)
    return _UUID if primitive == "uuid" else _NUMBERS[primitive]
