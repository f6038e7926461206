"""How often a stream queries the registry: once for each process that plans it, whatever the number of micro-batches
and tasks. Spark usually has two: one plans tasks; one commits, for which it creates the writer again, and asks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from kafka_sink.spark.datasource import KafkaSinkDataSource
from kafka_sink.testing import EmbeddedBroker, EmbeddedRegistry
from tools.waiting import wait_until

TASKS = 16
NOTED_SINK = "pykafka-sink-that-notes-who-plans"


def noted_sink() -> type[KafkaSinkDataSource]:
    """The sink; each call that plans adds a line to the file `notes`: kind of process, process id."""

    # Inside a function, so that it is pickled with its code: workers cannot import this module.
    class NotedSink(KafkaSinkDataSource):
        @classmethod
        def name(cls) -> str:
            return NOTED_SINK

        def __init__(self, options: Mapping[str, str]) -> None:
            super().__init__(options)
            self.notes = self.options.pop("notes")

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            import os
            import sys

            with open(self.notes, "a") as notes:
                notes.write(f"{sys.argv[-1].rpartition('.')[2]} {os.getpid()}\n")
            return super().streamWriter(schema, overwrite)

    return NotedSink


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("batches", [6, pytest.param(1000, marks=pytest.mark.slow)])
def test_each_process_that_plans_tasks_asks_once_and_no_task_or_commit_ever(
    spark: SparkSession,
    embedded_kafka: EmbeddedBroker,
    embedded_registry: EmbeddedRegistry,
    tmp_path: Path,
    batches: int,
) -> None:
    notes = tmp_path / "notes"
    spark.dataSource.register(noted_sink())
    rows = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=TASKS, numPartitions=TASKS).load()
    query = rows.selectExpr("value AS number").writeStream.format(NOTED_SINK).options(
        **{
            "notes": str(notes), "checkpointLocation": str(tmp_path / "c"), "topic": "numbers", "value.format": "avro",
            "kafka.bootstrap.servers": embedded_kafka.bootstrap_servers,
            "schema.registry.url": embedded_registry.url, "auto.register.schemas": "true",
        }
    ).start()  # fmt: skip
    try:
        wait_until(lambda: is_done(query, batches), f"{batches} micro-batches", timeout_s=90 + 6 * batches, poll_s=0.2)
    finally:
        query.stop()
    plans = notes.read_text().splitlines()
    print(f"{batches} micro-batches of {TASKS} tasks, {len(plans)} plans in {sorted(set(plans))}")
    assert len(plans) >= 2 * batches
    for_tasks = {plan for plan in plans if not plan.startswith("python_streaming_sink_runner ")}
    assert for_tasks and len(for_tasks) < len(set(plans))
    path = "/subjects/numbers-value/versions"
    first, later = [("GET", f"{path}/latest"), ("POST", path)], [("GET", f"{path}/latest")]
    assert embedded_registry.requests() == first + later * (len(for_tasks) - 1)
    assert len({record.value for record in embedded_kafka.records("numbers")}) >= batches * TASKS


def is_done(query: StreamingQuery, batches: int) -> bool:
    if not query.isActive:
        raise AssertionError(f"the query has ended early: {query.exception()}")
    progress = query.lastProgress
    return progress is not None and progress["batchId"] >= batches - 1
