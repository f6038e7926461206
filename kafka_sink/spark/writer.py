"""The writer of a batch write: Spark pickles it to its tasks, and calls its commit on the driver when they are done.

Spark plans, writes and commits in separate processes. Each imports what it needs when called: numpy, pyarrow and the
encoder take longer to load than a commit takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_sink.exactly_once.session import Conclusion
    from kafka_sink.metrics.figures import TaskFigures
    from kafka_sink.spark.task import TaskPlace


@dataclass
class CommitMessage(WriterCommitMessage):
    """`figures` are set if an option enables them; a message of the previous release has none."""

    receipt: TaskReceipt
    figures: TaskFigures | None = None


class BatchWriter(DataSourceArrowWriter):
    """`sink_id` None: delivery is at least once. `run` is unique to this write."""

    def __init__(
        self, options: SinkOptions, columns: WrittenColumns, key: BatchKey, *, run: str, sink_id: str | None = None
    ) -> None:
        self._options = options
        self._columns = columns
        self._key = key
        self._run = run
        self._sink_id = sink_id

    @explain_to_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> CommitMessage:
        from kafka_sink.spark.place import place_in_batch

        HEAP.on_work_begin()
        place = place_in_batch(self._key, self._run, self._sink_id)
        return run_task(self._options, self._columns, iterator, place)

    @explain_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        from kafka_sink.spark.driver import commit_batch

        HEAP.on_work_begin()
        receipts = receipts_of(messages)
        key, run = self._batch_of(receipts)
        batch = FinishedBatch(self._options, self._sink_id, key, run, receipts, figures_of(messages))
        conclude(batch, lambda: commit_batch(self._options, self._sink_id, run, key, receipts, self._run))

    @explain_to_spark()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        from kafka_sink.spark.driver import abort_batch

        HEAP.on_work_begin()
        receipts = receipts_left(messages)
        key, run = self._batch_of(receipts)
        batch = FinishedBatch(self._options, self._sink_id, key, run, receipts, figures_of(messages))
        give_up(batch, lambda: abort_batch(self._options, self._sink_id, run, key, receipts, self._run))

    def _batch_of(self, receipts: Sequence[TaskReceipt]) -> tuple[BatchKey, str]:
        """Key and run. The tasks' take precedence: inside foreachBatch a label can be a stream's batch (place.py)."""
        return (receipts[0].key, receipts[0].run) if receipts else (self._key, self._run)


@dataclass(frozen=True)
class FinishedBatch:
    """The results of its tasks. `figures` are empty if no option enables them."""

    options: SinkOptions
    sink_id: str | None
    key: BatchKey
    run: str
    receipts: Sequence[TaskReceipt]
    figures: Sequence[TaskFigures | None]


def run_task(
    options: SinkOptions, columns: WrittenColumns, rows: Iterator[pa.RecordBatch], place: TaskPlace
) -> CommitMessage:
    """Writes the rows of one attempt; the message is for the driver."""
    from kafka_sink.spark.task import write_task

    if options.telemetry is None:
        return CommitMessage(write_task(options, columns, rows, place))
    from kafka_sink.metrics.task_meter import TaskMeter

    meter = TaskMeter(place.attempt_number)
    receipt = write_task(options, columns, rows, place, meter)
    return CommitMessage(receipt, meter.figures)


def conclude(batch: FinishedBatch, commit: Callable[[], Conclusion]) -> None:
    """Commits, and reports to log, listener and telemetry."""
    from kafka_sink.spark.summary import report_delivered

    if batch.options.telemetry is None:
        conclusion = commit()
    else:
        from kafka_sink.spark.telemetry import commit_and_report

        conclusion = commit_and_report(batch, commit)
    report_delivered(batch.options, batch.key, batch.receipts, conclusion)


def give_up(batch: FinishedBatch, abort: Callable[[], Conclusion | None]) -> None:
    from kafka_sink.spark.summary import report_aborted

    if batch.options.telemetry is None:
        conclusion = abort()
    else:
        from kafka_sink.spark.telemetry import abort_and_report

        conclusion = abort_and_report(batch, abort)
    report_aborted(batch.key, batch.receipts, conclusion, is_exactly_once=batch.sink_id is not None)


def figures_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskFigures | None]:
    """In the order of the receipts."""
    return [message.figures for message in messages if isinstance(message, CommitMessage)]


def receipts_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReceipt]:
    """For a commit: one per task. Without its message a task's work can neither be committed nor recorded."""
    receipts = receipts_left(messages)
    if len(receipts) < len(messages):
        strange = sorted({type(message).__name__ for message in messages if not isinstance(message, CommitMessage)})
        raise LocalProtocolError(
            f"Spark asks to commit {len(messages)} tasks, and {len(messages) - len(receipts)} of them have no receipt "
            f"of this sink (instead: {', '.join(strange)}): what they wrote, if anything, is not known. Nothing is "
            "committed",
            SPARK_UNEXPECTED,
        )
    return receipts


def receipts_left(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReceipt]:
    """For an abort: a task that failed or was never run left no message."""
    return [message.receipt for message in messages if isinstance(message, CommitMessage)]
