"""The writer of a stream: Spark creates it anew for every micro-batch and again for every commit, so it keeps no state
between them. PySpark has the base class from 4.1 on; `planning` reports older versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from kafka_sink.exactly_once.receipt import BatchKey, TaskReceipt
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.columns import WrittenColumns
from kafka_sink.spark.first_line import explain_to_spark
from kafka_sink.spark.heap import HEAP
from kafka_sink.spark.triggers import continuous_error
from kafka_sink.spark.writer import (
    CommitMessage,
    FinishedBatch,
    conclude,
    figures_of,
    give_up,
    receipts_left,
    receipts_of,
    run_task,
)

if TYPE_CHECKING:
    import pyarrow as pa


class StreamWriter(DataSourceStreamArrowWriter):
    """`sink_id` None: delivery is at least once."""

    def __init__(self, options: SinkOptions, columns: WrittenColumns, sink_id: str | None) -> None:
        self._options = options
        self._columns = columns
        self._sink_id = sink_id

    @explain_to_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> CommitMessage:
        from kafka_sink.spark.place import place_in_stream

        HEAP.on_work_begin()
        place = place_in_stream(self._sink_id)
        return run_task(self._options, self._columns, iterator, place)

    @explain_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        from kafka_sink.spark.driver import commit_batch

        if any(message is None for message in messages):
            raise continuous_error()  # happens only there: a batch is committed when all its tasks have succeeded
        receipts = receipts_of(messages)
        key, run = _batch_of(receipts, batchId)
        batch = FinishedBatch(self._options, self._sink_id, key, run, receipts, figures_of(messages))
        conclude(batch, lambda: commit_batch(self._options, self._sink_id, run, key, receipts))

    @explain_to_spark()
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        from kafka_sink.spark.driver import abort_batch

        receipts = receipts_left(messages)
        key, run = _batch_of(receipts, batchId)
        batch = FinishedBatch(self._options, self._sink_id, key, run, receipts, figures_of(messages))
        give_up(batch, lambda: abort_batch(self._options, self._sink_id, run, key, receipts))


def _batch_of(receipts: Sequence[TaskReceipt], batch_id: int) -> tuple[BatchKey, str]:
    """Spark passes query and run only to tasks; the driver gets them from a receipt. Without receipts there is nothing
    to commit or abort."""
    for receipt in receipts:
        return receipt.key, receipt.run
    return BatchKey("", batch_id), ""
