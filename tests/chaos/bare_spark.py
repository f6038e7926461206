"""The test plays Spark's part of a streaming query: checkpoint, run ids, processes, and the order of the calls.

    checkpoint = Checkpoint()
    with BareQuery(checkpoint, settings) as query:   # one run of the query; a restart is another BareQuery
        query.plan()                                 # streamWriter(): the checks, and recovery
        messages = query.write_tasks()
        query.commit(messages)                       # raises what the sink raises, or Killed

Planner, tasks and commit run in separate processes, as with Spark, and are replaced after an exception. Spark's
promises to a sink are kept: a batch that is in the offset log and not in the commit log runs again under the same id
with the same rows, and abort() gets the messages of a commit() that raised, in another process.

A source row is its offset; bare_work.py makes it a numbered record, which tests/chaos/numbered_records.py checks.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_sink.commit.identity import run_of_query, sink_id_of_checkpoint, sink_id_of_query
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.spark.task_context import TaskPlace
from tests.chaos import bare_work
from tests.chaos.numbered_records import check_all
from tools.foreign_reader import read_topic

PARTITIONS, TASKS, ROWS = 3, 3, 60
PATIENCE_S = 300

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.chaos.bare_work"])


class Killed(Exception):
    """The process died in the middle of the call."""


class Worker:
    """A process that executes one call after the other."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._pipe, theirs = _FORKS.Pipe()
        self._process = _FORKS.Process(target=bare_work.serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def process_id(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def begin(self, work: bare_work.Work, *arguments: Any) -> None:
        self._pipe.send((work, arguments))

    def result(self) -> Any:
        if not self._pipe.poll(PATIENCE_S):
            raise TimeoutError(f"no answer within {PATIENCE_S} s")
        try:
            value, error, lines = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            raise Killed from None
        self.log += lines
        if error is not None:
            raise error
        return value

    def call(self, work: bare_work.Work, *arguments: Any) -> Any:
        self.begin(work, *arguments)
        return self.result()

    def send_signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process_id, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        self._process.join(30)
        self._pipe.close()


@dataclass
class Checkpoint:
    """What survives a crash of the application. `committed` is the newest batch in Spark's commit log."""

    query_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    committed: int = -1

    def copy(self) -> Checkpoint:
        return replace(self)


def settings_of(servers: str, topic: str, **options: object) -> dict[str, str]:
    """The options of a sink with its own checkpoint folder, named like the topic."""
    named = {name.replace("__", "."): str(value) for name, value in options.items()}
    return {
        "kafka.bootstrap.servers": servers, "topic": topic, "checkpointLocation": f"/checkpoints/{topic}",
        "kafka.reconnect.backoff.ms": "20", "kafka.reconnect.backoff.max.ms": "200", **named,
    }  # fmt: skip


def sink_id_of(settings: Mapping[str, str]) -> str:
    """The name of the sink, the prefix of all its transactional ids."""
    return settings.get("sink.id") or sink_id_of_checkpoint(settings["checkpointLocation"])


class BareQuery:
    def __init__(
        self, checkpoint: Checkpoint, settings: Mapping[str, str], *, tasks: int = TASKS, is_sorted: bool = False
    ) -> None:
        """`is_sorted`: the rows of a task are sorted by partition, as in an export."""
        self.checkpoint = checkpoint
        self._is_sorted = is_sorted
        self.settings = dict(settings)
        self.run_id = str(uuid.uuid4())
        self._tasks = tasks
        self._attempt = 0
        self._workers: dict[str, Worker] = {}
        self._planned: Any = None

    def __enter__(self) -> BareQuery:
        return self

    def __exit__(self, *_: object) -> None:
        """Like SIGKILL to the whole application: no process can send anything more."""
        self.kill()

    @property
    def batch_id(self) -> int:
        return self.checkpoint.committed + 1

    def move_worker(self, role: str) -> Worker:
        """The next call of this role is made in another process; this one lives on."""
        worker = self._workers.pop(role)
        self._workers[f"former {role}"] = worker
        return worker

    def worker(self, role: str) -> Worker:
        if role not in self._workers:
            self._workers[role] = Worker()
        return self._workers[role]

    def end_worker(self, role: str) -> None:
        worker = self._workers.pop(role, None)
        if worker is not None:
            worker.close()

    def strike(self) -> None:
        """Sends SIGKILL to every process, from any thread; a call that waits for one of them raises `Killed`."""
        for worker in list(self._workers.values()):
            worker.kill()

    def kill(self) -> None:
        for role in list(self._workers):
            self.end_worker(role)

    def jump_clocks(self, seconds: float) -> None:
        """Changes the clocks of the processes that are alive now."""
        for role in list(self._workers):
            self._call(role, bare_work.jump_clock, seconds)

    # ---- a micro-batch ----

    def plan(self) -> None:
        self._planned = self._call("planner", bare_work.plan, self.settings)

    def place(self, number: int) -> TaskPlace:
        """The place of a new attempt: Spark counts attempts over the whole application."""
        self._attempt += 1
        key = BatchKey(self.checkpoint.query_id, self.batch_id)
        sink_id = sink_id_of_query(sink_id_of(self.settings), self.checkpoint.query_id)
        return TaskPlace(key, run_of_query(self.run_id), number, self._attempt, sink_id)

    def rows(self, number: int) -> Sequence[int]:
        """A task's share of the batch, in the order of the source."""
        start, share = self.batch_id * ROWS, ROWS // self._tasks
        found = range(start + number * share, start + (number + 1) * share)
        return sorted(found, key=lambda row: (row % PARTITIONS, row)) if self._is_sorted else found

    def write_task(self, number: int, role: str = "tasks") -> Any:
        place = self.place(number)
        return self._call(role, bare_work.write, self._planned, place, self.rows(number), PARTITIONS)

    def begin_task(self, number: int, role: str) -> Worker:
        worker = self.worker(role)
        worker.begin(bare_work.write, self._planned, self.place(number), self.rows(number), PARTITIONS)
        return worker

    def fail_task(self, number: int) -> None:
        """Raises: a task writes all of its rows, then its input breaks."""
        place = self.place(number)
        self._call("tasks", bare_work.write_and_fail, self._planned, place, self.rows(number), PARTITIONS)

    def nothing(self, number: int) -> Any:
        """The message of a task without rows."""
        return self._call("tasks", bare_work.write, self._planned, self.place(number), (), PARTITIONS)

    def write_tasks(self) -> list[Any]:
        return [self.write_task(number) for number in range(self._tasks)]

    def commit(self, messages: Sequence[Any]) -> None:
        self._call("commit", bare_work.commit, self.settings, messages, self.batch_id)
        self.checkpoint.committed += 1

    def commit_and_go_on(self, messages: Sequence[Any]) -> None:
        """Returns as the commit does: the process may still be closing the decision."""
        self._call("commit", bare_work.commit_and_go_on, self.settings, messages, self.batch_id)
        self.checkpoint.committed += 1

    def begin_commit(self, messages: Sequence[Any]) -> None:
        """`worker("commit").result()` returns when it ends."""
        self.worker("commit").begin(bare_work.commit, self.settings, messages, self.batch_id)

    def abort(self, messages: Sequence[Any]) -> None:
        self._call("commit", bare_work.abort, self.settings, messages, self.batch_id)

    def run_batch(self) -> None:
        """Runs a batch as Spark does: an exception of commit() ends the query, after abort()."""
        self.plan()
        messages = self.write_tasks()
        try:
            self.commit(messages)
        except Killed:
            raise
        except Exception:
            with suppress(Exception):
                self.abort(messages)
            raise

    def _call(self, role: str, work: bare_work.Work, *arguments: Any) -> Any:
        try:
            return self.worker(role).call(work, *arguments)
        except Exception:
            self.end_worker(role)
            raise


def run_on(checkpoint: Checkpoint, settings: Mapping[str, str], batches: int = 1, *, tasks: int = TASKS) -> None:
    """Starts the query, lets it run some batches, and stops it."""
    with BareQuery(checkpoint, settings, tasks=tasks) as query:
        for _ in range(batches):
            query.run_batch()


# ---- the checks ----


def problems(servers: str, topic: str, batches: int) -> list[str]:
    """Problems in what a foreign read_committed reader sees, if each row of `batches` batches must be there once and in
    order. It also fails if a transaction stays open, since then the reader cannot read to the end."""
    records = ((record.partition, record.value) for record in read_topic(servers, topic))
    return check_all(records, dict.fromkeys(range(PARTITIONS), batches * ROWS // PARTITIONS) if batches else {})
