"""What the Python processes of Spark do for a stream, without Spark: plan, write a task, commit, abort.

Spark's JVM holds none of the sink's state. It starts Python processes, hands them pickled writers and messages, and
keeps its checkpoint. `bare_spark.py` plays the JVM; this module runs in the processes that it starts. Each serves one
call at a time until its pipe closes, and can be killed like Spark's own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.spark import datasource, driver, planning, task, task_context, writers
from kafka_sink.spark.closings import CLOSINGS
from tests.chaos.numbered_records import numbered_value

SCHEMA = StructType([StructField("value", BinaryType()), StructField("partition", IntegerType())])
# So that a task writes, gets acknowledgements, and writes more.
ROWS_PER_ARROW_BATCH = 10
# Loaded before the fork, so that the processes need not load them. With the first array that is made of a list pyarrow
# imports pandas, which takes as long as all that a process then does.
LOADED = (driver, planning, writers, pa.array([b""], pa.binary()))


class _LogLines(logging.Handler):
    """What the sink logs during a call."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


def serve(pipe: Connection) -> None:
    """The log lines of a call go back with its result: a forked process writes to the standard error that the fork
    server was started with, which pytest may have replaced since."""
    log = _LogLines()
    logging.getLogger("kafka_sink").addHandler(log)
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            value = function(*arguments)
            pipe.send((value, None, log.take()))
        except Exception as error:
            pipe.send((None, error, log.take()))


def plan(settings: Mapping[str, str]) -> writers.StreamWriter:
    return datasource.plan_stream(settings, SCHEMA, False)


def write(planned: writers.StreamWriter, place: task_context.TaskPlace, rows: Sequence[int], partitions: int) -> Any:
    """StreamWriter.write, with a given place instead of the one from Spark's TaskContext."""
    batches = _arrow_batches(rows, partitions)
    return writers.CommitMessage(task.write_task(planned._options, planned._columns, batches, place))


def write_and_fail(
    planned: writers.StreamWriter, place: task_context.TaskPlace, rows: Sequence[int], partitions: int
) -> TaskReceipt:
    """A task whose input fails after its last row."""

    def broken() -> Iterable[pa.RecordBatch]:
        yield from _arrow_batches(rows, partitions)
        raise ArithmeticError("a user's function failed")

    return task.write_task(planned._options, planned._columns, broken(), place)


def commit(settings: Mapping[str, str], messages: Sequence[Any], batch_id: int) -> None:
    """Until its decision is closed, too, so that what happens then happens in this call."""
    commit_and_go_on(settings, messages, batch_id)
    CLOSINGS.value.wait()


def commit_and_go_on(settings: Mapping[str, str], messages: Sequence[Any], batch_id: int) -> None:
    _plan_end_of_batch(settings).commit(messages, batch_id)


def abort(settings: Mapping[str, str], messages: Sequence[Any], batch_id: int) -> None:
    _plan_end_of_batch(settings).abort(messages, batch_id)


def _plan_end_of_batch(settings: Mapping[str, str]) -> writers.StreamWriter:
    """Spark's process for commits and aborts is known by its module, which this one has not."""
    with patch.object(planning, "is_for_stream_commits", return_value=True):
        return plan(settings)


# ---- batch writes ----


def plan_export(settings: Mapping[str, str]) -> writers.BatchWriter:
    return datasource.plan_batch(settings, SCHEMA, False)


def write_export(planned: writers.BatchWriter, tasks: int, rows: int, partitions: int) -> list[Any]:
    """All tasks of a batch write, one after the other. The numbers of their attempts are those of the tasks: a run has
    no other ones."""
    key, run, sink_id = planned._key, planned._run, planned._sink_id
    share = rows // tasks
    return [
        writers.CommitMessage(
            task.write_task(
                planned._options,
                planned._columns,
                _arrow_batches(range(number * share, (number + 1) * share), partitions),
                task_context.TaskPlace(key, run, number, number, sink_id),
            )
        )
        for number in range(tasks)
    ]


def commit_export(planned: writers.BatchWriter, messages: Sequence[Any]) -> None:
    planned.commit(messages)


def export_all(planned: writers.BatchWriter, tasks: int, rows: int, partitions: int) -> None:
    planned.commit(write_export(planned, tasks, rows, partitions))


def abort_export(planned: writers.BatchWriter, messages: Sequence[Any]) -> None:
    planned.abort(messages)


def jump_clock(seconds: float) -> None:
    """Changes the wall clock of this process; its other clocks continue as before."""
    wall, wall_ns = time.time, time.time_ns
    time.time = lambda: wall() + seconds
    time.time_ns = lambda: wall_ns() + int(seconds * 1_000_000_000)


def _arrow_batches(rows: Sequence[int], partitions: int) -> Iterable[pa.RecordBatch]:
    for start in range(0, len(rows), ROWS_PER_ARROW_BATCH):
        chosen = rows[start : start + ROWS_PER_ARROW_BATCH]
        # A source row's offset determines its partition and its number there.
        values = [numbered_value(row % partitions, row // partitions, row) for row in chosen]
        columns = {
            "value": pa.array(values, pa.binary()),
            "partition": pa.array([row % partitions for row in chosen], pa.int32()),
        }
        yield pa.RecordBatch.from_pydict(columns)


Work = Callable[..., Any]
