"""Compaction in the core: which records are removed, which stay, and that nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_sink.testing import BrokerCluster, Settings
from kafka_sink.testing.batches import read_records
from kafka_sink.testing.log import PartitionLog
from kafka_sink.testing.storage import Storage
from tests.support.broker_requests import record
from tests.support.cluster_client import ClusterClient, batch

BACKOFF_MS = 15_000
Row = tuple[int, bytes | None, bytes | None]


def compacted_topic(**configs: str) -> ClusterClient:
    client = ClusterClient(BrokerCluster(1, settings=Settings({"transaction.version": "0"})))
    client.core.cluster.create_topic(
        "t", 1, 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", **configs}
    )
    return client


def write(client: ClusterClient, *rows: tuple[bytes, bytes | None], **header: object) -> None:
    section = b"".join(record(index, value, key) for index, (key, value) in enumerate(rows))
    values = [value or b"" for _, value in rows]
    transactional_id = "tx" if header.get("transactional") else None
    data = batch(*values, section=section, timestamp_ms=client.now_ms, **header)  # type: ignore[arg-type]
    assert client.produce(data, transactional_id=transactional_id)[0] == 0


def log_of(client: ClusterClient) -> PartitionLog:
    return client.core.cluster.topics["t"].partitions[0].log


def rows(client: ClusterClient) -> list[Row]:
    return [
        (batch.base_offset + one.offset_delta, one.key, one.value)
        for batch in log_of(client).batches
        if not batch.is_control
        for one in read_records(batch)
    ]


def states(log: PartitionLog) -> dict[int, tuple[int, int, int]]:
    return {one: (entry.epoch, entry.last_sequence, entry.last_offset) for one, entry in log.producers.entries.items()}


def test_the_newest_record_of_each_key_stays_at_its_offset_and_the_newest_batch_is_not_touched() -> None:
    client = compacted_topic()
    write(client, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    write(client, (b"b", b"2"))
    write(client, (b"b", b"3"), (b"b", b"4"))
    client.advance(BACKOFF_MS - 1)
    assert len(rows(client)) == 6
    client.advance(1)
    assert rows(client) == [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"b", b"3"), (5, b"b", b"4")]
    assert log_of(client).end_offset == 6
    assert client.fetch(0)["records"][:8] == bytes(8), "the batch keeps its base offset"


def test_a_tombstone_stays_for_delete_retention_after_the_first_pass_that_saw_it() -> None:
    client = compacted_topic(**{"delete.retention.ms": "60000"})
    write(client, (b"a", b"1"))
    write(client, (b"a", None))
    write(client, (b"z", b"1"))
    client.advance(BACKOFF_MS)
    assert rows(client) == [(1, b"a", None), (2, b"z", b"1")]
    [stamped] = [one for one in log_of(client).batches if one.delete_horizon_ms is not None]
    assert stamped.delete_horizon_ms == BACKOFF_MS + 60_000
    assert read_records(stamped)[0].timestamp_ms == 0, "its own time is kept"
    client.advance(60_000 - BACKOFF_MS - 1)
    write(client, (b"z", b"2"))
    client.advance(BACKOFF_MS)
    assert rows(client)[0] == (1, b"a", None)
    write(client, (b"z", b"3"))
    client.advance(BACKOFF_MS)
    assert [row[1] for row in rows(client)] == [b"z", b"z"]


@pytest.mark.parametrize("commit", [True, False])
def test_nothing_of_an_open_transaction_is_touched_and_what_was_aborted_goes(commit: bool) -> None:
    client = compacted_topic()
    write(client, (b"k", b"before"))
    producer_id, epoch = client.begin("tx")
    assert client.add("tx", producer_id, epoch, 0) == 0
    write(client, (b"k", b"inside"), producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
    write(client, (b"k", b"inside too"), producer_id=producer_id, epoch=epoch, sequence=1, transactional=True)
    write(client, (b"z", b"1"))
    client.advance(BACKOFF_MS)
    assert [row[2] for row in rows(client)] == [b"before", b"inside", b"inside too", b"1"]
    assert client.end("tx", producer_id, epoch, commit, version=3)[0] == 0
    write(client, (b"z", b"2"))
    client.advance(BACKOFF_MS)
    assert rows(client)[0] == ((2, b"k", b"inside too") if commit else (0, b"k", b"before"))
    assert b"inside" not in [row[2] for row in rows(client)]
    # The sequence number, the marker and the aborted transaction are kept longer than the records.
    assert states(log_of(client))[producer_id] == (epoch, 1, 2)
    assert [one.is_control for one in log_of(client).batches].count(True) == 1
    assert len(log_of(client).aborted) == (0 if commit else 1)


def test_producer_states_and_aborted_transactions_are_the_same_when_rebuilt_from_what_is_left(tmp_path: Path) -> None:
    client = compacted_topic(**{"delete.retention.ms": "1"})
    for number in range(6):
        producer_id, epoch = client.begin("tx")
        assert client.add("tx", producer_id, epoch, 0) == 0
        write(client, (b"k", b"%d" % number), producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
        assert client.end("tx", producer_id, epoch, number % 2 == 0, version=3)[0] == 0
        write(client, (b"z", b"%d" % number), producer_id=1000 + number, epoch=0, sequence=0)
        client.advance(BACKOFF_MS)
    log = log_of(client)
    kept, end_offset, known = rows(client), log.end_offset, states(log)
    assert len(log.batches) < 18
    storage = Storage(tmp_path)
    storage.save(client.core)
    again = ClusterClient(BrokerCluster(1, settings=Settings({"transaction.version": "0"})))
    stored = Storage(tmp_path)
    stored.load(again.core)
    stored.close()
    assert rows(again) == kept and log_of(again).end_offset == end_offset
    assert states(log_of(again)) == known
    assert log_of(again).aborted == log.aborted and log_of(again).last_stable_offset == end_offset
    assert log_of(again).cleaned_offset == log.cleaned_offset
    write(again, (b"k", b"next"), producer_id=1005, epoch=0, sequence=1)


def test_records_younger_than_the_lag_wait_and_are_compacted_later_without_a_new_append() -> None:
    client = compacted_topic(**{"min.compaction.lag.ms": "100000"})
    for number in range(3):
        write(client, (b"k", b"%d" % number))
    client.advance(BACKOFF_MS)
    assert len(rows(client)) == 3
    client.advance(100_000)
    assert [row[2] for row in rows(client)] == [b"1", b"2"]
    assert client.core.housekeeping._to_compact == set()


@pytest.mark.parametrize("configs", [{"segment.ms": "3600000"}, {"cleanup.policy": "delete"}])
def test_the_active_segment_and_other_topics_are_left_alone(configs: dict[str, str]) -> None:
    client = compacted_topic(**configs)
    for number in range(3):
        write(client, (b"k", b"%d" % number))
        client.advance(BACKOFF_MS)
    assert len(rows(client)) == 3
