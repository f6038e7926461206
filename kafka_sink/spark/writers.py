"""The writers of `format("pykafka-sink")`: Spark pickles them to its tasks, and calls their commit on the driver when
the tasks are done.

It creates the writer of a stream anew for every micro-batch and again for every commit, so there is no state between
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import KafkaSinkError
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.columns import WrittenColumns
from kafka_sink.spark.first_line import explain_to_spark
from kafka_sink.spark.process_memory import HEAP
from kafka_sink.spark.task_writer import TaskResult, TaskWriter, abort_write, commit_write
from kafka_sink.spark.triggers import continuous_error

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_sink.spark.driver import FinishedBatch

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _ArrowStreamWriter
else:
    from pyspark.sql.datasource import DataSourceStreamWriter

    class _ArrowStreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """PySpark 4.0 has no name for it. But its worker gives Arrow batches to every writer that is a
        `DataSourceArrowWriter`, and asks nothing else of it: tests/compat/test_arrow_stream.py."""


@dataclass
class CommitMessage(TaskResult, WriterCommitMessage):
    """As Spark wants it."""


class BatchWriter(TaskWriter, DataSourceArrowWriter):
    """`run` is unique to this write. Inside foreachBatch a label can be a stream's batch (task_context.py)."""

    def __init__(
        self, options: SinkOptions, columns: WrittenColumns, key: BatchKey, *, run: str, sink_id: str | None = None
    ) -> None:
        super().__init__(options, columns, sink_id)
        self._key = key
        self._run = run

    @explain_to_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> CommitMessage:
        from kafka_sink.spark.task_context import place_in_batch

        result = self.write_rows(iterator, place_in_batch(self._key, self._run, self._sink_id))
        return CommitMessage(result.receipt, result.figures, result.schemas)

    @explain_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        batch = self.finished_batch(messages, key=self._key, run=self._run, write=self._run)
        HEAP.on_work_begin()
        commit_write(batch, messages)

    @explain_to_spark()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        from kafka_sink.spark.batch_name import is_batch_of_unknown_query

        # The tasks of a micro-batch have the run of their query, which only a receipt tells.
        run = "" if is_batch_of_unknown_query(self._key) else self._run
        batch = self.finished_batch(messages, key=self._key, run=run, write=self._run)
        HEAP.on_work_begin()
        abort_write(batch)


class StreamWriter(TaskWriter, _ArrowStreamWriter):
    """Spark passes query and run only to tasks; the driver gets them from a receipt. Without receipts there is nothing
    to commit, and `code` tells an abort what may be open (`code_of_own_runs`). `refusal`: of the plan that was made for
    a commit or abort."""

    def __init__(
        self,
        options: SinkOptions,
        columns: WrittenColumns,
        sink_id: str | None,
        refusal: KafkaSinkError | None = None,
        *,
        code: str = "",
    ) -> None:
        super().__init__(options, columns, sink_id)
        self._refusal = refusal
        self._code = code

    @explain_to_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> CommitMessage:
        from kafka_sink.spark.task_context import place_in_stream

        result = self.write_rows(iterator, place_in_stream(self._sink_id, self._code))
        return CommitMessage(result.receipt, result.figures, result.schemas)

    @explain_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        if any(message is None for message in messages):
            raise continuous_error()  # happens only there: a batch is committed when all its tasks have succeeded
        commit_write(self._finished_batch(messages, batchId), messages)

    @explain_to_spark()
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        abort_write(self._finished_batch(messages, batchId))

    def _finished_batch(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> FinishedBatch:
        batch = self.finished_batch(messages, key=BatchKey("", batch_id), run="", is_only_sink=True)
        return batch._replace(refusal=self._refusal, code=self._code)
