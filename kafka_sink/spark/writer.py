"""The writer of a batch write, and what it shares with that of a stream: Spark pickles it to its tasks, and calls its
commit on the driver when they are done.

Spark plans, writes and commits in separate processes. Each imports what it needs when called: numpy, pyarrow and the
encoder take longer to load than a commit takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kafka_sink.error_table.writes import SPARK_UNEXPECTED
from kafka_sink.errors import LocalProtocolError
from kafka_sink.exactly_once.receipt import BatchKey, TaskReceipt
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.columns import WrittenColumns
from kafka_sink.spark.first_line import explain_to_spark
from kafka_sink.spark.heap import HEAP
from kafka_sink.spark.same_version import SameVersion

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_sink.metrics.figures import TaskFigures
    from kafka_sink.spark.driver import FinishedBatch
    from kafka_sink.spark.task import TaskPlace


@dataclass
class CommitMessage(WriterCommitMessage):
    """`figures` are set if an option enables them; a message of the previous release has none."""

    receipt: TaskReceipt
    figures: TaskFigures | None = None


class TaskWriter(SameVersion):
    """`sink_id` None: delivery is at least once."""

    def __init__(self, options: SinkOptions, columns: WrittenColumns, sink_id: str | None) -> None:
        self._options = options
        self._columns = columns
        self._sink_id = sink_id

    def _write(self, rows: Iterator[pa.RecordBatch], place: TaskPlace) -> CommitMessage:
        """Writes the rows of one attempt; the message is for the driver."""
        from kafka_sink.spark.task import write_task

        HEAP.on_work_begin()
        if self._options.telemetry is None:
            return CommitMessage(write_task(self._options, self._columns, rows, place))
        from kafka_sink.metrics.figures import TaskMeter

        meter = TaskMeter(place.attempt_number)
        receipt = write_task(self._options, self._columns, rows, place, meter)
        return CommitMessage(receipt, meter.figures)

    def _finish(
        self, messages: Sequence[WriterCommitMessage | None], otherwise: tuple[BatchKey, str], write: str = ""
    ) -> FinishedBatch:
        """Key and run are those of the tasks. Without a task that has ended they are `otherwise`."""
        from kafka_sink.spark.driver import FinishedBatch

        ours = [message for message in messages if isinstance(message, CommitMessage)]
        receipts, figures = [each.receipt for each in ours], [each.figures for each in ours]
        key, run = (receipts[0].key, receipts[0].run) if receipts else otherwise
        is_complete = len(ours) == len(messages)
        return FinishedBatch(self._options, self._sink_id, key, run, receipts, figures, write, is_complete)


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

        return self._write(iterator, place_in_batch(self._key, self._run, self._sink_id))

    @explain_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        batch = self._finish(messages, (self._key, self._run), self._run)
        HEAP.on_work_begin()
        conclude(batch, messages)

    @explain_to_spark()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        batch = self._finish(messages, (self._key, self._run), self._run)
        HEAP.on_work_begin()
        give_up(batch)


def conclude(batch: FinishedBatch, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commits, and reports to log, listener and telemetry. Without its message a task's work can neither be committed
    nor recorded."""
    from kafka_sink.spark.driver import commit_batch
    from kafka_sink.spark.summary import report_delivered

    strange = [message for message in messages if not isinstance(message, CommitMessage)]
    if strange:
        raise LocalProtocolError(
            f"Spark asks to commit {len(messages)} tasks, and {len(strange)} of them have no receipt of this sink "
            f"(instead: {', '.join(sorted({type(each).__name__ for each in strange}))}): what they wrote, if anything, "
            "is not known. Nothing is committed",
            SPARK_UNEXPECTED,
        )
    if batch.options.telemetry is None:
        conclusion = commit_batch(batch)
    else:
        from kafka_sink.spark.telemetry import commit_and_report

        conclusion = commit_and_report(batch)
    report_delivered(batch.options, batch.key, batch.receipts, conclusion)


def give_up(batch: FinishedBatch) -> None:
    """Aborts. A task that failed or was never run left no message."""
    from kafka_sink.spark.driver import abort_batch
    from kafka_sink.spark.summary import report_aborted

    if batch.options.telemetry is None:
        conclusion = abort_batch(batch)
    else:
        from kafka_sink.spark.telemetry import abort_and_report

        conclusion = abort_and_report(batch)
    report_aborted(batch, conclusion)
