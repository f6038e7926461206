"""Batch writes whose tasks were killed before any of them returned a receipt: a cancelled job, or one task that failed
finally while the others were writing. Real tasks and the driver's abort run without Spark's JVM."""

from __future__ import annotations

import logging
import shlex
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from kafka_sink.__main__ import main
from kafka_sink.commit.receipt import UNNAMED_BATCH, BatchKey, PreparedTransaction, TaskReceipt
from kafka_sink.commit.session import Conclusion
from kafka_sink.errors import TransactionAborted
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.producer.pool import POOL
from kafka_sink.spark.attempt import Attempt, begin_attempt
from kafka_sink.spark.closings import CLOSINGS
from kafka_sink.spark.driver import FinishedBatch, abort_batch, waiting_text
from kafka_sink.spark.identities import IDENTITIES
from kafka_sink.spark.process import FACTORY
from kafka_sink.spark.row_path import RowPath
from kafka_sink.spark.task import Task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.testing import EmbeddedBroker
from tools.foreign_reader import end_offsets
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

RUN, OTHER_RUN = "0123456789abcdef", "fedcba9876543210"
# They stay in the process of the tests, which continues.
KILLED: list[Attempt] = []


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    while KILLED:
        # Not `give_up`: it would wait for brokers, and those of the embedded broker have ended with their test.
        KILLED.pop().producer.close(0)
    IDENTITIES.close()
    POOL.close()


@dataclass
class Write:
    """A batch write, by default without a name. `task` is killed after the brokers have its rows."""

    servers: str
    topic: str
    key: BatchKey = UNNAMED_BATCH

    @property
    def options(self) -> SinkOptions:
        return parse_sink_options({"kafka.bootstrap.servers": self.servers, "topic": self.topic})

    def task(self, run: str = RUN, tid: int = 11, batches: int = 1) -> None:
        place = TaskPlace(self.key, run, 0, tid, f"sink-{self.topic}")
        attempt = begin_attempt(self.options, place)
        KILLED.append(attempt)
        task = Task(attempt, RowPath(self.options, place))
        for _ in range(batches):
            task.append(pa.RecordBatch.from_arrays([pa.array(["a"], pa.string())], ["value"]))
        task._producer.flush()

    def abort(self, *receipts: TaskReceipt, write: str = RUN, has_late_tasks: bool = False) -> None:
        known = (self.options, f"sink-{self.topic}", self.key, RUN, receipts)
        assert abort_batch(FinishedBatch(*known, write=write, is_complete=not has_late_tasks)) is None

    def is_open(self) -> bool:
        """Whether read_committed readers wait for an open transaction."""
        committed = end_offsets(self.servers, self.topic, "read_committed")
        return committed != end_offsets(self.servers, self.topic, "read_uncommitted")


@pytest.mark.parametrize("key", [UNNAMED_BATCH, BatchKey("", "export-1")], ids=["unnamed", "named"])
def test_what_killed_tasks_left_open_is_aborted_though_none_gave_a_receipt(
    kafka: KafkaCluster, topic_name: str, key: BatchKey
) -> None:
    kafka.create_topic(topic_name)
    write = Write(kafka.bootstrap_servers, topic_name, key)
    write.task()
    assert write.is_open()
    write.abort(TaskReceipt(key, RUN, 1, 12))  # of a task without rows
    # A broker answers EndTxn before it has written the markers.
    wait_until(lambda: not write.is_open(), "the transaction is aborted")


@pytest.mark.parametrize("key", [UNNAMED_BATCH, BatchKey("", "export-1")], ids=["unnamed", "named"])
def test_a_transaction_that_a_killed_task_begins_after_the_abort_has_begun_is_aborted_too(
    kafka: KafkaCluster, topic_name: str, key: BatchKey
) -> None:
    kafka.create_topic(topic_name)
    write = Write(kafka.bootstrap_servers, topic_name, key)
    write.task()
    late = threading.Timer(1, lambda: write.task(tid=12))
    late.start()
    write.abort(has_late_tasks=True)
    late.join()
    assert len(KILLED) == 2
    wait_until(lambda: not write.is_open(), "both transactions are aborted")


