"""The writer of a batch write by the format: Spark pickles it to its tasks, and calls its commit on the driver when
they are done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.columns import WrittenColumns
from kafka_sink.spark.first_line import explain_to_spark
from kafka_sink.spark.heap import HEAP
from kafka_sink.spark.task_writer import TaskResult, TaskWriter, conclude, give_up

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class CommitMessage(TaskResult, WriterCommitMessage):
    """As Spark wants it."""


class BatchWriter(TaskWriter, DataSourceArrowWriter):
    """`run` is unique to this write. Inside foreachBatch a label can be a stream's batch (place.py)."""

    def __init__(
        self, options: SinkOptions, columns: WrittenColumns, key: BatchKey, *, run: str, sink_id: str | None = None
    ) -> None:
        super().__init__(options, columns, sink_id)
        self._key = key
        self._run = run

    @explain_to_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> CommitMessage:
        from kafka_sink.spark.place import place_in_batch

        result = self.write_rows(iterator, place_in_batch(self._key, self._run, self._sink_id))
        return CommitMessage(result.receipt, result.figures)

    @explain_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        batch = self.finish(messages, (self._key, self._run), self._run)
        HEAP.on_work_begin()
        conclude(batch, messages)

    @explain_to_spark()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        batch = self.finish(messages, (self._key, self._run), self._run)
        HEAP.on_work_begin()
        give_up(batch)
