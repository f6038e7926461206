"""An address moves from a cluster to its mirror while the process of a driver lives on; and a mirror that goes on
copying the ledger after the stream has begun in the other cluster."""

from __future__ import annotations

import json
import logging
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import Producer

import kafka_sink
from kafka_sink.commit.identity import run_of_query, sink_id_of_query
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry, ledger_key
from kafka_sink.commit.ledger_codec import decode_record, encode_record
from kafka_sink.commit.receipt import UNNAMED_BATCH, BatchKey
from kafka_sink.errors import CommitAborted
from kafka_sink.spark import driver
from kafka_sink.spark.closings import CLOSINGS
from kafka_sink.spark.planning import plan_query
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.spark.task_writer import TaskResult, TaskWriter, commit_write
from kafka_sink.testing import EmbeddedBroker
from tests.chaos import bare_work
from tools.foreign_reader import read_topic
from tools.worker_environment import worker_environment

HERE, THERE = "cluster-a", "cluster-b"
ROWS = 4
LEDGER = "__pykafka_sink_ledger"


@pytest.fixture(autouse=True)
def fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_driver: None) -> None:
    for name, value in worker_environment(tmp_path).items():
        monkeypatch.setenv(name, value)


class Address:
    """Of a cluster, and later of its mirror, which has the same topics and knows no producer id."""

    def __init__(self, folder: Path, release: str) -> None:
        self._folder, self._release = folder, release
        self.broker = self._start(HERE, topics={"t": 2, "m": 1})
        self.servers = self.broker.bootstrap_servers

    def _start(self, name: str, **more: Any) -> EmbeddedBroker:
        broker = EmbeddedBroker(data_dir=self._folder / name, release=self._release, **more)
        broker.core.cluster.cluster_id = name
        broker.start()
        return broker

    def cut_over(self) -> None:
        for topic in ("t", "m", LEDGER):
            read_topic(self.servers, topic)  # until its last marker is written: nothing else would end what is open
        self.broker.stop()
        shutil.copytree(self._folder / HERE, self._folder / THERE, ignore=shutil.ignore_patterns("lock"))
        state_file = self._folder / THERE / "state.json"
        state = json.loads(state_file.read_text())
        state_file.write_text(json.dumps({**state, "transactions": {}, "next_producer_id": 5_000}))
        self.broker = self._start(THERE, port=int(self.servers.rpartition(":")[2]))


@pytest.fixture(params=["4.3", "3.9"])
def address(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Address]:
    found = Address(tmp_path, request.param)
    yield found
    found.broker.stop()


class Stream:
    """A query whose driver's side runs in this process."""

    def __init__(self, servers: str, **more: str) -> None:
        self.query_id = str(uuid.uuid4())
        self.sink_id = sink_id_of_query("orders", self.query_id)
        named = {name.replace("_", "."): value for name, value in more.items()}
        quick = {"kafka.reconnect.backoff.ms": "20", "kafka.reconnect.backoff.max.ms": "200"}
        self.settings = {
            "kafka.bootstrap.servers": servers, "topic": "t", "sink.id": "orders", "checkpointLocation": "/c",
            **quick, **named,
        }  # fmt: skip
        self.start()

    def start(self) -> None:
        """Again, in the same process."""
        self.run, self._attempts = run_of_query(str(uuid.uuid4())), 0

    def place(self, batch: int) -> TaskPlace:
        self._attempts += 1
        return TaskPlace(BatchKey(self.query_id, batch), self.run, 0, self._attempts, self.sink_id)

    def by_format(self, batch: int, count: int = ROWS) -> None:
        rows = range(batch * ROWS, batch * ROWS + count)
        message = bare_work.write(bare_work.plan(self.settings), self.place(batch), rows, 2)
        bare_work.commit(self.settings, [message], batch)

    def in_foreach_batch(self, batch: int, count: int = ROWS) -> None:
        planned = plan_query(self.settings, bare_work.SCHEMA)
        rows = range(batch * ROWS, batch * ROWS + count)
        batches = list(bare_work._arrow_batches(rows, 2)) or [
            pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary()), "partition": pa.array([], pa.int32())})
        ]
        result = TaskResult(write_task(planned.options, planned.columns, batches, self.place(batch)))
        writer = TaskWriter(planned.options, planned.columns, planned.sink_id)
        finished = writer.finished_batch([result], key=BatchKey(self.query_id, batch), run=self.run)
        commit_write(finished, [result])
        CLOSINGS.value.wait()


DOORS: list[Callable[..., None]] = [Stream.by_format, Stream.in_foreach_batch]


class Seen(NamedTuple):
    rows: int
    copies: int


def seen(servers: str) -> Seen:
    found = Counter(record.value for record in read_topic(servers, "t"))
    return Seen(len(found), sum(found.values()) - len(found))


def ledger_of(stream: Stream, servers: str) -> list[LedgerRecord]:
    key = stream.sink_id.encode()
    return [decode_record(one.value) for one in read_topic(servers, LEDGER) if one.key == key and one.value]


