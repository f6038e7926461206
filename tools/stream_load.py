"""The load of `make streams`: streams of numbered rows, and batch writes beside them.

Every stream reads text files from its own folder, which the tool fills, and writes to its own topic; a row is its
number. So the expected content of a topic is known without Spark: 0, 1, 2 and so on, each once. Everything is written
through the format, or through the functions of the package (the second door). A stream writes through
`writeStream.format(...)` or `foreach_batch`, or in a function of its own for foreachBatch, as users do: through the
format with the number of the micro-batch as label, or through `write_batch`.

Everything here works with a classic session and with Spark Connect.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from kafka_sink import foreach_batch, write, write_batch
from tools.foreign_reader import read_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "pykafka-sink"
DOORS = ("format", "functions")
TRIES_MAX = 20
WORKER_LATE = "Python worker failed to connect back"


class NumberedFiles:
    """A folder in which complete files appear; `row_count` is the number of rows in all of them."""

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
    """One query with all its restarts. `ends` has Spark's error for each end that was not requested."""

    def __init__(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        folder: Path,
        name: str,
        *,
        door: str,
        in_foreach_batch: bool,
    ) -> None:
        self.name = name
        self._door = door
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
        if self._door == "functions":
            # Its process cannot know the query over Spark Connect, but read the checkpoint's metadata.
            named = {**self._options, "sink.id": f"{self.name}-sink", "checkpointLocation": str(self._checkpoint)}
            writer = writer.foreachBatch(_own_function(named) if self.in_foreach_batch else foreach_batch(named))
        elif self.in_foreach_batch:
            writer = writer.foreachBatch(_labelled_write(self._options, self.name))
        else:
            writer = writer.format(FORMAT).options(**self._options)
        self._query = self._start(writer.trigger(**trigger))
        self.start_count += 1

    def _start(self, writer: Any) -> Any:
        """Repeats a start that took too long: over Spark Connect a foreachBatch has its own process, and Spark waits
        only ten seconds for it."""
        for _ in range(TRIES_MAX):
            try:
                return writer.start()
            except Exception as error:
                if WORKER_LATE not in str(error):
                    raise
        raise TimeoutError(f"{self.name} could not be started in {TRIES_MAX} tries: {WORKER_LATE}")

    def stop(self) -> None:
        """Stops the query, whatever it does. Nothing happens if it has ended."""
        if self._query is not None:
            self._query.stop()
            self._note_end()
            self._query = None

    def has_ended(self) -> bool:
        """True if the query ended by itself: a stream that reads files does this only with an exception."""
        if self._query is None or self._query.isActive:
            return False
        self._note_end()
        self._query = None
        return True

    def wait_for_end(self, timeout_s: int) -> bool:
        """Waits for the end of an `availableNow` start. An exception counts as an end."""
        try:
            return bool(self._query.awaitTermination(timeout_s))
        except Exception:  # the query has the same exception, and it is recorded there
            return True

    def _note_end(self) -> None:
        error = self._query.exception()
        if error is not None:
            self.ends.append(f"{error}\n{_causes(self._query)}")

    @property
    def commit_count(self) -> int:
        """The highest number in Spark's commit log plus one: the log keeps only the newest hundred files."""
        commits = self._checkpoint / "commits"
        names = [path.name for path in commits.iterdir()] if commits.is_dir() else []
        return max((int(name) + 1 for name in names if name.isdigit()), default=0)


def _causes(query: Any) -> str:
    """The JVM's exception with all causes. PySpark shows only the outermost one, which says nothing but "Writing job
    failed" if the processes of both a commit and its abort were killed."""
    java = getattr(query, "_jsq", None)
    if java is None:
        return ""  # Spark Connect sends the causes in the text
    from pyspark import SparkContext

    utils = getattr(SparkContext._jvm, "org.apache.spark.util.Utils")
    return str(utils.exceptionString(java.exception().get()))


def _labelled_write(options: Mapping[str, str], name: str) -> Any:
    chosen = {**options, "sink.id": f"{name}-sink"}

    def write(rows: DataFrame, batch_id: int) -> None:
        # Tasks of a Spark Connect session do not know their query, so the label names it.
        label = str(batch_id) if hasattr(rows, "_jdf") else f"{name}-{batch_id}"
        rows.write.format("pykafka-sink").mode("append").options(**chosen).option("batch.id", label).save()

    return write


def _own_function(options: Mapping[str, str]) -> Any:
    def write(rows: DataFrame, batch_id: int) -> None:
        write_batch(rows, batch_id, options)

    return write


