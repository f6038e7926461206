"""The writer of a stream: Spark creates it anew for every micro-batch and again for every commit, so it keeps no state
between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import datasource
from pyspark.sql.datasource import WriterCommitMessage

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.spark.first_line import explain_to_spark
from kafka_sink.spark.task_writer import TaskWriter, conclude, give_up
from kafka_sink.spark.triggers import continuous_error
from kafka_sink.spark.writer import CommitMessage

if TYPE_CHECKING:
    import pyarrow as pa

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _ArrowStreamWriter
else:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

    class _ArrowStreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """PySpark 4.0 has no name for it. But its worker gives Arrow batches to every writer that is a
        `DataSourceArrowWriter`, and asks nothing else of it: tests/compat/test_arrow_stream.py."""


class StreamWriter(TaskWriter, _ArrowStreamWriter):
    """Spark passes query and run only to tasks; the driver gets them from a receipt. Without receipts there is nothing
    to commit or abort."""

    @explain_to_spark()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> CommitMessage:
        from kafka_sink.spark.place import place_in_stream

        result = self.write_rows(iterator, place_in_stream(self._sink_id))
        return CommitMessage(result.receipt, result.figures)

    @explain_to_spark()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        if any(message is None for message in messages):
            raise continuous_error()  # happens only there: a batch is committed when all its tasks have succeeded
        conclude(self.finish(messages, (BatchKey("", batchId), ""), is_only_sink=True), messages)

    @explain_to_spark()
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        give_up(self.finish(messages, (BatchKey("", batchId), ""), is_only_sink=True))
