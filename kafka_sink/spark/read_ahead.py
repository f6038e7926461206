"""The next Arrow batch arrives while the current one is encoded.

Spark's JVM writes a batch into a socket and waits until Python reads it; without a thread that reads ahead the two take
turns. With it a task uses both of two cores, where a second one is free. A batch that is too small is read by the task
itself, since the change of threads would cost more. So is one after a batch so large that two of them would be too much
memory.

Small batches are joined. The fixed cost of a `send_arrow` call is the same for ten rows and for ten thousand, and
Spark's batches may be small: a filter leaves few rows, and for wide rows a low
`spark.sql.execution.arrow.maxRecordsPerBatch` makes Spark's own side faster (docs/performance.md). A call has another
fixed cost for each topic and for each field to encode, so more rows are joined where there are many of them.

A batch of very many fields is cut: encoding it takes ten times its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from threading import Thread

import pyarrow as pa

from kafka_sink.formats.records.arrays import distinct_elements, read_lists
from kafka_sink.formats.records.assembler import CHUNK_BYTES
from kafka_sink.formats.records.bytes_column import BytesColumn

# The offsets of a joined column have 32 bits.
JOINED_MAX_BYTES = 1 << 30
# A smaller batch is encoded within a fraction of a millisecond.
AHEAD_MIN_BYTES = 1 << 18
# A batch is as large as spark.sql.execution.arrow.maxRecordsPerBatch rows, by default 10,000.
AHEAD_MAX_BYTES = 1 << 24
# A topic costs a call as much as 100 KB of its rows, a field to encode as much as 10 KB. With more of them than these,
# the bytes of a call grow with their number, up to a limit.
TOPICS_PER_CHUNK = 16
FIELDS_PER_CHUNK = 128
CHUNKS_MAX = 8
# Of a call, to count its topics: rows that are sorted by topic have few in one call.
ROWS_LOOKED_AT = 4096
# Of fields, in one call: each needs some 50 bytes while it is encoded.
VALUES_MAX = 1 << 21


def read_ahead(arrow_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches in the same order; an error of the source is raised where its batch would have been."""
    source = iter(arrow_batches)
    reader = _Reader(source)
    try:
        arrow_batch = next(source, None)
        while arrow_batch is not None:
            is_ahead = AHEAD_MIN_BYTES <= arrow_batch.nbytes <= AHEAD_MAX_BYTES and reader.begin()
            yield arrow_batch
            arrow_batch = reader.take() if is_ahead else next(source, None)
    finally:
        reader.end()


class _Reader:
    """Reads one batch each time it is told to, never on its own. So nobody reads while the source is not wanted, and a
    source that was read to its end is left alone: the next task of the process reads from the same socket."""

    def __init__(self, source: Iterator[pa.RecordBatch]) -> None:
        self._source = source
        self._begins: SimpleQueue[bool] = SimpleQueue()
        self._read: SimpleQueue[pa.RecordBatch | BaseException | None] = SimpleQueue()
        self._has_thread: bool | None = None

    def begin(self) -> bool:
        """False: there is no thread to read."""
        if self._has_thread is None:
            self._has_thread = self._start()
        if self._has_thread:
            self._begins.put(True)
        return self._has_thread

    def take(self) -> pa.RecordBatch | None:
        """The batch of the last begin(); None at the end."""
        found = self._read.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def end(self) -> None:
        self._begins.put(False)

    def _start(self) -> bool:
        # A task that fails ends while the thread may wait for Spark, which must not keep the process alive.
        thread = Thread(target=self._run, name="pykafka-sink-reader", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # spark.executor.pyspark.memory leaves no address space for another thread. The task can do without it.
            return False
        return True

    def _run(self) -> None:
        while self._begins.get():
            try:
                self._read.put(next(self._source, None))
            except BaseException as error:
                # The task raises it.
                self._read.put(error)


def gather_batches(arrow_batches: Iterable[pa.RecordBatch], bytes_min: int = CHUNK_BYTES) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order. Batches are joined until they have `bytes_min`, or up to `CHUNKS_MAX` times as
    much; empty ones are dropped."""
    gathered = _Gathered(bytes_min)
    for arrow_batch in arrow_batches:
        if not arrow_batch.num_rows:
            continue
        if gathered.waiting and gathered.byte_count + arrow_batch.nbytes > JOINED_MAX_BYTES:
            yield from cut_wide(gathered.take())
        gathered.add(arrow_batch)
        if gathered.is_enough():
            yield from cut_wide(gathered.take())
    if gathered.waiting:
        yield from cut_wide(gathered.take())


class _Gathered:
    """The batches that wait to be joined. The next call is expected to have as many topics as the last one."""

    def __init__(self, bytes_min: int) -> None:
        self.waiting: list[pa.RecordBatch] = []
        self.byte_count = 0
        self._bytes_min = bytes_min
        self._topic_count = 1

    def add(self, arrow_batch: pa.RecordBatch) -> None:
        self.waiting.append(arrow_batch)
        self.byte_count += arrow_batch.nbytes

    def is_enough(self) -> bool:
        if self.byte_count < self._bytes_min:
            return False
        field_count = sum(_count_fields(field.type) for field in self.waiting[0].schema)
        chunk_count = max(1, self._topic_count // TOPICS_PER_CHUNK, field_count // FIELDS_PER_CHUNK)
        return self.byte_count >= min(chunk_count, CHUNKS_MAX) * self._bytes_min

    def take(self) -> pa.RecordBatch:
        joined = _join(self.waiting)
        self.waiting, self.byte_count = [], 0
        if "topic" in joined.schema.names:
            names = BytesColumn.from_arrow(joined.column("topic").slice(0, ROWS_LOOKED_AT)).elements()
            self._topic_count = len(distinct_elements(names)[0])
        return joined


def cut_wide(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows, in slices with at most `VALUES_MAX` values in their structs, lists and maps: on average, as lists
    differ."""
    value_count = sum(_count_values(column) for column in rows.columns if _count_fields(column.type) > 1)
    slice_count = min(rows.num_rows, -(-value_count // VALUES_MAX))
    if slice_count <= 1:
        yield rows
        return
    row_count = -(-rows.num_rows // slice_count)
    for start in range(0, rows.num_rows, row_count):
        yield rows.slice(start, row_count)


def _count_fields(kind: pa.DataType) -> int:
    """How many columns of plain values a type has, and one more for each list."""
    if pa.types.is_struct(kind):
        return sum(_count_fields(kind.field(index).type) for index in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _count_fields(kind.key_type) + _count_fields(kind.item_type)
    return 1 + _count_fields(kind.value_type) if pa.types.is_list(kind) else 1


def _count_values(array: pa.Array) -> int:
    if pa.types.is_struct(array.type):
        return sum(_count_values(array.field(index)) for index in range(array.type.num_fields))
    if pa.types.is_map(array.type) or pa.types.is_list(array.type):
        return sum(_count_values(part) for part in read_lists(array)[1])
    return len(array)


def _join(arrow_batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(arrow_batches) == 1:
        return arrow_batches[0]
    (joined,) = pa.Table.from_batches(arrow_batches).combine_chunks().to_batches()
    return joined
