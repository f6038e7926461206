"""Reads keys, and the beginnings of values, of a batch that others may have written.

What is not asked for is passed over while the batch is decompressed, and never held: foreign records of any size and
number cost time only, and are limited only if a caller wants it. Raises only `RemoteProtocolError`, as scalar.py does.

Most batches of a ledger hold one record, uncompressed. It is read in place, which takes a fraction of the time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafka_sink.errors import RemoteProtocolError
from kafka_sink.formats.records import batch as layout
from kafka_sink.formats.records.compression import NONE, decompressed_parts
from kafka_sink.formats.records.scalar import INT32_MAX, Reader, read_header

# A record with a longer key is passed over.
KEY_BYTES_MAX = 64 * 1024
_VARINT_BYTES_MAX = 10
# The last byte of a varint is not larger.
_LAST_BYTE_MAX = 0x7F


class Skimmed(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


def skim_batch(
    data: bytes,
    is_wanted: Callable[[bytes | None], bool],
    *,
    value_bytes_max: int,
    records_bytes_max: int = sys.maxsize,
    records_max: int = INT32_MAX,
) -> Iterator[Skimmed]:
    """The records of one whole batch whose key is wanted, each with at most `value_bytes_max` bytes of its value. What
    follows a record is looked at when the next one is asked for."""
    header = read_header(data, records_max)
    codec = header.attributes & layout.CODEC_MASK
    if header.record_count == 1 and codec == NONE and len(data) - layout.HEADER_BYTES <= records_bytes_max:
        only = _find_only(data)
        if only is not None:
            if is_wanted(only.key):
                yield Skimmed(header.base_offset + only.offset_delta, only.key, only.value_of(data, value_bytes_max))
            return
    section = _Section(decompressed_parts(codec, memoryview(data)[layout.HEADER_BYTES :], bytes_max=records_bytes_max))
    for _ in range(header.record_count):
        size = section.read_varint(32)
        section.begin_record(size)
        section.skip(1)  # attributes: unused
        section.read_varint(64)
        offset_delta = section.read_varint(32)
        key_bytes = section.read_varint(32)
        if key_bytes <= KEY_BYTES_MAX:
            key = section.take_beginning(key_bytes, KEY_BYTES_MAX)
            if is_wanted(key):
                value = section.take_beginning(section.read_varint(32), value_bytes_max)
                yield Skimmed(header.base_offset + offset_delta, key, value)
        section.end_record()
    section.end()


class _Only(NamedTuple):
    offset_delta: int
    key: bytes | None
    value_start: int
    value_bytes: int

    def value_of(self, data: bytes, bytes_max: int) -> bytes | None:
        start, size = self.value_start, min(self.value_bytes, bytes_max)
        return None if self.value_bytes == -1 else data[start : start + size]


class _Unusual(Exception):
    pass


def _find_only(data: bytes) -> _Only | None:
    """The record of an uncompressed batch of one. None: a number takes more bytes than usual, or a size is wrong; the
    slow way tells what is in the batch."""
    try:
        size, start = _read_short(data, layout.HEADER_BYTES)
        _, start_of_delta = _read_short(data, start + 1)  # after the attributes: its time
        offset_delta, start_of_key = _read_short(data, start_of_delta)
        key, at = _read_key(data, start_of_key)
        value_bytes, value_start = _read_short(data, at)
    except (IndexError, _Unusual):
        return None
    is_whole = start + size == len(data) and -1 <= value_bytes <= len(data) - value_start
    return _Only(offset_delta, key, value_start, value_bytes) if is_whole else None


def _read_key(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, start = _read_short(data, position)
    if size < -1:
        raise _Unusual
    return (None, start) if size == -1 else (data[start : start + size], start + size)


def _read_short(data: bytes, position: int) -> tuple[int, int]:
    """A varint of at most two bytes, and where it ends."""
    unsigned = data[position]
    if unsigned > _LAST_BYTE_MAX:
        position += 1
        last = data[position]
        if last > _LAST_BYTE_MAX:
            raise _Unusual
        unsigned = unsigned & _LAST_BYTE_MAX | last << 7
    return (unsigned >> 1) ^ -(unsigned & 1), position + 1


class _Section(Reader):
    """The records of a batch, whose bytes come part by part: `data` is what is held of them."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        super().__init__(b"")
        self._parts = parts
        # Bytes that were held before, and where the record ends.
        self._passed = 0
        self._record_end = 0

    def begin_record(self, size: int) -> None:
        self._record_end = self._at + size

    def end_record(self) -> None:
        self.skip(self._record_end - self._at)

    def take_beginning(self, size: int, size_max: int) -> bytes | None:
        if size == -1:
            return None
        if not 0 <= size <= self._record_end - self._at:
            raise RemoteProtocolError(f"record names {size} bytes where {self._record_end - self._at} are left")
        return self.take(min(size, size_max))

    def read_unsigned_varint(self, bits: int) -> int:
        self._hold(_VARINT_BYTES_MAX)
        return super().read_unsigned_varint(bits)

    def take(self, size: int) -> bytes:
        self._hold(size)
        return super().take(size)

    def skip(self, size: int) -> None:
        if size < 0:
            raise RemoteProtocolError(f"record is {-size} bytes longer than it says")
        while size > self.remaining:
            size -= self.remaining
            if not self._advance(b""):
                raise RemoteProtocolError(f"batch ends {size} bytes before its last record")
        self.position += size

    def end(self) -> None:
        self._hold(1)
        if self.remaining:
            raise RemoteProtocolError("batch is followed by bytes that belong to nothing")

    @property
    def _at(self) -> int:
        return self._passed + self.position

    def _hold(self, size: int) -> None:
        """Fewer only where the parts end."""
        while self.remaining < size and self._advance(self.data[self.position :]):
            pass

    def _advance(self, kept: bytes) -> bool:
        part = next(self._parts, None)
        if part is None:
            return False
        self._passed += len(self.data) - len(kept)
        self.data, self.position = kept + part, 0
        return True
