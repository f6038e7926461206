"""A second decoder of record batches, written from the description of the format; it shares no code with `records`.

The values of simulated records begin with the number of the record, in eight bytes; only that number is read.
"""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass

import lz4.frame

HEADER = struct.Struct(">qiibIhiqqqhii")
NUMBER = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Seen:
    """One batch as found in a request or in a log. `numbers` are those of its records; a marker has none."""

    base_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    marker: str | None
    numbers: tuple[int, ...]

    def sequence_of(self, index: int) -> int:
        return (self.base_sequence + index) & 0x7FFFFFFF


def read_batch(data: bytes) -> Seen:
    base_offset, _, _, magic, _, attributes, _, _, _, producer_id, epoch, sequence, count = HEADER.unpack_from(data)
    assert magic == 2, f"magic {magic}"
    body = _unpacked(attributes & 7, data[HEADER.size :])
    values = _values(body, count)
    marker = None
    if attributes & 0x20:
        marker = "commit" if values[0][0][3] == 1 else "abort"
    numbers = () if marker else tuple(NUMBER.unpack_from(value)[0] for _, value in values)
    return Seen(base_offset, producer_id, epoch, sequence, bool(attributes & 0x10), marker, numbers)


def _unpacked(codec: int, body: bytes) -> bytes:
    if codec == 0:
        return body
    if codec == 1:
        return gzip.decompress(body)
    assert codec == 3, f"codec {codec} is not used here"
    unpacked: bytes = lz4.frame.decompress(body)  # type: ignore[attr-defined]  # our stubs know only writing
    return unpacked


def _values(body: bytes, count: int) -> list[tuple[bytes, bytes]]:
    found = []
    at = 0
    for _ in range(count):
        length, at = _varint(body, at)
        end = at + length
        at += 1  # attributes
        _, at = _varint(body, at)
        _, at = _varint(body, at)
        key, at = _bytes(body, at)
        value, at = _bytes(body, at)
        found.append((key, value))
        at = end
    assert at == len(body), "bytes after the last record"
    return found


def _bytes(body: bytes, at: int) -> tuple[bytes, int]:
    length, at = _varint(body, at)
    return (b"", at) if length < 0 else (body[at : at + length], at + length)


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
