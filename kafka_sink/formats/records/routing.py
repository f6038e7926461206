"""Assigns rows to partitions. One `Router` per producer; it keeps each topic's sticky partition for unkeyed rows.

A partition given with the row takes precedence. Otherwise the partitioner decides: Java's default (murmur2 of the key;
rows without key stick to a partition for one batch, KIP-794), round robin, librdkafka's `random` and CRC32
`consistent_random`, or a user's callable over whole columns. It knows no broker: a topic is passed in as a
`PartitionView`, the queue length of each partition as a mapping, randomness as a callable.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from kafka_sink.errors import ConfigError, DataError
from kafka_sink.errors.table.writes import PARTITIONER_FAILED, ROW_PARTITION
from kafka_sink.formats.records.batch import HEADER_BYTES, RECORD_BYTES_MIN
from kafka_sink.formats.records.bytes_column import BytesColumn
from kafka_sink.formats.records.columns import NO_PARTITION, RecordColumns
from kafka_sink.formats.records.murmur2 import partitions_of_keys
from kafka_sink.formats.records.varint import Array
from kafka_sink.frozen import frozen

# Partitions and their queue lengths; a missing one has an empty queue.
Loads = Mapping[int, int]


@frozen
class PartitionView:
    """`available` are the partitions that can take batches now: with a leader that is not too slow."""

    partition_count: int
    available: tuple[int, ...]


# (topic, columns, view) -> a partition for every row.
CustomPartitioner = Callable[[str, RecordColumns, PartitionView], Any]
# The same with the queue lengths, and the rows that it answers for (None: all).
_Partitioner = Callable[[str, RecordColumns, PartitionView, Loads | None, Array | None], Array]


@dataclass(slots=True)
class _Sticky:
    partition: int
    used_bytes: int = HEADER_BYTES


class Router:
    """`partitioner` is `default`, `round_robin`, `random`, `consistent_random` or a callable.

    `sticky_bytes`: how much a partition gets before unkeyed rows switch: batch.size, so a run fills one batch.
    """

    def __init__(
        self,
        *,
        sticky_bytes: int,
        random_number: Callable[[], float],
        partitioner: str | CustomPartitioner = "default",
        ignores_keys: bool = False,
    ) -> None:
        self._sticky_bytes = sticky_bytes
        self._random_number = random_number
        self._ignores_keys = ignores_keys
        self._sticky: dict[str, _Sticky] = {}
        self._turns: dict[str, int] = {}
        self._partition = self._select_partitioner(partitioner)

    def route(self, topic: str, columns: RecordColumns, view: PartitionView, loads: Loads | None = None) -> Array:
        """A partition for every row, as int32. `loads` None: unkeyed rows are spread evenly (not adaptive)."""
        explicit = columns.partitions
        if explicit is None:
            return self._partition(topic, columns, view, loads, None)
        outside = np.flatnonzero(explicit >= view.partition_count)
        if len(outside):
            row = int(columns.row_ids[outside[0]])
            raise DataError(
                f"row {row} names partition {int(explicit[outside[0]])}; topic {topic} has {view.partition_count}",
                ROW_PARTITION,
                row=row,
                column="partition",
            )
        rows = np.flatnonzero(explicit == NO_PARTITION)
        if not len(rows):
            return explicit
        partitions: Array = explicit.copy()
        partitions[rows] = self._partition(topic, columns, view, loads, rows)
        return partitions

    # ---- partitioners ----------------------------------------------------------------------------------------------

    def _select_partitioner(self, partitioner: str | CustomPartitioner) -> _Partitioner:
        if callable(partitioner):
            return lambda topic, columns, view, _loads, rows: _call_partitioner(partitioner, topic, columns, view, rows)
        placements: dict[str, _Partitioner] = {
            # The empty key is a key, as in Java.
            "default": partial(self._place_keys, partitions_of_keys, 0),
            "round_robin": self._round_robin,
            "random": self._random,
            # As in librdkafka the empty key is none.
            "consistent_random": partial(self._place_keys, _crc32_partitions_of_keys, 1),
        }
        if partitioner not in placements:
            raise ConfigError(f"partitioner {partitioner!r} is unknown; known are {', '.join(placements)}")
        return placements[partitioner]

    def _place_keys(
        self,
        place: Callable[[BytesColumn, int], Array],
        key_bytes_min: int,
        topic: str,
        columns: RecordColumns,
        view: PartitionView,
        loads: Loads | None,
        rows: Array | None,
    ) -> Array:
        """Rows whose key is null or shorter than `key_bytes_min` are spread like rows without a key."""
        key = columns.key
        if key is None or self._ignores_keys:
            return self._stick(topic, columns, view, loads, rows)
        partitions, lengths = place(key, view.partition_count), key.lengths
        if rows is not None:
            partitions, lengths = partitions[rows], lengths[rows]
        if key.shortest < key_bytes_min:
            unkeyed = np.flatnonzero(lengths < key_bytes_min)
            asked = unkeyed if rows is None else rows[unkeyed]
            partitions[unkeyed] = self._stick(topic, columns, view, loads, asked)
        return partitions

    def _round_robin(
        self, topic: str, columns: RecordColumns, view: PartitionView, _loads: Loads | None, rows: Array | None
    ) -> Array:
        """Keys are ignored, as in Java's RoundRobinPartitioner."""
        count = columns.row_count if rows is None else len(rows)
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + count
        choices = np.array(view.available or range(view.partition_count), np.int32)
        return choices[np.arange(turn, turn + count) % len(choices)]

    def _random(
        self, topic: str, columns: RecordColumns, view: PartitionView, _loads: Loads | None, rows: Array | None
    ) -> Array:
        """A random partition per row, whatever its key, like librdkafka's partitioner of that name."""
        count = columns.row_count if rows is None else len(rows)
        choices = np.array(view.available or range(view.partition_count), np.int32)
        return choices[[int(self._random_number() * len(choices)) for _ in range(count)]]

    # ---- unkeyed rows ----------------------------------------------------------------------------------------------

    def _stick(
        self, topic: str, columns: RecordColumns, view: PartitionView, loads: Loads | None, rows: Array | None
    ) -> Array:
        """Splits the rows into sticky runs of one partition each. A run ends before a row that does not fit its batch.

        KIP-794 ends it after that row; then every run would leave the beginning of another batch behind.
        """
        ends = self._record_ends(columns, rows)
        count = len(ends)
        choices = view.available or range(view.partition_count)
        weight_ends: list[int] = []
        sticky = self._sticky.get(topic)
        if sticky is None or sticky.partition not in choices:
            sticky = self._sticky[topic] = _Sticky(self._next_partition(choices, loads, weight_ends))
        stays: list[int] = []
        lengths: list[int] = []
        start = 0
        before = 0
        while start < count:
            room = self._sticky_bytes - sticky.used_bytes
            stop = int(ends.searchsorted(before + room, side="right"))
            if sticky.used_bytes == HEADER_BYTES:
                stop = max(stop, start + 1)
            if stop > start:
                stays.append(sticky.partition)
                lengths.append(stop - start)
                sticky.used_bytes += int(ends[stop - 1]) - before
                before = int(ends[stop - 1])
                start = stop
            if start < count:
                sticky = self._sticky[topic] = _Sticky(self._next_partition(choices, loads, weight_ends))
        return np.repeat(np.array(stays, np.int32), lengths)

    def _record_ends(self, columns: RecordColumns, rows: Array | None) -> Array:
        sizes = columns.record_sizes(
            timestamp_span_ms=columns.timestamp_span_ms(),
            records_max=self._sticky_bytes // RECORD_BYTES_MIN,
        )
        count = columns.row_count if rows is None else len(rows)
        if isinstance(sizes, int):
            return np.arange(1, count + 1) * sizes
        return np.cumsum(sizes if rows is None else sizes[rows])

    def _next_partition(self, choices: Sequence[int], loads: Loads | None, weight_ends: list[int]) -> int:
        """Uniform, or with adaptive partitioning weighted towards short queues, as in KIP-794.

        `weight_ends`: the weights added up. The first choice of a call fills it in, as a topic may have thousands of
        partitions, and the rows of one call many stays.
        """
        number = self._random_number()
        if not loads:
            return choices[int(number * len(choices))]
        if not weight_ends:
            queued = [loads.get(partition, 0) for partition in choices]
            longest = max(queued)
            weight_ends.extend(accumulate([longest + 1 - length for length in queued]))
        return choices[bisect_right(weight_ends, int(number * weight_ends[-1]))]


