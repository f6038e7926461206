"""What a task learns of Spark: its place (batch and query, partition, attempt), and whether Spark still waits for it.

The attempt is Spark's task attempt id, which is unique in an application. The attempt number is not: it restarts when
Spark reruns a stage, and a stalled attempt of the first run with a late InitProducerId would abort the finished
transaction of the second run's attempt with the same number.

Inside foreachBatch a task also has the properties of the stream. Its run is then the query's, so that ids can be reused
from batch to batch. But a run id must never be reused, and user code may have set its own job group, which is the same
after each restart. Only a random UUID without contradicting properties is accepted as Spark's.

After its job was cancelled or has failed, nobody reads a task's message, and the driver has aborted what it found: a
transaction that begins then would hold back readers until its time-out. Spark tells a Python worker nothing about that.
But it closes the connection when its own side of the task has ended, however long the worker lives on. A worker that it
still wants to destroy sees nothing; the driver looks for its transaction again (commit/sweep.py).

Assumptions: the connection is `infile` of `main` in `pyspark/worker.py`, in the call stack of each task; and Spark
closes neither direction of it before it has the task's message. Where there is no such connection, or it cannot be
looked at, Spark counts as waiting.
"""

from __future__ import annotations

import re
import select
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from pyspark import TaskContext

from kafka_sink.commit.identity import TaskIdentity, run_of_query, run_of_stream, sink_id_of_query
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import LocalProtocolError
from kafka_sink.errors.table.writes import SPARK_UNEXPECTED
from kafka_sink.spark.batch_name import batch_of_task
from kafka_sink.spark.triggers import continuous_error

CONTINUOUS = "__is_continuous_processing"
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
# Spark gives the jobs of a streaming query its run id as their group.
JOB_GROUP = "spark.jobGroup.id"
DESCRIPTION, RUN_TITLE = "spark.job.description", "runId = "
_RANDOM_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

# As a module of the daemon, and as the program of a worker without one.
WORKERS = ("pyspark.worker", "__main__")
# Only Linux tells that the other side has closed while unread bytes are there.
CLOSED = getattr(select, "POLLRDHUP", 0) | getattr(select, "POLLHUP", 0) | getattr(select, "POLLERR", 0)


@dataclass(frozen=True)
class TaskPlace:
    """The attempt's position in Spark. `sink_id` None: delivery is at least once, without a transaction.

    `errors_may_be_caught`: user code between the batches can continue after a failed commit.
    """

    key: BatchKey
    run: str
    spark_partition: int
    attempt: int
    sink_id: str | None = None
    errors_may_be_caught: bool = False
    # How many attempts of the same task failed before, for messages. Spark restarts the count when it reruns a stage.
    attempt_number: int = field(default=0, compare=False)
    # The sink id as the user set it; `sink_id` is that of one query.
    named_sink_id: str | None = field(default=None, compare=False)

    @property
    def own_identity(self) -> TaskIdentity | None:
        """The id made from this attempt."""
        if self.sink_id is None:
            return None
        return TaskIdentity(self.sink_id, self.run, self.spark_partition, self.attempt)

    def __str__(self) -> str:
        return f"Spark partition {self.spark_partition}, TID {self.attempt}, of {self.key}"


def place_in_stream(sink_id: str | None, code: str = "") -> TaskPlace:
    """`code`: of the runs of this stream (`code_of_own_runs`)."""
    context = _task_context()
    if context.getLocalProperty(CONTINUOUS) == "true":
        raise continuous_error()
    query_id, batch_id, run_id = (context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID, JOB_GROUP))
    if query_id is None or batch_id is None or run_id is None:
        raise LocalProtocolError(
            f"Spark did not tell this task its streaming batch (properties {QUERY_ID}, {BATCH_ID}, {JOB_GROUP})",
            SPARK_UNEXPECTED,
        )
    return _make_place(context, BatchKey(query_id, int(batch_id)), run_of_stream(run_id, code), sink_id)


def place_in_batch(key: BatchKey, run: str, sink_id: str | None) -> TaskPlace:
    context = _task_context()
    query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    named = batch_of_task(key, sink_id, query_id, batch_id)
    if named == key:
        return _make_place(context, named, run, sink_id)
    run_id = _run_id_of(named.query_id, context)
    own_run = run if run_id is None else run_of_query(run_id)
    return _make_place(context, named, own_run, sink_id, errors_may_be_caught=True)


def make_place(key: BatchKey, run: str, sink_id: str | None) -> TaskPlace:
    """The driver knows batch and run."""
    return _make_place(_task_context(), key, run, sink_id)


def _make_place(
    context: TaskContext,
    key: BatchKey,
    run: str,
    named_sink_id: str | None,
    *,
    errors_may_be_caught: bool = False,
) -> TaskPlace:
    sink_id = None if named_sink_id is None else sink_id_of_query(named_sink_id, key.query_id)
    return TaskPlace(
        key,
        run,
        context.partitionId(),
        context.taskAttemptId(),
        sink_id,
        errors_may_be_caught=errors_may_be_caught,
        attempt_number=context.attemptNumber(),
        named_sink_id=named_sink_id,
    )


def _run_id_of(query_id: str, context: TaskContext) -> str | None:
    run_id, description = context.getLocalProperty(JOB_GROUP), context.getLocalProperty(DESCRIPTION) or ""
    if run_id is None or run_id == query_id or not _RANDOM_UUID.fullmatch(run_id):
        return None
    return run_id if RUN_TITLE not in description or RUN_TITLE + run_id in description else None


def _task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise LocalProtocolError("a writer can only write inside a Spark task", SPARK_UNEXPECTED)
    return context


def is_spark_waiting() -> bool:
    """To be called in the thread in which Spark calls the task. Reads nothing."""
    connection = _connection()
    if connection is None or not hasattr(select, "poll"):
        return True
    with suppress(AttributeError, OSError, ValueError):  # no file of the system, or closed
        poll = select.poll()
        poll.register(connection.fileno(), CLOSED)
        return not any(event & CLOSED for _, event in poll.poll(0))
    return True


def _connection() -> Any:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "main" and frame.f_globals.get("__name__") in WORKERS:
            return frame.f_locals.get("infile")
        frame = frame.f_back
    return None
