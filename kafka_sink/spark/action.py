"""Spark's part of a write that the caller's own process carries out: one action, which has ended when the write ends.

What interrupts the caller does not interrupt Spark: the stop button of a notebook, a time-out whose signal handler
raises. The job would go on, and its tasks would begin transactions that nobody ends. So it has a tag of its own, by
which it is cancelled. Tags leave the job group alone, which is the user's, or that of a query.

Signal handlers run in the main thread. Raising there in the middle of a request would break its connection with the
JVM, and nobody could tell when the action ends. It may not even have a job yet, because Spark still plans it. So
another thread runs it, with the properties and tags of this one, and it is cancelled until it has ended.

Assumptions, for PySpark 3.5 to 4.3: a job has the tags of the thread that runs the action, also the jobs of its
broadcasts and shuffles; a cancelled action ends at once. PySpark 3.4 has no tags: there the job group is taken, unless
the user has set one; then nothing can be cancelled. Over Spark Connect the operation has the tag, which the server
knows before it plans.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark import InheritableThread

from kafka_sink.kafka.io.clock import WAIT_PIECE_S
from kafka_sink.spark.shown_secrets import is_of_connect
from kafka_sink.spark.task_context import JOB_GROUP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_LOGGER = logging.getLogger("kafka_sink")
AGAIN_S = 0.5
# For how long the caller waits. Spark may plan for longer.
PATIENCE_S = 10.0
STILL_RUNS = (
    "this write was interrupted, and Spark still runs its job: cancel it in Spark's UI, or with "
    "spark.sparkContext.cancelAllJobs(). Tasks that end later leave transactions open, for which readers wait"
)
STILL_ENDS = (
    "this write was interrupted. Spark runs nothing of it any more, but this process still commits what was written, "
    "or aborts it: no job has to be cancelled. Repeat the call, which writes what is missing then"
)
# The threads that wait for an action now.
_WITH_ACTION: set[int] = set()

T = TypeVar("T")


class JobName(NamedTuple):
    """Gives the jobs of a thread a name, and cancels those that have it."""

    add: Callable[[], object]
    remove: Callable[[], object]
    cancel: Callable[[], object]


def collect_rows(frame: DataFrame) -> list[Row]:
    session = frame.sparkSession
    name = job_name(session)
    if is_of_connect(session) or threading.current_thread() is not threading.main_thread():
        try:
            return _collect_named(frame, name)
        except BaseException:
            _cancel(name)
            raise
    return _collect_beside(frame, name)


def job_name(session: Any) -> JobName | None:
    """None: there is no way."""
    tag = f"pykafka-sink-{uuid.uuid4().hex}"
    owner, names = session, ("addTag", "removeTag", "interruptTag")
    if not is_of_connect(session):
        owner, names = session.sparkContext, ("addJobTag", "removeJobTag", "cancelJobsWithTag")
    if all(hasattr(owner, each) for each in names):
        return JobName(*(partial(getattr(owner, each), tag) for each in names))
    if is_of_connect(session) or owner.getLocalProperty(JOB_GROUP):
        return None
    set_group = partial(owner.setLocalProperty, JOB_GROUP)
    return JobName(partial(set_group, tag), partial(set_group, None), partial(owner.cancelJobGroup, tag))


def _collect_beside(frame: DataFrame, name: JobName | None) -> list[Row]:
    found: Future[list[Row]] = Future()
    thread = _make_thread(frame.sparkSession, partial(carry_out, found, partial(_collect_named, frame, name)))
    try:
        thread.start()
        (ended,) = each_as_it_ends([found])
        return ended.result()
    except BaseException:
        # The first: an action that has not begun never will.
        if not found.cancel():
            end_actions([found], name, PATIENCE_S)
        raise


def carry_out(found: Future[T], work: Callable[[], T]) -> None:
    """In another thread, unless it was cancelled before. Who waits has the future before there is a thread, so that no
    interrupt comes in between."""
    if not found.set_running_or_notify_cancel():
        return
    try:
        found.set_result(work())
    except BaseException as error:
        found.set_exception(error)


def _make_thread(session: Any, run: Callable[[], None]) -> threading.Thread:
    """With the local properties and tags of the caller."""
    try:
        return InheritableThread(run, session=session, name="kafka-sink-action", daemon=True)
    except TypeError:  # before PySpark 4 a session has no tags
        return InheritableThread(run, name="kafka-sink-action", daemon=True)


def _collect_named(frame: DataFrame, name: JobName | None) -> list[Row]:
    here = threading.get_ident()
    with name_jobs(name):
        _WITH_ACTION.add(here)
        try:
            return frame.collect()
        finally:
            _WITH_ACTION.discard(here)


@contextmanager
def name_jobs(name: JobName | None) -> Iterator[None]:
    """Where a platform does not allow it a write goes on as well."""
    if name is None:
        yield
        return
    with suppress(Exception):
        name.add()
    try:
        yield
    finally:
        with suppress(Exception):
            name.remove()


def end_actions(
    actions: Collection[Future[Any]], name: JobName | None, patience_s: float, threads: Collection[int] | None = None
) -> None:
    """Of other threads. They are cancelled again until all have ended, also when the caller does not wait any longer.
    Where no more threads can be started, the caller's cancels them, for as long as it waits. `threads`: of actions that
    are parts of writes."""
    running = [action for action in actions if not action.done()]
    if running and name is not None:
        canceller = threading.Thread(
            target=_cancel_until_ended, args=(running, name), name="kafka-sink-cancel", daemon=True
        )
        try:
            canceller.start()
        except RuntimeError:
            _cancel_until_ended(running, name, time.monotonic() + patience_s)
        else:
            wait(running, patience_s)
    if not _have_ended(running):
        is_of_spark = threads is None or not _WITH_ACTION.isdisjoint(threads)
        _LOGGER.warning("%s", STILL_RUNS if is_of_spark else STILL_ENDS)


def _cancel_until_ended(actions: Collection[Future[Any]], name: JobName, until_s: float = math.inf) -> None:
    while not _have_ended(actions) and time.monotonic() < until_s:
        _cancel(name)
        wait(actions, AGAIN_S)


def each_as_it_ends(actions: Collection[Future[T]]) -> Iterator[Future[T]]:
    running = set(actions)
    while running:
        ended, running = wait(running, WAIT_PIECE_S, FIRST_COMPLETED)
        yield from ended


def _have_ended(actions: Collection[Future[Any]]) -> bool:
    return all(action.done() for action in actions)


def _cancel(name: JobName | None) -> None:
    if name is not None:
        with suppress(Exception):
            name.cancel()
