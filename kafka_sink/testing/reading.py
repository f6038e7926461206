"""The records of a topic as read with isolation.level=read_committed: for tests that check what was written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafka_sink.testing.batches import read_records
from kafka_sink.testing.log import PartitionLog
from kafka_sink.testing.topics import Topic


class CommittedRecord(NamedTuple):
    """A record as a consumer sees it. `headers` may contain a name more than once."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def read_committed_records(topics: dict[str, Topic], name: str) -> list[CommittedRecord]:
    """By partition and offset, up to the last stable offset of each partition, without aborted records."""
    if name not in topics:
        raise ValueError(f"there is no topic {name!r}")
    return [record for partition in topics[name].partitions for record in _read(partition.index, partition.log)]


def _read(partition: int, log: PartitionLog) -> Iterator[CommittedRecord]:
    for batch in log.batches:
        if batch.base_offset >= log.last_stable_offset:
            return
        aborted = log.list_aborted(batch.base_offset, batch.last_offset + 1)
        is_aborted = batch.is_transactional and any(one.producer_id == batch.producer_id for one in aborted)
        if batch.is_control or is_aborted:
            continue
        for record in read_records(batch):
            offset = batch.base_offset + record.offset_delta
            if offset >= log.start_offset:
                headers = tuple((header.decode(errors="replace"), value) for header, value in record.headers)
                yield CommittedRecord(partition, offset, record.key, record.value, headers, batch.time_of(record))
