"""Record batches of format 2 in the broker: validation before an append, assigning offsets, control batches.

Parsing is implemented a second time on purpose: a mistake in `formats/records/` must not be repeated in its test
double. Only decompression is shared (`records.compression.decompress`, bounded).

The order of the checks decides which error a client sees, so it is Kafka's: the shape of the request's records, base
offset, size, checksum, counts and flags of the header, then every single record. One deliberate difference: Kafka
silently rewrites a compressed batch whose record offsets are not 0, 1, 2, ... and stores an uncompressed one as it is;
here both are INVALID_RECORD, because only a broken producer sends them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from kafka_sink.errors import KafkaSinkError
from kafka_sink.formats.records import compression
from kafka_sink.formats.records.scalar import encode_varint
from kafka_sink.testing.errors import Code, Refused

# What the checksum covers, besides the records; in the order of the fields of `Batch`.
CHECKED = struct.Struct(">hiqqqhii")
HEADER = struct.Struct(">qiibI" + CHECKED.format.removeprefix(">"))
HEADER_BYTES = HEADER.size
MAGIC_END = 17  # a log entry is recognised by its first 17 bytes: base offset, length, leader epoch, magic
LENGTH_END = 12
CRC_START = 21
LEGACY_OVERHEAD_BYTES = 14

LZ4, ZSTD = 3, 4
# Kafka's own lz4 reader supports only frames with independent blocks; other lz4 libraries read all frames.
LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_DICTIONARY_FLAGS = 0x03
LZ4_INDEPENDENT_BLOCKS = 0x20
CODECS = range(5)
CODEC_BITS = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
HORIZON_FLAG = 0x40
NO_TIMESTAMP = -1

# Limit of a decompressed batch; Kafka has no such limit, a test process needs one.
UNPACKED_BYTES_MAX = 1 << 30


class Batch(NamedTuple):
    """The header of one batch, and the batch's bytes."""

    data: bytes
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF if self.base_sequence >= 0 else -1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_BITS

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    def time_of(self, record: DecodedRecord) -> int:
        return self.max_timestamp_ms if self.has_append_time else record.timestamp_ms

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may remove the batch's tombstones, or its marker; stored in the base timestamp field."""
        return self.base_timestamp_ms if self.attributes & HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0


