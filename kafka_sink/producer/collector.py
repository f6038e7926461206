"""Records of one topic collected by `send`: plain rows, until there are enough for a column.

A row is one tuple, appended in one step: an interrupt can come before or after it, never in between. Used under the
appender's lock.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kafka_sink.client.cluster import ClusterView
from kafka_sink.producer.future import PendingBatch
from kafka_sink.records.columns import NO_PARTITION, RecordColumns
from kafka_sink.records.routing import PartitionView

HeaderPairs = tuple[tuple[str, bytes | None], ...]
# Key, value, headers, timestamp, partition.
Row = tuple[bytes | None, bytes | None, HeaderPairs | None, int, int | None]


class Collector:
    def __init__(self, topic: str, pending: PendingBatch) -> None:
        self.topic = topic
        # The cluster view at the last check; compared by identity.
        self.cluster: ClusterView | None = None
        self.slow_node_ids: frozenset[int] = frozenset()
        self.partition_count = 0
        self.view = PartitionView(0, ())
        self.restart(pending)

    def restart(self, pending: PendingBatch) -> None:
        self.pending = pending
        self.rows: list[Row] = []
        self.byte_count = 0
        self.opened_ms = 0
        self.has_headers = False
        self.has_partitions = False

    def columns(self) -> RecordColumns:
        rows = self.rows
        headers = [row[2] for row in rows] if self.has_headers else None
        columns = RecordColumns.from_rows([row[0] for row in rows], [row[1] for row in rows], headers)
        partitions = None
        if self.has_partitions:
            partitions = np.array([NO_PARTITION if row[4] is None else row[4] for row in rows], np.int32)
        # The numbers were checked by `send`.
        return replace(columns, timestamps=np.array([row[3] for row in rows], np.int64), partitions=partitions)

    def seal(self, columns: RecordColumns) -> None:
        """Passes timestamps and sizes from the columns to the futures; no row may follow."""
        assert columns.timestamps is not None
        self.pending.seal(
            np.asarray(columns.timestamps),
            None if columns.key is None else columns.key.lengths,
            None if columns.value is None else columns.value.lengths,
        )
