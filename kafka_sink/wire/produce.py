"""The Produce request by hand: a list of buffers that is one whole frame, with the batches in it by reference.

Copying the batches into one message would cost a pass over memory per request. Here all the small parts (header, names,
lengths, the 61-byte batch headers) are written into one array, and the result alternates between slices of that array
and the payloads. The generic rows of apis_produce.py are the slow twin that the tests compare with.

Knows layouts only, not what is in a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error

from kafka_sink.errors import LocalProtocolError
from kafka_sink.wire.apis_produce import PRODUCE
from kafka_sink.wire.frames import encode_request_header
from kafka_sink.wire.primitives import array_length, string_codec

Buffer = bytes | bytearray | memoryview
PartitionBatch = tuple[int, bytes, Buffer]
"""Partition, the 61 bytes of the batch header, the records section."""
TopicBatches = tuple[str, "bytes | None", Sequence[PartitionBatch]]
"""Name, topic id (needed since version 13), batches."""

_INT32 = Struct(">i")
_ACKS_AND_TIMEOUT = Struct(">hi")
_TOPIC_ID_SINCE = 13
_write_string = {flexible: string_codec(flexible, False)[1] for flexible in (False, True)}


def encode_produce(
    version: int,
    *,
    correlation_id: int,
    client_id: str | None,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Sequence[TopicBatches],
) -> list[Buffer]:
    if not PRODUCE.version_min <= version <= PRODUCE.version_max:
        raise LocalProtocolError(f"Produce v{version}: spoken are {PRODUCE.version_min} to {PRODUCE.version_max}")
    flexible = PRODUCE.is_flexible(version)
    write_count = array_length(flexible)[1]
    small = bytearray(_INT32.size)
    small += encode_request_header(PRODUCE, version, correlation_id=correlation_id, client_id=client_id)
    string_codec(flexible, True)[1](small, transactional_id)
    payloads: list[Buffer] = []
    cuts: list[int] = []
    payload_bytes = 0
    try:
        small += _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)
        write_count(small, len(topics))
        for name, topic_id, batches in topics:
            _write_topic(small, version, flexible, name, topic_id)
            write_count(small, len(batches))
            for partition, header, payload in batches:
                size = payload.nbytes if isinstance(payload, memoryview) else len(payload)
                small += _INT32.pack(partition)
                write_count(small, len(header) + size)
                small += header
                cuts.append(len(small))
                payloads.append(payload)
                payload_bytes += size
                if flexible:
                    small.append(0)
            if flexible:
                small.append(0)
        if flexible:
            small.append(0)
        _INT32.pack_into(small, 0, len(small) - _INT32.size + payload_bytes)
    except error as cause:
        raise LocalProtocolError(f"Produce request v{version}: {cause}") from None
    return _interleave(small, cuts, payloads)


def _write_topic(small: bytearray, version: int, flexible: bool, name: str, topic_id: bytes | None) -> None:
    if version < _TOPIC_ID_SINCE:
        _write_string[flexible](small, name)
        return
    if topic_id is None or len(topic_id) != 16:
        raise LocalProtocolError(f"Produce request v{version} names topics by id, and topic {name!r} has none")
    small += topic_id


def _interleave(small: bytearray, cuts: Sequence[int], payloads: Sequence[Buffer]) -> list[Buffer]:
    view = memoryview(small)
    buffers: list[Buffer] = []
    start = 0
    for cut, payload in zip(cuts, payloads, strict=True):
        buffers += (view[start:cut], payload)
        start = cut
    if start < len(view):
        buffers.append(view[start:])
    return buffers
