"""A task of the sink in a process that may get hardly any more address space; test_exhaustion.py runs it."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType

from kafka_sink.commit.identity import run_hash
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import OutOfMemory
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from tests.integration.memory_probe import status_bytes

MEBIBYTE = 1024 * 1024


def batch(row_count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([bytes(1000)] * row_count, pa.binary())], ["value"])


def limit_address_space(more_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (status_bytes("VmSize") + more_bytes, resource.RLIM_INFINITY))


def limited_from_the_start() -> Iterator[pa.RecordBatch]:
    rows = batch(1)
    limit_address_space(MEBIBYTE)
    yield rows


def limited_behind_the_first_rows() -> Iterator[pa.RecordBatch]:
    yield batch(1)
    rows = batch(100_000)
    limit_address_space(16 * MEBIBYTE)
    yield rows


def main() -> None:
    servers, topic, which = sys.argv[1:]
    options = parse_sink_options({"kafka.bootstrap.servers": servers, "topic": topic, "sink.id": "exhausted"})
    columns = choose_columns(StructType().add("value", BinaryType()), topic)
    place = TaskPlace(BatchKey("", "memory"), run_hash("memory"), 0, 7, "exhausted")
    rows = limited_from_the_start() if which == "thread" else limited_behind_the_first_rows()
    try:
        write_task(options, columns, rows, place)
    except OutOfMemory as error:
        print(error.name, error)


if __name__ == "__main__":
    main()
