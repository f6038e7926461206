"""Our sink and the null sink with time measurement, for bench.waterfall.

In each Python process that Spark starts for the sink, the steps are recorded as spans: planning, a task and its steps,
a commit and each of its asks. A span is one line of JSON in a file of the process, in the folder that an
environment variable names. Times are from the machine's clock, which all processes share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bench.spark_peers import FrozenNullSink
from kafka_sink.commit.admin.client import Client, Machine
from kafka_sink.commit.commit_step import Progress
from kafka_sink.kafka.client.ask import Ask, Reply
from kafka_sink.spark.datasource import KafkaSinkDataSource

FOLDER = "WATERFALL_FOLDER"
PLAN, TASK, COMMIT = "planning", "task", "commit"


def now_ms() -> float:
    return time.time() * 1000


class Notes:
    """Spans of this process. They are written when a piece of work ends, so that writing is part of no span."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._role = ""

    def begin(self, role: str) -> None:
        self._role = role

    def add(self, name: str, start_ms: float, **more: object) -> None:
        span = {"role": self._role, "name": name, "start": start_ms, "end": now_ms(), "pid": os.getpid(), **more}
        self._lines.append(json.dumps(span))

    def write(self) -> None:
        lines, self._lines = self._lines, []
        with Path(os.environ[FOLDER], f"{os.getpid()}.jsonl").open("a") as file:
            file.write("".join(line + "\n" for line in lines))


NOTES = Notes()


class Clocked:
    """A state machine of the driver. It records when each request was sent and answered."""

    def __init__(self, machine: Machine[Any]) -> None:
        self._machine = machine
        self._asked_ms: dict[Ask, float] = {}

    def step(self, at_ms: int, replies: Sequence[Reply]) -> Progress[Any]:
        for reply in replies:
            NOTES.add(reply.ask.purpose, self._asked_ms.pop(reply.ask), is_request=True)
        progress = self._machine.step(at_ms, replies)
        for ask in progress.asks:
            self._asked_ms[ask] = now_ms()
        return progress


def clocked_method(owner: type, name: str, title: Callable[..., str]) -> None:
    method = getattr(owner, name)

    def call_timed(self: Any, *arguments: Any, **named: Any) -> Any:
        start_ms = now_ms()
        try:
            return method(self, *arguments, **named)
        finally:
            NOTES.add(title(*arguments, **named), start_ms, is_request=True)

    setattr(owner, name, call_timed)


@cache
def watch_driver(_pid: int) -> None:
    run = Client.run
    Client.run = lambda self, machine: run(self, Clocked(machine))  # type: ignore[method-assign, assignment]
    clocked_method(Client, "ask_all", lambda _target, api, *_, **__: api.name)


@cache
def watch_tasks(_pid: int) -> None:
    from kafka_sink.producer.pool import ProducerPool
    from kafka_sink.producer.producer import Producer

    clocked_method(ProducerPool, "borrow", lambda *_, **__: "a producer")
    clocked_method(Producer, "init_transactions", lambda *_, **__: "identity")
    clocked_method(Producer, "send_arrow", lambda *_, **__: "send")
    clocked_method(Producer, "flush", lambda *_, **__: "flush")
    clocked_method(Producer, "prepare_transaction", lambda *_, **__: "prepare")


class TracedWriter(DataSourceStreamArrowWriter):
    def __init__(self, inner: DataSourceStreamArrowWriter) -> None:
        self._inner = inner

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        start_ms = now_ms()
        NOTES.begin(TASK)
        watch_tasks(os.getpid())
        context = TaskContext.get()
        assert context is not None
        message = self._inner.write(self._time(iterator))
        NOTES.add("write", start_ms, spark_partition=context.partitionId())
        NOTES.write()
        return message

    def _time(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        start_ms = now_ms()
        for rows in iterator:
            NOTES.add("rows from Spark", start_ms, is_request=True)
            yield rows
            start_ms = now_ms()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        start_ms = now_ms()
        NOTES.begin(COMMIT)
        watch_driver(os.getpid())
        self._inner.commit(messages, batchId)
        NOTES.add("commit()", start_ms, batch=batchId)
        NOTES.write()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._inner.abort(messages, batchId)


class TracedSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "traced-sink"

    def __init__(self, options: Mapping[str, str]) -> None:
        self._inner: DataSource = self._new_inner(options)

    def _new_inner(self, options: Mapping[str, str]) -> DataSource:
        return KafkaSinkDataSource(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TracedWriter:
        start_ms = now_ms()
        NOTES.begin(PLAN)
        watch_driver(os.getpid())
        writer = self._inner.streamWriter(schema=schema, overwrite=overwrite)
        assert isinstance(writer, DataSourceStreamArrowWriter)
        traced = TracedWriter(writer)
        NOTES.add("streamWriter()", start_ms)
        NOTES.write()
        return traced


class TracedNullSink(TracedSink):
    @classmethod
    def name(cls) -> str:
        return "traced-null-sink"

    def _new_inner(self, options: Mapping[str, str]) -> DataSource:
        return FrozenNullSink(options)
