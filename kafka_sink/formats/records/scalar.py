"""The slow, obvious encoder and decoder of record batches, one record at a time.

It is the reference for the tests of the column encoder, the reader of small topics (ledgers, tests, the embedded
broker), and splits batches that a broker rejected as too large. It is never used for an ordinary row.

Its input is untrusted: every function that takes bytes raises only `RemoteProtocolError`, and allocates no more than
its input (or the given limit after decompression) allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka_sink.errors import RemoteProtocolError
from kafka_sink.formats.records import batch as layout
from kafka_sink.formats.records.batch import EncodedBatch
from kafka_sink.formats.records.checksum import crc32c
from kafka_sink.formats.records.compression import Compressor, decompress
from kafka_sink.frozen import frozen

Headers = tuple[tuple[str, bytes | None], ...]
# Spark's texts, and so the names of headers, may hold bytes that are not UTF-8. They are kept as surrogates.
_NAME_ERRORS = "surrogateescape"
# A fetched batch is at most what a broker accepts, a few megabytes; decompressed it may be far larger. A record takes
# 200 bytes of memory, however few it has.
RECORDS_BYTES_MAX = 128 * 1024 * 1024
RECORDS_MAX = 1_000_000
# Of all records of a batch. A header takes two bytes in it, and a hundred of memory.
HEADERS_MAX = 2_000_000
INT32_MAX = 2**31 - 1
ABORT_MARKER, COMMIT_MARKER = 0, 1


@frozen
class Record:
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@frozen
class DecodedBatch:
    """A batch with its header. `records[i]` has the offset `offsets[i]`; compaction leaves gaps."""

    base_offset: int
    codec: int
    is_transactional: bool
    is_control: bool
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    offsets: tuple[int, ...]
    records: tuple[Record, ...]
    # The topic has message.timestamp.type=LogAppendTime: every record was appended at `max_timestamp_ms`. The records
    # keep the time that their producer gave them.
    is_append_time: bool = False

    @property
    def records_as_read(self) -> tuple[Record, ...]:
        """With the timestamps that consumers tell."""
        if not self.is_append_time:
            return self.records
        return tuple(Record(self.max_timestamp_ms, one.key, one.value, one.headers) for one in self.records)

    @property
    def is_commit_marker(self) -> bool:
        """For a control batch: whether it is a commit marker (else an abort marker, or neither)."""
        return self._control_type() == COMMIT_MARKER

    @property
    def is_abort_marker(self) -> bool:
        return self._control_type() == ABORT_MARKER

    def _control_type(self) -> int | None:
        return control_type(self.records[0].key) if self.is_control and self.records else None


def control_type(key: bytes | None) -> int | None:
    """Of a control record: version int16, type int16."""
    return int.from_bytes(key[2:4], "big", signed=True) if key is not None and len(key) >= 4 else None


# ---- encoding --------------------------------------------------------------------------------------------------


def zigzag_number(value: int) -> int:
    """0, -1, 1, -2 as 0, 1, 2, 3; for 32-bit and 64-bit values."""
    return (value << 1) ^ (value >> 63)


def encode_unsigned_varint(unsigned: int) -> bytes:
    """7 bits per byte, lowest first."""
    encoded = bytearray()
    while unsigned > 0x7F:
        encoded.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    encoded.append(unsigned)
    return bytes(encoded)


def encode_varint(value: int) -> bytes:
    return encode_unsigned_varint(zigzag_number(value))


def encode_nullable(content: bytes | None) -> bytes:
    return encode_varint(-1) if content is None else encode_varint(len(content)) + content


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    parts = [encode_varint(len(headers))]
    for key, value in headers:
        parts.append(encode_nullable(key.encode(errors=_NAME_ERRORS)))
        parts.append(encode_nullable(value))
    return b"".join(parts)


def encode_record(record: Record, *, base_timestamp_ms: int, offset_delta: int) -> bytes:
    body = b"".join(
        (
            b"\x00",
            encode_varint(record.timestamp_ms - base_timestamp_ms),
            encode_varint(offset_delta),
            encode_nullable(record.key),
            encode_nullable(record.value),
            encode_headers(record.headers),
        )
    )
    return encode_varint(len(body)) + body


def encode_records(records: Sequence[Record], base_timestamp_ms: int) -> bytes:
    return b"".join(
        encode_record(record, base_timestamp_ms=base_timestamp_ms, offset_delta=index)
        for index, record in enumerate(records)
    )


def encode_batch(records: Sequence[Record], codec: Compressor) -> EncodedBatch:
    """Encodes all `records`, at least one, as one batch."""
    base_timestamp_ms = records[0].timestamp_ms
    content = encode_records(records, base_timestamp_ms)
    codec_id, payload = codec.pack(content)
    return EncodedBatch(
        codec=codec_id,
        payload=payload,
        record_count=len(records),
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max(record.timestamp_ms for record in records),
        records_bytes=len(content),
    )


# ---- decoding --------------------------------------------------------------------------------------------------


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    @property
    def remaining(self) -> int:
        return len(self.data) - self.position

    def read_varint(self, bits: int) -> int:
        unsigned = self.read_unsigned_varint(bits)
        return (unsigned >> 1) ^ -(unsigned & 1)

    def read_unsigned_varint(self, bits: int) -> int:
        unsigned = shift = 0
        while True:
            if self.position >= len(self.data):
                raise RemoteProtocolError("record ends within a varint")
            byte = self.data[self.position]
            self.position += 1
            unsigned |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > bits:
                raise RemoteProtocolError(f"varint is longer than {bits} bits allow")
        if unsigned >> bits:
            raise RemoteProtocolError(f"varint is larger than {bits} bits")
        return unsigned

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.remaining:
            raise RemoteProtocolError(f"record names {size} bytes where {self.remaining} are left")
        start = self.position
        self.position += size
        return self.data[start : self.position]

    def read_nullable(self) -> bytes | None:
        size = self.read_varint(32)
        return None if size == -1 else self.take(size)

    def read_headers(self, headers_max: int) -> Headers:
        count = self.read_varint(32)
        if count > headers_max:
            raise RemoteProtocolError(f"record names {count} headers, and at most {headers_max} more are read")
        # Each header takes two bytes at least.
        if not 0 <= count <= self.remaining // 2:
            raise RemoteProtocolError(f"record names {count} headers in {self.remaining} bytes")
        headers = []
        for _ in range(count):
            name = self.take(self.read_varint(32)).decode(errors=_NAME_ERRORS)
            headers.append((name, self.read_nullable()))
        return tuple(headers)


def decode_records(
    content: bytes, count: int, base_timestamp_ms: int, headers_max: int = INT32_MAX
) -> list[tuple[int, Record]]:
    """The uncompressed records section as (offset delta, record)."""
    if not 0 <= count <= len(content) // layout.RECORD_BYTES_MIN:
        raise RemoteProtocolError(f"batch names {count} records in {len(content)} bytes")
    section = Reader(content)
    headers_left = headers_max
    decoded = []
    for _ in range(count):
        reader = Reader(section.take(section.read_varint(32)))
        reader.take(1)  # attributes: unused
        timestamp_ms = base_timestamp_ms + reader.read_varint(64)
        offset_delta = reader.read_varint(32)
        key, value, headers = reader.read_nullable(), reader.read_nullable(), reader.read_headers(headers_left)
        record = Record(timestamp_ms, key, value, headers)
        headers_left -= len(headers)
        if reader.remaining:
            raise RemoteProtocolError(f"record is followed by {reader.remaining} bytes that belong to nothing")
        decoded.append((offset_delta, record))
    if section.remaining:
        raise RemoteProtocolError(f"batch is followed by {section.remaining} bytes that belong to nothing")
    return decoded


def decode_batch(data: bytes, *, records_bytes_max: int = RECORDS_BYTES_MAX) -> DecodedBatch:
    """Exactly one whole batch with its header."""
    header = read_header(data, RECORDS_MAX)
    codec = header.attributes & layout.CODEC_MASK
    content = decompress(codec, memoryview(data)[layout.HEADER_BYTES :], bytes_max=records_bytes_max)
    decoded = decode_records(content, header.record_count, header.base_timestamp_ms, HEADERS_MAX)
    return DecodedBatch(
        base_offset=header.base_offset,
        codec=codec,
        is_transactional=bool(header.attributes & layout.TRANSACTIONAL_BIT),
        is_control=bool(header.attributes & layout.CONTROL_BIT),
        last_offset_delta=header.last_offset_delta,
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        offsets=tuple(header.base_offset + offset_delta for offset_delta, _ in decoded),
        records=tuple(record for _, record in decoded),
        is_append_time=bool(header.attributes & layout.APPEND_TIME_BIT),
    )


class BatchHeader(NamedTuple):
    base_offset: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def read_header(data: bytes, records_max: int) -> BatchHeader:
    """Of one whole batch, whose checksum is compared."""
    if len(data) < layout.HEADER_BYTES:
        raise RemoteProtocolError(f"batch of {len(data)} bytes is shorter than its header")
    base_offset, length, _, magic, checksum = layout.PREFIX.unpack_from(data)
    if magic != layout.MAGIC:
        raise RemoteProtocolError(f"batch has magic {magic}; only {layout.MAGIC} is read")
    if length != len(data) - layout.LENGTH_STARTS_AT:
        raise RemoteProtocolError(f"batch names a length of {length} in {len(data)} bytes")
    check_sum(data, checksum)
    header = BatchHeader(base_offset, *layout.CHECKED.unpack_from(data, layout.PREFIX.size))
    if header.record_count > records_max:
        raise RemoteProtocolError(f"batch names {header.record_count} records, and at most {records_max} are read")
    return header


def check_sum(data: bytes, checksum: int) -> None:
    if crc32c(memoryview(data)[layout.PREFIX.size :]) != checksum:
        raise RemoteProtocolError("batch has a wrong checksum")


# ---- splitting -------------------------------------------------------------------------------------------------


def split(encoded: EncodedBatch, codec: Compressor, part_bytes_max: int | None = None) -> list[EncodedBatch]:
    """The same records in parts of so many bytes before compression (None: half of them) or, if a record is larger than
    that, of one record."""
    if part_bytes_max is None:
        part_bytes_max = encoded.records_bytes // 2
    content = decompress(encoded.codec, encoded.payload, bytes_max=encoded.records_bytes)
    parts: list[list[Record]] = [[]]
    part_bytes = 0
    for _, record in decode_records(content, encoded.record_count, encoded.base_timestamp_ms):
        base_timestamp_ms = (parts[-1] or [record])[0].timestamp_ms  # a part has its own
        size = len(encode_record(record, base_timestamp_ms=base_timestamp_ms, offset_delta=len(parts[-1])))
        if parts[-1] and part_bytes + size > part_bytes_max:
            parts.append([])
            part_bytes = 0
        parts[-1].append(record)
        part_bytes += size
    return [encode_batch(part, codec) for part in parts]
