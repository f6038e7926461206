"""How long a write takes, as the driver sees it: when it warns, and what a refused write is told."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.commit.commit_step import MORE_TIME
from kafka_sink.commit.preflight import WHO_ENDED_IT_IN_EXPORT
from kafka_sink.commit.receipt import BatchKey, PreparedTransaction, TaskReceipt
from kafka_sink.errors import CommitAborted, DataError, DeliveryError, KafkaSinkError, ProducerFenced
from kafka_sink.spark import write_watch
from kafka_sink.spark.write_length import EndedTask, divide_text, explain_task
from kafka_sink.spark.write_watch import StageTasks, WriteWatch, allowed_ms, explain_length, predict_ms

TIMEOUT_MS = 900_000
ALLOWED_MS = 840_000
MINUTE_MS = 60_000
EXPORT, STREAM = BatchKey("", "day-1"), BatchKey("query", 7)


class Spark:
    """A session whose one stage has these tasks."""

    def __init__(self, tasks: int, busy: int) -> None:
        self.tasks, self.busy = tasks, busy
        self.ended = SimpleNamespace(value=[])
        self.sparkContext = self

    def accumulator(self, *_: object) -> Any:
        return self.ended

    def statusTracker(self) -> Spark:
        return self

    def getStageInfo(self, stage_id: int) -> Any:
        assert stage_id == 3
        done = len(self.ended.value)
        return SimpleNamespace(
            numTasks=self.tasks, numActiveTasks=min(self.busy, self.tasks - done), numCompletedTasks=done
        )

    def end_tasks(self, count: int, open_ms: int) -> None:
        self.ended.value += [EndedTask(3, open_ms)] * count


def warning_of(spark: Spark, wave_ms: int) -> str | None:
    """The first one, with waves of equal tasks and a look after each."""
    watch = WriteWatch(spark, TIMEOUT_MS)
    now_ms = 0
    while len(spark.ended.value) < spark.tasks:
        now_ms += wave_ms
        spark.end_tasks(min(spark.busy, spark.tasks - len(spark.ended.value)), wave_ms)
        if (text := watch.late_text(now_ms)) is not None:
            return text
    return None


@pytest.mark.parametrize(
    ("tasks", "busy", "wave_ms"), [(8, 8, 13 * MINUTE_MS), (100, 8, MINUTE_MS), (56, 8, 2 * MINUTE_MS), (1, 8, 1)]
)
def test_a_write_that_will_be_in_time_is_never_warned_about(tasks: int, busy: int, wave_ms: int) -> None:
    assert warning_of(Spark(tasks, busy), wave_ms) is None


def test_a_write_that_cannot_be_in_time_is_warned_about_with_figures_and_the_way_out() -> None:
    text = warning_of(Spark(400, 8), 2 * MINUTE_MS) or ""
    assert text.startswith("this write will be refused at its end: 16 of 400 tasks have ended, 8 run at a time")
    assert "quickest took 120 s" in text and "ends 5,880 s after the first row" in text and "may take 840 s" in text
    assert "kafka_sink.write_in_chunks(frame, options, chunks=14, by=COLUMN)" in text


def test_nothing_is_said_while_executors_may_still_be_added() -> None:
    spark = Spark(400, 2)
    watch = WriteWatch(spark, TIMEOUT_MS)
    spark.end_tasks(2, 2 * MINUTE_MS)
    assert watch.late_text(3 * MINUTE_MS) is None
    spark.busy = 100
    assert watch.late_text(4 * MINUTE_MS) is None


def test_the_prediction_is_the_least_that_is_possible() -> None:
    """Tasks that run may end at once, and the last turn may be missing a task."""
    assert predict_ms(10, 5, StageTasks(task_count=20, busy=4, ended=8)) == 20
    assert predict_ms(10, 5, StageTasks(task_count=20, busy=4, ended=9)) == 15
    assert predict_ms(10, 5, StageTasks(task_count=20, busy=0, ended=9)) == 10


@pytest.mark.parametrize(("open_ms", "is_close"), [(600_000, False), (650_000, True)])
def test_the_time_of_a_write_is_that_of_its_oldest_transaction(open_ms: int, is_close: bool) -> None:
    spark = Spark(2, 2)
    watch = WriteWatch(spark, TIMEOUT_MS)
    assert watch.close_text(EXPORT) is None
    spark.end_tasks(1, open_ms)
    spark.end_tasks(1, 1000)
    watch.take_end(700_000)
    assert watch.open_ms == open_ms
    text = watch.close_text(EXPORT) or ""
    assert ("batch 'day-1' is delivered, and took 650 s of the 840 s" in text) is is_close
    # In chunks this one would be written again.
    assert ("Divide the next export, which has another batch.id, into chunks" in text) is is_close


def receipt(remaining_ms: int) -> TaskReceipt:
    transaction = PreparedTransaction("t", 1, 0, 2)
    return TaskReceipt(EXPORT, "0" * 16, 0, 0, transaction, timeout_ms=TIMEOUT_MS, remaining_ms=remaining_ms)


@pytest.mark.parametrize(
    ("remaining_ms", "open_ms", "is_certain"),
    [(500_000, None, False), (59_000, None, True), (500_000, 841_000.0, True), (500_000, 100.0, False)],
)
@pytest.mark.parametrize("reason", [MORE_TIME, f"transaction t is CompleteAbort: it was {WHO_ENDED_IT_IN_EXPORT}"])
def test_an_export_that_was_refused_for_its_length_is_told_to_be_divided(
    remaining_ms: int, open_ms: float | None, is_certain: bool, reason: str
) -> None:
    assert allowed_ms(TIMEOUT_MS) == ALLOWED_MS
    error = CommitAborted(f"batch 'day-1': {reason}", sink_id="s")
    told = explain_length(error, EXPORT, [receipt(remaining_ms)], TIMEOUT_MS, open_ms)
    assert isinstance(told, CommitAborted) and told.sink_id == "s"
    assert divide_text() in str(told) and ("If the write took longer" in str(told)) is not is_certain
    assert told.name == ("PKS-6017" if is_certain else error.name)


def test_a_write_goes_on_without_a_thread_that_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutRoom(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(write_watch, "threading", SimpleNamespace(Thread=WithoutRoom, Event=threading.Event))
    monkeypatch.setattr(write_watch, "_now_ms", lambda: 900_000.0)
    spark = Spark(tasks=2, busy=2)
    with WriteWatch(spark, TIMEOUT_MS) as watch:
        spark.end_tasks(2, open_ms=MINUTE_MS)
    assert watch.open_ms == MINUTE_MS


def test_other_refusals_and_those_of_streams_stay_as_they_are() -> None:
    of_stream, other = CommitAborted(MORE_TIME), CommitAborted("topic t was deleted")
    assert explain_length(of_stream, STREAM, [receipt(0)], TIMEOUT_MS, None) is of_stream
    assert explain_length(other, EXPORT, [receipt(0)], TIMEOUT_MS, 10.0**9) is other


@pytest.mark.parametrize(("key", "way_out"), [(EXPORT, divide_text()), (STREAM, "maxOffsetsPerTrigger")])
@pytest.mark.parametrize(
    "error", [DeliveryError("refused", code=47), DeliveryError("dropped"), ProducerFenced("another producer took over")]
)
def test_a_task_whose_transaction_brokers_have_ended_is_told_why(
    error: KafkaSinkError, key: BatchKey, way_out: str
) -> None:
    told = explain_task(error, key, 1000)
    assert type(told) is type(error) and told.name == "PKS-6017"
    assert str(told).startswith(f"{error}; the task took longer than kafka.transaction.timeout.ms=1000 allows")
    assert way_out in str(told)


def test_a_task_that_fails_of_something_else_is_told_that() -> None:
    for error in (DeliveryError("too large", code=10), DataError("row 3")):
        assert explain_task(error, EXPORT, 1000) is error
