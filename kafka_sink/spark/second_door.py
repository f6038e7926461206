"""The second door: writes that the caller's own process plans and commits, for every Spark from 3.4 on.

    query = frame.writeStream.foreachBatch(kafka_sink.foreach_batch(options)).start()
    summary = kafka_sink.write(frame, options)

The tasks run in `mapInArrow`, each returns its result as a row, and `collect` brings the results here: one action,
which this module runs itself. A second one, or a shuffle behind the tasks, would write the rows again. Spark accepts
one result for each partition, however many attempts it started; what the others wrote is part of no decision, and is
aborted.

Checks, tasks, ledger and commit are those of `format("pykafka-sink")`. The process is the user's: a notebook, a driver
with several streams, a worker of Spark Connect. Nothing here changes its logging, environment or garbage collection.
"""

from __future__ import annotations

import logging
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BinaryType, StructType

from kafka_sink.commit.receipt import BatchKey, WrittenPartition, summarize_receipts, without_letters
from kafka_sink.commit.session import Conclusion
from kafka_sink.errors import (
    ConfigError,
    KafkaSinkError,
    LocalProtocolError,
    TransactionAborted,
    copy_error,
    explain_error,
)
from kafka_sink.errors.table.writes import MODE_NOT_SUPPORTED, SPARK_UNEXPECTED
from kafka_sink.options.parse_sink import make_texts, take_option
from kafka_sink.spark.action import collect_rows
from kafka_sink.spark.arrow_batches import ARROW_BYTES, GOOD_SIZE
from kafka_sink.spark.batch_name import batch_of_task
from kafka_sink.spark.planning import PlannedWrite, check_query_options, plan_export, plan_query
from kafka_sink.spark.query_batch import (
    RUNS,
    QueryBatch,
    application_of,
    new_run,
    properties_of_thread,
    query_of_batch,
)
from kafka_sink.spark.query_checkpoint import check_checkpoint, is_running
from kafka_sink.spark.same_version import SameVersion
from kafka_sink.spark.shown_secrets import is_of_connect
from kafka_sink.spark.task_writer import RESULT, ArrowTask, TaskResult, abort_write, commit_write
from kafka_sink.spark.worker_stop import raise_when_stopped
from kafka_sink.spark.write_watch import WriteWatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kafka_sink.spark.driver import FinishedBatch

_LOGGER = logging.getLogger("kafka_sink")
QUERY_ID_OPTION = "query.id"
# An object: Spark would parse a text anew for each batch.
_SCHEMA = StructType().add(RESULT, BinaryType())
# Spark recognises the end of a stopped query by this text in the error of the function. PySpark 3 asks for the end of a
# line before the class. Later ones search in a way that overflows the stack with the usual length of such an error, and
# the query's thread dies of that instead of ending.
INTERRUPTED, CANCELLED = "java.lang.InterruptedException", "cancelled job group"
# As Java and py4j begin a line with the class of an error or of its cause. Elsewhere it is in the text of another one.
_INTERRUPTION = re.compile(rf"^\s*(?:: |Caused by: |\()?{re.escape(INTERRUPTED)}", re.MULTILINE)
QUERY_STOPPED = (
    "the query was stopped, or its job cancelled, in the middle of a batch, which is not delivered and will be written "
    "again when it goes on. It was told: "
)
STOPPED_END = f"(py4j.protocol.Py4JJavaError: An error occurred while calling collect.\n: {INTERRUPTED})"
# Of the error that told it. It stays short and without its cause, for the reason above.
TOLD_MAX = 500
# The largest number of a micro-batch, and the longest text that is told instead of one.
INT64_MAX, SHOWN_MAX = 2**63 - 1, 50
# What mapInArrow can find by its name, whatever the session says about upper and lower case.
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class WriteSummary:
    """A delivered write. `left_out` counts rows that could not be sent, by reason; `rows` has them as well if they are
    dead letters, whose places are in `dead_letters` and not in `partitions`. `is_repeated`: an earlier run had
    delivered it, and what this one wrote again was aborted, so both are empty."""

    rows: int
    bytes: int
    tasks: int
    partitions: tuple[WrittenPartition, ...]
    left_out: Mapping[str, int]
    is_repeated: bool = False
    dead_letters: tuple[WrittenPartition, ...] = ()


def write(frame: DataFrame, options: Mapping[str, Any]) -> WriteSummary:
    """Writes a batch frame, like `frame.write.format("pykafka-sink").options(**options).mode("append").save()`."""
    with explain_here():
        planned = plan_export(batch_settings(frame, options), frame.schema)
        query_id, batch_id, spark_run = properties_of_thread(frame.sparkSession)
        key = batch_of_task(planned.key, planned.sink_id, query_id or None, batch_id or None)
        if key == planned.key:
            return write_planned(frame, planned)
        location = planned.options.checkpoint_location
        check_checkpoint(frame.sparkSession, key.query_id, key.batch_id, location, is_exactly_once=True)
        return _write_batch_of_query(frame, planned, key, QueryBatch(key.query_id, spark_run))


