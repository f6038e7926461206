"""The driver's side in a process that is not Spark's: many threads plan, commit and abort at once, Ctrl-C strikes
anywhere, and the process forks.

Tasks run in the same process here, one at a time: each of Spark's worker processes runs one task at a time.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import signal
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from kafka_sink.commit.identity import run_of_query, sink_id_of_query
from kafka_sink.commit.ledger_write import LedgerWrite
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import Conclusion
from kafka_sink.kafka.io.per_process import PerProcess
from kafka_sink.kafka.io.warn_once import WARNED, warn_once
from kafka_sink.spark import cluster_check, driver
from kafka_sink.spark.files import application_folder
from kafka_sink.spark.planning import PlannedWrite, plan_query
from kafka_sink.spark.process import LOCK
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.spark.task_writer import TaskResult, TaskWriter, abort_write, commit_write
from kafka_sink.telemetry.metrics.store import read_streams
from kafka_sink.testing import EmbeddedBroker
from tools.foreign_reader import read_topic
from tools.worker_environment import worker_environment

pytestmark = pytest.mark.embedded_kafka(3, topics={"rows": 4})
SCHEMA = StructType().add("value", StringType())
THREADS, BATCHES, ROWS = 10, 20, 3
INTERRUPTIONS, FORKS = 60, 8
TIMEOUT_S = 300
# Of the batches of each thread this one is aborted before it is written again.
ABORTED_EACH = 5
_TASK = PerProcess(threading.Lock)


@pytest.fixture(autouse=True)
def fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_driver: None) -> None:
    for name, value in worker_environment(tmp_path).items():
        monkeypatch.setenv(name, value)


class Stream:
    """A query whose driver's side runs in this process. `settings` in addition to those that every one has."""

    def __init__(self, broker: EmbeddedBroker, name: str, **settings: str) -> None:
        self.name = name
        self.query_id = str(uuid.uuid4())
        self.start()
        named = {option.replace("_", "."): value for option, value in settings.items()}
        self._settings = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "rows", **named}

    def start(self) -> None:
        self._run = run_of_query(str(uuid.uuid4()))
        self._attempts = 0

    def plan(self) -> PlannedWrite:
        return plan_query(self._settings, SCHEMA)

    def write(self, planned: PlannedWrite, batch: int) -> TaskResult:
        self._attempts += 1
        assert planned.sink_id is not None
        rows = pa.RecordBatch.from_pydict({"value": self.rows(batch)})
        sink_id = sink_id_of_query(planned.sink_id, self.query_id)
        place = TaskPlace(BatchKey(self.query_id, batch), self._run, 0, self._attempts, sink_id)
        with _TASK.value:
            return TaskResult(write_task(planned.options, planned.columns, [rows], place))

    def end(self, planned: PlannedWrite, batch: int, result: TaskResult, *, is_good: bool = True) -> Conclusion | None:
        writer = TaskWriter(planned.options, planned.columns, planned.sink_id)
        finished = writer.finished_batch([result], key=BatchKey(self.query_id, batch), run=self._run)
        return commit_write(finished, [result]) if is_good else abort_write(finished)  # type: ignore[func-returns-value]

    def deliver(self, batch: int) -> Conclusion | None:
        planned = self.plan()
        return self.end(planned, batch, self.write(planned, batch))

    def rows(self, batch: int) -> list[str]:
        return [f"{self.name} {batch} {row}" for row in range(ROWS)]


def in_threads(work: Callable[[Stream], None], streams: list[Stream]) -> None:
    start = threading.Barrier(len(streams))

    def run(stream: Stream) -> None:
        start.wait(TIMEOUT_S)
        work(stream)

    with ThreadPoolExecutor(len(streams)) as pool:
        for done in [pool.submit(run, stream) for stream in streams]:
            done.result(TIMEOUT_S)


def streams_of(broker: EmbeddedBroker, folder: Path) -> list[Stream]:
    """Half of them with the same options, the others each with options of its own, some with metrics and lineage."""
    same = {"sink_id": "shared", "metrics_enabled": "true", "lineage_file": str(folder / "lineage")}
    return [
        Stream(broker, f"s{number}", **same)
        if number % 2
        else Stream(broker, f"s{number}", sink_id=f"sink-{number}", kafka_client_id=f"client-{number}")
        for number in range(THREADS)
    ]


