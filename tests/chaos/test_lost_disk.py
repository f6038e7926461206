"""A log directory of the only broker goes offline, as when its disk is full, and comes back when the broker restarts.

Partitions in that directory have no leader until then; the other partitions keep working. When a transaction ends,
brokers from Kafka 4.3 on write no marker to a partition without a leader and still call the transaction complete
(KAFKA-20734): read_committed readers of the partition would stop there for good. So the sink leaves such a transaction
open, and the sweep of a later batch ends it.

The tests rename the directory. The broker writes a checkpoint file into it several times a second; this fails, and the
broker takes the directory offline. No separate file system and no special permissions are needed.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.formats.records.assembler import CHUNK_BYTES
from kafka_sink.kafka.client.ask import Coordinator
from kafka_sink.kafka.wire.apis import END_TXN, LIST_TRANSACTIONS
from kafka_sink.spark import task
from tests.chaos import bare_work
from tests.chaos.bare_spark import PARTITIONS, BareQuery
from tests.chaos.bare_stream import BareStream
from tests.chaos.clusters import TRANSACTIONS
from tests.conftest import NEWEST, or_without_kafka
from tests.support.asking import LIST_BODY, client_of, described, end_body, end_versions
from tests.support.commanding import Shell
from tests.support.producing import transactional, values
from tools.foreign_reader import end_offsets
from tools.java import release, run_class
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.kafka]

# Longer than the sink waits before it logs the reason (STILL_WAITING_MS).
AWAY_S = 15


class SecondDisk:
    """A second log directory of the broker. Topics that are created later have their partitions in it, because Kafka
    chooses the directory with the fewest partitions."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self._kafka = kafka
        first = kafka.data_folder(1)
        self.folder = first.with_name("second")
        self._away = first.with_name("away")
        self.folder.mkdir()
        identity = (first / "meta.properties").read_text().splitlines()
        lines = [line for line in identity if not line.startswith("directory.id")]
        (self.folder / "meta.properties").write_text("\n".join(lines) + "\n")
        with open(first.with_name("server.properties"), "a") as properties:
            properties.write(f"log.dirs={first},{self.folder}\n")
        kafka.restart(1)

    def take_away(self, topic: str) -> None:
        self.folder.rename(self._away)
        leaders = lambda: {one.leader for one in self._kafka.partitions_of(topic)}  # noqa: E731
        wait_until(lambda: leaders() == {-1}, f"{topic} has no leader")

    def bring_back(self, topic: str) -> None:
        self._away.rename(self.folder)
        self._kafka.restart(1)
        self._kafka.wait_for_topic(topic, PARTITIONS)


@pytest.fixture
def kafka() -> Iterator[KafkaCluster]:
    properties = {"replica.high.watermark.checkpoint.interval.ms": 200}
    with or_without_kafka(KafkaCluster(NEWEST, properties=properties)) as cluster:
        yield cluster


def test_what_a_task_and_a_driver_cannot_end_while_a_disk_is_away_stops_no_reader_when_it_is_back(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster, topic_name: str
) -> None:
    disk = disk_behind_the_clusters_own_topics(kafka, topic_name)
    stream = stream_on(kafka, is_direct=True, kafka__linger__ms=0)
    with stream.query() as query:
        query.run_batch()
        query.plan()
        prepared = query.write_task(0)
        with pytest.raises(ArithmeticError):
            fail_when_acknowledged(stream, query, lambda: disk.take_away(stream.topic))
        query.abort([prepared, None, None])
        assert [one.partition(" ")[2] for one in stream.open_of_tasks()] == ["Ongoing", "Ongoing"]
    disk.bring_back(stream.topic)
    stream.run()
    stream.check(2)


def test_a_commit_waits_for_the_disk_and_then_shows_each_row_to_readers(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster, topic_name: str
) -> None:
    disk = disk_behind_the_clusters_own_topics(kafka, topic_name)
    stream = stream_on(kafka, is_direct=True)
    stream.run()
    with stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        disk.take_away(stream.topic)
        is_back = threading.Timer(AWAY_S, lambda: disk.bring_back(stream.topic))
        is_back.start()
        query.commit(messages)
        is_back.join()
        waited_for = f"still waiting: {stream.topic}-0 (and 2 more partitions) has no leader"
        log = query.worker("commit").log
        assert any(waited_for in line for line in log), log
    stream.check(2)


@pytest.mark.slow
def test_a_decision_of_a_killed_driver_is_finished_when_the_disk_is_back(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster, topic_name: str
) -> None:
    disk = disk_behind_the_clusters_own_topics(kafka, topic_name)
    stream = stream_on(kafka)
    stream.kill_after_the_decision(nth=1)
    disk.take_away(stream.topic)
    is_back = threading.Timer(AWAY_S, lambda: disk.bring_back(stream.topic))
    is_back.start()
    stream.run()
    is_back.join()
    stream.check(1)


