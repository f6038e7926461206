"""The log of one partition: batches with offsets, high watermark, last stable offset, aborted transactions.

There is one log per partition, not one per replica: the replicas have the part below the high watermark, and the rest
is lost if the leader dies (`truncate`). The last stable offset is the lowest first offset of a transaction that is
open, or ended by a marker that is not replicated yet; readers with read_committed stop there and get the aborted
transactions that overlap the fetched range.

Producer state is a function of the batches: it is rebuilt from them after a truncation and after a restart.

A new segment begins when the old one would be larger than `segment.bytes` or older than `segment.ms`, and with `roll`.
One read ends where the segment ends, as in Kafka: what a reader gets may end far below the last stable offset that it
is told. With `segment.ms` 0 every batch is old enough to be compacted, and readers do not notice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from kafka_sink.testing.batches import (
    NO_TIMESTAMP,
    Batch,
    DecodedRecord,
    Marker,
    control_batch,
    marker_of,
    read_records,
    stamp,
)
from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.producer_state import Guard, ProducerStates
from kafka_sink.testing.settings import TopicConfig


class CommittedRecord(NamedTuple):
    """A record as a consumer sees it. `headers` may contain a name more than once."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """`last_offset` is the offset of the abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Appended:
    """`base_offset` of the batch, or of the earlier one that it duplicates; `end_offset` is after it."""

    base_offset: int
    end_offset: int
    append_time_ms: int
    is_duplicate: bool