@pytest.mark.parametrize("is_sparks", [True, False], ids=["in Spark's process", "in the user's"])
def test_what_tasks_leave_that_run_on_until_the_abort_is_over_is_swept_afterwards(
    monkeypatch: pytest.MonkeyPatch, is_sparks: bool
) -> None:
    """Over Spark Connect the job of an interrupted write is cancelled when the abort has returned. In a user's process
    the job has ended before."""
    if is_sparks:
        monkeypatch.setenv(f"{FACTORY}PORT", "1")
    with EmbeddedBroker(1, topics={"rows": 1}) as broker:
        write = Write(broker.bootstrap_servers, "rows")
        write.abort(has_late_tasks=True)
        write.task(tid=12)
        if is_sparks:
            wait_until(lambda: not write.is_open(), "the transaction is aborted", 30)
        CLOSINGS.value.wait()
        assert write.is_open() == (not is_sparks)
        assert end_offsets(write.servers, "rows", "read_uncommitted") != {0: 0}


@pytest.mark.parametrize("answers", [[False], [True, False]], ids=["before InitProducerId", "before the first record"])
def test_a_task_that_spark_no_longer_waits_for_begins_no_transaction(
    monkeypatch: pytest.MonkeyPatch, answers: list[bool]
) -> None:
    with EmbeddedBroker(1, topics={"rows": 1}) as broker:
        write = Write(broker.bootstrap_servers, "rows")
        asked = iter(answers)
        monkeypatch.setattr("kafka_sink.spark.attempt.is_spark_waiting", lambda: next(asked))
        with pytest.raises(TransactionAborted, match="Spark no longer waits for this task"):
            write.task()
        assert next(asked, None) is None
        assert not write.is_open() and end_offsets(write.servers, "rows", "read_uncommitted") == {0: 0}


def test_a_task_asks_whether_spark_waits_twice_however_many_rows_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([True] * 9)
    monkeypatch.setattr("kafka_sink.spark.attempt.is_spark_waiting", lambda: next(answers))
    with EmbeddedBroker(1, topics={"rows": 1}) as broker:
        Write(broker.bootstrap_servers, "rows").task(batches=5)
    assert len(list(answers)) == 7


def test_the_command_that_the_log_names_ends_the_wait(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(1, topics={"rows": 1, "__pykafka_sink_ledger": 1}) as broker:
        write = Write(broker.bootstrap_servers, "rows", BatchKey("", "export-1"))
        write.task()
        _, *words = shlex.split(waiting_text(write.options, "sink-rows", [], (), now_s=0).split("`")[1])
        assert write.is_open() and main([*words, "--yes"]) == 0
        assert f"aborted sink-rows-{RUN}-0-11" in capsys.readouterr().out
        wait_until(lambda: not write.is_open(), "the transaction is aborted")


def test_a_write_aborts_nothing_of_another_run() -> None:
    with EmbeddedBroker(1, topics={"rows": 1}) as broker:
        write = Write(broker.bootstrap_servers, "rows")
        write.task(OTHER_RUN)
        write.abort()
        assert write.is_open()


@pytest.mark.parametrize("key", [UNNAMED_BATCH, BatchKey("q", 3)], ids=["unnamed", "of a query"])
@pytest.mark.parametrize(
    "transaction", [None, PreparedTransaction(f"sink-{RUN}-0-11", 1, 0, 2)], ids=["killed", "done"]
)
def test_brokers_that_are_away_do_not_take_the_place_of_what_failed_the_write(
    caplog: pytest.LogCaptureFixture, key: BatchKey, transaction: PreparedTransaction | None
) -> None:
    """Spark would report "Writing job failed" and nothing of why a task did."""
    settings = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.max.block.ms": "300", "topic": "rows"}
    receipt = TaskReceipt(key, RUN, 0, 11, transaction=transaction)
    with caplog.at_level(logging.WARNING, "kafka_sink"):
        conclusion = abort_batch(FinishedBatch(parse_sink_options(settings), "sink", key, RUN, [receipt], write=RUN))
    assert conclusion is (None if transaction is None else Conclusion.LEFT_ALONE)
    assert "end at their time-out" in caplog.text
    assert "readers of rows may wait until" in caplog.text
    command = "pykafka-sink transactions --abort --bootstrap-server 127.0.0.1:1 --sink-id sink"
    assert f"`{command}` ends them at once" in caplog.text
