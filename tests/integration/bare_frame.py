"""A frame without Spark, for the second door: its tasks run one after the other in this process.

What stands in for Spark is the frame's session, its `mapInArrow` and `collect`, and the context of a task.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from kafka_sink.spark import task_context

_ATTEMPTS = itertools.count()
# With the first array that is made of a list pyarrow imports pandas: here once, and not in each process that is forked.
LOADED = pa.array([""], pa.string())
# A worker process of Spark's runs one task at a time.
_ONE_TASK = threading.Lock()


class BareFrame:
    """`parts`: the values of each Spark partition. `query`: query id, batch and run, as properties of the thread."""

    schema = StructType().add("value", StringType())
    columns = ("value",)
    isStreaming = False

    def __init__(self, parts: Sequence[Sequence[str]], query: tuple[str, int, str] | None = None) -> None:
        names = (task_context.QUERY_ID, task_context.BATCH_ID, task_context.JOB_GROUP)
        properties = {} if query is None else dict(zip(names, map(str, query), strict=True))
        context = SimpleNamespace(
            applicationId="bare",
            getLocalProperty=properties.get,
            addJobTag=lambda _tag: None,
            removeJobTag=lambda _tag: None,
            cancelJobsWithTag=lambda _tag: None,
        )
        conf = SimpleNamespace(get=lambda _name, _default: "4m")
        self.sparkSession = SimpleNamespace(sparkContext=context, conf=conf)
        self._parts = parts
        # Called before each task with its number.
        self.before_task: Callable[[int], None] = lambda _: None

    def mapInArrow(self, run: Callable[..., Iterator[pa.RecordBatch]], _schema: object) -> Any:
        def collect() -> list[tuple[bytes]]:
            return [self._run_task(run, number) for number in range(len(self._parts))]

        return SimpleNamespace(collect=collect, sparkSession=self.sparkSession)

    def _run_task(self, run: Callable[..., Iterator[pa.RecordBatch]], number: int) -> tuple[bytes]:
        self.before_task(number)
        attempt = next(_ATTEMPTS)
        context = SimpleNamespace(partitionId=lambda: number, taskAttemptId=lambda: attempt, attemptNumber=lambda: 0)
        rows = pa.RecordBatch.from_arrays([pa.array(self._parts[number], pa.string())], ["value"])
        with _ONE_TASK, mock.patch.object(task_context, "_task_context", return_value=context):
            (result,) = run(iter([rows]))
        return (result.column(0)[0].as_py(),)
