"""Compaction of one partition: only the newest record of each key is kept, as by Kafka's log cleaner.

The cleaned range ends before the active segment, before the last stable offset (so before any open transaction), and
before records younger than `min.compaction.lag.ms`. Within that range, batch by batch and with every offset kept:

1. Records of aborted transactions are removed, then records without a key, then those with a newer one of the same key.
2. A tombstone is kept until its batch's delete horizon. The first pass that finds it sets the horizon,
   `delete.retention.ms` from then, and stores it in the batch's base timestamp with flag 0x40, as Kafka does (KIP-534).
3. A marker is kept as long as a batch of its transaction, and then until its own delete horizon.
4. The last batch of each producer is kept, possibly empty, because its header has the last sequence number;
   so is the last batch of the range, whose header has the last offset.

So producer state is the same when it is rebuilt from the remaining batches. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_sink.formats.records.scalar import encode_varint
from kafka_sink.testing.batches import CODEC_BITS, HORIZON_FLAG, Batch, DecodedRecord, encode_batch, read_records
from kafka_sink.testing.log import AbortedTransaction, PartitionLog
from kafka_sink.testing.settings import TopicConfig


def compact(log: PartitionLog, config: TopicConfig, now_ms: int) -> None:
    """One pass, if there is enough to clean."""
    limit = cleanable_end(log, config, now_ms)
    batches = [one for one in log.batches if one.last_offset < limit]
    dirty_bytes = sum(len(one.data) for one in batches if one.base_offset >= log.cleaned_offset)
    all_bytes = sum(len(one.data) for one in batches)
    if dirty_bytes == 0 or dirty_bytes / all_bytes <= float(config.text("min.cleanable.dirty.ratio")):
        return
    cleaner = _Cleaner(log, now_ms, config.number("delete.retention.ms"), batches)
    kept = [one for one in map(cleaner.clean, batches) if one is not None]
    log.replace_cleaned(kept, batches[-1].last_offset + 1, cleaner.forgotten)


def cleanable_end(log: PartitionLog, config: TopicConfig, now_ms: int) -> int:
    """The first offset that must not be cleaned."""
    end, lag_min_ms = end_of_old_segments(log, config), config.number("min.compaction.lag.ms")
    young = (one.base_offset for one in _dirty(log) if one.max_timestamp_ms > now_ms - lag_min_ms)
    return min(end, next(young, end)) if lag_min_ms > 0 else end


def end_of_old_segments(log: PartitionLog, config: TopicConfig) -> int:
    """The same without the compaction lag."""
    return min(log.last_stable_offset, _active_segment_start(log, config))


def _dirty(log: PartitionLog) -> list[Batch]:
    return [one for one in log.batches if one.base_offset >= log.cleaned_offset]


def _active_segment_start(log: PartitionLog, config: TopicConfig) -> int:
    """With `segment.ms` 0 each batch counts as a segment here."""
    if config.number("segment.ms") == 0 and log.batches:
        return max(log.batches[-1].base_offset, log.active_segment_start)
    return log.active_segment_start


class _Cleaner:
    """Processes the batches of one pass in order and tracks the transactions in progress."""

    def __init__(self, log: PartitionLog, now_ms: int, delete_retention_ms: int, batches: Sequence[Batch]) -> None:
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._end_offset = batches[-1].last_offset
        self._last_of_producers = {
            one: (entry.last_offset, entry.epoch) for one, entry in log.producers.entries.items()
        }
        self._aborted = {(one.producer_id, one.last_offset): one for one in log.aborted}
        self._aborted_batches = _find_aborted_batches(batches, log.aborted)
        self._seen_in_transaction: set[int] = set()
        self._newest = self._newest_offsets(batches)
        # Aborted transactions without remaining batches.
        self.forgotten: set[AbortedTransaction] = set()

    def _newest_offsets(self, batches: Sequence[Batch]) -> dict[bytes, int]:
        newest = {}
        for batch in batches:
            if not batch.is_control and batch.base_offset not in self._aborted_batches:
                for record in read_records(batch):
                    if record.key is not None:
                        newest[record.key] = batch.base_offset + record.offset_delta
        return newest

    def clean(self, batch: Batch) -> Batch | None:
        if batch.is_control:
            return self._clean_marker(batch)
        if batch.is_transactional:
            self._seen_in_transaction.add(batch.producer_id)
        records = [] if batch.base_offset in self._aborted_batches else read_records(batch)
        kept = [one for one in records if self._stays(batch, one)]
        if not kept:
            return self._empty_batch(batch)
        needs_horizon = batch.delete_horizon_ms is None and any(one.value is None for one in kept)
        if len(kept) == batch.record_count and not needs_horizon:
            return batch
        return rewrite(batch, kept, self._horizon_ms if needs_horizon else batch.delete_horizon_ms)

    def _stays(self, batch: Batch, record: DecodedRecord) -> bool:
        if record.key is None or batch.base_offset + record.offset_delta < self._newest[record.key]:
            return False
        return record.value is not None or not self._is_over(batch)

    def _is_over(self, batch: Batch) -> bool:
        return batch.delete_horizon_ms is not None and batch.delete_horizon_ms <= self._now_ms

    def _clean_marker(self, batch: Batch) -> Batch | None:
        has_batches = batch.producer_id in self._seen_in_transaction
        self._seen_in_transaction.discard(batch.producer_id)
        if has_batches:
            return batch
        aborted = self._aborted.get((batch.producer_id, batch.base_offset))
        if aborted is not None:
            self.forgotten.add(aborted)
        if self._is_over(batch) or batch.record_count == 0:
            return self._empty_batch(batch)
        if batch.delete_horizon_ms is not None:
            return batch
        return rewrite(batch, read_records(batch), self._horizon_ms)

    def _empty_batch(self, batch: Batch) -> Batch | None:
        """The empty batch if its header is still needed; None: removed."""
        last_offset, epoch = self._last_of_producers.get(batch.producer_id, (None, None))
        is_last_of_producer = batch.has_producer_id and (
            batch.last_offset == last_offset
            or (last_offset == -1 and batch.is_control and batch.producer_epoch == epoch)
        )
        if not is_last_of_producer and batch.last_offset != self._end_offset:
            return None
        return batch if batch.record_count == 0 else rewrite(batch, [], None)


def _find_aborted_batches(batches: Iterable[Batch], aborted: Iterable[AbortedTransaction]) -> set[int]:
    """Base offsets of the data batches of aborted transactions."""
    by_producer: dict[int, list[AbortedTransaction]] = {}
    for one in aborted:
        by_producer.setdefault(one.producer_id, []).append(one)
    return {
        batch.base_offset
        for batch in batches
        if batch.is_transactional and not batch.is_control
        if any(
            one.first_offset <= batch.base_offset < one.last_offset for one in by_producer.get(batch.producer_id, ())
        )
    }


def rewrite(batch: Batch, records: Sequence[DecodedRecord], horizon_ms: int | None) -> Batch:
    """The same batch with fewer records, uncompressed; offsets and the header's sequence range are kept."""
    attributes = batch.attributes & ~(CODEC_BITS | HORIZON_FLAG)
    base_ms, max_ms = batch.base_timestamp_ms, batch.max_timestamp_ms
    if horizon_ms is not None and records:
        # Record timestamps are relative to the base timestamp that it replaces.
        attributes, base_ms = attributes | HORIZON_FLAG, horizon_ms
    elif batch.delete_horizon_ms is not None:
        base_ms = max_ms
    section = b"".join(_shift_timestamp(one, one.timestamp_ms - base_ms) for one in records)
    if records and not batch.has_append_time:
        max_ms = max(one.timestamp_ms for one in records)
    header = batch._replace(
        attributes=attributes, base_timestamp_ms=base_ms, max_timestamp_ms=max_ms, record_count=len(records)
    )
    return encode_batch(header, section)


def _shift_timestamp(record: DecodedRecord, timestamp_delta: int) -> bytes:
    """A record with another timestamp delta, which follows the attributes byte."""
    rest = record.raw[1:]
    old_bytes = next(position for position, byte in enumerate(rest, 1) if byte < 0x80)
    body = record.raw[:1] + encode_varint(timestamp_delta) + rest[old_bytes:]
    return encode_varint(len(body)) + body
