"""Records of one topic as `send` leaves them: plain rows, until there are enough of them to be worth a column.

A row is one tuple, appended in one step: an interrupt can come before or after it, never into the middle of it.
Used under the appender's lock.
"""

from __future__ import annotations

import numpy as np

from kafka_sink.engine.cluster import ClusterView
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.routing import PartitionView
from kafka_sink.runtime.future import RecordConsignment

HeaderPairs = tuple[tuple[str, bytes | None], ...]
# Key, value, headers, timestamp, partition.
Row = tuple[bytes | None, bytes | None, HeaderPairs | None, int, int | None]


class Collector:
    __slots__ = (
        "byte_count", "cluster", "consignment", "opened_ms", "partition_count", "rows", "slow_node_ids", "topic",
        "view",
    )  # fmt: skip

    def __init__(self, topic: str, consignment: RecordConsignment) -> None:
        self.topic = topic
        # What the brokers said when it was looked at last; compared by identity.
        self.cluster: ClusterView | None = None
        self.slow_node_ids: frozenset[int] = frozenset()
        self.partition_count = 0
        self.view = PartitionView(0, ())
        self.restart(consignment)

    def restart(self, consignment: RecordConsignment) -> None:
        self.consignment = consignment
        self.rows: list[Row] = []
        self.byte_count = 0
        self.opened_ms = 0

    def columns(self) -> RecordColumns:
        keys, values, headers, timestamps, partitions = zip(*self.rows, strict=True)
        return RecordColumns.from_rows(
            keys,
            values,
            headers if any(headers) else None,
            timestamps,
            None if partitions.count(None) == len(partitions) else partitions,
        )

    def seal(self, columns: RecordColumns) -> None:
        """Notes for the futures what only the columns know; no row comes behind."""
        assert columns.timestamps is not None
        self.consignment.seal(
            np.asarray(columns.timestamps),
            None if columns.key is None else columns.key.lengths,
            None if columns.value is None else columns.value.lengths,
        )
