"""A stream's batch fails, or its query is stopped, before any of its tasks has ended: one raises, and another one is in
the middle of its rows. Without Spark: tests/integration/test_no_task_has_ended.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import kafka_sink
from kafka_sink.__main__ import main
from kafka_sink.testing import EmbeddedBroker
from tests.spark.spark_session import PATIENCE_S
from tests.support.open_transactions import open_transactions
from tools.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME, TOPIC = "orders", "t"
ROWS_PER_ARROW_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
# Rows of fewer bytes would wait in the task for more of them, and nothing would be open.
ROW_BYTES = 50_000
OVER = ".over"


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get(ROWS_PER_ARROW_BATCH)
    spark.conf.set(ROWS_PER_ARROW_BATCH, "20")
    kafka_sink.register(spark)
    yield spark
    spark.conf.set(ROWS_PER_ARROW_BATCH, before)


def with_a_poison_row(spark: SparkSession, gate: Path) -> DataFrame:
    """The second of two tasks raises when the gate opens. The first one passes its rows on, and goes on until it is let
    go."""
    fails, ends, row_bytes = str(gate), str(gate.with_suffix(OVER)), ROW_BYTES

    def pour(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import time

        import pyarrow as pa
        from pyspark import TaskContext

        def wait_for(path: str) -> None:
            until_s = time.monotonic() + 120  # a process that nobody ends
            while not os.path.exists(path) and time.monotonic() < until_s:
                time.sleep(0.05)

        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1:
            wait_for(fails)
            raise ValueError("poison row")
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array(["a" * row_bytes] * len(batch))], ["value"])
        wait_for(ends)

    read = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 200).option("numPartitions", 2).load()
    return read.selectExpr("CAST(value AS STRING) AS value").mapInArrow(pour, "value STRING")


def by_format(writer: Any, options: dict[str, str]) -> Any:
    return writer.format("pykafka-sink").options(**options)


def by_function(writer: Any, options: dict[str, str]) -> Any:
    return writer.foreachBatch(kafka_sink.foreach_batch(options))


def by_format_inside(writer: Any, options: dict[str, str]) -> Any:
    def write(frame: DataFrame, batch_id: int) -> None:
        made = frame.write.format("pykafka-sink").mode("append").options(**options)
        made.option("batch.id", str(batch_id)).save()

    return writer.foreachBatch(write)


def start(spark: SparkSession, servers: str, door: Callable[..., Any], gate: Path, checkpoint: str) -> Any:
    options = {"kafka.bootstrap.servers": servers, "topic": TOPIC, "sink.id": NAME}
    rows = with_a_poison_row(spark, gate)
    query = door(rows.writeStream, options).option("checkpointLocation", checkpoint).start()
    wait_until(lambda: open_transactions(servers, NAME, patience_s=0), "a transaction is open", PATIENCE_S)
    return query


def let_go(gate: Path) -> None:
    """The first task: Spark has given it up, but its process goes on, and the next query needs its core."""
    gate.with_suffix(OVER).touch()


def fail(query: Any, gate: Path) -> None:
    gate.touch()
    with pytest.raises(StreamingQueryException, match="poison row"):
        query.awaitTermination(PATIENCE_S)


@pytest.mark.parametrize("door", [by_format, by_function])
def test_a_batch_that_fails_before_any_task_has_ended_holds_no_reader_back(
    small_batches: SparkSession, tmp_path: Path, checkpoint: str, door: Callable[..., Any]
) -> None:
    with EmbeddedBroker(topics={TOPIC: 2}) as broker:
        servers = broker.bootstrap_servers
        for number in range(2):  # as a supervisor does
            gate = tmp_path / f"gate-{number}"
            fail(start(small_batches, servers, door, gate, checkpoint), gate)
            assert open_transactions(servers, NAME, patience_s=2) == []
            let_go(gate)


def test_a_stream_that_is_stopped_before_any_task_has_ended_holds_no_reader_back(
    small_batches: SparkSession, tmp_path: Path, checkpoint: str
) -> None:
    with EmbeddedBroker(topics={TOPIC: 2}) as broker:
        gate = tmp_path / "gate"
        query = start(small_batches, broker.bootstrap_servers, by_format, gate, checkpoint)
        query.stop()
        assert open_transactions(broker.bootstrap_servers, NAME, patience_s=20) == []
        let_go(gate)


def test_what_format_left_open_inside_foreach_batch_is_ended_by_the_command_that_its_log_names(
    small_batches: SparkSession, tmp_path: Path, checkpoint: str
) -> None:
    gate = tmp_path / "gate"
    with EmbeddedBroker(topics={TOPIC: 2}) as broker:
        fail(start(small_batches, broker.bootstrap_servers, by_format_inside, gate, checkpoint), gate)
        where = ["--bootstrap-server", broker.bootstrap_servers, "--sink-id", NAME]
        assert main(["transactions", "--abort", *where, "--yes"]) == 0
        assert open_transactions(broker.bootstrap_servers, NAME, patience_s=2) == []
        let_go(gate)
