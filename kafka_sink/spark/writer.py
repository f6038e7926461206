"""A batch write: what Spark pickles to its tasks, and asks to commit on the driver when all of them are done.

Spark plans, writes and commits in processes of their own. Each loads what it needs when it is called: numpy, pyarrow
and the encoder take longer to load than a commit takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kafka_sink.errors import LocalProtocolError
from kafka_sink.exactly_once.receipt import BatchKey, TaskReceipt
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.columns import WrittenColumns
from kafka_sink.spark.heap import HEAP

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class CommitMessage(WriterCommitMessage):
    receipt: TaskReceipt


class BatchWriter(DataSourceArrowWriter):
    """`sink_id` of None: delivery is at least once. `run` is this write's own."""

    def __init__(
        self, options: SinkOptions, columns: WrittenColumns, key: BatchKey, *, run: str, sink_id: str | None = None
    ) -> None:
        self._options = options
        self._columns = columns
        self._key = key
        self._run = run
        self._sink_id = sink_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> CommitMessage:
        from kafka_sink.spark.place import place_in_batch
        from kafka_sink.spark.task import write_task

        HEAP.work_begins()
        place = place_in_batch(self._key, self._run, self._sink_id)
        return CommitMessage(write_task(self._options, self._columns, iterator, place))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        from kafka_sink.spark.driver import committed
        from kafka_sink.spark.summary import tell_delivered

        HEAP.work_begins()
        receipts = receipts_of(messages)
        key, run = self._batch_of(receipts)
        conclusion = committed(self._options, self._sink_id, run, key, receipts, self._run)
        tell_delivered(self._options, key, receipts, conclusion)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        from kafka_sink.spark.driver import aborted
        from kafka_sink.spark.summary import tell_aborted

        HEAP.work_begins()
        receipts = receipts_left(messages)
        key, run = self._batch_of(receipts)
        conclusion = aborted(self._options, self._sink_id, run, key, receipts, self._run)
        tell_aborted(key, receipts, conclusion)

    def _batch_of(self, receipts: Sequence[TaskReceipt]) -> tuple[BatchKey, str]:
        """Key and run. The tasks know better: inside foreachBatch a label can be a stream's batch (place.py)."""
        return (receipts[0].key, receipts[0].run) if receipts else (self._key, self._run)


def receipts_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReceipt]:
    """For a commit: one of each task. What a task did without telling us can neither be committed nor be recorded."""
    receipts = receipts_left(messages)
    if len(receipts) < len(messages):
        strange = sorted({type(message).__name__ for message in messages if not isinstance(message, CommitMessage)})
        raise LocalProtocolError(
            f"Spark asks to commit {len(messages)} tasks, and {len(messages) - len(receipts)} of them have no receipt "
            f"of this sink (instead: {', '.join(strange)}): what they wrote, if anything, is not known. Nothing is "
            "committed"
        )
    return receipts


def receipts_left(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReceipt]:
    """For an abort: a task that failed or was never run left no message."""
    return [message.receipt for message in messages if isinstance(message, CommitMessage)]
