"""The tasks of a stream are given Arrow batches, also by PySpark 4.0, which has no class that says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from kafka_sink.spark.writers import CommitMessage, StreamWriter
from tests.spark.parity import Folder
from tests.spark.spark_session import run_to_end

NOTHING: Any = None


class NotingWriter(StreamWriter):
    """Notes what its tasks are given, and writes nothing to Kafka."""

    def __init__(self, notes: str) -> None:
        super().__init__(NOTHING, NOTHING, None)
        self._notes = notes

    def write(self, iterator: Iterator[Any]) -> CommitMessage:
        with open(self._notes, "a", encoding="utf-8") as notes:
            for given in iterator:
                notes.write(f"{type(given).__module__}.{type(given).__name__} {given.num_rows}\n")
        return CommitMessage(NOTHING)

    def commit(self, messages: Sequence[object], batchId: int) -> None:
        pass

    def abort(self, messages: Sequence[object], batchId: int) -> None:
        pass


class NotingSource(DataSource):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._notes = options["notes"]

    @classmethod
    def name(cls) -> str:
        return "noting"

    def streamWriter(self, schema: object, overwrite: bool) -> NotingWriter:
        return NotingWriter(self._notes)


def test_the_tasks_of_a_stream_are_given_arrow_batches(
    spark: SparkSession, folder: Folder, checkpoint: str, tmp_path: Path
) -> None:
    spark.dataSource.register(NotingSource)
    folder.add("a", "b")
    notes = tmp_path / "notes"
    writer = folder.read().writeStream.format("noting").option("notes", str(notes))
    run_to_end(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
    assert notes.read_text() == "pyarrow.lib.RecordBatch 2\n"