def seen(broker: EmbeddedBroker) -> Counter[str]:
    return Counter((record.value or b"").decode() for record in read_topic(broker.bootstrap_servers, "rows"))


def expected(streams: list[Stream], batches: int) -> Counter[str]:
    return Counter(row for stream in streams for batch in range(batches) for row in stream.rows(batch))


def run_with_aborts(stream: Stream) -> None:
    for batch in range(BATCHES):
        if batch % ABORTED_EACH == 1:
            planned = stream.plan()
            stream.end(planned, batch, stream.write(planned, batch), is_good=False)
        assert stream.deliver(batch) is Conclusion.DELIVERED


def test_ten_threads_plan_commit_and_abort_at_once_and_each_row_is_there_once(
    broker: EmbeddedBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    streams = streams_of(broker, tmp_path)
    with caplog.at_level(logging.WARNING, "kafka_sink"):
        in_threads(run_with_aborts, streams)
    assert seen(broker) == expected(streams, BATCHES)
    said = [record.getMessage() for record in caplog.records if record.name == "kafka_sink"]
    assert [text for text in said if "nothing of the batch is visible" not in text] == []
    folder = application_folder()
    assert folder is not None
    noted = read_streams(folder)
    aborts = len(range(1, BATCHES, ABORTED_EACH))
    assert [stream.value("batches", "delivered") for stream in noted] == [BATCHES] * (THREADS // 2)
    assert [stream.value("batches", "aborted") for stream in noted] == [aborts] * (THREADS // 2)
    # A beginning and an end each.
    lines = (tmp_path / "lineage").read_text().splitlines()
    assert len(lines) == 2 * (BATCHES + aborts) * (THREADS // 2)
    assert len(driver.CLIENTS.value._idle) <= driver.IDLE_CLIENTS_MAX


def test_threads_that_plan_the_same_at_once_ask_the_brokers_once(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    ask = cluster_check._ask_kafka

    def count(*of: Any) -> Any:
        asked.append(of)
        return ask(*of)

    monkeypatch.setattr(cluster_check, "_ask_kafka", count)
    streams = [Stream(broker, f"s{number}", sink_id="shared") for number in range(THREADS)]
    in_threads(lambda stream: stream.deliver(0) and None, streams)
    assert len(asked) == 1
    assert seen(broker) == expected(streams, 1)


# ---- Ctrl-C ----------------------------------------------------------------------------------------------------------


@contextmanager
def ctrl_c_within(limit_s: float, pick: random.Random) -> Iterator[None]:
    """KeyboardInterrupt at some moment of the block, or not at all, in the main thread, as Python's handler does it."""

    def strike(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, strike)
    try:
        signal.setitimer(signal.ITIMER_REAL, pick.uniform(0.0001, limit_s))
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# An interrupt between taking a client and using it loses the client: its last reference closes its sockets, and warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_after_ctrl_c_at_any_moment_the_next_commit_works_and_other_threads_notice_nothing(
    broker: EmbeddedBroker, seed: int
) -> None:
    pick = random.Random(seed)
    mine = Stream(broker, "mine", sink_id="mine")
    others = [Stream(broker, f"s{number}", sink_id="mine") for number in range(3)]
    is_over = threading.Event()
    batches = Counter[str]()

    def go_on(stream: Stream) -> None:
        while not is_over.is_set():
            assert stream.deliver(batches[stream.name]) is Conclusion.DELIVERED
            batches[stream.name] += 1

    with ThreadPoolExecutor(len(others)) as pool:
        running = [pool.submit(go_on, stream) for stream in others]
        try:
            struck = batch = 0
            while struck < INTERRUPTIONS and not any(each.done() for each in running):
                planned = mine.plan()
                result = mine.write(planned, batch)
                try:
                    with ctrl_c_within(0.06, pick):
                        mine.plan()
                        mine.end(planned, batch, result)
                    batch += 1
                except KeyboardInterrupt:
                    struck += 1
                    mine.start()  # as a restarted query does, which repeats the batch
        finally:
            is_over.set()
        for each in running:
            each.result(TIMEOUT_S)
    assert mine.deliver(batch) in (Conclusion.DELIVERED, Conclusion.ALREADY_DELIVERED)
    # What the interrupted runs have left open is aborted after the next batch that this run decides.
    assert mine.deliver(batch + 1) is Conclusion.DELIVERED
    batches[mine.name] = batch + 2
    streams = [mine, *others]
    assert seen(broker) == Counter(row for each in streams for n in range(batches[each.name]) for row in each.rows(n))


# ---- forks -----------------------------------------------------------------------------------------------------------


def deliver_and_leave(stream: Stream) -> None:
    """In a child. What another thread of the parent held is never released here."""
    signal.alarm(60)
    warn_once("a child warns as well")
    if stream.deliver(0) is not Conclusion.DELIVERED:
        os._exit(1)


class Late(LedgerWrite):
    def ask_first(self, now_ms: int) -> None:
        self.fail("no answer in time")


class Broken(LedgerWrite):
    def ask_first(self, now_ms: int) -> None:
        raise ConnectionResetError("reset")


@pytest.mark.parametrize("write", [Late, Broken])
def test_a_client_that_has_failed_to_close_a_decision_is_used_no_more(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, write: type[LedgerWrite]
) -> None:
    """As after an exception in any other operation: one of its connections may be broken."""
    stream = Stream(broker, "s0", sink_id="s0")
    with monkeypatch.context() as patch:
        patch.setattr(driver, "LedgerWrite", write)
        assert stream.deliver(0) is Conclusion.DELIVERED
        driver.CLOSINGS.value.wait()
    assert "the ledger does not say so yet" in caplog.text
    assert len(driver.CLIENTS.value._idle) == len(driver.DRIVERS.value) == 0
    assert stream.deliver(1) is Conclusion.DELIVERED
    assert seen(broker) == expected([stream], 2)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_children_forked_while_threads_commit_can_commit_too(broker: EmbeddedBroker) -> None:
    context = multiprocessing.get_context("fork")
    others = [Stream(broker, f"s{number}", sink_id="shared") for number in range(3)]
    children = [Stream(broker, f"child{number}", sink_id="shared") for number in range(FORKS)]
    is_over = threading.Event()
    batches = Counter[str]()

    def go_on(stream: Stream) -> None:
        while not is_over.is_set():
            assert stream.deliver(batches[stream.name]) is Conclusion.DELIVERED
            batches[stream.name] += 1

    with ThreadPoolExecutor(len(others)) as pool:
        running = [pool.submit(go_on, stream) for stream in others]
        try:
            for child in children:
                process = context.Process(target=deliver_and_leave, args=(child,))
                process.start()
                process.join(TIMEOUT_S)
                assert process.exitcode == 0
        finally:
            is_over.set()
        for each in running:
            each.result(TIMEOUT_S)
    batches.update({child.name: 1 for child in children})
    streams = [*others, *children]
    assert seen(broker) == Counter(row for each in streams for n in range(batches[each.name]) for row in each.rows(n))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_does_not_wait_for_locks_that_a_thread_of_its_parent_held(broker: EmbeddedBroker) -> None:
    stream = Stream(broker, "child", sink_id="child")
    Stream(broker, "parent", sink_id="parent").deliver(0)
    locks = [
        driver.CLIENTS.value._idle._lock,
        driver.DRIVERS.value._lock,
        driver.CLOSINGS.value._lock,
        driver.ANSWERS.value._lock,
        WARNED.value._lock,
        LOCK.value,
    ]
    are_held, are_free = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        are_held.set()
        are_free.wait(TIMEOUT_S)
        for lock in locks:
            lock.release()

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert are_held.wait(TIMEOUT_S)
        process = multiprocessing.get_context("fork").Process(target=deliver_and_leave, args=(stream,))
        process.start()
        process.join(TIMEOUT_S)
        assert process.exitcode == 0
    finally:
        are_free.set()
        holder.join(TIMEOUT_S)
    assert seen(broker)["child 0 0"] == 1
