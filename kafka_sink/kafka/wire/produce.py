"""A hand-written codec of Produce. The request is a list of buffers for one frame, with the batches by reference.

Copying the batches into one message would cost a pass over memory per request. Here all the small parts (header, names,
lengths, the 61-byte batch headers) are written into one array, and the result alternates between slices of that array
and the payloads. The part before the topics (`head`) is the same in all requests of a producer except for two numbers.

The response: nearly all have no error in any partition, which `read_acknowledgements` decodes in one pass. Anything
else is left to the generic rows of messages_data.py, which are the reference for both in tests.

Knows layouts only, not the content of batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error

from kafka_sink.errors import LocalProtocolError
from kafka_sink.frozen import frozen
from kafka_sink.kafka.wire.apis import PRODUCE
from kafka_sink.kafka.wire.frames import encode_request_header
from kafka_sink.kafka.wire.primitives import array_length_codec, string_codec, write_uvarint

Buffer = bytes | bytearray | memoryview
PartitionBatch = tuple[int, bytes, bytes]
"""Partition, the 61 bytes of the batch header, the records section."""
TopicBatches = tuple[str, "bytes | None", Sequence[PartitionBatch]]
"""Name, topic id (needed since version 13), batches."""

_INT32 = Struct(">i")
_ACKS_AND_TIMEOUT = Struct(">hi")
# Counts below this take one byte.
_SMALL_COUNT = 0x7F
# A constant: this is done for each request.
_FLEXIBLE = PRODUCE.flexible or 0
# After the length, the API key and the version.
_CORRELATION_ID_AT = 8
# A partition in a response: index, error code, base offset, append time, log start offset. Without an error there are
# no record errors, no message and no tagged fields after it.
_PARTITION = Struct(">ihqqq")
_NOTHING_ELSE = b"\x01\x00\x00"
_PARTITION_BYTES = _PARTITION.size + len(_NOTHING_ELSE)
_write_string = {flexible: string_codec(flexible, False).write for flexible in (False, True)}
_write_count = {flexible: array_length_codec(flexible).write for flexible in (False, True)}


def encode_produce_head(
    version: int, *, client_id: str | None, transactional_id: str | None, acks: int, timeout_ms: int
) -> bytes:
    """A request up to its topics; length and correlation id are 0."""
    if not PRODUCE.version_min <= version <= PRODUCE.version_max:
        raise LocalProtocolError(f"Produce v{version}: spoken are {PRODUCE.version_min} to {PRODUCE.version_max}")
    head = bytearray(_INT32.size)
    head += encode_request_header(PRODUCE, version, correlation_id=0, client_id=client_id)
    string_codec(version >= _FLEXIBLE, True).write(head, transactional_id)
    try:
        head += _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)
    except error as cause:
        raise LocalProtocolError(f"Produce request v{version}: {cause}") from None
    return bytes(head)


def encode_after_head(head: bytes, version: int, correlation_id: int, topics: Sequence[TopicBatches]) -> list[Buffer]:
    """The whole frame of a request that begins with `head`."""
    is_flexible = version >= _FLEXIBLE
    no_tags = b"\x00" if is_flexible else b""
    small = bytearray(head)
    payloads: list[bytes] = []
    cuts: list[int] = []
    payload_bytes = 0
    try:
        _INT32.pack_into(small, _CORRELATION_ID_AT, correlation_id)
        if is_flexible and len(topics) < _SMALL_COUNT:
            small.append(len(topics) + 1)
        else:
            _write_count[is_flexible](small, len(topics))
        for name, topic_id, batches in topics:
            if version < PRODUCE.topic_ids_since:
                _write_string[is_flexible](small, name)
            elif topic_id is not None:
                small += topic_id
            else:
                raise LocalProtocolError(f"Produce request v{version} names topics by id, and topic {name!r} has none")
            if is_flexible and len(batches) < _SMALL_COUNT:
                small.append(len(batches) + 1)
            else:
                _write_count[is_flexible](small, len(batches))
            for partition, header, payload in batches:
                size = len(payload)
                small += _INT32.pack(partition)
                if is_flexible:
                    write_uvarint(small, len(header) + size + 1)
                else:
                    small += _INT32.pack(len(header) + size)
                small += header
                cuts.append(len(small))
                payloads.append(payload)
                payload_bytes += size
                small += no_tags
            small += no_tags
        small += no_tags
        _INT32.pack_into(small, 0, len(small) - _INT32.size + payload_bytes)
    except error as cause:
        raise LocalProtocolError(f"Produce request v{version}: {cause}") from None
    # Alternates slices of the small parts and payloads.
    view = memoryview(small)
    buffers: list[Buffer] = []
    start = 0
    for cut, payload in zip(cuts, payloads, strict=True):
        buffers += (view[start:cut], payload)
        start = cut
    if start < len(view):
        buffers.append(view[start:])
    return buffers


@frozen
class Acknowledgements:
    """A response without errors: topic (its name, or its id since version 13), partition, base offset, append time."""

    throttle_time_ms: int
    partitions: list[tuple[str | bytes, int, int, int]]


def read_acknowledgements(version: int, frame: bytes, correlation_id: int) -> Acknowledgements | None:
    """None: the frame has errors, or may be invalid, and must be decoded by the rows."""
    if version < _FLEXIBLE:
        return None
    partitions: list[tuple[str | bytes, int, int, int]] = []
    try:
        # The header has no tagged fields, and the number of topics is a one-byte varint.
        if _INT32.unpack_from(frame)[0] != correlation_id or frame[4] or not 1 <= frame[5] < 0x80:
            return None
        position = 6
        for _ in range(frame[5] - 1):
            topic: str | bytes
            if version >= PRODUCE.topic_ids_since:
                start, position = position, position + 16
                topic = frame[start:position]
            else:
                start, position = position + 1, position + frame[position]
                if not start <= position < start + 0x7F:
                    return None
                topic = frame[start:position].decode()
            count = frame[position] - 1
            position += 1
            if count >= 0x7F:
                count, position = count - 0x80 + (frame[position] << 7), position + 1
                if frame[position - 1] >= 0x80:
                    return None
            for _ in range(count):
                index, error_code, base_offset, log_append_time_ms, _ = _PARTITION.unpack_from(frame, position)
                position += _PARTITION_BYTES
                if error_code or frame[position - len(_NOTHING_ELSE) : position] != _NOTHING_ELSE:
                    return None
                partitions.append((topic, index, base_offset, log_append_time_ms))
            if count < 0 or frame[position]:
                return None
            position += 1
        throttle_time_ms = _INT32.unpack_from(frame, position)[0]
        if frame[position + _INT32.size :] != b"\x00":
            return None
    except (error, IndexError, UnicodeDecodeError):
        return None
    return Acknowledgements(throttle_time_ms, partitions)
