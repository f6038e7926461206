"""Open batches, one per topic and partition: rows come in by whole columns, closed batches come out.

Theory of operation. One append call is cut into chunks that fit the processor's cache; each chunk is sorted by
partition (stable, so rows of a partition keep their order), planned (which rows go into which batch, from sizes
alone), encoded in one pass, and handed out: every batch gets its section of the encoded bytes. Planning changes
nothing, so whatever fails until the bytes are there leaves the open batches as they were.

A batch closes when the next record does not fit, when it is full to the limit, or when the caller says so (its linger
is over, a flush). Closing joins the sections and compresses them. Whether a record fits is judged by an upper bound
that is exact but for two or three bytes; so no batch passes the limit unless a single record does, which then is alone
in its batch. The limit is meant for the compressed batch: the ratio of the topic is estimated (compression_ratio.py),
and the limit before compression grows with it, up to the largest request and to a fair share of the memory.

It knows no clock, no thread and no broker. One caller at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from kafka_sink.frozen import frozen
from kafka_sink.records.batch import HEADER_BYTES, RECORD_BYTES_MIN, EncodedBatch, Share
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.compression import NONE, Compressor
from kafka_sink.records.compression_ratio import CompressionRatio
from kafka_sink.records.encoder import encode_rows
from kafka_sink.records.varint import Array, largest, smallest

# Rows and their encoded form stay within a core's cache; larger chunks lose more to memory than they save in calls.
CHUNK_BYTES = 2 * 1024 * 1024
# What a partition gets of a chunk costs some microseconds whatever it holds; that many rows make it bearable.
ROWS_PER_PARTITION = 16

B = TypeVar("B")


@dataclass(slots=True)
class _OpenBatch:
    topic: str
    partition: int
    opened_ms: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    sections: list[memoryview | bytes] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)
    record_count: int = 0
    records_bytes: int = 0


class _Piece(NamedTuple):
    """The rows [start, stop) of a sorted chunk go into one batch, of which there are `first_record` records already."""

    partition: int
    start: int
    stop: int
    first_record: int
    batch: _OpenBatch | None
    is_last_of_batch: bool


# Topic, partition, content, when it was opened, whose rows are in it.
NewBatch = Callable[[str, int, EncodedBatch, int, tuple[Share, ...]], B]


class Assembler(Generic[B]):
    def __init__(
        self,
        *,
        new_batch: NewBatch[B],
        batch_bytes_max: int,
        request_bytes_max: int,
        batch_records_max: int | None,
        compression: Callable[[str], Compressor],
        open_bytes_max: int | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        """`new_batch` makes what a batch becomes when it is closed, and stays until it is in the log.

        `open_bytes_max`: what all open batches may take together before one is larger than `batch_bytes_max`.
        """
        self._new_batch = new_batch
        self._batch_bytes_max = min(batch_bytes_max, request_bytes_max)
        self._request_bytes_max = request_bytes_max
        self._batch_records_max = batch_records_max
        self._open_bytes_max = open_bytes_max
        self._compression = compression
        self._compressors: dict[str, Compressor] = {}
        self._compression_ratio = CompressionRatio()
        self._chunk_bytes = chunk_bytes
        # In the order of opening: a batch that closes leaves, the next of its partition comes in at the end.
        self._open: dict[tuple[str, int], _OpenBatch] = {}
        self.open_bytes = 0

    @property
    def oldest_opened_ms(self) -> int | None:
        return next((batch.opened_ms for batch in self._open.values()), None)

    def append(
        self,
        topic: str,
        columns: RecordColumns,
        partitions: Array,
        *,
        now_ms: int,
        timestamp_ms: int,
        token: object,
    ) -> list[B]:
        """Takes in all rows or, with `DataError`, none. `timestamp_ms` is for rows that have no timestamp."""
        columns.check_record_sizes(self._request_bytes_max)
        closed: list[B] = []
        for start, stop in _split_into_chunks(columns, partitions, self._chunk_bytes):
            chunk = _Chunk.of(columns.slice(start, stop), partitions[start:stop], timestamp_ms)
            pieces = self._plan(topic, chunk)
            closed += self._carry_out(topic, chunk, pieces, now_ms, token)
        return closed

    def close_due(self, *, opened_before_ms: int) -> list[B]:
        """Closes what was opened at that time or before."""
        due = []
        for batch in self._open.values():
            if batch.opened_ms > opened_before_ms:
                break
            due.append(batch)
        return [self._close(batch) for batch in due]

    def close_all(self) -> list[B]:
        return [self._close(batch) for batch in list(self._open.values())]

    # ---- planning --------------------------------------------------------------------------------------------------

    def _limits(self, topic: str) -> tuple[int, int]:
        """Bytes before compression, and records."""
        bytes_max = min(
            self._compression_ratio.bytes_before_compression(topic, self._batch_bytes_max), self._request_bytes_max
        )
        if self._open_bytes_max is not None:
            bytes_max = min(bytes_max, self._open_bytes_max // (len(self._open) or 1))
        bytes_max = max(bytes_max, self._batch_bytes_max)
        records_max = max(1, bytes_max // RECORD_BYTES_MIN)
        return bytes_max, records_max if self._batch_records_max is None else min(records_max, self._batch_records_max)

    def _plan(self, topic: str, chunk: _Chunk) -> list[_Piece]:
        pieces = []
        bytes_max, records_max = self._limits(topic)
        batches = [self._open.get((topic, partition)) for partition in chunk.partitions]
        ends = chunk.record_ends(batches, records_max)
        stops = chunk.stops
        ends_at_stops = ends[np.array([0, *stops])].tolist()
        start = 0
        for number, (partition, batch) in enumerate(zip(chunk.partitions, batches, strict=True)):
            stop = stops[number]
            used_bytes = HEADER_BYTES + (batch.records_bytes if batch else 0)
            count = batch.record_count if batch else 0
            start_bytes, stop_bytes = ends_at_stops[number], ends_at_stops[number + 1]
            while start < stop:
                room = bytes_max - used_bytes
                if stop_bytes - start_bytes <= room:
                    fit = stop
                else:
                    fit = int(ends.searchsorted(start_bytes + room, side="right")) - 1
                fit = min(fit, start + records_max - count)
                if count == 0:
                    fit = max(fit, start + 1)
                fit = max(fit, start)
                fit_bytes = stop_bytes if fit == stop else int(ends[fit])
                is_full = used_bytes + fit_bytes - start_bytes >= bytes_max
                is_full = is_full or count + fit - start >= records_max
                pieces.append(_Piece(partition, start, fit, count, batch, fit < stop or is_full))
                start, start_bytes = fit, fit_bytes
                batch, used_bytes, count = None, HEADER_BYTES, 0
        return pieces

    # ---- carrying out ----------------------------------------------------------------------------------------------

    def _carry_out(self, topic: str, chunk: _Chunk, pieces: list[_Piece], now_ms: int, token: object) -> list[B]:
        starts = np.array([piece.start for piece in pieces])
        counts = np.array([piece.stop - piece.start for piece in pieces])
        firsts = np.array([piece.first_record for piece in pieces])
        bases, newest = chunk.timestamps_of(pieces, starts)
        encoded = encode_rows(
            chunk.columns,
            chunk.order,
            timestamp_deltas=chunk.timestamp_deltas(bases, counts),
            offset_deltas=np.arange(chunk.row_count) - np.repeat(starts - firsts, counts),
        )
        row_ids = chunk.columns.row_ids if chunk.order is None else chunk.columns.row_ids[chunk.order]
        closed = []
        for piece, base_timestamp_ms, max_timestamp_ms in zip(pieces, bases, newest, strict=True):
            batch = piece.batch
            if batch is None:
                batch = _OpenBatch(topic, piece.partition, now_ms, base_timestamp_ms, max_timestamp_ms)
                self._open[topic, piece.partition] = batch
            if piece.stop > piece.start:
                section = encoded.section(piece.start, piece.stop)
                # What stays open is copied, or a few bytes would keep the whole chunk's memory alive.
                batch.sections.append(section if piece.is_last_of_batch else bytes(section))
                batch.shares.append(Share(token, row_ids[piece.start : piece.stop], batch.record_count))
                batch.record_count += piece.stop - piece.start
                batch.records_bytes += len(section)
                batch.max_timestamp_ms = max(batch.max_timestamp_ms, max_timestamp_ms)
                self.open_bytes += len(section)
            if piece.is_last_of_batch:
                closed.append(self._close(batch))
        return closed

    def _close(self, batch: _OpenBatch) -> B:
        compressor = self._compressors.get(batch.topic)
        if compressor is None:
            compressor = self._compressors[batch.topic] = self._compression(batch.topic)
        content = batch.sections[0] if len(batch.sections) == 1 else b"".join(batch.sections)
        payload = compressor.compress(content)
        if batch.records_bytes > self._batch_bytes_max // 2 and compressor.codec_id != NONE:
            self._compression_ratio.on_compressed(batch.topic, batch.records_bytes, len(payload))
        encoded = EncodedBatch(
            codec=compressor.codec_id,
            payload=payload,
            record_count=batch.record_count,
            base_timestamp_ms=batch.base_timestamp_ms,
            max_timestamp_ms=batch.max_timestamp_ms,
            records_bytes=batch.records_bytes,
        )
        del self._open[batch.topic, batch.partition]
        self.open_bytes -= batch.records_bytes
        return self._new_batch(batch.topic, batch.partition, encoded, batch.opened_ms, tuple(batch.shares))


@frozen
class _Chunk:
    """Rows sorted by partition; those of `partitions[i]` end before `stops[i]`. Equal `timestamps` are one number."""

    columns: RecordColumns
    order: Array | None
    partitions: list[int]
    stops: list[int]
    timestamps: Array | int

    @classmethod
    def of(cls, columns: RecordColumns, partitions: Array, timestamp_ms: int) -> _Chunk:
        order, of_groups, stops = _sort_by_partition(partitions)
        timestamps: Array | int = timestamp_ms
        if columns.timestamps is not None:
            own = columns.timestamps if order is None else columns.timestamps[order]
            timestamps = np.where(own < 0, timestamp_ms, own)
            oldest = int(timestamps.min())
            if oldest == int(timestamps.max()):
                timestamps = oldest
        return cls(columns, order, of_groups, stops, timestamps)

    @property
    def row_count(self) -> int:
        return self.columns.row_count

    def record_ends(self, batches: list[_OpenBatch | None], records_max: int) -> Array:
        """Upper bounds of where records end, counted from the first, in sorted order; one element more than rows."""
        known = [batch.base_timestamp_ms for batch in batches if batch is not None]
        if isinstance(self.timestamps, int):
            known.append(self.timestamps)
        else:
            known += [int(self.timestamps.min()), int(self.timestamps.max())]
        sizes = self.columns.record_sizes(timestamp_span_ms=max(known) - min(known), records_max=records_max)
        if isinstance(sizes, int):
            return np.arange(self.row_count + 1) * sizes
        ends = np.zeros(self.row_count + 1, np.int64)
        np.cumsum(sizes if self.order is None else sizes[self.order], out=ends[1:])
        return ends

    def timestamps_of(self, pieces: list[_Piece], starts: Array) -> tuple[list[int], list[int]]:
        """For each piece: the timestamp its batch counts from, and the newest among its rows (if it has any)."""
        if isinstance(self.timestamps, int):
            own = [self.timestamps] * len(pieces)
            newest = own
        else:
            own = self.timestamps[starts].tolist()
            newest = np.maximum.reduceat(self.timestamps, starts).tolist()
        bases = [
            timestamp if piece.batch is None else piece.batch.base_timestamp_ms
            for piece, timestamp in zip(pieces, own, strict=True)
        ]
        return bases, newest

    def timestamp_deltas(self, bases: list[int], counts: Array) -> Array | int:
        if isinstance(self.timestamps, int) and min(bases) == max(bases):
            return self.timestamps - bases[0]
        return self.timestamps - np.repeat(np.array(bases, np.int64), counts)


def _sort_by_partition(partitions: Array) -> tuple[Array | None, list[int], list[int]]:
    """The order that sorts rows by partition (None: they are), the partitions, and where the rows of each end."""
    row_count = len(partitions)
    lowest, highest = int(smallest(partitions)), int(largest(partitions))
    if lowest == highest:
        return None, [lowest], [row_count]
    # numpy sorts 16-bit numbers by counting, four times faster than wider ones.
    keys = partitions.astype(np.uint16) if highest < 2**16 else partitions
    order = np.argsort(keys, kind="stable")
    sorted_partitions = partitions[order]
    stops = np.flatnonzero(sorted_partitions[1:] != sorted_partitions[:-1]) + 1
    firsts = np.concatenate(([0], stops))
    return order, sorted_partitions[firsts].tolist(), [*stops.tolist(), row_count]


def _split_into_chunks(columns: RecordColumns, partitions: Array, chunk_bytes: int) -> Iterator[tuple[int, int]]:
    """Pieces of about `chunk_bytes`; of more, up to eight times, where partitions would get few rows of each, or where
    values are too large to be moved."""
    row_count = columns.row_count
    if not row_count:
        return
    sizes = columns.sizes
    partition_count = int(partitions.max()) + 1
    wanted_bytes = ROWS_PER_PARTITION * partition_count * (columns.bytes_max // row_count)
    if columns.has_large_values:
        chunk_bytes *= 8
    chunk_bytes = max(chunk_bytes, min(wanted_bytes, 8 * chunk_bytes))
    if isinstance(sizes, int):
        step = max(1, chunk_bytes // sizes)
        for start in range(0, row_count, step):
            yield start, min(start + step, row_count)
        return
    ends = np.cumsum(sizes)
    start = 0
    while start < row_count:
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(ends.searchsorted(before + chunk_bytes, side="right")))
        yield start, stop
        start = stop
