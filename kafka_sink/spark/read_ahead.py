"""The next Arrow batch arrives while the current one is encoded.

Spark's JVM writes a batch into a socket and waits until Python reads it; without a thread that reads ahead the two take
turns. With it a task uses both of two cores, where a second one is free. A batch that is too small is read by the task
itself, since the change of threads would cost more. So is one after a batch so large that two of them would be too much
memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from threading import Thread

import pyarrow as pa

# A smaller batch is encoded within a fraction of a millisecond.
AHEAD_MIN_BYTES = 1 << 18
# A batch is as large as spark.sql.execution.arrow.maxRecordsPerBatch rows, by default 10,000.
AHEAD_MAX_BYTES = 1 << 24


def read_ahead(arrow_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches in the same order; an error of the source is raised where its batch would have been."""
    source = iter(arrow_batches)
    reader: _Reader | None = None
    try:
        arrow_batch = next(source, None)
        while arrow_batch is not None:
            if AHEAD_MIN_BYTES <= arrow_batch.nbytes <= AHEAD_MAX_BYTES:
                reader = reader or _Reader(source)
                reader.begin()
                yield arrow_batch
                arrow_batch = reader.take()
            else:
                yield arrow_batch
                arrow_batch = next(source, None)
    finally:
        if reader is not None:
            reader.end()


class _Reader:
    """Reads one batch each time it is told to, never on its own. So nobody reads while the source is not wanted, and a
    source that was read to its end is left alone: the next task of the process reads from the same socket."""

    def __init__(self, source: Iterator[pa.RecordBatch]) -> None:
        self._source = source
        self._begins: SimpleQueue[bool] = SimpleQueue()
        self._read: SimpleQueue[pa.RecordBatch | BaseException | None] = SimpleQueue()
        # A task that fails ends while the thread may wait for Spark, which must not keep the process alive.
        Thread(target=self._run, name="pykafka-sink-reader", daemon=True).start()

    def begin(self) -> None:
        self._begins.put(True)

    def take(self) -> pa.RecordBatch | None:
        """The batch of the last begin(); None at the end."""
        found = self._read.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def end(self) -> None:
        self._begins.put(False)

    def _run(self) -> None:
        while self._begins.get():
            try:
                self._read.put(next(self._source, None))
            except BaseException as error:
                # The task raises it.
                self._read.put(error)
