"""A decision that is finished when its coordinators do not know its transactions any more: their rows tell how they
ended, however much others have written since.

Embedded broker, with both transaction versions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kafka_sink import Producer
from kafka_sink.commit import end_txn
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.log_scan import FetchedPartition, read_fetch_answer
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion, DriverOperation, Job
from kafka_sink.errors import CommitLost
from kafka_sink.testing import EmbeddedBroker
from tests.integration.statuses import findings, status
from tests.support.asking import client_of
from tests.support.commanding import Dying, Shell, Sink, rows
from tests.support.decided import run_as

KEY = BatchKey("query-1", 0)
TASKS = 4
# To each partition, by others.
MEGABYTES = 6


@pytest.fixture(params=["4.3", "3.9"])
def brokers(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1, release=request.param) as embedded:
        yield embedded


@pytest.fixture
def sink(brokers: EmbeddedBroker) -> Sink:
    found = Sink(brokers.bootstrap_servers, "t", "orders", "ledger")
    found.create()
    return found


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is read of the rows' partitions to find out how transactions ended."""
    found: list[int] = []

    def read(body: Mapping[str, Any]) -> FetchedPartition:
        answer = read_fetch_answer(body)
        found.append(len(answer.records))
        return answer

    monkeypatch.setattr(end_txn, "read_fetch_answer", read)
    return found


def decide(sink: Sink, *, commits: int) -> list[TaskReceipt]:
    """Two tasks have written to each partition; so many are committed when the driver dies."""
    receipts = [sink.task(KEY, number) for number in range(TASKS)]
    job = Job(DriverOperation.COMMIT, KEY, receipts, wall_ms=sink.wall_ms)
    with client_of(sink.servers) as client:
        committer = Committer(sink.settings(client), sink.session(KEY), job, client.now_ms())
        assert client.run(Dying(committer, commits)).error is None
    return receipts


def time_out(sink: Sink) -> None:
    for number in range(TASKS):
        with Producer(sink.task_options(number)) as producer:
            producer.init_transactions()


def write_much(sink: Sink) -> None:
    value = os.urandom(100_000)
    with Producer({"bootstrap.servers": sink.servers, "batch.size": 900_000}) as producer:
        for _ in range(MEGABYTES * 10):
            for partition in (0, 1):
                producer.send(sink.topic, value=value, partition=partition)


def forget_all(brokers: EmbeddedBroker) -> None:
    brokers.do(lambda core: core.coordinator.transactions.clear())


def delete_rows(brokers: EmbeddedBroker, sink: Sink) -> None:
    def delete(core: Any) -> None:
        for partition in core.cluster.topics[sink.topic].partitions:
            partition.log.delete_before(partition.log.high_watermark)

    brokers.do(delete)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_after_time_outs_one_batch_of_each_task_is_read_whatever_others_have_written(
    is_forgotten: bool, brokers: EmbeddedBroker, sink: Sink, read_bytes: list[int]
) -> None:
    decide(sink, commits=0)
    time_out(sink)
    write_much(sink)
    if is_forgotten:
        forget_all(brokers)
    lost = run_as(sink, DriverOperation.FINISH).error
    assert isinstance(lost, CommitLost) and "Not committed, rows not visible: 40 rows" in str(lost)
    assert len(read_bytes) == TASKS and sum(read_bytes) < 10_000


def test_a_committed_batch_is_recovered_when_its_ids_are_forgotten(
    brokers: EmbeddedBroker, sink: Sink, read_bytes: list[int]
) -> None:
    decide(sink, commits=TASKS)
    write_much(sink)
    forget_all(brokers)
    assert run_as(sink, DriverOperation.FINISH).conclusion is Conclusion.RECOVERED
    assert len(read_bytes) == TASKS and sum(read_bytes) < 10_000


def test_where_compaction_has_taken_the_rows_each_partition_is_read_once(
    brokers: EmbeddedBroker, sink: Sink, read_bytes: list[int]
) -> None:
    decide(sink, commits=TASKS)
    write_much(sink)
    forget_all(brokers)

    def take_rows(core: Any) -> None:
        """All that has a newer record with the same key; the markers stay for a day."""
        for partition in core.cluster.topics[sink.topic].partitions:
            log = partition.log
            log.batches = [one for one in log.batches if one.is_control or not one.is_transactional]

    brokers.do(take_rows)
    assert run_as(sink, DriverOperation.FINISH).conclusion is Conclusion.RECOVERED
    # The verdicts show what follows the rows; then each partition is read up to the last marker.
    assert len(read_bytes) <= TASKS + 2


def test_status_tells_that_it_is_committed_for_as_long_as_its_rows_are_there(
    brokers: EmbeddedBroker, sink: Sink, shell: Shell
) -> None:
    decide(sink, commits=TASKS)
    known = status(shell, sink)
    forget_all(brokers)
    forgotten = status(shell, sink)
    assert forgotten.exit_code == known.exit_code
    (found,) = findings(shell, sink)
    assert (found["kind"], found["severity"]) == ("open", "look")
    assert "all of its transactions are committed" in found["text"]
    assert "committed" in shell.about(sink, "ledger").out
    assert shell.about(sink, "recover").exit_code == 0
    assert findings(shell, sink) == []


def test_when_retention_has_taken_rows_and_markers_an_operator_accepts(
    brokers: EmbeddedBroker, sink: Sink, shell: Shell, read_bytes: list[int]
) -> None:
    decide(sink, commits=TASKS)
    forget_all(brokers)
    delete_rows(brokers, sink)
    (found,) = findings(shell, sink)
    assert found["kind"] == "overdue"
    said = shell.about(sink, "recover")
    assert said.exit_code == 1 and "timed out" not in said.err
    assert "retention has taken the rows and the markers" in said.err and "to accept it is the usual choice" in said.err
    assert sum(read_bytes) == 0
    assert shell.about(sink, "resolve", "--accept", "--yes").exit_code == 0


def test_what_was_committed_in_part_is_told_by_its_rows(brokers: EmbeddedBroker, sink: Sink, shell: Shell) -> None:
    receipts = decide(sink, commits=1)
    time_out(sink)
    forget_all(brokers)
    (found,) = findings(shell, sink)
    assert found["kind"] == "overdue"
    lost: CommitResult = run_as(sink, DriverOperation.FINISH)
    assert isinstance(lost.error, CommitLost) and f"1 of {TASKS} are committed and visible" in str(lost.error)
    assert sink.visible() == sorted(rows(KEY, receipts[0].spark_partition))
