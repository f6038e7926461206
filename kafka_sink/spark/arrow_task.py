"""The tasks of the second door: Arrow batches in, one row with the result out. Spark pickles it to its workers, which
load nothing of what plans and commits."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.columns import WrittenColumns
from kafka_sink.spark.first_line import explain_to_spark
from kafka_sink.spark.task_writer import TaskResult, TaskWriter

if TYPE_CHECKING:
    import pyarrow as pa

RESULT = "result"


class ArrowTask(TaskWriter):
    """The function of `mapInArrow`."""

    def __init__(
        self, options: SinkOptions, columns: WrittenColumns, sink_id: str | None, key: BatchKey, run: str
    ) -> None:
        super().__init__(options, columns, sink_id)
        self._key = key
        self._run = run

    def run(self, arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from kafka_sink.formats.records.varint import bytes_array

        yield pa.RecordBatch.from_arrays([bytes_array([pickle.dumps(self._write(arrow_batches))])], [RESULT])

    @explain_to_spark()
    def _write(self, arrow_batches: Iterator[pa.RecordBatch]) -> TaskResult:
        from kafka_sink.spark.place import make_place

        return self.write_rows(arrow_batches, make_place(self._key, self._run, self._sink_id))
