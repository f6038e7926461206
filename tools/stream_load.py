"""What `make streams` runs: streams with rows that are numbered as they are made, and batch writes beside them.

Every stream reads text files from a folder of its own, which the tool fills, and writes to a topic of its own; a row is
its number. So it is known without asking Spark what each topic has to hold: 0, 1, 2 ... up to what was put in, once
each. A stream writes through `writeStream.format(...)`, or inside foreachBatch, where a user would label the write with
the number of the micro-batch.

Everything here works with a classic session and with Spark Connect.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.foreign_reader import read_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "pykafka-sink"
TRIES_MAX = 20
WORKER_LATE = "Python worker failed to connect back"


class NumberedFiles:
    """A folder in which files appear whole; `row_count` is what all of them hold."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.row_count = 0
        self._file_count = 0
        folder.mkdir(parents=True)

    def add(self, rows: int) -> None:
        hidden = self.folder / f".{self._file_count:06d}"
        hidden.write_text("".join(f"{self.row_count + number}\n" for number in range(rows)))
        os.rename(hidden, self.folder / f"{self._file_count:06d}.txt")
        self._file_count += 1
        self.row_count += rows


class Stream:
    """One query through all its starts. An end that nobody asked for is kept in `ends` as Spark tells it."""

    def __init__(
        self, spark: SparkSession, options: Mapping[str, str], folder: Path, name: str, *, in_foreach_batch: bool
    ) -> None:
        self.name = name
        self.in_foreach_batch = in_foreach_batch
        self.source = NumberedFiles(folder / name / "input")
        self.start_count = 0
        self.ends: list[str] = []
        self._spark = spark
        self._options = {**options, "topic": name}
        self._checkpoint = folder / name / "checkpoint"
        self._query: Any = None

    def start(self, **trigger: Any) -> None:
        rows = self._spark.readStream.format("text").load(str(self.source.folder))
        writer = rows.writeStream.queryName(self.name).option("checkpointLocation", str(self._checkpoint))
        if self.in_foreach_batch:
            writer = writer.foreachBatch(_labelled_write(self._options, self.name))
        else:
            writer = writer.format(FORMAT).options(**self._options)
        self._query = self._start(writer.trigger(**trigger))
        self.start_count += 1

    def _start(self, writer: Any) -> Any:
        """Over Spark Connect a foreachBatch has a process of its own, and Spark waits ten seconds for it. On a busy
        machine that is too short, and the query did not start."""
        for _ in range(TRIES_MAX):
            try:
                return writer.start()
            except Exception as error:
                if WORKER_LATE not in str(error):
                    raise
        raise TimeoutError(f"{self.name} could not be started in {TRIES_MAX} tries: {WORKER_LATE}")

    def stop(self) -> None:
        """In the middle of whatever it does. Nothing happens to one that has ended."""
        if self._query is not None:
            self._query.stop()
            self._note_end()
            self._query = None

    def has_ended(self) -> bool:
        """By itself, which a stream that reads files never does without an exception."""
        if self._query is None or self._query.isActive:
            return False
        self._note_end()
        self._query = None
        return True

    def wait_for_end(self, timeout_s: int) -> bool:
        """Of a start that takes what is there and ends. An exception counts as an end like any other."""
        try:
            return bool(self._query.awaitTermination(timeout_s))
        except Exception:  # told by the query as well, where it is noted
            return True

    def _note_end(self) -> None:
        error = self._query.exception()
        if error is not None:
            self.ends.append(f"{error}\n{_causes(self._query)}")

    @property
    def commit_count(self) -> int:
        """Spark numbers micro-batches and keeps the newest hundred files of its commit log."""
        commits = self._checkpoint / "commits"
        names = [path.name for path in commits.iterdir()] if commits.is_dir() else []
        return max((int(name) + 1 for name in names if name.isdigit()), default=0)


def _causes(query: Any) -> str:
    """The JVM's whole story. PySpark shows the outermost exception alone, and "Writing job failed" is all that this one
    says when the processes of a commit and of its abort were both killed."""
    java = getattr(query, "_jsq", None)
    if java is None:
        return ""  # Spark Connect sends the causes in the text
    from pyspark import SparkContext

    utils = getattr(SparkContext._jvm, "org.apache.spark.util.Utils")
    return str(utils.exceptionString(java.exception().get()))


def _labelled_write(options: Mapping[str, str], name: str) -> Any:
    chosen = {**options, "sink.id": f"{name}-sink"}

    def write(rows: DataFrame, batch_id: int) -> None:
        # The tasks of a Spark Connect session are not told their query, so there the label names it.
        label = str(batch_id) if hasattr(rows, "_jdf") else f"{name}-{batch_id}"
        rows.write.format("pykafka-sink").mode("append").options(**chosen).option("batch.id", label).save()

    return write


class Exports:
    """Labelled batch writes, one after the other in a thread of its own. One that fails is written again under its
    label, and so is now and then one that did not fail."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str], name: str, rows: int, pause_s: float) -> None:
        self.name = name
        self.row_count = 0
        self.write_count = 0
        self.ends: list[str] = []
        self._spark = spark
        self._options = {**options, "topic": name, "sink.id": f"{name}-sink"}
        self._rows = rows
        self._pause_s = pause_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float) -> bool:
        self._is_over.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._is_over.wait(self._pause_s):
            number = self.row_count // self._rows
            self.row_count += self._rows
            if self._is_delivered(number) and number % 3 == 0:
                self._is_written(number)

    def _is_delivered(self, number: int) -> bool:
        """What a failed write left behind is settled by its repetition; given up, it is missing in the verdict."""
        for _ in range(TRIES_MAX):
            if self._is_written(number):
                return True
            time.sleep(1)
        return False

    def _is_written(self, number: int) -> bool:
        # Not spark.range(): in a thread of one's own it leaves the JVM without an active session, and without that
        # Spark knows no data source that is written in Python.
        rows = [(str(number * self._rows + row),) for row in range(self._rows)]
        frame = self._spark.createDataFrame(rows, "value string")
        writer = frame.write.format(FORMAT).mode("append").options(**self._options)
        self.write_count += 1
        try:
            writer.option("batch.id", f"export-{number}").save()
        except Exception as error:  # whatever Spark raises: told in the verdict, and the write is repeated
            self.ends.append(str(error))
            return False
        return True


def count_misplaced(servers: str, topic: str, row_count: int, *, open_s_max: float) -> tuple[int, int]:
    """How many rows are missing, and how many records are there too often or belong to nobody, for a reader of
    committed records. `open_s_max`: so long may a transaction be open that nobody ends."""
    found = Counter(record.value or b"" for record in read_topic(servers, topic, settle_timeout_s=open_s_max))
    wanted = Counter(str(number).encode() for number in range(row_count))
    return (wanted - found).total(), (found - wanted).total()
