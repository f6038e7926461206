"""Decodes fetched bytes to what a read_committed consumer sees: no records of aborted transactions, no markers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka_sink.exactly_once.log_scan import raw_batches
from kafka_sink.records.scalar import Record


def committed_records(
    records: bytes, aborted: Iterable[Mapping[str, Any]] | None, fetch_offset: int
) -> tuple[list[tuple[int, Record]], int]:
    """Records with their offsets, and the offset to fetch next (`fetch_offset` if there was no whole batch).

    `aborted` is the list in the fetch response: producer ids, and the first offset of each aborted transaction. It
    holds those that overlap the fetched range; each ends at its marker.
    """
    beginnings = sorted((row["first_offset"], row["producer_id"]) for row in aborted or ())
    aborting: set[int] = set()
    found: list[tuple[int, Record]] = []
    next_offset = fetch_offset
    for batch in raw_batches(records):
        while beginnings and beginnings[0][0] < batch.next_offset:
            aborting.add(beginnings.pop(0)[1])
        next_offset = max(next_offset, batch.next_offset)
        if batch.is_control:
            if batch.decode().is_abort_marker:
                aborting.discard(batch.producer_id)
            continue
        if batch.is_transactional and batch.producer_id in aborting:
            continue
        decoded = batch.decode()
        found += [
            (offset, record)
            for offset, record in zip(decoded.offsets, decoded.records, strict=True)
            if offset >= fetch_offset
        ]
    return found, next_offset
