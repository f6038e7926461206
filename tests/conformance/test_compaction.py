"""Compaction: the same batches go to Apache Kafka and to the embedded broker; confluent-kafka reads them back.

On both, every batch is a separate segment (Kafka: segment.ms 1 and a pause), so that the log cleaners have the same
work. The test compares all records with their offsets, which shows what was kept, and what the consumer does not see.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from kafka_sink.testing import EmbeddedBroker
from kafka_sink.testing.batches import Batch, read_records, split_batches
from tests.conformance.conftest import Secured
from tests.conformance.peer import KafkaPeer
from tests.support.broker_requests import batch, record
from tools.foreign_reader import ForeignRecord, read_topic
from tools.java import CONSOLE_CONSUMER, run_class
from tools.waiting import wait_until

# Long enough to write, clean and read the rest of the history, also on a busy machine.
TOMBSTONE_S = 8
CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "1",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(TOMBSTONE_S * 1000),
}
CLEANER = {"log.cleaner.backoff.ms": "150"}
PATIENCE_S = 90
Row = tuple[int, bytes | None, bytes | None]


class Writer:
    """Writes raw batches with pauses; `topic` has one partition."""

    def __init__(self, address: str, topic: str) -> None:
        self.peer = KafkaPeer(address)
        self.topic = topic
        assert self.peer.create_topic(topic, 1, CONFIG) == 0

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.peer.close()

    def write(self, rows: list[tuple[bytes, bytes | None]], **header: object) -> None:
        time.sleep(0.01)
        keys, section = tuple(key for key, _ in rows), None
        if any(value is None for _, value in rows):
            section = b"".join(record(index, value, key) for index, (key, value) in enumerate(rows))
        data = batch(
            *(value or b"" for _, value in rows),
            keys=keys,
            section=section,
            timestamp_ms=self.peer.now(),
            **header,  # type: ignore[arg-type]
        )
        transactional_id = "tx-" + self.topic if header.get("transactional") else None
        code, _ = self.peer.produce(data, topic=self.topic, transactional_id=transactional_id, version=11)
        assert code == 0, code

    def transaction(self, *batches: list[tuple[bytes, bytes | None]], commit: bool) -> None:
        name = "tx-" + self.topic
        producer_id, epoch = self.peer.begin(name)
        assert self.peer.add(name, producer_id, epoch, 0, topic=self.topic) == 0
        for number, rows in enumerate(batches):
            self.write(rows, producer_id=producer_id, epoch=epoch, sequence=number, transactional=True)
        assert self.peer.end(name, producer_id, epoch, commit, version=3)[0] == 0
        self.peer.settle(name)


def write_history(writer: Writer) -> None:
    writer.write([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    writer.write([(b"a", b"2"), (b"d", b"1")])
    writer.transaction([(b"b", b"2")], [(b"e", b"1")], commit=True)
    writer.transaction([(b"c", b"aborted")], [(b"d", b"aborted")], commit=False)
    writer.write([(b"d", None), (b"a", b"3")])
    writer.transaction([(b"e", b"2")], commit=True)
    writer.write([(b"f", b"1"), (b"f", b"2")])
    writer.write([(b"the newest batch", b"1")])


def rows(servers: str, topic: str, isolation: str = "read_committed") -> list[Row]:
    read: list[ForeignRecord] = read_topic(servers, topic, isolation)  # type: ignore[arg-type]
    return [(one.offset, one.key, one.value) for one in read]


COMPACTED = {b"a": b"3", b"b": b"2", b"c": b"1", b"e": b"2", b"f": b"2", b"the newest batch": b"1"}


def fetched(writer: Writer) -> list[Row]:
    """By a plain Fetch, which is fast; the comparison itself uses `rows`."""
    batches: list[Batch] = []
    # Kafka answers a Fetch from one segment only.
    while more := split_batches(
        writer.peer.fetch(batches[-1].last_offset + 1 if batches else 0, topic=writer.topic)["records"]
    ):
        batches += more
    return [
        (one.base_offset + row.offset_delta, row.key, row.value)
        for one in batches
        if not one.is_control
        for row in read_records(one)
    ]


def wait_until_clean(writer: Writer, has_tombstone: bool) -> None:
    def is_clean() -> bool:
        found = fetched(writer)
        return len(found) == len(COMPACTED) + 1 and (has_tombstone or all(row[2] for row in found))

    wait_until(is_clean, lambda: f"the log is clean: {fetched(writer)}", PATIENCE_S, poll_s=0.02)


@pytest.fixture
def embedded() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(properties={**CLEANER, "transaction.version": "0"}) as kafka:
        yield kafka


def compacted(servers: str, topic: str) -> list[list[Row]]:
    """What is left while the tombstone is still kept, and afterwards."""
    with Writer(servers, topic) as writer:
        write_history(writer)
        wait_until_clean(writer, has_tombstone=True)
        with_tombstone = rows(servers, topic)
        assert (b"d", None) in [row[1:] for row in with_tombstone]
        time.sleep(TOMBSTONE_S + 0.1)
        writer.write([(b"the newest batch", b"2")])
        writer.write([(b"the newest batch", b"1")])
        # The newest key then has two records: the active segment is not cleaned and does not affect older records.
        wait_until_clean(writer, has_tombstone=False)
    return [with_tombstone, rows(servers, topic), rows(servers, topic, "read_uncommitted")]


@pytest.mark.parametrize("version", ["4.3.1", pytest.param("3.9.1", marks=pytest.mark.slow)])
def test_compaction_leaves_the_same_records_at_the_same_offsets(
    secured_of: Callable[[str], Secured], embedded: EmbeddedBroker, topic_name: str, version: str
) -> None:
    theirs = secured_of(version).kafka.bootstrap_servers
    with ThreadPoolExecutor(2) as pool:
        ours, other = pool.map(partial(compacted, topic=topic_name), (embedded.bootstrap_servers, theirs))
    assert ours == other
    assert {key: value for _, key, value in ours[1]} == COMPACTED


def test_a_java_consumer_reads_a_compacted_topic_to_its_end(embedded: EmbeddedBroker) -> None:
    with Writer(embedded.bootstrap_servers, "ledger") as writer:
        write_history(writer)
        wait_until_clean(writer, has_tombstone=True)
    arguments = ["--bootstrap-server", embedded.bootstrap_servers, "--topic", "ledger", "--from-beginning"]
    arguments += ["--isolation-level", "read_committed", "--max-messages", str(len(COMPACTED) + 1)]
    arguments += ["--property", "print.key=true", "--property", "print.offset=true", "--timeout-ms", "30000"]
    output = run_class("3.9.1", CONSOLE_CONSUMER, arguments).decode().splitlines()
    read = [line.split("\t") for line in output]
    expected = [
        [f"Offset:{offset}", (key or b"").decode(), "null" if value is None else value.decode()]
        for offset, key, value in rows(embedded.bootstrap_servers, "ledger")
    ]
    assert read == expected
