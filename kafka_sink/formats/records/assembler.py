"""Open batches, one per topic and partition: columns of rows go in, closed batches come out.

Theory of operation. One append call is split into chunks that fit the CPU cache; each chunk is sorted by partition
(stable, so rows of a partition keep their order), planned (which rows go into which batch, from sizes alone), encoded
in one pass, and distributed: every batch gets its section of the encoded bytes. Planning has no side effects, so a
failure up to and including encoding leaves the open batches unchanged.

A batch is closed when the next record does not fit, when it has reached the limit, or by the caller (linger has passed,
a flush). Closing joins the sections and compresses them. Whether a record fits is decided by an upper bound that is
exact to two or three bytes; so no batch exceeds the limit unless a single record does, which is then alone in its
batch. The limit is for the compressed batch: the topic's ratio is estimated from the batches so far, as in the Java
client, and the limit before compression grows with it, up to the maximum request and a fair share of the memory. What
does not shrink is sent uncompressed (`Compressor.pack`), so no batch is above the maximum request, however wrong the
estimate: only a topic that allows less than that causes a split. Then its batches are made smaller (`limit_batches`).

It knows no clock, no thread and no broker. One caller at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from kafka_sink.formats.records.batch import HEADER_BYTES, RECORD_BYTES_MIN, EncodedBatch, Share
from kafka_sink.formats.records.columns import RecordColumns
from kafka_sink.formats.records.compression import NONE, Compressor
from kafka_sink.formats.records.cutting import cut_rows
from kafka_sink.formats.records.encoder import encode_rows
from kafka_sink.formats.records.varint import Array, largest, smallest
from kafka_sink.frozen import frozen

# Rows and their encoded form fit a core's cache; larger chunks lose more to memory access than they save in calls.
CHUNK_BYTES = 2 * 1024 * 1024
# Each partition in a chunk costs some microseconds, however few its rows; this many rows make that acceptable.
ROWS_PER_PARTITION = 16
# Batches differ a little: the next one may compress this much worse.
RATIO_MARGIN = 1.05
# The estimate follows a better ratio slowly: each batch moves it by 1/RATIO_CAUTION of the difference.
RATIO_CAUTION = 8

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
    # What the numbers of its rows take, for the futures. Beside rows that pack well they are the larger part.
    share_bytes: int = 0


class _Piece(NamedTuple):
    """The rows [start, stop) of a sorted chunk go into one batch, which has `first_record` records already."""

    partition: int
    start: int
    stop: int
    first_record: int
    batch: _OpenBatch | None
    is_last_of_batch: bool


# Topic, partition, content, when it was opened, shares of the append calls, and the bytes that these take.
NewBatch = Callable[[str, int, EncodedBatch, int, tuple[Share, ...], int], B]


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
        """`new_batch` makes the object for a closed batch.

        `open_bytes_max`: shared evenly by all open batches; none gets less than `batch_bytes_max`.
        """
        self._new_batch = new_batch
        self._batch_bytes_max = min(batch_bytes_max, request_bytes_max)
        self._request_bytes_max = request_bytes_max
        self._batch_records_max = batch_records_max
        self._open_bytes_max = open_bytes_max
        self._compression = compression
        self._compressors: dict[str, Compressor] = {}
        self._ratios = CompressionRatios()
        # Topics that take no batches of the usual size, and what they take.
        self._smaller: dict[str, int] = {}
        self._chunk_bytes = chunk_bytes
        # Oldest first: a closed batch is removed, the partition's next one is added at the end.
        self._open: dict[tuple[str, int], _OpenBatch] = {}
        # Records, and the numbers of their rows.
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
        """Appends all rows or, with `DataError`, none. `timestamp_ms` is for rows without a timestamp.

        `now_ms`: when they came; a batch that is opened for them is as old as they are.
        """
        columns.check_record_sizes(self._request_bytes_max)
        closed: list[B] = []
        newest = next(reversed(self._open.values()), None)
        for start, stop in cut_rows(columns, self._wanted_chunk_bytes(columns, partitions)):
            chunk = _Chunk.of(columns.slice(start, stop), partitions[start:stop], timestamp_ms)
            pieces = self._plan(topic, chunk)
            closed += self._carry_out(topic, chunk, pieces, now_ms, token)
        if newest is not None and now_ms < newest.opened_ms:
            # These rows have waited elsewhere, and are due before those of batches opened meanwhile.
            self._open = dict(sorted(self._open.items(), key=lambda item: item[1].opened_ms))
        return closed

    def limit_batches(self, topic: str, bytes_max: int | None) -> None:
        """For the topic's batches from now on; None: the limit of all topics."""
        if bytes_max is None:
            self._smaller.pop(topic, None)
        else:
            self._smaller[topic] = bytes_max

    def close_due(self, *, opened_before_ms: int) -> list[B]:
        """Closes batches opened at that time or before."""
        due = []
        for batch in self._open.values():
            if batch.opened_ms > opened_before_ms:
                break
            due.append(batch)
        return [self._close(batch) for batch in due]

    def close_all(self) -> list[B]:
        return [self._close(batch) for batch in list(self._open.values())]

    def _wanted_chunk_bytes(self, columns: RecordColumns, partitions: Array) -> int:
        """Up to eight times larger if each partition would get few rows, or if values are too large to be copied."""
        if columns.has_large_values:
            return 8 * self._chunk_bytes
        row_count = len(partitions)
        if not row_count:
            return self._chunk_bytes
        partition_count = int(largest(partitions)) + 1
        wanted_bytes = ROWS_PER_PARTITION * partition_count * (columns.bytes_max // row_count)
        return max(self._chunk_bytes, min(wanted_bytes, 8 * self._chunk_bytes))

    # ---- planning --------------------------------------------------------------------------------------------------

    def _limits(self, topic: str) -> tuple[int, int]:
        """Bytes before compression, and records."""
        packed_bytes_max = self._packed_bytes_max(topic) if self._smaller else self._batch_bytes_max
        bytes_max = min(int(packed_bytes_max / self._ratios.of(topic)), self._request_bytes_max)
        if self._open_bytes_max is not None:
            bytes_max = min(bytes_max, self._open_bytes_max // (len(self._open) or 1))
        bytes_max = max(bytes_max, packed_bytes_max)
        records_max = max(1, bytes_max // RECORD_BYTES_MIN)
        return bytes_max, records_max if self._batch_records_max is None else min(records_max, self._batch_records_max)

    def _packed_bytes_max(self, topic: str) -> int:
        return min(self._batch_bytes_max, self._smaller.get(topic, self._batch_bytes_max))

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
                # A batch takes its first record whatever its size; one that has some may take no more.
                fit = max(min(fit, start + records_max - count), start + (count == 0))
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
        row_ids = chunk.columns.row_ids if chunk.order is None else chunk.columns.row_ids[chunk.order]
        encoded = encode_rows(
            chunk.columns,
            chunk.order,
            timestamp_deltas=chunk.timestamp_deltas(bases, counts),
            offset_deltas=np.arange(len(row_ids)) - np.repeat(starts - firsts, counts),
        )
        closed = []
        for piece, base_timestamp_ms, max_timestamp_ms in zip(pieces, bases, newest, strict=True):
            batch = piece.batch
            if batch is None:
                batch = _OpenBatch(topic, piece.partition, now_ms, base_timestamp_ms, max_timestamp_ms)
                self._open[topic, piece.partition] = batch
            if piece.stop > piece.start:
                section = encoded.section(piece.start, piece.stop)
                rows = row_ids[piece.start : piece.stop]
                # The section of an open batch is copied, or a few bytes would keep the whole chunk's memory alive.
                batch.sections.append(section if piece.is_last_of_batch else bytes(section))
                batch.shares.append(Share(token, rows, batch.record_count))
                batch.record_count += piece.stop - piece.start
                batch.records_bytes += len(section)
                batch.share_bytes += rows.nbytes
                batch.max_timestamp_ms = max(batch.max_timestamp_ms, max_timestamp_ms)
                self.open_bytes += len(section) + rows.nbytes
            if piece.is_last_of_batch:
                closed.append(self._close(batch))
        return closed

    def _close(self, batch: _OpenBatch) -> B:
        compressor = self._compressors.get(batch.topic)
        if compressor is None:
            compressor = self._compressors[batch.topic] = self._compression(batch.topic)
        content = batch.sections[0] if len(batch.sections) == 1 else b"".join(batch.sections)
        codec_id, payload = compressor.pack(content)
        packed_bytes_max = self._packed_bytes_max(batch.topic) if self._smaller else self._batch_bytes_max
        if batch.records_bytes > packed_bytes_max // 2 and compressor.codec_id != NONE:
            self._ratios.on_compressed(batch.topic, batch.records_bytes, len(payload))
        encoded = EncodedBatch(
            codec=codec_id,
            payload=payload,
            record_count=batch.record_count,
            base_timestamp_ms=batch.base_timestamp_ms,
            max_timestamp_ms=batch.max_timestamp_ms,
            records_bytes=batch.records_bytes,
        )
        del self._open[batch.topic, batch.partition]
        self.open_bytes -= batch.records_bytes + batch.share_bytes
        shares = tuple(batch.shares)
        return self._new_batch(batch.topic, batch.partition, encoded, batch.opened_ms, shares, batch.share_bytes)


class CompressionRatios:
    """Compressed size divided by uncompressed size, by topic."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def of(self, topic: str) -> float:
        return self._ratios.get(topic, 1.0)

    def on_compressed(self, topic: str, before: int, after: int) -> None:
        """Call for full batches only: small ones compress worse and are not representative."""
        # Above 1 there is nothing to allow for: records that do not shrink are sent as they are.
        ratio = min(1.0, RATIO_MARGIN * after / before)
        expected = self.of(topic)
        # Too low an estimate makes batches too large, so a worse ratio counts at once.
        self._ratios[topic] = ratio if ratio > expected else expected + (ratio - expected) / RATIO_CAUTION


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

    def record_ends(self, batches: list[_OpenBatch | None], records_max: int) -> Array:
        """Upper bounds of cumulative record sizes, in sorted order; one element more than rows."""
        known = [batch.base_timestamp_ms for batch in batches if batch is not None]
        if isinstance(self.timestamps, int):
            known.append(self.timestamps)
        else:
            known += [int(self.timestamps.min()), int(self.timestamps.max())]
        sizes = self.columns.record_sizes(timestamp_span_ms=max(known) - min(known), records_max=records_max)
        if isinstance(sizes, int):
            return np.arange(self.columns.row_count + 1) * sizes
        ends = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes if self.order is None else sizes[self.order], out=ends[1:])
        return ends

    def timestamps_of(self, pieces: list[_Piece], starts: Array) -> tuple[list[int], list[int]]:
        """For each piece: its batch's base timestamp, and the newest timestamp of its rows (if any)."""
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
    """The order that sorts rows by partition (None: already sorted), the partitions, and where the rows of each end."""
    row_count = len(partitions)
    lowest, highest = int(smallest(partitions)), int(largest(partitions))
    if lowest == highest:
        return None, [lowest], [row_count]
    # numpy uses radix sort for 16-bit numbers, four times faster than for wider ones.
    keys = partitions.astype(np.uint16) if highest < 2**16 else partitions
    order = np.argsort(keys, kind="stable")
    sorted_partitions = partitions[order]
    stops = np.flatnonzero(sorted_partitions[1:] != sorted_partitions[:-1]) + 1
    firsts = np.concatenate(([0], stops))
    return order, sorted_partitions[firsts].tolist(), [*stops.tolist(), row_count]