def write_planned(frame: DataFrame, planned: PlannedWrite) -> WriteSummary:
    """A batch write that has passed its checks."""
    timeout_ms = planned.options.producer.transaction_timeout_ms
    watch = None if planned.sink_id is None else WriteWatch(frame.sparkSession, timeout_ms)
    return _Write(frame, planned, planned.key, planned.run, watch=watch).carry_out()


def write_batch(frame: DataFrame, batch_id: int, options: Mapping[str, Any]) -> WriteSummary:
    """Writes a micro-batch inside a foreachBatch function of the user's. Each target needs its own sink.id."""
    with explain_stop(frame), explain_here():
        return _write_batch(frame, batch_id, _settings(options), is_only_sink=False)


def foreach_batch(options: Mapping[str, Any]) -> ForeachBatch:
    """For `writeStream.foreachBatch(...)`: the query writes to Kafka, and to nothing else."""
    settings = _settings(options)
    with explain_here():
        check_query_options(take_option(settings, QUERY_ID_OPTION)[0])
    return ForeachBatch(settings)


class ForeachBatch(SameVersion):
    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        with explain_stop(frame), explain_here():
            limit_arrow_batches(frame)
            _write_batch(frame, batch_id, self._settings, is_only_sink=True)

    def __repr__(self) -> str:
        return f"<kafka_sink.foreach_batch to {self._settings.get('topic', 'the topics of the rows')}>"


def limit_arrow_batches(frame: DataFrame) -> None:
    """The frames of a query belong to a session of their own, in which nothing else runs; over Connect they may belong
    to the user's."""
    spark = frame.sparkSession
    if is_of_connect(spark) or spark.conf.get(ARROW_BYTES, None) is not None:
        return
    if spark.conf.isModifiable(ARROW_BYTES):  # before PySpark 4.1 there is no such setting
        spark.conf.set(ARROW_BYTES, GOOD_SIZE)


def _write_batch(frame: DataFrame, batch_id: int, settings: Mapping[str, str], *, is_only_sink: bool) -> WriteSummary:
    _check_batch(frame)
    batch_id = _number_of_batch(batch_id)
    given, query_id = take_option(settings, QUERY_ID_OPTION)  # which elsewhere needs batch.id
    planned = plan_query(given, frame.schema)
    location, is_exactly_once = planned.options.checkpoint_location, planned.sink_id is not None
    query = query_of_batch(frame, batch_id, query_id, location, is_exactly_once=is_exactly_once)
    return _write_batch_of_query(frame, planned, BatchKey(query.query_id, batch_id), query, is_only_sink=is_only_sink)


def _write_batch_of_query(
    frame: DataFrame, planned: PlannedWrite, key: BatchKey, query: QueryBatch, *, is_only_sink: bool = False
) -> WriteSummary:
    where = (application_of(frame.sparkSession), planned.sink_id, query)
    run = RUNS.value.take(where) or new_run()
    summary = _Write(frame, planned, key, run, is_only_sink=is_only_sink).carry_out()
    RUNS.value.put(where, run)  # it has left nothing open
    return summary


class _Write:
    """One write, from its tasks to its end."""

    def __init__(
        self,
        frame: DataFrame,
        planned: PlannedWrite,
        key: BatchKey,
        run: str,
        *,
        is_only_sink: bool = False,
        watch: WriteWatch | None = None,
    ) -> None:
        self._frame = frame
        ended = None if watch is None else watch.ended
        self._task = ArrowTask(planned.options, planned.columns, planned.sink_id, key, run, ended)
        self._watch = watch
        self._key, self._run = key, run
        self._is_only_sink = is_only_sink

    def carry_out(self) -> WriteSummary:
        try:
            results = self._run_tasks()
        except BaseException:
            abort_write(self._finish([None]))  # Spark passes on no results of a failed action
            raise
        batch = self._finish(results)
        try:
            conclusion = commit_write(batch, results)
        except BaseException as error:
            # A commit that fails after its decision is finished by the abort: then the write is delivered. An interrupt
            # goes on to the caller in any case.
            conclusion = abort_write(batch) or Conclusion.ABORTED
            if conclusion is not Conclusion.RECOVERED or not isinstance(error, Exception):
                raise
        if self._watch is not None and conclusion is Conclusion.DELIVERED:
            self._watch.warn_if_close(batch.key)
        return _summarize(batch, conclusion)

    def _run_tasks(self) -> list[TaskResult]:
        with self._watch or nullcontext(), raise_when_stopped():
            rows = collect_rows(_with_plain_names(self._frame).mapInArrow(self._task.run, _SCHEMA))
        results = [pickle.loads(row[0]) for row in rows]
        if len({each.receipt.spark_partition for each in results}) != len(results):
            raise LocalProtocolError(
                f"Spark passed {len(results)} results of this write, and some are of the same partition. Nothing is "
                "committed",
                SPARK_UNEXPECTED,
            )
        return results

    def _finish(self, results: Sequence[TaskResult | None]) -> FinishedBatch:
        # The run has no open decision but the one at hand: it ends with the first batch that fails.
        open_ms = None if self._watch is None else self._watch.open_ms
        return self._task.finished_batch(
            results,
            key=self._key,
            run=self._run,
            write=self._run,
            is_only_sink=self._is_only_sink,
            open_ms=open_ms,
        )