@pytest.mark.parametrize("has_rows", [True, False], ids=["rows", "no rows"])
@pytest.mark.parametrize("deliver", DOORS, ids=["format", "foreachBatch"])
def test_a_driver_that_lives_through_a_cut_over_decides_nothing_under_the_cluster_from_before(
    address: Address, deliver: Callable[..., None], has_rows: bool
) -> None:
    stream = Stream(address.servers, manifest_topic="m")
    for batch in (0, 1):
        deliver(stream, batch)
    address.cut_over()
    count = ROWS if has_rows else 0
    with pytest.raises(CommitAborted) as refused:
        deliver(stream, 2, count)
    for words in (f"planned with the Kafka cluster '{HERE}'", f"'{THERE}' answers now", "No decision", "may run again"):
        assert words in str(refused.value)
    assert {record.key.batch_id for record in ledger_of(stream, address.servers)} == {0, 1}
    assert seen(address.servers) == (2 * ROWS, 0)
    # Spark's query fails with the batch, and is started again, in the same process.
    stream.start()
    deliver(stream, 2, count)
    deliver(stream, 3)
    assert seen(address.servers) == (3 * ROWS + count, 0)
    clusters = {record.key.batch_id: record.cluster_id for record in ledger_of(stream, address.servers)}
    assert clusters == {0: HERE, 1: HERE, 2: THERE, 3: THERE}
    (found,) = kafka_sink.read_manifests(stream.settings, batch=3, timeout_s=20)
    assert found.cluster_id == THERE


# ---- a mirror that still copies ----


@pytest.fixture
def mirror() -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(topics={"t": 2})
    broker.core.cluster.cluster_id = THERE
    broker.start()
    yield broker
    broker.stop()


def copy(servers: str, record: LedgerRecord) -> None:
    """As a tool does that copies in transactions."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "mirror"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(LEDGER, key=ledger_key(record.sink_id, record.key), value=encode_record(record))
    producer.commit_transaction(20)


def delivered_there(stream: Stream, batch: int) -> LedgerRecord:
    """In the cluster from before."""
    key = BatchKey(stream.query_id, batch)
    return LedgerRecord(Kind.DONE, stream.sink_id, key, "a" * 16, row_count=ROWS, topics={"t": ROWS}, cluster_id=HERE)


def forget_everything() -> None:
    """As a new process does."""
    CLOSINGS.value.wait()
    driver.CLIENTS.value.close()
    for kept in (driver.CLIENTS, driver.DRIVERS, driver.ANSWERS):
        kept.renew()


def test_a_mirror_that_copies_the_end_of_the_ledger_after_the_cut_over_has_no_batch_delivered_twice(
    mirror: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(mirror.bootstrap_servers)
    bare_work.plan(stream.settings)  # it makes the ledger
    copy(mirror.bootstrap_servers, delivered_there(stream, 100))
    for batch in (101, 102):
        stream.by_format(batch)
    forget_everything()
    stream.start()
    # The driver has died before Spark counted 102 as done. The cluster from before is there again, and is copied on.
    copy(mirror.bootstrap_servers, delivered_there(stream, 101))
    with caplog.at_level(logging.WARNING, "kafka_sink"):
        stream.by_format(102)
    assert seen(mirror.bootstrap_servers) == (2 * ROWS, 0)
    said = [text for text in caplog.messages if text.startswith("copied records are passed over")]
    assert len(said) == 1 and f"above batch 102 of query {stream.query_id}" in said[0]
    assert f"of the Kafka cluster '{HERE}' of batch 101" in said[0] and "End that copying" in said[0]
    # Its next record is above the copy.
    stream.by_format(103)
    forget_everything()
    stream.start()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "kafka_sink"):
        stream.by_format(103)
        stream.by_format(104)
    assert seen(mirror.bootstrap_servers) == (4 * ROWS, 0) and not caplog.messages


def test_open_writes_without_a_label_that_were_copied_are_named_once_and_then_cost_nothing(
    mirror: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"kafka.bootstrap.servers": mirror.bootstrap_servers, "topic": "t", "sink.id": "orders"}
    bare_work.plan_export({**settings, "batch.id": "day-0"})
    day_ago_ms = int(time.time() * 1000) - 86_400_000
    entry = TransactionEntry(0, 0, 7, 0, 2, "t", 0, 5, 10)
    for number in range(driver.CLOSED_MAX + 1):
        record = LedgerRecord(
            Kind.INTENT, f"batch-{number:032x}", UNNAMED_BATCH, "b" * 16, wall_ms=day_ago_ms, row_count=10,
            topics={"t": 10}, cluster_id=HERE, entries=(entry,),
        )  # fmt: skip
        copy(mirror.bootstrap_servers, record)
    with caplog.at_level(logging.WARNING, "kafka_sink"):
        for number in (1, 2, 3):
            forget_everything()
            bare_work.plan_export({**settings, "batch.id": f"day-{number}"})
    (said,) = caplog.messages
    assert f"'{HERE}', with {driver.CLOSED_MAX + 1} batch writes" in said
    claims = [one for one in read_topic(mirror.bootstrap_servers, LEDGER) if (one.key or b"").startswith(b"/driver/")]
    assert claims == []
