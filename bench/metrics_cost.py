"""What metrics cost: `python -m bench.metrics_cost [--quick]`.

This process plans, writes and commits batches of rows of 100 bytes (lz4) as Spark does. The embedded broker runs in
another process. Every second batch has metrics.enabled. The benchmark measures the CPU time of this process; waiting
does not count. It compares pairs of batches (one with, one without, in changing order), and reports the median of the
differences with its quartiles. It also measures the same cost directly: it calls the added code many times without a
batch.
"""

from __future__ import annotations

import argparse
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructType

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.producer.pool import POOL
from kafka_sink.telemetry.metrics.figures import DELIVERED, BatchReport, TaskMeter
from kafka_sink.telemetry.metrics.store import note
from pyspark_pykafka_sink import DefaultSource
from tools.worker_environment import worker_environment

ROWS, ROW_BYTES, PAIRS, ADDED = 100_000, 100, 30, 500
TOPIC, PARTITIONS = "rows", 4
SCHEMA = StructType().add("value", StringType())


@contextmanager
def _broker() -> Iterator[str]:
    program = (
        "import sys; from kafka_sink.testing import EmbeddedBroker\n"
        f"with EmbeddedBroker(1, topics={{{TOPIC!r}: {PARTITIONS}}}) as broker:\n"
        "    print(broker.bootstrap_servers, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        yield process.stdout.readline().decode().strip()
        process.stdin.close()


def _in_a_task(number: int) -> None:
    context: Any = TaskContext._getOrCreate()
    context._partitionId, context._taskAttemptId, context._attemptNumber = 0, number, 0
    context._localProperties = {}
    TaskContext._setTaskContext(context)


def _write(servers: str, rows: pa.RecordBatch, number: int, *, with_figures: bool) -> list[Any]:
    options = {"kafka.bootstrap.servers": servers, "topic": TOPIC, "sink.id": "cost", "batch.id": f"batch-{number}"}
    options["kafka.compression.type"] = "lz4"  # the broker keeps all records in memory
    if with_figures:
        options["metrics.enabled"] = "true"
    _in_a_task(number)
    writer = DefaultSource(options).writer(SCHEMA, False)
    messages = pickle.loads(pickle.dumps([writer.write(iter([rows]))]))
    writer.commit(messages)
    return messages


def _cpu_s(act: Callable[[], object]) -> float:
    began_s = time.process_time()
    act()
    return time.process_time() - began_s


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer pairs")
    pairs = 6 if arguments.parse_args().quick else PAIRS
    rows = pa.RecordBatch.from_arrays([pa.array([f"{number:0{ROW_BYTES}d}" for number in range(ROWS)])], ["value"])
    with tempfile.TemporaryDirectory() as folder, _broker() as servers:
        os.environ.update(worker_environment(folder))
        for number in range(4):
            messages = _write(servers, rows, number, with_figures=number % 2 == 1)
        differences, without = [], []
        for pair in range(pairs):
            found = {}
            for turn in (pair % 2, 1 - pair % 2):
                number = 10 + 2 * pair + turn
                found[turn] = _cpu_s(lambda n=number, t=turn: _write(servers, rows, n, with_figures=t == 1))  # type: ignore[misc]
            differences.append((found[1] - found[0]) / found[0] * 100)
            without.append(found[0])
        added_s = _added_s(folder, servers, messages)
    POOL.close()
    low, middle, high = statistics.quantiles(differences, n=4)
    batch_s = statistics.median(without)
    sys.stdout.write(
        f"{pairs} pairs of batches of {ROWS} rows of {ROW_BYTES} bytes, CPU time of the Python process\n"
        f"a batch without metrics: {batch_s * 1000:.1f} ms ({batch_s / ROWS * 1e6:.3f} us per row)\n"
        f"with metrics, by pairs: {middle:+.2f} % (quartiles {low:+.2f} to {high:+.2f} %)\n"
        f"the added code alone: {added_s * 1e6:.0f} us per batch of one task, {added_s / batch_s * 100:.3f} %\n"
    )


def _added_s(folder: str, servers: str, messages: list[Any]) -> float:
    """The time of the added code for a batch of one task: the task's meter and the note of its commit."""
    from kafka_sink.options import ProducerOptions
    from kafka_sink.options.parse import parse_producer_options

    options: ProducerOptions = parse_producer_options({"bootstrap.servers": servers})
    producer = POOL.borrow(options)
    receipt = messages[0].receipt

    def once() -> None:
        meter = TaskMeter()
        meter.begin(producer)
        meter.on_sent()
        meter.end(producer, has_new_id=False)
        figures = pickle.loads(pickle.dumps(meter.figures))
        report = BatchReport("s", "", BatchKey("", "b"), "r", "c", DELIVERED, (receipt,), (figures,), 0, 10, 5.0)
        note(os.path.join(folder, "pykafka-sink"), report)

    once()
    found = _cpu_s(lambda: [once() for _ in range(ADDED)]) / ADDED
    POOL.give_back(options, producer)
    return found


if __name__ == "__main__":
    main()
