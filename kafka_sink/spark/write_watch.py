"""Looks from the driver how long a batch write takes while its tasks run, and warns before it is refused at its end.

What is known: each task that has ended tells how long its transaction had been open. With Spark's number of tasks
follows when the last one ends at the earliest: those that have not begun take their turns on as many places as are busy
now, each for as long as the quickest so far. Only a write that is late even so is warned about, and not before a fourth
of its time is over, as executors may still be added. Before the first task has ended nothing is said, and nothing at
planning: the sizes that Spark estimates are not rates, and often far off.

Nothing is known over Spark Connect. With the format no process on the driver sees a task before the last has ended.

Assumptions, for PySpark 3.4 to 4.3: what a task of `mapInArrow` adds to an accumulator arrives when it ends, once for
each partition; `statusTracker` counts the tasks of a stage. If either fails, the watch is silent.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from kafka_sink.commit.commit_step import MORE_TIME
from kafka_sink.commit.preflight import WHO_ENDED_IT_IN_EXPORT
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.commit.session import margin_ms
from kafka_sink.errors import CommitAborted, KafkaSinkError, copy_error
from kafka_sink.errors.table.commits import WRITE_TOO_LONG
from kafka_sink.kafka.io.clock import boot_s
from kafka_sink.spark.shown_secrets import is_of_connect
from kafka_sink.spark.write_length import EndedTask, EndedTasks, divide_text, limit_text

_LOGGER = logging.getLogger("kafka_sink")
# Of the allowed time: before this no prediction is made; after it a delivered write is told that it came close.
EARLY_SHARE, CLOSE_SHARE = 0.25, 0.75
LOOKS = 100
LOOK_S_MIN, LOOK_S_MAX = 0.2, 5.0


def allowed_ms(timeout_ms: int) -> int:
    """From the first row of a write to its end."""
    return timeout_ms - margin_ms(timeout_ms)


class StageTasks(NamedTuple):
    """Numbers of tasks."""

    task_count: int
    busy: int
    ended: int


def predict_ms(open_ms: float, quickest_ms: float, stage: StageTasks) -> float:
    """How long the oldest transaction is open when the last task ends, at the least."""
    waiting = stage.task_count - stage.ended - stage.busy
    turns = waiting // stage.busy if stage.busy else 0
    return open_ms + turns * quickest_ms


def _accumulator(context: Any) -> Any:
    """None where a platform does not allow it: without it a write goes on as well."""
    with suppress(Exception):
        return context.accumulator([], EndedTasks())
    return None


class WriteWatch:
    """A context manager around the tasks of a write. `ended`: for the tasks; None where nothing can be known."""

    def __init__(self, session: Any, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._allowed_ms = allowed_ms(timeout_ms)
        self._context = None if is_of_connect(session) else session.sparkContext
        self.ended = None if self._context is None else _accumulator(self._context)
        # At the end of the tasks, of the oldest transaction; None: not known.
        self.open_ms: float | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_until_over, name="kafka-sink-watch", daemon=True)
        self._known = 0
        self._quickest_ms = math.inf
        # When the oldest transaction began, by this process's clock.
        self._began_ms: float | None = None

    def __enter__(self) -> WriteWatch:
        if self.ended is not None:
            with suppress(RuntimeError):  # no room for one more thread: nobody looks
                self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self.ended is not None:
            if self._thread.is_alive():
                self._thread.join(LOOK_S_MAX)  # a look at a JVM that does not answer must not keep the write
            self.take_end(_now_ms())
            self.ended.value = []  # PySpark keeps the accumulator for ever

    def take_end(self, now_ms: float) -> None:
        self._take_ended(now_ms)
        self.open_ms = None if self._began_ms is None else now_ms - self._began_ms

    def warn_if_close(self, key: BatchKey) -> None:
        """After a write that was delivered."""
        text = self.close_text(key)
        if text is not None:
            _LOGGER.warning("%s", text)

    def close_text(self, key: BatchKey) -> str | None:
        if self.open_ms is None or self.open_ms <= self._allowed_ms * CLOSE_SHARE:
            return None
        next_one = "the next export, which has another batch.id,"  # this one must not be written again in chunks
        return (
            f"{key} is delivered, and took {_seconds(self.open_ms)} of the {_seconds(self._allowed_ms)} that it may "
            f"take ({self._limit()}). A longer one is refused. {divide_text(self._chunks(self.open_ms), next_one)}"
        )

    def _look_until_over(self) -> None:
        look_s = min(max(self._allowed_ms / 1000 / LOOKS, LOOK_S_MIN), LOOK_S_MAX)
        while not self._is_over.wait(look_s):
            with suppress(Exception):  # a look must not fail a write
                text = self.late_text(_now_ms())
                if text is not None:
                    _LOGGER.warning("%s", text)
                    return

    def late_text(self, now_ms: float) -> str | None:
        """None: it may be in time."""
        stage_id = self._take_ended(now_ms)
        if stage_id is None or self._began_ms is None or self._context is None:
            return None
        open_ms = now_ms - self._began_ms
        if open_ms < self._allowed_ms * EARLY_SHARE:
            return None
        found = self._context.statusTracker().getStageInfo(stage_id)
        if found is None:
            return None
        stage = StageTasks(found.numTasks, found.numActiveTasks, found.numCompletedTasks)
        predicted_ms = predict_ms(open_ms, self._quickest_ms, stage)
        if predicted_ms <= self._allowed_ms:
            return None
        return (
            f"this write will be refused at its end: {stage.ended} of {stage.task_count} tasks have ended, "
            f"{stage.busy} run at a time, and the quickest took {_seconds(self._quickest_ms)}. If none of the others "
            f"is quicker, the last one ends {_seconds(predicted_ms)} after the first row, and a write may take "
            f"{_seconds(self._allowed_ms)} ({self._limit()}). {divide_text(self._chunks(predicted_ms))}"
        )

    def _take_ended(self, now_ms: float) -> int | None:
        """The stage of the tasks; None: none has ended yet."""
        assert self.ended is not None
        every: Sequence[EndedTask] = list(self.ended.value)
        for task in every[self._known :]:
            self._quickest_ms = min(self._quickest_ms, task.open_ms)
            began_ms = now_ms - task.open_ms
            self._began_ms = began_ms if self._began_ms is None else min(self._began_ms, began_ms)
        self._known = len(every)
        return every[-1].stage_id if every else None

    def _chunks(self, length_ms: float) -> str:
        """Those that take half of the time leave room for slower ones."""
        return str(max(2, math.ceil(2 * length_ms / self._allowed_ms)))

    def _limit(self) -> str:
        return f"kafka.transaction.timeout.ms={self._timeout_ms}, less what a commit needs"


def explain_length(
    error: CommitAborted, key: BatchKey, receipts: Sequence[TaskReceipt], timeout_ms: int, open_ms: float | None
) -> KafkaSinkError:
    """A batch write that was refused because it took too long is told the way out. `open_ms`: of its oldest
    transaction, where that is known; a receipt tells it of one that has just ended."""
    text = str(error)
    if not key.is_label or not any(sign in text for sign in (MORE_TIME, WHO_ENDED_IT_IN_EXPORT)):
        return error
    oldest_ms = max([open_ms or 0, *(timeout_ms - each.remaining_ms for each in receipts if each.transaction)])
    if oldest_ms <= allowed_ms(timeout_ms):
        return copy_error(error, f"{text}. If the write took longer than {limit_text(timeout_ms)}: {divide_text()}")
    explained = copy_error(error, f"{text}. The write took longer than {limit_text(timeout_ms)}. {divide_text()}")
    explained.name = WRITE_TOO_LONG.name
    return explained


def _seconds(length_ms: float) -> str:
    return f"{length_ms / 1000:,.0f} s"


def _now_ms() -> float:
    return boot_s() * 1000
