"""An export that takes longer than a transaction may be open: `write_in_chunks` writes it in chunks.

    kafka_sink.write_in_chunks(frame, {..., "sink.id": "backfill", "batch.id": "2026"}, chunks=20, by="customer")

Each chunk is a batch write of its own, with a label: it is delivered once, as a whole, and the ledger knows it. A run
that crashed is followed by another one with the same arguments, which asks the ledger, and writes what is missing.

Which chunk a row is in follows from one column alone: the CRC-32 of its text, modulo the number of chunks. It is the
same in every version of Spark and in every session, needs no look at the data, and makes chunks of the same size if the
column has many values. Ranges would need bounds that are found by reading the table, are kept somewhere, and make
chunks of the same size only for evenly spread values. Types whose text depends on the session or on Java (floating
point, decimals with a scale) are refused; a timestamp counts by its second since 1970, not by a text in a time zone.

Number of chunks and column are in the label. So a delivered chunk says how the export was divided, and a run that would
divide it in another way is refused, as is one after the export was written in one piece. (A write in one piece after
chunks is refused by its commit, which finds them in the ledger.) Two runs at the same time that divide it differently
see each other as soon as one has delivered a chunk, and not before: an export needs one caller.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kafka_sink.commit.division import OF_CHUNK, Division, division_of
from kafka_sink.commit.ledger import Kind, LedgerRecord, line_of
from kafka_sink.commit.messages import lost_error, unreadable_export_error
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import ConfigError, KafkaSinkError
from kafka_sink.errors.table.commits import OTHER_CHUNKS
from kafka_sink.errors.table.writes import COLUMN_MISSING, COLUMN_TYPE, OPTIONS_CONTRADICT
from kafka_sink.options.parse_sink import take_option
from kafka_sink.options.sink_options import AT_LEAST_ONCE
from kafka_sink.options.sink_table import LABEL_MAX, SINK_OPTIONS
from kafka_sink.spark.action import JobName, carry_out, each_as_it_ends, end_actions, job_name, name_jobs
from kafka_sink.spark.driver import CLIENTS, Driver
from kafka_sink.spark.planning import PlannedWrite, plan_export
from kafka_sink.spark.second_door import WriteSummary, batch_settings, explain_here, write_planned
from kafka_sink.spark.shown_secrets import is_of_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOGGER = logging.getLogger("kafka_sink")
CHUNKS_MAX = 10_000
# For how long an interrupted call waits: the jobs end at once, an abort takes 15 s if brokers stall.
ENDING_S = 30.0
BATCH_ID, QUERY_ID = "batch.id", "query.id"
NEEDS_LEDGER = (
    "an export in chunks needs delivery.guarantee=exactly-once: only a ledger can tell which chunks are delivered"
)
_DIGITS = re.compile(r"[0-9]+")
_BY_TEXT = (StringType, ByteType, ShortType, IntegerType, LongType, BooleanType, DateType, TimestampNTZType)
# What Spark's jobs take over from the thread that starts them: how they are named, queued and cancelled.
_OF_THREAD = (
    "spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel", "spark.scheduler.pool",
    "spark.job.tags",
)  # fmt: skip


@dataclass(frozen=True)
class ChunkSummary:
    """A delivered chunk. `write` is None if the ledger said that an earlier run had delivered it: no task ran, and
    `rows` is what the ledger knows."""

    number: int
    batch_id: str
    rows: int
    write: WriteSummary | None = None

    @property
    def is_skipped(self) -> bool:
        return self.write is None


@dataclass(frozen=True)
class ExportSummary:
    """A delivered export, chunk by chunk."""

    chunks: tuple[ChunkSummary, ...]

    @property
    def rows(self) -> int:
        """Of all chunks, whichever run delivered them."""
        return sum(chunk.rows for chunk in self.chunks)

    @property
    def bytes(self) -> int:
        """Written by this run."""
        return sum(chunk.write.bytes for chunk in self.chunks if chunk.write is not None)

    @property
    def skipped(self) -> int:
        """How many chunks earlier runs had delivered."""
        return sum(chunk.is_skipped for chunk in self.chunks)


def write_in_chunks(
    frame: DataFrame,
    options: Mapping[str, Any],
    *,
    chunks: int,
    by: str,
    parallel: int = 1,
    on_chunk: Callable[[ChunkSummary], object] | None = None,
) -> ExportSummary:
    """Writes a batch frame that takes longer than a transaction may be open, as `chunks` writes of rows that are chosen
    by the column `by`. The options need `sink.id` and `batch.id`. A repeated call skips the chunks that are delivered.
    `parallel`: how many are written at a time. `on_chunk` is called after each, in this thread. An interrupt, or an
    error of `on_chunk`, cancels those that have begun; an error of a chunk does not."""
    with explain_here():
        return _Export(frame, batch_settings(frame, options), chunks, by).carry_out(parallel, on_chunk)


class _Export:
    def __init__(self, frame: DataFrame, settings: Mapping[str, str], chunks: int, by: str) -> None:
        self._frame = frame
        self._schema = frame.schema
        self._chunk_of_row = chunk_of(self._schema, by, chunks)
        self._division = _divide(settings, chunks, by)
        self._settings = {name: value for name, value in settings.items() if name.lower() != BATCH_ID}

    def carry_out(self, parallel: int, on_chunk: Callable[[ChunkSummary], object] | None) -> ExportSummary:
        _check_number("parallel", parallel, 1000)
        delivered = self._begin()
        done: dict[int, ChunkSummary] = {}
        with closing(self._write_all(delivered, parallel)) as written:
            for chunk in written:
                done[chunk.number] = chunk
                _LOGGER.info("%s", _progress_text(self._division, chunk, len(done)))
                if on_chunk is not None:
                    on_chunk(chunk)
        return ExportSummary(tuple(done[number] for number in sorted(done)))

    def _begin(self) -> Mapping[str, LedgerRecord]:
        """What is delivered. Decisions that a crashed run has left open are finished first: their time runs out."""
        first = self._plan(1)
        found = self._look(first)
        for label, record in found.items():
            if record.kind is Kind.INTENT:
                _LOGGER.info("finishing %s of export %s, which an earlier run had decided", label, self._division[0])
                assert first.sink_id is not None
                with CLIENTS.value.borrow(first.options.producer) as client:
                    Driver(first.options, first.sink_id, key=record.key).finish(client)
        if any(record.kind is Kind.INTENT for record in found.values()):
            found = self._look(first)
        check_division(self._division, found, _topics_of(first))
        if found:
            self._abort_leftovers(first)
        return found

    def _abort_leftovers(self, planned: PlannedWrite) -> None:
        """Of killed runs. A write looks for them after its commit. If it was killed in between, nobody does: its chunk
        is not written again, and readers would wait until what an earlier run of it left open times out."""
        assert planned.sink_id is not None
        ledger = planned.options.ledger_topic
        lines = {line_of(planned.sink_id, BatchKey("", label), ledger) for label in self._division.labels}
        try:
            with CLIENTS.value.borrow(planned.options.producer) as client:
                lines &= Driver(planned.options, planned.sink_id, key=planned.key).list_open(client)
                for record in filter(_is_delivered, self._look(planned).values() if lines else ()):
                    if line_of(planned.sink_id, record.key, ledger) in lines:
                        # As the run that delivered it would have done.
                        driver = Driver(planned.options, planned.sink_id, record.run, record.key)
                        driver.abort(client, record.key, (), may_be_decided=True, has_late_tasks=False)
        except KafkaSinkError as error:
            _LOGGER.warning("open transactions of earlier runs could not be looked for: %s", error)

    def _write_all(self, delivered: Mapping[str, LedgerRecord], parallel: int) -> Generator[ChunkSummary, None, None]:
        missing = []
        for number, label in enumerate(self._division.labels, 1):
            if _is_delivered(delivered.get(label)):
                yield ChunkSummary(number, label, delivered[label].row_count)
            else:
                missing.append(number)
        if parallel == 1 or len(missing) < 2:
            yield from map(self._write, missing)
            return
        yield from _write_beside_each_other(self._frame.sparkSession, self._write, missing, parallel)

    def _write(self, number: int) -> ChunkSummary:
        planned, label = self._plan(number), self._division.label(number)
        found = self._look(planned)  # another run may have delivered it meanwhile
        check_division(self._division, found, _topics_of(planned))
        record = found.get(label)
        if record is not None and _is_delivered(record):
            return ChunkSummary(number, label, record.row_count)
        summary = write_planned(self._frame.where(f"{self._chunk_of_row} = {number}"), planned)
        return ChunkSummary(number, label, summary.rows, summary)

    def _plan(self, number: int) -> PlannedWrite:
        planned = plan_export({**self._settings, BATCH_ID: self._division.label(number)}, self._schema)
        if planned.sink_id is None:
            raise ConfigError(NEEDS_LEDGER, OPTIONS_CONTRADICT)
        return planned

    def _look(self, planned: PlannedWrite) -> dict[str, LedgerRecord]:
        """The decisions about this export, by their labels: of its chunks, and of the export in one piece."""
        assert planned.sink_id is not None
        driver = Driver(planned.options, planned.sink_id, key=planned.key)
        with CLIENTS.value.borrow(planned.options.producer) as client:
            listed, settings = driver.list_decisions(client)
        whole, begin = self._division.batch_id, f"{planned.sink_id}/"
        found: dict[str, LedgerRecord] = {}
        for each in listed:
            label = each.ledger_key.removeprefix(begin)
            division = division_of(label)
            if label == each.ledger_key or whole != (label if division is None else division.batch_id):
                continue
            if each.record is not None:
                found[label] = each.record
            elif division is None:  # one of a chunk stops the planning of that chunk
                raise unreadable_export_error(settings.commands, planned.sink_id, whole, each.problem)
        for record in found.values():
            if record.kind is Kind.STUCK:
                raise lost_error(settings.commands, record, record.outcomes)
        return found


def check_division(division: Division, found: Mapping[str, LedgerRecord], topics: Collection[str]) -> None:
    """Refuses to go on in another way than the export was begun: with another number of chunks, by another column, in
    one piece, or in other topics than `topics` (empty: the rows name their own)."""
    begun = {label: record for label, record in sorted(found.items()) if record.kind is not Kind.REPLAY}
    whole = begun.pop(division.batch_id, None)
    if whole is not None:
        raise ConfigError(
            f"export {division.batch_id!r} was written in one piece: {whole.row_count} rows to "
            f"{', '.join(sorted(whole.topics)) or 'no topic'} are delivered, or decided. In chunks all of them would "
            "be written again. Nothing was written. It needs nothing more; another batch.id writes all rows once more",
            OTHER_CHUNKS,
        )
    others = [each for each in map(division_of, begun) if each is not None and each != division]
    if others:
        other = others[0]
        raise ConfigError(
            f"export {division.batch_id!r} was begun with chunks={other.chunks}, by={other.by!r}: "
            f"{others.count(other)} of these chunks are delivered, or decided. With chunks={division.chunks}, "
            f"by={division.by!r} each chunk has other rows, so rows would be missing or doubled. Nothing was written. "
            f"Go on with chunks={other.chunks}, by={other.by!r}; or choose another batch.id, which writes all rows, "
            "also those that are delivered",
            OTHER_CHUNKS,
        )
    elsewhere = {label: record.topics.keys() - set(topics) for label, record in begun.items()} if topics else {}
    strays = {label: names for label, names in elsewhere.items() if names}
    if strays:
        old = ", ".join(sorted({name for names in strays.values() for name in names}))
        raise ConfigError(
            f"export {division.batch_id!r} was begun with other topics: {len(strays)} of its chunks are delivered, or "
            f"decided, with rows in {old}. With {', '.join(sorted(topics))} neither would have the whole export. "
            "Nothing was written. Go on with the topics that it was begun with; or choose another batch.id, which "
            "writes all rows, also those that are delivered",
            OTHER_CHUNKS,
        )


def _topics_of(planned: PlannedWrite) -> Collection[str]:
    """Empty: the rows name their topics."""
    options = planned.options
    named = () if options.topic is None else (options.topic, options.dead_letter_topic)
    return [topic for topic in named if topic is not None]


def chunk_of(schema: StructType, by: str, chunks: int) -> str:
    """A SQL expression for the number of a row's chunk, from 1 on. Rows without a value are in the first."""
    _check_number("chunks", chunks, CHUNKS_MAX)
    kinds = [field.dataType for field in schema.fields if field.name == by]
    if len(kinds) != 1:
        there = "there is no such column" if not kinds else f"there are {len(kinds)} such columns"
        raise ConfigError(f"by={by!r}: {there}; there are {', '.join(schema.names)}", COLUMN_MISSING)
    content = _bytes_of("`" + by.replace("`", "``") + "`", kinds[0])
    if content is None:
        raise ConfigError(
            f"an export cannot be divided by column {by} of type {kinds[0].simpleString()}, whose text is not the same "
            "in every session and version. Divide by a column of strings, whole numbers, dates, timestamps, booleans "
            "or bytes, such as the key",
            COLUMN_TYPE,
        )
    return f"coalesce(crc32({content}) % {chunks}, 0) + 1"


