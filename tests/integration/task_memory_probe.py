"""One task of the sink writes many rows; it reports, as JSON, how far the process has grown; test_memory.py runs it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType

from kafka_sink.commit.identity import run_hash
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from tests.integration.memory_probe import VALUE_BYTES, reset_peak, status_bytes

# Spark's own maxRecordsPerBatch.
ARROW_ROWS = 10_000


def arrow_batches(total_bytes: int) -> Iterator[pa.RecordBatch]:
    """Each batch is created when it is requested, as one piece of memory, as PySpark reads it from Spark's socket."""
    starts = pa.py_buffer(np.arange(0, (ARROW_ROWS + 1) * VALUE_BYTES, VALUE_BYTES, np.int32))
    for first in range(0, total_bytes // VALUE_BYTES, ARROW_ROWS):
        content = pa.py_buffer(b"%10d" % first * (VALUE_BYTES * ARROW_ROWS // 10))
        values = pa.Array.from_buffers(pa.binary(), ARROW_ROWS, [None, starts, content])
        yield pa.RecordBatch.from_arrays([values], ["value"])


def main() -> None:
    servers, topic, total_text = sys.argv[1:]
    options = parse_sink_options({"kafka.bootstrap.servers": servers, "topic": topic, "sink.id": "memory"})
    columns = choose_columns(StructType().add("value", BinaryType()), topic)
    # The first task includes imports, threads and connections; the second one gets its producer.
    for attempt, total_bytes in enumerate((VALUE_BYTES * ARROW_ROWS, int(total_text))):
        place = TaskPlace(BatchKey("", "memory"), run_hash("memory"), 0, attempt, "memory")
        reset_peak()
        baseline = status_bytes("VmRSS")
        receipt = write_task(options, columns, arrow_batches(total_bytes), place)
        found = {"grown": status_bytes("VmHWM") - baseline, "row_count": receipt.row_count, "bytes": receipt.bytes}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
