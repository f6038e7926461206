"""A stream: Spark makes this anew for every micro-batch and again for every commit, so nothing it learns reaches the
next one. PySpark has the base class from 4.1 on; `planning` says so on older versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from kafka_sink.delivery.receipt import BatchKey
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.columns import WrittenColumns
from kafka_sink.spark.place import place_in_stream
from kafka_sink.spark.summary import tell_abort, tell_commit
from kafka_sink.spark.task import write_task
from kafka_sink.spark.writer import CommitMessage, receipts_of


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, columns: WrittenColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> CommitMessage:
        return CommitMessage(write_task(self._options, self._columns, iterator, place_in_stream(None)))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        receipts = receipts_of(messages)
        tell_commit(self._options, _key(messages, batchId), receipts)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        tell_abort(_key(messages, batchId), receipts_of(messages))


def _key(messages: Sequence[WriterCommitMessage | None], batch_id: int) -> BatchKey:
    """The query's id is known to tasks only; a batch none of whose tasks came to an end goes without."""
    return next((receipt.key for receipt in receipts_of(messages)), BatchKey("", batch_id))