class Marker(NamedTuple):
    """The end of a transaction in a log."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """`raw` is the encoded record without its length, kept for compaction."""

    offset_delta: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    raw: bytes


def parse_batch(data: bytes) -> Batch:
    base_offset, _, leader_epoch, _, _, *checked = HEADER.unpack_from(data)
    return Batch(data, base_offset, leader_epoch, *checked)


def entry_sizes(data: bytes) -> Iterator[int]:
    """The sizes of the complete log entries at the start of `data`; an incomplete last one is silently ignored."""
    position = 0
    while len(data) - position >= LENGTH_END:
        length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if length < LEGACY_OVERHEAD_BYTES:
            raise Refused(Code.CORRUPT_MESSAGE, f"record size {length} is less than the minimum")
        if len(data) - position < MAGIC_END:
            return
        magic = data[position + 16]
        if magic > 2:
            raise Refused(Code.CORRUPT_MESSAGE, f"invalid magic {magic}")
        if LENGTH_END + length > len(data) - position:
            return
        yield LENGTH_END + length
        position += LENGTH_END + length


def split_batches(data: bytes) -> list[Batch]:
    """Splits bytes that are known to be whole batches, as in a log."""
    batches = []
    position = 0
    for size in entry_sizes(data):
        batches.append(parse_batch(data[position : position + size]))
        position += size
    return batches


def has_transactional_batch(records: bytes) -> bool:
    """Whether a request needs a transactional id; checked first, on unvalidated bytes."""
    try:
        size = next(entry_sizes(records), 0)
    except Refused:
        return False
    return size >= HEADER_BYTES and parse_batch(records).is_transactional


def sole_batch(records: bytes, request_version: int, codecs: Set[int]) -> bytes:
    """A produce request contains exactly one batch of format 2 per partition (ProduceRequest v3 and later)."""
    sizes = entry_sizes(records)
    size = next(sizes, None)
    if size is None:
        raise Refused(Code.INVALID_RECORD, "the produce request must contain exactly one record batch")
    if records[16] != 2:
        raise Refused(Code.INVALID_RECORD, "only record batches with magic version 2 are allowed")
    codec = parse_batch(records).codec if size >= HEADER_BYTES else 0
    if request_version < 7 and codec == ZSTD:
        raise Refused(Code.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs produce version 7")
    if next(sizes, None) is not None:
        raise Refused(Code.INVALID_RECORD, "the produce request must contain exactly one record batch")
    if codec not in codecs:
        raise Refused(Code.UNSUPPORTED_COMPRESSION_TYPE)
    return records[:size]


def check_batch(data: bytes, batch_bytes_max: int) -> Batch:
    """Everything that can be checked before decompression."""
    if len(data) < HEADER_BYTES:
        raise Refused(Code.CORRUPT_MESSAGE, "record is corrupt: shorter than a batch header")
    batch = parse_batch(data)
    if batch.base_offset != 0:
        raise Refused(Code.INVALID_RECORD, f"the base offset should be 0, but it is {batch.base_offset}")
    if len(data) > batch_bytes_max:
        raise Refused(Code.MESSAGE_TOO_LARGE, f"the batch has {len(data)} bytes, the limit is {batch_bytes_max}")
    if crc32c(data[CRC_START:]) != int.from_bytes(data[17:21], "big"):
        raise Refused(Code.CORRUPT_MESSAGE, "record is corrupt: checksum")
    if batch.codec not in CODECS:
        raise Refused(Code.UNKNOWN_SERVER_ERROR, f"unknown compression type id {batch.codec}")
    if batch.last_offset_delta < 0:
        raise Refused(Code.INVALID_RECORD, "the batch has an invalid offset range")
    if batch.record_count <= 0:
        raise Refused(Code.INVALID_RECORD, f"invalid reported count {batch.record_count}")
    if batch.last_offset_delta + 1 != batch.record_count:
        raise Refused(Code.INVALID_RECORD, "offset range and count of records differ")
    if batch.is_control:
        raise Refused(Code.INVALID_RECORD, "clients are not allowed to write control records")
    if batch.has_producer_id and batch.base_sequence < 0:
        raise Refused(Code.INVALID_RECORD, f"invalid sequence number {batch.base_sequence}")
    return batch


# ---- records ----


def decompress_records(batch: Batch) -> bytes:
    section = batch.data[HEADER_BYTES:]
    if batch.codec == 0:
        return section
    if batch.codec == LZ4 and section[:4] == LZ4_MAGIC and len(section) > 4:
        flags = section[4]
        if flags & LZ4_DICTIONARY_FLAGS or not flags & LZ4_INDEPENDENT_BLOCKS:
            raise Refused(Code.UNKNOWN_SERVER_ERROR, "lz4 blocks that depend on others are not supported")
    try:
        return bytes(compression.decompress(batch.codec, section, bytes_max=UNPACKED_BYTES_MAX))
    except KafkaSinkError as cause:
        # Exceptions of Kafka's codecs have no error code.
        raise Refused(Code.UNKNOWN_SERVER_ERROR, f"failed to decompress: {cause}") from None


def read_records(batch: Batch) -> list[DecodedRecord]:
    data = decompress_records(batch)
    records = []
    position = 0
    try:
        for _ in range(batch.record_count):
            length, start = _varint(data, position)
            position = start + length
            if length < 0 or position > len(data):
                raise IndexError
            records.append(_record(data, start, position, batch.base_timestamp_ms))
    except IndexError:
        raise Refused(Code.INVALID_RECORD, "a record ends behind the batch") from None
    if position != len(data):
        raise Refused(Code.INVALID_RECORD, "incorrect declared batch size, records still remaining")
    return records


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise Refused(Code.INVALID_RECORD, "varint is too long")


def _field(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _varint(data, position)
    if length < 0:
        return None, position
    return data[position : position + length], position + length


def _record(data: bytes, start: int, end: int, base_timestamp_ms: int) -> DecodedRecord:
    timestamp_delta, position = _varint(data, start + 1)
    offset_delta, position = _varint(data, position)
    key, position = _field(data, position)
    value, position = _field(data, position)
    header_count, position = _varint(data, position)
    if not 0 <= header_count <= end - start:
        raise Refused(Code.INVALID_RECORD, f"invalid number of headers {header_count}")
    headers = []
    for _ in range(header_count):
        name, position = _field(data, position)
        header, position = _field(data, position)
        if name is None:
            raise Refused(Code.INVALID_RECORD, "a header has no key")
        headers.append((name, header))
    if position != end:
        raise Refused(Code.INVALID_RECORD, f"invalid record size: {end - start} announced, {position - start} read")
    return DecodedRecord(offset_delta, base_timestamp_ms + timestamp_delta, key, value, tuple(headers), data[start:end])


# ---- writing ----


def stamp(batch: Batch, base_offset: int, leader_epoch: int, max_timestamp_ms: int, *, is_append_time: bool) -> Batch:
    """The batch as the log stores it."""
    attributes = batch.attributes & ~LOG_APPEND_TIME_FLAG | (LOG_APPEND_TIME_FLAG if is_append_time else 0)
    stored = batch._replace(
        base_offset=base_offset, leader_epoch=leader_epoch, attributes=attributes, max_timestamp_ms=max_timestamp_ms
    )
    return encode_batch(stored, batch.data[HEADER_BYTES:])


def encode_batch(batch: Batch, section: bytes) -> Batch:
    """The batch with the bytes of its header and of these records."""
    _, base_offset, leader_epoch, *checked = batch
    tail = CHECKED.pack(*checked) + section
    head = struct.pack(">qiibI", base_offset, len(tail) + 9, leader_epoch, 2, crc32c(tail))
    return batch._replace(data=head + tail)


def control_batch(marker: Marker, base_offset: int, leader_epoch: int, timestamp_ms: int) -> Batch:
    """The key is (version, type: 0 abort, 1 commit), the value (version, coordinator epoch)."""
    key = struct.pack(">hh", 0, 1 if marker.is_commit else 0)
    value = struct.pack(">hi", 0, marker.coordinator_epoch)
    body = b"\0\0\0" + encode_varint(len(key)) + key + encode_varint(len(value)) + value + b"\0"
    flags, producer = TRANSACTIONAL_FLAG | CONTROL_FLAG, (marker.producer_id, marker.producer_epoch)
    batch = Batch(b"", base_offset, leader_epoch, flags, 0, timestamp_ms, timestamp_ms, *producer, -1, 1)
    return encode_batch(batch, encode_varint(len(body)) + body)


def marker_of(batch: Batch) -> Marker:
    record = read_records(batch)[0]
    key, value = record.key or b"", record.value or b""
    coordinator_epoch = int.from_bytes(value[2:6], "big", signed=True)
    return Marker(batch.producer_id, batch.producer_epoch, key[2:4] == b"\0\x01", coordinator_epoch)