@pytest.mark.slow
@pytest.mark.parametrize("commit", [False, True], ids=["aborted", "committed"])
def test_what_brokers_forgot_to_end_is_told_and_ended_by_kafkas_own_command_or_by_the_next_commit(
    commit: bool, kafka: KafkaCluster, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Follows the advice of `readers` and of troubleshooting.md. If the first check fails, KAFKA-20734 has been
    fixed."""
    if release(kafka.version) < (4, 3):
        pytest.skip(f"Kafka {kafka.version} does not have KAFKA-20734")
    disk = disk_behind_the_clusters_own_topics(kafka, topic_name)
    kafka.create_topic(topic_name, PARTITIONS)
    of_task = f"orders-{'0' * 16}-0-0"
    with closing(transactional(kafka, of_task)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic_name, value=b"v", partition=1)
        receipt = producer.prepare_transaction()
    disk.take_away(topic_name)
    state = "CompleteCommit" if commit else "CompleteAbort"
    with client_of(kafka.bootstrap_servers) as client:
        body = end_body(receipt, commit=commit)
        assert client.ask(Coordinator(of_task), END_TXN, body, **end_versions(receipt))["error_code"] == 0
        wait_until(lambda: described(client.answers_of_all(LIST_TRANSACTIONS, LIST_BODY))[of_task] == state, state)
    disk.bring_back(topic_name)

    def stable_offset() -> int:
        return end_offsets(kafka.bootstrap_servers, topic_name, "read_committed")[1]

    assert stable_offset() == 0
    (found,) = find_hanging(kafka, topic_name)
    assert found[:2] == [topic_name, "1"] and found[5] == "0"
    (told,) = readers_findings(kafka, topic_name, capsys)
    assert (told["kind"], told["severity"]) == ("hanging", "act now") and f"says {state}" in told["text"]
    if commit:
        assert told["commands"] == []
        with closing(transactional(kafka, of_task)) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic_name, value=b"next", partition=1)
            producer.commit_transaction()
        wait_until(lambda: stable_offset() == 3, "the marker is written")
        assert values(kafka, topic_name) == [b"v", b"next"]
        return
    ((_, *words),) = [shlex.split(command) for command in told["commands"]]
    run_class(kafka.version, TRANSACTIONS, words)
    wait_until(lambda: stable_offset() == 2, "the marker is written")
    assert readers_findings(kafka, topic_name, capsys) == [] and values(kafka, topic_name) == []


def find_hanging(kafka: KafkaCluster, topic: str) -> list[list[str]]:
    words = ["--bootstrap-server", kafka.bootstrap_servers, "find-hanging", "--topic", topic]
    lines = run_class(kafka.version, TRANSACTIONS, [*words, "--max-transaction-timeout", "0"]).decode().splitlines()
    return [line.split() for line in lines[1:]]


def readers_findings(kafka: KafkaCluster, topic: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    content = Shell(capsys)(
        "readers", "--bootstrap-server", kafka.bootstrap_servers, "--topic", topic, "--json"
    ).content
    found: list[dict[str, Any]] = content["findings"]
    return found


def disk_behind_the_clusters_own_topics(kafka: KafkaCluster, topic: str) -> SecondDisk:
    """Adds a disk when the ledger and the topic of the transactions exist, so that these are on the first one."""
    with BareStream(kafka, f"{topic}-first", is_direct=True) as first:
        first.run()
    return SecondDisk(kafka)


def fail_when_acknowledged(stream: BareStream, query: BareQuery, before: Callable[[], None]) -> None:
    """Runs a task whose input fails when all of its rows are in the log; `before` is called just before that."""

    def rows() -> Iterable[pa.RecordBatch]:
        # The number of bytes that a task collects before it sends.
        values = pa.array([bytes(CHUNK_BYTES // PARTITIONS + 1)] * PARTITIONS, pa.binary())
        partitions = pa.array(range(PARTITIONS), pa.int32())
        yield pa.RecordBatch.from_pydict({"value": values, "partition": partitions})
        ends = lambda: end_offsets(stream.kafka.bootstrap_servers, stream.topic, "read_uncommitted")  # noqa: E731
        wait_until(lambda: min(after[part] - earlier[part] for after in [ends()] for part in after) > 0, "rows arrive")
        before()
        raise ArithmeticError("a user's function failed")

    earlier = end_offsets(stream.kafka.bootstrap_servers, stream.topic, "read_uncommitted")
    planned = bare_work.plan(stream.settings)
    task.write_task(planned._options, planned._columns, rows(), query.place(1))