def _bytes_of(column: str, kind: DataType) -> str | None:
    """The same in every session and version of Spark; None: there is no such text for this type."""
    if isinstance(kind, BinaryType):
        return column
    if isinstance(kind, TimestampType):
        column = f"CAST({column} AS BIGINT)"
    elif not isinstance(kind, _BY_TEXT) and not (isinstance(kind, DecimalType) and kind.scale == 0):
        return None
    return f"CAST(CAST({column} AS STRING) AS BINARY)"


def _divide(settings: Mapping[str, str], chunks: int, by: str) -> Division:
    others, batch_id = take_option(settings, BATCH_ID)
    given = {name.lower(): value for name, value in others.items()}
    if batch_id is None or not given.get("sink.id"):
        raise ConfigError(
            "an export in chunks needs sink.id and batch.id: together they name it, so that another run knows which "
            "chunks are delivered",
            OPTIONS_CONTRADICT,
        )
    if given.get("delivery.guarantee") == AT_LEAST_ONCE:
        raise ConfigError(NEEDS_LEDGER, OPTIONS_CONTRADICT)
    if QUERY_ID in given:
        raise ConfigError("query.id is for micro-batches: leave it out of an export in chunks", OPTIONS_CONTRADICT)
    if _DIGITS.fullmatch(batch_id) or OF_CHUNK.search(batch_id):
        why = "is only a number" if _DIGITS.fullmatch(batch_id) else "is the name of a chunk"
        raise ConfigError(
            f"batch.id={batch_id} {why}: name the export, for example export-2026-11-21", OPTIONS_CONTRADICT
        )
    division = Division(batch_id, chunks, by)
    longest = division.label(chunks)
    if len(longest) > LABEL_MAX:
        raise ConfigError(
            f"the names of chunks have up to {len(longest)} characters ({longest!r}), and {LABEL_MAX} are possible: "
            "choose a shorter batch.id, or a column with a shorter name",
            OPTIONS_CONTRADICT,
        )
    if SINK_OPTIONS[BATCH_ID].rule.parse(BATCH_ID, longest) != longest:
        # The ledger would have each chunk under another name than the one that is looked for.
        raise ConfigError(
            f"by={by!r} ends with a blank, and a chunk's name cannot: rename this column, or divide by another one",
            OPTIONS_CONTRADICT,
        )
    return division