class _Writes(ABC):
    """Batch writes, one after the other in a thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ends: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float) -> bool:
        self._is_over.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @abstractmethod
    def _run(self) -> None: ...


class Exports(_Writes):
    """Labelled batch writes, one after the other in a thread. A failed write is repeated with the same label, and so is
    every third one that succeeded. Several may share a sink id."""

    def __init__(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        name: str,
        rows: int,
        pause_s: float,
        *,
        sink_id: str = "",
        door: str = "format",
    ) -> None:
        super().__init__(name)
        self._door = door
        self.row_count = 0
        self.write_count = 0
        self._spark = spark
        self._options = {**options, "topic": name, "sink.id": sink_id or f"{name}-sink"}
        self._rows = rows
        self._pause_s = pause_s

    def _run(self) -> None:
        while not self._is_over.wait(self._pause_s):
            number = self.row_count // self._rows
            self.row_count += self._rows
            if self._is_delivered(number) and number % 3 == 0:
                self._is_written(number)

    def _is_delivered(self, number: int) -> bool:
        """Repeats a failed write, which settles the failed one. If all tries fail, the final count misses rows."""
        for _ in range(TRIES_MAX):
            if self._is_written(number):
                return True
            time.sleep(1)
        return False

    def _is_written(self, number: int) -> bool:
        # Not spark.range(): in a new thread it leaves the JVM without an active session, and then Spark does not find
        # data sources in Python.
        rows = [(str(number * self._rows + row),) for row in range(self._rows)]
        frame = self._spark.createDataFrame(rows, "value string")
        named = {**self._options, "batch.id": f"{self.name}-{number}"}
        self.write_count += 1
        try:
            if self._door == "functions":
                write(frame, named)
            else:
                frame.write.format(FORMAT).mode("append").options(**named).save()
        except Exception as error:  # any error of Spark is reported at the end, and the write is repeated
            self.ends.append(str(error))
            return False
        return True


class CancelledWrites(_Writes):
    """Nameless batch writes of many small tasks, one after the other in a thread. Most are cancelled while they run, as
    a notebook's stop button does: then all of their rows are in the topic or none, and all if the write succeeded."""

    TASKS, ROWS_PER_TASK = 40, 5

    def __init__(self, spark: SparkSession, options: Mapping[str, str], name: str, dice: Random) -> None:
        super().__init__(name)
        # By number of the write: whether it has succeeded.
        self.saved: dict[int, bool] = {}
        self._spark = spark
        self._options = {**options, "topic": name}
        self._dice = dice

    def _run(self) -> None:
        while not self._is_over.wait(self._dice.uniform(0.5, 2.0)):
            self._write(len(self.saved))

    def _write(self, number: int) -> None:
        context = self._spark.sparkContext
        context.setJobGroup(f"{self.name}-{number}", "a write that is cancelled", interruptOnCancel=True)
        rows = [(f"{number}.{row}",) for row in range(self.TASKS * self.ROWS_PER_TASK)]
        frame = self._spark.createDataFrame(context.parallelize(rows, self.TASKS), "value string")
        after_s = self._dice.choice((0.2, 0.5, 1.0, 2.0, 30.0)) * self._dice.uniform(0.5, 1.5)
        stop = threading.Timer(after_s, context.cancelJobGroup, (f"{self.name}-{number}",))
        stop.start()
        try:
            frame.write.format(FORMAT).mode("append").options(**self._options).save()
            self.saved[number] = True
        except Exception as error:  # most are caused by the cancellation; the rows are what is judged
            self.saved[number] = False
            self.ends.append(str(error))
        finally:
            stop.cancel()

    def find_misplaced(self, servers: str, *, open_s_max: float) -> list[str]:
        """What is wrong with the topic: rows of a write that are missing, doubled, or there although nothing may be."""
        found: dict[int, Counter[int]] = {}
        for record in read_topic(servers, self.name, settle_timeout_s=open_s_max):
            written_by, _, row = (record.value or b"").decode().partition(".")
            found.setdefault(int(written_by), Counter())[int(row)] += 1
        wrong = []
        for number, is_saved in self.saved.items():
            rows = found.pop(number, Counter())
            is_whole = len(rows) == self.TASKS * self.ROWS_PER_TASK and set(rows.values()) == {1}
            if not is_whole and (is_saved or rows):
                wrong.append(f"write {number}: {len(rows)} rows, {rows.total()} records, succeeded: {is_saved}")
        return wrong + [f"write {number} is unknown" for number in found]


def count_misplaced(servers: str, topic: str, row_count: int, *, open_s_max: float) -> tuple[int, int]:
    """Counts, for a read_committed reader, missing rows, and records that are duplicates or unknown. A transaction may
    stay open for `open_s_max` before that."""
    found = Counter(record.value or b"" for record in read_topic(servers, topic, settle_timeout_s=open_s_max))
    wanted = Counter(str(number).encode() for number in range(row_count))
    return (wanted - found).total(), (found - wanted).total()
