"""The ledger as it stands in the broker's log: which records are committed, which have no marker yet."""

from __future__ import annotations

from typing import NamedTuple

from kafka_sink.delivery.ledger import LedgerRecord
from kafka_sink.delivery.ledger_codec import decode_record
from kafka_sink.delivery.receipt import BatchKey
from kafka_sink.records.scalar import decode_batch
from kafka_sink.testing import BrokerCluster
from tests.sim.delivery.plan import LEDGER


class Entry(NamedTuple):
    offset: int
    record: LedgerRecord
    is_committed: bool


def ledger_entries(core: BrokerCluster) -> list[Entry]:
    """In the order of the log, without aborted ones."""
    waiting: dict[int, list[tuple[int, LedgerRecord]]] = {}
    found: list[Entry] = []
    for batch in core.cluster.topics[LEDGER].partitions[0].log.batches:
        decoded = decode_batch(batch.data)
        if decoded.is_commit_marker or decoded.is_abort_marker:
            ended = waiting.pop(decoded.producer_id, [])
            found += [Entry(*one, True) for one in ended if decoded.is_commit_marker]
            continue
        if decoded.producer_id < 0:
            continue  # a claim
        for offset, record in zip(decoded.offsets, decoded.records, strict=True):
            if record.value is not None:
                waiting.setdefault(decoded.producer_id, []).append((offset, decode_record(record.value)))
    found += [Entry(*one, False) for records in waiting.values() for one in records]
    return sorted(found)


def newest_of(core: BrokerCluster, key: BatchKey, *, with_pledges: bool = False) -> LedgerRecord | None:
    entries = [entry for entry in ledger_entries(core) if entry.record.key == key]
    if with_pledges:
        return next((entry.record for entry in reversed(entries) if entry.record.pledges), None)
    return next((entry.record for entry in reversed(entries) if entry.is_committed), None)
