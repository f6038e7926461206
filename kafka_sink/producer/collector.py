"""Records of one topic collected by `send`: plain rows, until there are enough for a column.

A row is one tuple, appended in one step: an interrupt can come before or after it, never in between. Used under the
appender's lock.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kafka_sink.formats.records.columns import NO_PARTITION, RecordColumns
from kafka_sink.formats.records.routing import PartitionView
from kafka_sink.kafka.client.cluster import ClusterView
from kafka_sink.producer.future import PendingBatch

HeaderPairs = tuple[tuple[str, bytes | None], ...]
# Key, value, headers, timestamp, partition.
Row = tuple[bytes | None, bytes | None, HeaderPairs | None, int, int | None]


class Collector:
    def __init__(self, topic: str, pending: PendingBatch) -> None:
        self.topic = topic
        # The cluster view at the last check; compared by identity.
        self.cluster: ClusterView | None = None
        self.slow_node_ids: frozenset[int] = frozenset()
        self.view = PartitionView(0, ())
        self.restart(pending)

    def restart(self, pending: PendingBatch) -> None:
        self.pending = pending
        self.rows: list[Row] = []
        self.byte_count = 0
        self.opened_ms = 0

    def columns(self) -> RecordColumns:
        keys, values, headers, timestamps, chosen = (list(each) for each in zip(*self.rows, strict=True))
        columns = RecordColumns.from_rows(keys, values, headers if any(headers) else None)
        partitions = None
        if chosen.count(None) < len(chosen):
            partitions = np.array([NO_PARTITION if each is None else each for each in chosen], np.int32)
        # The numbers were checked by `send`.
        return replace(columns, timestamps=np.array(timestamps, np.int64), partitions=partitions)

    def seal(self, columns: RecordColumns) -> None:
        """Passes timestamps and sizes from the columns to the futures; no row may follow."""
        assert columns.timestamps is not None
        self.pending.seal(
            np.asarray(columns.timestamps),
            None if columns.key is None else columns.key.lengths,
            None if columns.value is None else columns.value.lengths,
        )
