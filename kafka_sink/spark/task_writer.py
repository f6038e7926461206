"""What a write is for its tasks, and its end on the driver, whichever way it comes in.

Spark plans, writes and commits in separate processes. Each imports what it needs when called: numpy, pyarrow and the
encoder take longer to load than a commit takes.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.commit.session import Conclusion
from kafka_sink.errors import LocalProtocolError
from kafka_sink.errors.table.writes import SPARK_UNEXPECTED
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.columns import WrittenColumns
from kafka_sink.spark.first_line import explain_to_spark
from kafka_sink.spark.process import moment_here
from kafka_sink.spark.process_memory import HEAP
from kafka_sink.spark.same_version import SameVersion

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator

    from kafka_sink.spark.driver import FinishedBatch
    from kafka_sink.spark.task_context import TaskPlace
    from kafka_sink.spark.write_length import EndedTask
    from kafka_sink.telemetry.metrics.figures import TaskFigures

# The column of `ArrowTask`.
RESULT = "result"


@dataclass
class TaskResult(SameVersion):
    """What a task tells the driver; the process that commits a stream has planned anew. `figures` are set if an option
    enables them. `schemas`: those of the registry that it has written with, by side."""

    receipt: TaskReceipt
    figures: TaskFigures | None = None
    schemas: Mapping[str, int] = field(default_factory=dict)


class TaskWriter(SameVersion):
    """`sink_id` None: delivery is at least once."""

    def __init__(self, options: SinkOptions, columns: WrittenColumns, sink_id: str | None) -> None:
        self._options = options
        self._columns = columns
        self._sink_id = sink_id
        # It is made when the write is planned: no transaction of its tasks is older.
        self._planned_at = moment_here()

    def write_rows(self, rows: Iterator[pa.RecordBatch], place: TaskPlace) -> TaskResult:
        result = self._write_rows(rows, place)
        return replace(result, receipt=replace(result.receipt, planned_at=self._planned_at))

    def _write_rows(self, rows: Iterator[pa.RecordBatch], place: TaskPlace) -> TaskResult:
        from kafka_sink.spark.task import write_task

        HEAP.on_work_begin()
        schemas = {plan.side: plan.schema_id for plan in self._columns.sides if plan.schema_id is not None}
        if self._options.telemetry is None:
            return TaskResult(write_task(self._options, self._columns, rows, place), schemas=schemas)
        from kafka_sink.telemetry.metrics.figures import TaskMeter

        meter = TaskMeter(place.attempt_number)
        receipt = write_task(self._options, self._columns, rows, place, meter)
        return TaskResult(receipt, meter.figures, schemas)

    def finished_batch(
        self,
        results: Sequence[object],
        *,
        key: BatchKey,
        run: str,
        write: str = "",
        is_only_sink: bool = False,
        open_ms: float | None = None,
    ) -> FinishedBatch:
        """Key, run and schemas are those of the tasks: Spark plans a stream's commit anew, when the registry may have
        another version. The given key and run are for a batch without a task that has ended."""
        from kafka_sink.spark.driver import FinishedBatch

        ours = [result for result in results if isinstance(result, TaskResult)]
        receipts, figures = [each.receipt for each in ours], [each.figures for each in ours]
        if receipts:
            key, run = receipts[0].key, receipts[0].run
        is_complete = len(ours) == len(results)
        schemas = {side: schema_id for each in ours for side, schema_id in each.schemas.items()}
        return FinishedBatch(
            self._options,
            self._sink_id,
            key,
            run,
            receipts=receipts,
            figures=figures,
            write=write,
            is_complete=is_complete,
            is_only_sink=is_only_sink,
            open_ms=open_ms,
            schemas=schemas,
        )


class ArrowTask(TaskWriter):
    """The tasks of the second door: Arrow batches in, one row with the result out. `run` is the function of
    `mapInArrow`; Spark pickles it to its workers, which load nothing of what plans and commits."""

    def __init__(
        self,
        options: SinkOptions,
        columns: WrittenColumns,
        sink_id: str | None,
        key: BatchKey,
        run: str,
        ended: Accumulator[list[EndedTask]] | None = None,
    ) -> None:
        super().__init__(options, columns, sink_id)
        self._key = key
        self._run = run
        # For the driver that watches how long the write takes.
        self._ended = ended

    def run(self, arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from kafka_sink.formats.records.varint import bytes_array

        yield pa.RecordBatch.from_arrays([bytes_array([pickle.dumps(self._write(arrow_batches))])], [RESULT])

    @explain_to_spark()
    def _write(self, arrow_batches: Iterator[pa.RecordBatch]) -> TaskResult:
        from kafka_sink.spark.task_context import make_place

        result = self.write_rows(arrow_batches, make_place(self._key, self._run, self._sink_id))
        if self._ended is not None:
            from kafka_sink.spark.write_length import ended_task

            self._ended.add(ended_task(result.receipt))
        return result


def commit_write(batch: FinishedBatch, results: Sequence[object]) -> Conclusion:
    """Commits, and reports to log, listener and telemetry. Without its result a task's work can neither be committed
    nor recorded."""
    from kafka_sink.spark.driver import commit_batch
    from kafka_sink.spark.summary import report_delivered

    strange = [result for result in results if not isinstance(result, TaskResult)]
    if strange:
        raise LocalProtocolError(
            f"Spark asks to commit {len(results)} tasks, and {len(strange)} of them have no receipt of this sink "
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
    return conclusion


def abort_write(batch: FinishedBatch) -> Conclusion | None:
    """A task that failed or was never run left no result."""
    from kafka_sink.spark.driver import abort_batch
    from kafka_sink.spark.summary import report_aborted

    if batch.options.telemetry is None:
        conclusion = abort_batch(batch)
    else:
        from kafka_sink.spark.telemetry import abort_and_report

        conclusion = abort_and_report(batch)
    report_aborted(batch, conclusion)
    return conclusion