class PartitionLog:
    """`end_offset` is the offset of the next record."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.producers = ProducerStates()
        self.aborted: list[AbortedTransaction] = []
        # Transactions that have ended, as (first offset, offset of the marker), until the marker is replicated.
        self._ended: list[tuple[int, int]] = []
        # Everything below was compacted at least once.
        self.cleaned_offset = 0
        # First offsets of all segments but the oldest; size and first timestamp of the active one.
        self.segments: list[int] = []
        self._segment_bytes = 0
        self._segment_began_ms = 0
        # For the storage: how often the batches were replaced as a whole, and how many were appended since.
        self.rewrites = 0
        self.appended_count = 0

    # ---- writing ----

    def append(
        self, batch: Batch, config: TopicConfig, *, leader_epoch: int, now_ms: int, guard: Guard | None = None
    ) -> Appended:
        """Appends a client's batch with a valid envelope and header; or raises Refused without changes."""
        records = read_records(batch)
        _check_records(batch, records, config, now_ms)
        if len(batch.data) > config.number("segment.bytes"):
            raise Refused(Code.RECORD_LIST_TOO_LARGE, "the batch is larger than a segment")
        if batch.has_producer_id:
            duplicate = self.producers.duplicate_of(batch)
            if duplicate is not None:
                # Kafka returns a time for a duplicate even if the topic uses CreateTime.
                return Appended(duplicate.base_offset, duplicate.last_offset + 1, duplicate.max_timestamp_ms, True)
            needs_proof = config.settings.flag("transaction.partition.verification.enable")
            self.producers.check(batch, guard, verification=needs_proof)
        is_append_time = _is_append_time(config)
        max_timestamp_ms = now_ms if is_append_time else max(record.timestamp_ms for record in records)
        stored = stamp(batch, self.end_offset, leader_epoch, max_timestamp_ms, is_append_time=is_append_time)
        self._store(stored, config)
        if batch.has_producer_id:
            self.producers.append(stored)
        append_time_ms = now_ms if is_append_time else NO_TIMESTAMP
        return Appended(stored.base_offset, self.end_offset, append_time_ms, False)

    def append_marker(
        self, marker: Marker, config: TopicConfig, *, is_strict: bool, leader_epoch: int, now_ms: int
    ) -> None:
        self.producers.check_marker(marker, strict=is_strict)
        if config.settings.quirk.writes_markers:
            self._store(control_batch(marker, self.end_offset, leader_epoch, now_ms), config)
        self._end_transaction(marker, self.end_offset - 1, now_ms)

    def _store(self, batch: Batch, config: TopicConfig) -> None:
        segment_ms = config.number("segment.ms")
        is_late = 0 < segment_ms < batch.max_timestamp_ms - self._segment_began_ms
        if self._segment_bytes + len(batch.data) > config.number("segment.bytes") or is_late:
            self.roll()
        if self._segment_bytes == 0:
            self._segment_began_ms = batch.max_timestamp_ms
        self._segment_bytes += len(batch.data)
        self.batches.append(batch)
        self.appended_count += 1
        self.end_offset = batch.last_offset + 1

    def roll(self) -> None:
        """The next batch begins a segment."""
        if self._segment_bytes:
            self.segments.append(self.end_offset)
            self._segment_bytes = 0

    @property
    def active_segment_start(self) -> int:
        return self.segments[-1] if self.segments else self.start_offset

    def _end_transaction(self, marker: Marker, offset: int, now_ms: int) -> None:
        first_offset = self.producers.end_transaction(marker, now_ms)
        if first_offset is None:
            return
        self._ended.append((first_offset, offset))
        if not marker.is_commit:
            self.aborted.append(AbortedTransaction(marker.producer_id, first_offset, offset))

    # ---- replication, retention, restart ----

    def advance_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, min(offset, self.end_offset))
        self._ended = [ended for ended in self._ended if ended[1] >= self.high_watermark]

    def truncate_to_high_watermark(self) -> None:
        """The leader is lost, and with it everything that was not replicated."""
        if self.end_offset > self.high_watermark:
            self.truncate(self.high_watermark)

    def truncate(self, end_offset: int) -> None:
        """Everything from this offset on is lost."""
        kept = [batch for batch in self.batches if batch.last_offset < end_offset]
        self.load(kept, self.start_offset, self.segments)

    def load(self, batches: Sequence[Batch], start_offset: int, segments: Sequence[int] = ()) -> None:
        """Sets the state as after appending these batches, all of them replicated."""
        self._replace_batches(batches)
        self.start_offset = start_offset
        self.end_offset = self.batches[-1].last_offset + 1 if self.batches else start_offset
        self.segments = [one for one in segments if one < self.end_offset]
        active = [batch for batch in self.batches if batch.base_offset >= self.active_segment_start]
        self._segment_bytes = sum(len(batch.data) for batch in active)
        self._segment_began_ms = active[0].max_timestamp_ms if active else 0
        self.producers = ProducerStates()
        self.aborted = []
        for batch in self.batches:
            if batch.is_control and batch.record_count == 0:
                # Compaction has left only the producer's epoch of a marker.
                rest = Marker(batch.producer_id, batch.producer_epoch, is_commit=True, coordinator_epoch=-1)
                self.producers.end_transaction(rest, batch.max_timestamp_ms)
            elif batch.is_control:
                self._end_transaction(marker_of(batch), batch.base_offset, batch.max_timestamp_ms)
            elif batch.has_producer_id:
                self.producers.append(batch)
        self.high_watermark = self.end_offset
        self.cleaned_offset = min(self.cleaned_offset, self.end_offset)
        self._ended = []

    def _replace_batches(self, batches: Sequence[Batch]) -> None:
        self.batches = list(batches)
        self.rewrites += 1
        self.appended_count = 0

    def replace_cleaned(self, kept: Sequence[Batch], end_offset: int, forgotten: Set[AbortedTransaction]) -> None:
        """Compaction: replaces the batches below `end_offset`, in one segment. Offsets and producer state do not
        change."""
        self.segments = [one for one in self.segments if one >= end_offset]
        self._replace_batches([*kept, *(batch for batch in self.batches if batch.base_offset >= end_offset)])
        self.aborted = [one for one in self.aborted if one not in forgotten]
        self.cleaned_offset = end_offset

    def delete_before(self, offset: int) -> None:
        """Retention and DeleteRecords: batches are removed if all of their records are below the new start."""
        self.start_offset = max(self.start_offset, min(offset, self.high_watermark))
        self.batches = [batch for batch in self.batches if batch.last_offset >= self.start_offset]
        self.aborted = [one for one in self.aborted if one.last_offset >= self.start_offset]

    def delete_oldest(self, bytes_max: int) -> None:
        """Retention by size: whole batches from the start, as long as what remains is not below the limit."""
        size = sum(len(batch.data) for batch in self.batches)
        keep_from = self.start_offset
        for batch in self.batches:
            if size - len(batch.data) < bytes_max or batch.last_offset >= self.last_stable_offset:
                break
            size -= len(batch.data)
            keep_from = batch.last_offset + 1
        self.delete_before(keep_from)

    # ---- reading ----

    @property
    def last_stable_offset(self) -> int:
        unstable = [first_offset for first_offset, _ in self._ended]
        first_open = self.producers.first_open_offset()
        if first_open is not None:
            unstable.append(first_open)
        return max(min([*unstable, self.high_watermark]), self.start_offset)

    def read(self, offset: int, bytes_max: int, limit: int, *, at_least_one: bool) -> tuple[bytes, int]:
        """Whole batches of one segment, from the one that holds `offset` up to the offset `limit`; and the offset after
        them."""
        chunks: list[bytes] = []
        size = 0
        end = offset
        first = bisect_left(self.batches, offset, key=lambda batch: batch.last_offset)
        if first < len(self.batches):
            following = bisect_right(self.segments, self.batches[first].base_offset)
            limit = min([limit, *self.segments[following : following + 1]])
        for batch in self.batches[first:]:
            if batch.base_offset >= limit:
                break
            if size + len(batch.data) > bytes_max and (chunks or not at_least_one):
                break
            chunks.append(batch.data)
            size += len(batch.data)
            end = batch.last_offset + 1
        return b"".join(chunks), end

    def list_committed(self, partition: int) -> Iterator[CommittedRecord]:
        """The records below the last stable offset, without aborted ones."""
        limit = self.last_stable_offset
        for batch in self.batches:
            if batch.base_offset >= limit:
                return
            aborted = self.list_aborted(batch.base_offset, batch.last_offset + 1)
            is_aborted = batch.is_transactional and any(one.producer_id == batch.producer_id for one in aborted)
            if batch.is_control or is_aborted:
                continue
            for record in read_records(batch):
                offset = batch.base_offset + record.offset_delta
                if offset >= self.start_offset:
                    headers = tuple((name.decode(errors="replace"), value) for name, value in record.headers)
                    time_ms = batch.time_of(record)
                    yield CommittedRecord(partition, offset, record.key, record.value, headers, time_ms)

    def list_aborted(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        return [one for one in self.aborted if one.last_offset >= first_offset and one.first_offset < end_offset]

    def offset_for_timestamp(self, timestamp_ms: int, limit: int) -> tuple[int, int] | None:
        """The first record or marker at or after that time, as (timestamp, offset)."""
        for batch in self.batches:
            if batch.base_offset >= limit or batch.max_timestamp_ms < timestamp_ms:
                continue
            for record in read_records(batch):
                if batch.time_of(record) >= timestamp_ms:
                    return batch.time_of(record), batch.base_offset + record.offset_delta
        return None

    def last_epoch_end(self, leader_epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch: the largest epoch not above the requested one, and the offset after its last record."""
        found = (-1, -1)
        for batch in self.batches:
            if batch.leader_epoch <= leader_epoch:
                found = (batch.leader_epoch, batch.last_offset + 1)
        return found


def _is_append_time(config: TopicConfig) -> bool:
    return config.text("message.timestamp.type") == "LogAppendTime"


def _check_records(batch: Batch, records: list[DecodedRecord], config: TopicConfig, now_ms: int) -> None:
    """Kafka reports every bad record of the batch; one invalid timestamp fails the whole batch with that error."""
    errors: list[tuple[int, str]] = []
    code = Code.INVALID_RECORD
    is_compacted, is_append_time = config.has_policy("compact"), _is_append_time(config)
    before_max_ms = config.number("message.timestamp.before.max.ms")
    after_max_ms = config.number("message.timestamp.after.max.ms")
    for index, record in enumerate(records):
        if record.offset_delta != index:
            raise Refused(Code.INVALID_RECORD, f"record {index} has the offset delta {record.offset_delta}")
        if is_compacted and record.key is None:
            errors.append((index, "Compacted topic cannot accept message without key"))
        elif not is_append_time and record.timestamp_ms != NO_TIMESTAMP:
            age_ms = now_ms - record.timestamp_ms
            if age_ms > before_max_ms or -age_ms > after_max_ms:
                code = Code.INVALID_TIMESTAMP
                errors.append((index, f"Timestamp {record.timestamp_ms} is out of range"))
        elif batch.has_append_time:
            code = Code.INVALID_TIMESTAMP
            errors.append((index, "Producer should not set timestamp type to LogAppendTime"))
    if errors:
        raise Refused(code, f"{len(errors)} record errors", tuple(errors))
