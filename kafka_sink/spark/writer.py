"""A batch write: what Spark pickles to its tasks, and asks to commit on the driver when all of them are done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kafka_sink.delivery.receipt import BatchKey, TaskReceipt
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.columns import WrittenColumns
from kafka_sink.spark.place import place_in_batch
from kafka_sink.spark.summary import tell_abort, tell_commit
from kafka_sink.spark.task import write_task

BATCH_WRITE = BatchKey("", "")


@dataclass
class CommitMessage(WriterCommitMessage):
    receipt: TaskReceipt


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, columns: WrittenColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> CommitMessage:
        place = place_in_batch(BATCH_WRITE, "", None)
        return CommitMessage(write_task(self._options, self._columns, iterator, place))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        tell_commit(self._options, BATCH_WRITE, receipts_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        tell_abort(BATCH_WRITE, receipts_of(messages))


def receipts_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReceipt]:
    """A task that failed or was never run left no message."""
    return [message.receipt for message in messages if isinstance(message, CommitMessage)]