def _with_plain_names(frame: DataFrame) -> DataFrame:
    """`mapInArrow` looks columns up by their names, which fails for a name with a dot, or one that occurs twice. The
    columns to write are known by their places."""
    names = [name.lower() for name in frame.columns]
    if len(set(names)) == len(names) and all(map(_PLAIN_NAME.fullmatch, names)):
        return frame
    return frame.toDF(*(f"c{place}" for place in range(len(names))))


def _summarize(batch: FinishedBatch, conclusion: Conclusion) -> WriteSummary:
    found = summarize_receipts(batch.receipts)
    is_repeated = conclusion is Conclusion.ALREADY_DELIVERED
    return WriteSummary(
        found.row_count,
        found.bytes,
        found.receipt_count,
        () if is_repeated else without_letters(found.written, found.dead_letters),
        found.record_errors,
        is_repeated,
        () if is_repeated else found.dead_letters,
    )


def batch_settings(frame: DataFrame, options: Mapping[str, Any]) -> dict[str, str]:
    """The options as texts, for a frame that is no stream."""
    settings = _settings(options)
    _check_batch(frame)
    return settings


def _check_batch(frame: DataFrame) -> None:
    if not hasattr(frame, "isStreaming"):
        raise ConfigError(
            f"this is a {type(frame).__module__}.{type(frame).__qualname__}, and no frame of Spark: pass that itself, "
            "without toPandas() or collect(), or one that spark.createDataFrame(...) makes of it",
            MODE_NOT_SUPPORTED,
        )
    if frame.isStreaming:
        raise ConfigError(
            "this frame is a stream: write it with frame.writeStream.foreachBatch(kafka_sink.foreach_batch(options))",
            MODE_NOT_SUPPORTED,
        )


def _number_of_batch(batch_id: Any) -> int:
    """As Spark's own number: the ledger has it, and a text would be a label, like a batch.id. numpy's are numbers."""
    try:
        number = -1 if isinstance(batch_id, bool) else index(batch_id)
    except TypeError:
        number = -1
    if not 0 <= number <= INT64_MAX:
        shown = repr(batch_id)
        raise ConfigError(
            f"batch_id={shown if len(shown) <= SHOWN_MAX else type(batch_id).__name__} is not the number of a "
            "micro-batch, a whole one from 0 on: pass on the one that Spark passes to the function, as it is and not "
            "as text. An export has a name instead: kafka_sink.write with the option batch.id"
        )
    return number


def _settings(options: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(options, Mapping):
        raise ConfigError(
            f"the options are a {type(options).__name__}, and no mapping of names to values: the frame comes first and "
            "then the options, kafka_sink.write(frame, options)"
        )
    return make_texts(options)


@contextmanager
def explain_here() -> Iterator[None]:
    """What the format says in Spark's messages, an error says here itself."""
    try:
        yield
    except KafkaSinkError as error:
        raise copy_error(error, explain_error(error)) from error.__cause__


@contextmanager
def explain_stop(frame: DataFrame) -> Iterator[None]:
    """Makes the query end as one that was stopped, if that is why the batch failed."""
    try:
        yield
    except Exception as error:
        if not _is_of_stop(frame, str(error)):
            if isinstance(error, KafkaSinkError):  # which Spark shows below its own words and the stack of its JVM
                _LOGGER.error("the batch failed: %s", " ".join(str(error).split()))
            raise
        told = " ".join(f"{type(error).__name__}: {error}".split())
        _LOGGER.debug("a batch of a query that was stopped ended with", exc_info=error)
        raise TransactionAborted(f"{QUERY_STOPPED}{told[:TOLD_MAX]} {STOPPED_END}") from None


def _is_of_stop(frame: DataFrame, text: str) -> bool:
    """To stop a query, Spark cancels its jobs, whose group has the name of the run, and interrupts its thread. Which of
    the two a batch notices is chance, and PySpark 3 knows the second one only. An error may have the text of a row in
    it, and that may be a stack trace: where Spark tells that the query runs, nobody has stopped it."""
    if CANCELLED not in text and not _INTERRUPTION.search(text):
        return False
    query_id, _, spark_run = properties_of_thread(frame.sparkSession)
    if spark_run and f"{CANCELLED} {spark_run}" in text:
        return True
    return bool(_INTERRUPTION.search(text)) and not is_running(frame.sparkSession, query_id)
