"""Requests about one partition (append, fetch, offsets), and what their answers contain.

Fetched bytes are split into batches, decoded only as far as the driver needs: all headers, few contents. How far they
decompress is up to those who wrote them, so no answer is decoded as a whole.

To find the marker of a transaction, records of other producers must be skipped. They are not decoded, and their
checksum is verified only if a caller wants it, as the reader of a ledger does. A batch with a format before 2 cannot be
transactional and is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import RemoteProtocolError
from kafka_sink.formats.records import batch as layout
from kafka_sink.formats.records.scalar import (
    ABORT_MARKER,
    COMMIT_MARKER,
    Record,
    check_sum,
    control_type,
    decode_batch,
)
from kafka_sink.formats.records.skim import skim_batch
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.ask import Ask, Leader
from kafka_sink.kafka.wire.apis import FETCH, LIST_OFFSETS, PRODUCE
from kafka_sink.kafka.wire.codes import THROTTLING_QUOTA_EXCEEDED

EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FETCH_BYTES_MAX = 4 * 1024 * 1024
FETCH_WAIT_MS = 500
MARKER_BYTES_MAX = 64 * 1024
# What the records of one answer may take of memory, but for its last batch.
DECODED_BYTES_MAX = 64 * 1024 * 1024
RECORD_BYTES, HEADER_BYTES = 200, 100
ACKS_ALL = -1


class ControlMarker(NamedTuple):
    """Of another kind of control record neither is true."""

    is_commit_marker: bool
    is_abort_marker: bool


@frozen
class RawBatch:
    content: bytes
    next_offset: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    is_control: bool
    record_count: int
    checksum: int

    def check(self) -> None:
        """Of a batch with a format before 2, which has another checksum, nothing is known."""
        check_sum(self.content, self.checksum)

    def decode_marker(self) -> ControlMarker:
        found = list(skim_batch(self.content, lambda _: True, value_bytes_max=0, records_bytes_max=MARKER_BYTES_MAX))
        kind = control_type(found[0].key) if found else None
        return ControlMarker(is_commit_marker=kind == COMMIT_MARKER, is_abort_marker=kind == ABORT_MARKER)


class FetchedPartition(NamedTuple):
    error_code: int
    last_stable_offset: int
    high_watermark: int
    records: bytes
    # Of a READ_COMMITTED answer: producer ids and first offsets of the aborted transactions that overlap its records.
    aborted: tuple[tuple[int, int], ...] = ()


def raw_batches(records: bytes) -> Iterator[RawBatch]:
    """Whole batches only; a broker may cut off the last one."""
    position = 0
    while len(records) - position >= layout.HEADER_BYTES:
        base_offset, length, _, magic, checksum = layout.PREFIX.unpack_from(records, position)
        stop = position + layout.LENGTH_STARTS_AT + length
        if length < layout.HEADER_BYTES - layout.LENGTH_STARTS_AT and magic == layout.MAGIC:
            raise RemoteProtocolError(f"batch names a length of {length}")
        if stop > len(records) or stop <= position:
            return
        if magic == layout.MAGIC:
            attributes, last_offset_delta, _, _, producer_id, producer_epoch, _, record_count = (
                layout.CHECKED.unpack_from(records, position + layout.PREFIX.size)
            )
            if last_offset_delta < 0 or base_offset < 0:
                raise RemoteProtocolError(f"batch names offsets {base_offset} and {last_offset_delta}")
            yield RawBatch(
                content=records[position:stop],
                next_offset=base_offset + last_offset_delta + 1,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                is_transactional=bool(attributes & layout.TRANSACTIONAL_BIT),
                is_control=bool(attributes & layout.CONTROL_BIT),
                record_count=record_count,
                checksum=checksum,
            )
        else:
            # Formats 0 and 1: the offset of a message, or of the last one in a compressed set.
            yield RawBatch(records[position:stop], base_offset + 1, -1, -1, False, False, 1, checksum)
        position = stop


def committed_batches(records: bytes, aborted: Iterable[Mapping[str, Any]] | None) -> Iterator[RawBatch]:
    """What a read_committed consumer sees of fetched bytes: no batches of aborted transactions, no markers.

    `aborted` is the list in the fetch response: producer ids, and the first offset of each aborted transaction. It
    holds those that overlap the fetched range; each ends at its marker.
    """
    beginnings = sorted((row["first_offset"], row["producer_id"]) for row in aborted or ())
    aborting: set[int] = set()
    for batch in raw_batches(records):
        while beginnings and beginnings[0][0] < batch.next_offset:
            aborting.add(beginnings.pop(0)[1])
        if batch.is_control:
            if batch.decode_marker().is_abort_marker:
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            yield batch


def committed_records(
    records: bytes,
    aborted: Iterable[Mapping[str, Any]] | None,
    fetch_offset: int,
    decoded_bytes_max: int = DECODED_BYTES_MAX,
    *,
    keeps_own_time: bool = False,
) -> tuple[list[tuple[int, Record]], int]:
    """Records with their offsets, and the offset to fetch next (`fetch_offset` if there was no whole batch): after the
    batch with which they take more memory than `decoded_bytes_max`, or after the last one. They have the time that
    readers see, or, with `keeps_own_time`, that of their producer."""
    found: list[tuple[int, Record]] = []
    decoded_bytes = 0
    for batch in committed_batches(records, aborted):
        if batch.next_offset <= fetch_offset:
            continue
        decoded = decode_batch(batch.content)
        read_as = decoded.records if keeps_own_time else decoded.records_as_read
        found += [
            (offset, record) for offset, record in zip(decoded.offsets, read_as, strict=True) if offset >= fetch_offset
        ]
        decoded_bytes += sum(map(_memory_of, decoded.records))
        if decoded_bytes > decoded_bytes_max:
            return found, max(fetch_offset, batch.next_offset)
    return found, end_of_batches(records, fetch_offset)


def end_of_batches(records: bytes, fetch_offset: int) -> int:
    """The offset after the last whole batch."""
    return max([fetch_offset, *(batch.next_offset for batch in raw_batches(records))])


def _memory_of(record: Record) -> int:
    contents = len(record.key or b"") + len(record.value or b"")
    return RECORD_BYTES + contents + sum(HEADER_BYTES + len(name) + len(value or b"") for name, value in record.headers)


def append_ask(
    purpose: str,
    settings: DeliverySettings,
    log: Leader,
    records: bytes,
    *,
    transactional_id: str | None = None,
    version_min: int = 0,
    version_max: int = PRODUCE.last_by_name,
) -> Ask:
    """Appends one batch, acknowledged by all in-sync replicas."""
    body = {
        "transactional_id": transactional_id,
        "acks": ACKS_ALL,
        "timeout_ms": settings.request_timeout_ms,
        "topic_data": [{"name": log.topic, "partition_data": [{"index": log.partition, "records": records}]}],
    }
    return Ask(log, PRODUCE, body, purpose, version_min=version_min, version_max=version_max)


def fetch_ask(
    purpose: str,
    log: Leader,
    offset: int,
    wait_ms: int = FETCH_WAIT_MS,
    *,
    number: int = 0,
    isolation_level: int = READ_UNCOMMITTED,
    bytes_max: int | None = None,
) -> Ask:
    """`wait_ms`: how long a broker waits for records, well below any request timeout."""
    body = fetch_body(log.topic, log.partition, offset, isolation_level, wait_ms, bytes_max=bytes_max)
    return Ask(log, FETCH, body, purpose, number, version_max=FETCH.last_by_name)


def fetch_body(
    topic: str,
    partition: int,
    offset: int,
    isolation_level: int,
    wait_ms: int = FETCH_WAIT_MS,
    *,
    bytes_max: int | None = None,
) -> dict[str, Any]:
    bytes_max = FETCH_BYTES_MAX if bytes_max is None else bytes_max
    asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": bytes_max}
    return {
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "max_bytes": bytes_max,
        "isolation_level": isolation_level,
        "topics": [{"topic": topic, "partitions": [asked]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def offset_ask(purpose: str, log: Leader, timestamp: int, *, number: int = 0) -> Ask:
    body = offsets_body([log], timestamp, READ_UNCOMMITTED)
    return Ask(log, LIST_OFFSETS, body, purpose, number, version_min=LIST_OFFSETS.isolated_since)


def offsets_body(partitions: Iterable[tuple[str, int]], timestamp: int, isolation_level: int) -> dict[str, Any]:
    """LATEST is the last stable offset for READ_COMMITTED, below which every transaction has ended; otherwise the high
    watermark."""
    by_topic: dict[str, list[dict[str, int]]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append({"partition_index": partition, "timestamp": timestamp})
    topics = [{"name": topic, "partitions": asked} for topic, asked in by_topic.items()]
    return {"replica_id": -1, "isolation_level": isolation_level, "topics": topics}


def read_append_answer(body: Mapping[str, Any]) -> tuple[int, int]:
    """Error code and offset."""
    partition = only_partition(body["responses"], "partition_responses")
    return partition["error_code"], partition["base_offset"]


def read_fetch_answer(body: Mapping[str, Any]) -> FetchedPartition:
    """The one requested partition; a top-level error is returned as its error."""
    error_code = body.get("error_code", 0)
    if not error_code and not body["responses"] and body.get("throttle_time_ms", 0) > 0:
        # A client above its quota (consumer_byte_rate, request_percentage) gets an answer without partitions and
        # without an error. It contains nothing about the log. Other requests can return this code.
        error_code = THROTTLING_QUOTA_EXCEEDED
    if error_code:
        return FetchedPartition(error_code, -1, -1, b"")
    partition = only_partition(body["responses"])
    aborted = tuple((one["producer_id"], one["first_offset"]) for one in partition.get("aborted_transactions") or ())
    return FetchedPartition(
        partition["error_code"],
        partition["last_stable_offset"],
        partition["high_watermark"],
        bytes(partition["records"] or b""),
        aborted,
    )


def read_offset_answer(body: Mapping[str, Any]) -> tuple[int, int]:
    """Error code and offset."""
    partition = only_partition(body["topics"])
    return partition["error_code"], partition["offset"]


def only_partition(topics: Any, field: str = "partitions") -> Mapping[str, Any]:
    found: list[Mapping[str, Any]] = [partition for topic in topics for partition in topic[field]]
    if len(found) != 1:
        raise RemoteProtocolError(f"an answer about {len(found)} partitions to a question about one")
    return found[0]