def _check_number(name: str, value: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ConfigError(f"{name} is {value!r}: a whole number from 1 to {most} is needed")


def _is_delivered(record: LedgerRecord | None) -> bool:
    return record is not None and record.kind is Kind.DONE


def _progress_text(division: Division, chunk: ChunkSummary, done: int) -> str:
    was = "was delivered before" if chunk.is_skipped else "is delivered"
    return (
        f"chunk {chunk.number} of export {division.batch_id} {was} ({chunk.rows} rows): {done} of {division.chunks} "
        "chunks are done"
    )


def _write_beside_each_other(
    session: Any, write: Callable[[int], ChunkSummary], missing: Sequence[int], parallel: int
) -> Generator[ChunkSummary, None, None]:
    """In threads, which no signal reaches: their jobs have one more name, by which an interrupted call cancels them."""
    name, threads = job_name(session), set[int]()

    def write_noted(number: int) -> ChunkSummary:
        threads.add(threading.get_ident())
        return write(number)

    write_here = _as_in_this_thread(session, name, write_noted)
    pool = ThreadPoolExecutor(parallel, "kafka-sink-chunk")
    chunks: list[Future[ChunkSummary]] = [Future() for _ in missing]
    try:
        for chunk, number in zip(chunks, missing, strict=True):
            pool.submit(carry_out, chunk, partial(write_here, number))
        for chunk in each_as_it_ends(chunks):
            if chunk.exception() is not None:
                pool.shutdown(cancel_futures=True)  # waits: what the others have written is not written again
            yield chunk.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for chunk in chunks:
            chunk.cancel()  # if it has not begun
        end_actions(chunks, name, ENDING_S, threads)
        raise
    pool.shutdown()


def _as_in_this_thread(
    session: Any, jobs: JobName | None, write: Callable[[int], ChunkSummary]
) -> Callable[[int], ChunkSummary]:
    """For another thread: Spark's jobs belong to the same job group and pool, and have the same tags and this name."""
    tags = _tags_of(session)
    properties: list[tuple[str, str]] = []
    if not is_of_connect(session):
        context = session.sparkContext
        properties += [(name, value) for name in _OF_THREAD if (value := context.getLocalProperty(name)) is not None]

    def write_here(number: int) -> ChunkSummary:
        for tag in tags:
            session.addTag(tag)
        for name, value in properties:
            context.setLocalProperty(name, value)
        with name_jobs(jobs):
            return write(number)

    return write_here


def _tags_of(session: Any) -> Collection[str]:
    """PySpark 3.4 has no tags, 3.5 has them over Connect only."""
    try:
        tags: Collection[str] = session.getTags()
    except (AttributeError, RuntimeError):
        return ()
    return tags
