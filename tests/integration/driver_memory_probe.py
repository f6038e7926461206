"""A driver process that lives long: threads plan and commit batch after batch. It reports what it has at the end of
each tenth of the work, as JSON; test_driver_memory.py runs it.

Its tasks run in a process of their own, as Spark's do, so that it is only the driver's side that may grow here.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from kafka_sink.commit.identity import run_of_query, sink_id_of_query
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.spark import driver
from kafka_sink.spark.planning import plan_query
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.spark.task_writer import TaskResult, TaskWriter, commit_write
from kafka_sink.testing import EmbeddedBroker
from tests.integration.memory_probe import status_bytes
from tests.support.finish_closings import finish_closings

SCHEMA = StructType().add("value", StringType())
TENTHS = 10


def serve_tasks(pipe: Connection) -> None:
    """The broker is here as well: it keeps all records, and grows."""
    with EmbeddedBroker(1, topics={"rows": 1}) as broker:
        pipe.send(broker.bootstrap_servers)
        while (task := pipe.recv()) is not None:
            planned, place = task
            rows = pa.RecordBatch.from_pydict({"value": [str(place.key)]})
            pipe.send(write_task(planned.options, planned.columns, [rows], place))
        pipe.send(len(broker.records("rows")))


class Tasks:
    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def write(self, planned: Any, place: TaskPlace) -> Any:
        with self._lock:
            self._pipe.send((planned, place))
            return self._pipe.recv()


def run(tasks: Tasks, servers: str, name: str, first: int, count: int, own_each: int) -> None:
    """One of `own_each` batches has options of its own, as of code that makes them anew for each; 0: none."""
    query_id, run_id = str(uuid.uuid5(uuid.NAMESPACE_OID, name)), run_of_query(name)
    settings = {"kafka.bootstrap.servers": servers, "topic": "rows", "sink.id": name, "metrics.enabled": "true"}
    for batch in range(first, first + count):
        other = {"kafka.client.id": f"{name}-{batch}"} if own_each and batch % own_each == 0 else {}
        planned = plan_query({**settings, **other}, SCHEMA)
        assert planned.sink_id is not None
        key = BatchKey(query_id, batch)
        place = TaskPlace(key, run_id, 0, batch, sink_id_of_query(planned.sink_id, query_id))
        result = TaskResult(tasks.write(planned, place))
        writer = TaskWriter(planned.options, planned.columns, planned.sink_id)
        commit_write(writer.finished_batch([result], key=key, run=run_id), [result])


def measure() -> dict[str, int]:
    gc.collect()
    return {
        "objects": len(gc.get_objects()),
        "frozen": gc.get_freeze_count(),
        "resident": status_bytes("VmRSS"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "idle_clients": len(driver.CLIENTS.value._idle),
    }


def main() -> None:
    batch_count, thread_count, own_each = (int(word) for word in sys.argv[1:])
    each = batch_count // thread_count // TENTHS
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    worker = context.Process(target=serve_tasks, args=(theirs,))
    worker.start()
    servers, tasks, found = pipe.recv(), Tasks(pipe), []
    for tenth in range(TENTHS):
        # New threads each time, as those of queries that end and are started again.
        with ThreadPoolExecutor(thread_count) as pool:
            running = [
                pool.submit(run, tasks, servers, f"sink-{number}", tenth * each, each, own_each)
                for number in range(thread_count)
            ]
            for one in running:
                one.result()
        finish_closings()
        found.append(measure())
    pipe.send(None)
    row_count = pipe.recv()
    worker.join()
    sys.stdout.write(json.dumps({"rows": row_count, "found": found}))


if __name__ == "__main__":
    main()
