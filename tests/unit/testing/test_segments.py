"""Segments in the core: a Fetch does not read beyond the end of one, and reads on from there."""

from __future__ import annotations

from pathlib import Path

from kafka_sink.testing import BrokerCluster, Settings
from kafka_sink.testing.batches import split_batches
from kafka_sink.testing.log import PartitionLog
from kafka_sink.testing.storage import Storage
from tests.support.cluster_client import ClusterClient, batch

ONE_BATCH = len(batch(b"v"))


def topic(properties: dict[str, str] | None = None, **configs: str) -> ClusterClient:
    client = ClusterClient(BrokerCluster(1, settings=Settings(properties or {})))
    client.core.cluster.create_topic("t", 1, 1, configs)
    return client


def write(client: ClusterClient, count: int = 1) -> None:
    for _ in range(count):
        assert client.produce(batch(b"v", timestamp_ms=client.now_ms))[0] == 0


def log_of(client: ClusterClient) -> PartitionLog:
    return client.core.cluster.topics["t"].partitions[0].log


def fetched(client: ClusterClient, offset: int) -> list[int]:
    return [one.base_offset for one in split_batches(client.fetch(offset)["records"])]


def test_a_fetch_ends_where_the_segment_ends_though_it_tells_a_higher_stable_offset() -> None:
    client = topic(**{"segment.bytes": str(2 * ONE_BATCH)})
    write(client, 5)
    assert log_of(client).segments == [2, 4]
    assert [fetched(client, offset) for offset in range(5)] == [[0, 1], [1], [2, 3], [3], [4]]
    assert client.fetch(0)["last_stable_offset"] == client.fetch(0)["high_watermark"] == 5


def test_a_segment_that_is_old_enough_is_followed_by_another_one_and_zero_is_never_old() -> None:
    client = topic(**{"segment.ms": "1000"})
    write(client, 2)
    client.advance(1_001)
    write(client)
    assert fetched(client, 0) == [0, 1] and fetched(client, 2) == [2]
    without = topic()
    write(without, 2)
    without.advance(10**9)
    write(without)
    assert fetched(without, 0) == [0, 1, 2]


def test_a_segment_can_be_begun_at_any_time_and_markers_are_in_segments_like_records() -> None:
    client = topic({"transaction.version": "0"})
    producer_id, epoch = client.begin("tx")
    assert client.add("tx", producer_id, epoch, 0) == 0
    data = batch(b"v", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
    assert client.produce(data, transactional_id="tx")[0] == 0
    log_of(client).roll()
    log_of(client).roll()
    assert client.end("tx", producer_id, epoch, False, version=3)[0] == 0
    client.advance(10)
    assert fetched(client, 0) == [0] and client.fetch(0)["last_stable_offset"] == 2
    assert fetched(client, 1) == [1]


def test_segments_are_there_after_a_restart_and_those_that_were_cleaned_are_one() -> None:
    client = topic(**{"segment.bytes": str(2 * ONE_BATCH)})
    write(client, 5)
    log = log_of(client)
    log.load(log.batches, 0, log.segments)
    write(client)
    assert log.segments == [2, 4] and fetched(client, 4) == [4, 5]
    log.replace_cleaned(log.batches[:4], 4, set())
    assert fetched(client, 0) == [0, 1, 2, 3] and fetched(client, 4) == [4, 5]


def test_segments_are_stored(tmp_path: Path) -> None:
    client = topic(**{"segment.bytes": str(2 * ONE_BATCH)})
    write(client, 5)
    Storage(tmp_path).save(client.core)
    again = ClusterClient(BrokerCluster(1))
    stored = Storage(tmp_path)
    stored.load(again.core)
    stored.close()
    assert log_of(again).segments == [2, 4]


def test_retention_by_size_keeps_at_least_so_many_bytes_and_never_nothing() -> None:
    client = topic(**{"retention.bytes": str(2 * ONE_BATCH)})
    write(client, 3)
    log = log_of(client)
    for limit, first in ((2 * ONE_BATCH + 1, 0), (2 * ONE_BATCH, 1), (ONE_BATCH + 1, 1), (ONE_BATCH, 2), (1, 2)):
        log.delete_oldest(limit)
        assert (log.start_offset, len(log.batches)) == (first, 3 - first), limit


def test_the_brokers_limit_of_an_answer_is_kept_and_the_first_batch_is_always_there() -> None:
    client = topic({"fetch.max.bytes": str(2 * ONE_BATCH)})
    write(client, 3)
    assert fetched(client, 0) == [0, 1]
    small = topic({"fetch.max.bytes": "1"})
    write(small, 2)
    assert fetched(small, 0) == [0]