def _crc32_partitions_of_keys(key: BytesColumn, partition_count: int) -> Array:
    content = key.data.data
    starts = key.starts[:-1].tolist()
    lengths = np.maximum(key.lengths, 0).tolist()
    return np.fromiter(
        (
            zlib.crc32(content[start : start + length]) % partition_count
            for start, length in zip(starts, lengths, strict=True)
        ),
        np.int32,
        len(starts),
    )


def _call_partitioner(
    partitioner: CustomPartitioner, topic: str, columns: RecordColumns, view: PartitionView, rows: Array | None
) -> Array:
    try:
        answer = np.asarray(partitioner(topic, columns, view))
    except Exception as error:  # it may raise anything
        text = f"the partitioner raised {type(error).__name__} for records of topic {topic}"
        if str(error):
            text = f"{text}: {error}"
        raise DataError(text, PARTITIONER_FAILED) from error
    if answer.shape != (columns.row_count,) or answer.dtype.kind not in "iu":
        raise DataError(
            f"the partitioner answered for topic {topic} with {answer.dtype} of shape {answer.shape}; "
            f"it must give one integer for each of {columns.row_count} rows",
            PARTITIONER_FAILED,
        )
    is_outside = (answer < 0) | (answer >= view.partition_count)
    outside = np.flatnonzero(is_outside) if rows is None else rows[is_outside[rows]]
    if len(outside):
        row = int(columns.row_ids[outside[0]])
        raise DataError(
            f"the partitioner chose {int(answer[outside[0]])} for row {row}; "
            f"topic {topic} has {view.partition_count} partitions",
            PARTITIONER_FAILED,
            row=row,
        )
    return (answer if rows is None else answer[rows]).astype(np.int32)
