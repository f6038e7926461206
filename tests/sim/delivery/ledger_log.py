"""The ledger as it is in the broker's log: which records are committed, and which have no marker yet.

A lost marker (`Assumptions.lose_marker`) counts as if it were in the log: what the coordinator has decided is what
happened, whether or not a reader can see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafka_sink.commit.ledger import Kind, LedgerRecord, decode_key, is_nameless
from kafka_sink.commit.ledger_codec import decode_record
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.formats.records.scalar import DecodedBatch, decode_batch
from kafka_sink.testing import BrokerCluster
from tests.sim.delivery.plan import LEDGER

# Producer id and epoch of the records -> whether the lost marker was that of a commit.
LostMarkers = Mapping[tuple[int, int], bool]


class Entry(NamedTuple):
    offset: int
    record: LedgerRecord
    is_committed: bool


def ledger_entries(core: BrokerCluster, lost: LostMarkers) -> list[Entry]:
    """The records in the order of the log, without aborted ones."""
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
        records = _records(decoded)
        was_committed = lost.get((decoded.producer_id, decoded.producer_epoch))
        if was_committed is None:
            waiting.setdefault(decoded.producer_id, []).extend(records)
        elif was_committed:
            found += [Entry(*one, True) for one in records]
    found += [Entry(*one, False) for records in waiting.values() for one in records]
    return sorted(found, key=lambda entry: entry.offset)


def unseen_entries(core: BrokerCluster, lost: LostMarkers) -> list[LedgerRecord]:
    """Committed records that no reader knows to be committed, because their marker was lost."""
    decoded = [decode_batch(batch.data) for batch in core.cluster.topics[LEDGER].partitions[0].log.batches]
    return [
        record
        for batch in decoded
        if batch.producer_id >= 0 and lost.get((batch.producer_id, batch.producer_epoch))
        and not (batch.is_commit_marker or batch.is_abort_marker)
        for _, record in _records(batch)
    ]  # fmt: skip


def open_sinks(core: BrokerCluster, lost: LostMarkers) -> set[str]:
    """Sinks of writes without a label whose decision the ledger shows as open or lost. A null closes it."""
    kinds: dict[str, Kind | None] = {}
    waiting: dict[int, list[tuple[str, Kind | None]]] = {}
    for batch in core.cluster.topics[LEDGER].partitions[0].log.batches:
        decoded = decode_batch(batch.data)
        if decoded.is_commit_marker or decoded.is_abort_marker:
            kinds.update(waiting.pop(decoded.producer_id, []) if decoded.is_commit_marker else [])
        elif decoded.producer_id >= 0:
            found = [
                (decode_key(one.key), None if one.value is None else decode_record(one.value).kind)
                for one in decoded.records
            ]
            if lost.get((decoded.producer_id, decoded.producer_epoch)):
                kinds.update(found)
            else:
                waiting.setdefault(decoded.producer_id, []).extend(found)
    shown = (Kind.INTENT, Kind.STUCK)
    return {key.rstrip("/") for key, kind in kinds.items() if is_nameless(key) and kind in shown}


def _records(decoded: DecodedBatch) -> list[tuple[int, LedgerRecord]]:
    return [
        (offset, decode_record(record.value))
        for offset, record in zip(decoded.offsets, decoded.records, strict=True)
        if record.value is not None
    ]


def newest_of(
    core: BrokerCluster, key: BatchKey, lost: LostMarkers, sink_id: str = "", *, with_entries: bool = False
) -> LedgerRecord | None:
    """`sink_id`: writes without a label have the same key, and are told apart by it."""
    entries = [
        entry
        for entry in ledger_entries(core, lost)
        if entry.record.key == key and (key.is_named or entry.record.sink_id == sink_id)
    ]
    if with_entries:
        return next((entry.record for entry in reversed(entries) if entry.record.entries), None)
    return next((entry.record for entry in reversed(entries) if entry.is_committed), None)
