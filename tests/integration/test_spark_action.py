"""The one action of a write: named for as long as it runs, and cancelled until it has ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.spark import action, chunks
from kafka_sink.spark.action import collect_rows, job_name
from kafka_sink.spark.chunks import ChunkSummary, _write_beside_each_other
from kafka_sink.spark.task_context import JOB_GROUP


class Context:
    """Of Spark, which knows the job when it has been asked to cancel `unknown` times."""

    def __init__(self, unknown: int = 0) -> None:
        self.asked: list[tuple[str, str]] = []
        self.began, self.cancelled = threading.Event(), threading.Event()
        self._unknown = unknown

    def addJobTag(self, tag: str) -> None:
        self.asked.append(("add", tag))

    def removeJobTag(self, tag: str) -> None:
        self.asked.append(("remove", tag))

    def cancelJobsWithTag(self, tag: str) -> None:
        self.asked.append(("cancel", tag))
        if self.count("cancel") > self._unknown:
            self.cancelled.set()

    def getLocalProperty(self, _: str) -> None:
        return None

    def count(self, what: str) -> int:
        return sum(each == what for each, _ in self.asked)


class Frame:
    """Its action ends when it is cancelled, if `error` does not end it."""

    def __init__(self, context: Any, error: BaseException | None = None) -> None:
        self.sparkSession: Any = SimpleNamespace(sparkContext=context)
        self._context = context
        self._error = error

    def collect(self) -> list[str]:
        self._context.began.set()
        if self._error is not None:
            raise self._error
        assert self._context.cancelled.wait(30)
        return ["a row"]


@pytest.fixture(autouse=True)
def _no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action, "_make_thread", lambda _, run: threading.Thread(target=run, daemon=True))


@pytest.fixture
def interrupt_when() -> Iterator[Any]:
    """A signal whose handler raises, after this event."""

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, fail)

    def begin(event: threading.Event) -> None:
        main = threading.main_thread().ident
        assert main is not None  # a signal to the process may go to another thread, and does not wake this one
        threading.Thread(target=lambda: event.wait(30) and signal.pthread_kill(main, signal.SIGUSR1)).start()

    yield begin
    signal.signal(signal.SIGUSR1, before)


def collect_interrupted(context: Context, interrupt_when: Any) -> None:
    """By a signal, as soon as the action has begun."""
    interrupt_when(context.began)
    with pytest.raises(KeyboardInterrupt):
        collect_rows(Frame(context))  # type: ignore[arg-type]


def test_an_action_is_named_while_it_runs_and_its_error_is_passed_on_as_it_is() -> None:
    context, error = Context(), ValueError("of Spark")
    with pytest.raises(ValueError) as caught:
        collect_rows(Frame(context, error))  # type: ignore[arg-type]
    assert caught.value is error
    assert [what for what, _ in context.asked] == ["add", "remove"]
    assert len({tag for _, tag in context.asked}) == 1


def test_an_interrupted_action_is_cancelled_until_it_has_ended(
    interrupt_when: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At first Spark plans it still, and knows no job with this name."""
    monkeypatch.setattr(action, "AGAIN_S", 0.01)
    context = Context(unknown=3)
    collect_interrupted(context, interrupt_when)
    assert context.cancelled.is_set() and context.count("cancel") >= 4
    assert context.count("add") == context.count("remove") == 1


def test_a_caller_does_not_wait_for_ever_for_spark_and_says_what_goes_on(
    interrupt_when: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(action, "PATIENCE_S", 0.1)
    context = Context(unknown=1000)
    collect_interrupted(context, interrupt_when)
    assert "Spark still runs its job" in caplog.text
    context.cancelled.set()


def test_where_no_more_threads_can_be_started_the_caller_cancels_the_action_itself(
    interrupt_when: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoMore(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(action, "threading", SimpleNamespace(**{**vars(threading), "Thread": NoMore}))
    monkeypatch.setattr(action, "AGAIN_S", 0.01)
    context = Context(unknown=3)
    collect_interrupted(context, interrupt_when)
    assert context.cancelled.is_set() and context.count("cancel") >= 4


def test_in_another_thread_an_action_that_raises_is_cancelled_as_well() -> None:
    """Spark interrupts the thread of a query that is stopped; its job may go on."""
    context, caught = Context(), []

    def write() -> None:
        try:
            collect_rows(Frame(context, KeyboardInterrupt()))  # type: ignore[arg-type]
        except KeyboardInterrupt as error:
            caught.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert len(caught) == 1 and [what for what, _ in context.asked] == ["add", "remove", "cancel"]


# ---- chunks beside each other ----


def chunk(number: int) -> ChunkSummary:
    return ChunkSummary(number, str(number), 1)


@pytest.mark.parametrize("is_told", [False, True], ids=["the call is interrupted", "what is told of a chunk raises"])
def test_chunks_are_cancelled_until_they_have_ended_and_no_more_begin(
    interrupt_when: Any, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    monkeypatch.setattr(action, "AGAIN_S", 0.01)
    context, begun = Context(unknown=3), list[int]()

    def write(number: int) -> ChunkSummary:
        begun.append(number)
        if is_told and number == 1:
            return chunk(number)
        if len(begun) >= 2 + is_told:
            context.began.set()
        assert context.cancelled.wait(30)
        raise ValueError("cancelled")

    chunks = _write_beside_each_other(SimpleNamespace(sparkContext=context), write, range(1, 9), 2)
    if is_told:
        assert next(chunks) == chunk(1) and context.began.wait(30)
        chunks.close()
    else:
        interrupt_when(context.began)
        with pytest.raises(KeyboardInterrupt):
            next(chunks)
    assert context.count("cancel") >= 4 and sorted(begun) == list(range(1, 3 + is_told))
    assert context.count("add") == context.count("remove") == len(begun)
    assert len({tag for _, tag in context.asked}) == 1


@pytest.mark.parametrize("is_committing", [False, True], ids=["its job runs", "it is being committed"])
def test_only_of_a_chunk_whose_job_still_runs_an_interrupted_call_says_that_jobs_are_to_be_cancelled(
    interrupt_when: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_committing: bool
) -> None:
    """Brokers that stall let a commit take longer than the caller waits; other people's jobs are none of its matter."""
    monkeypatch.setattr(chunks, "ENDING_S", 0.1)
    context, goes_on = Context(unknown=1000), threading.Event()

    def write(number: int) -> ChunkSummary:
        if is_committing:
            context.began.set()
            assert goes_on.wait(30)
        else:
            collect_rows(Frame(context))  # type: ignore[arg-type]
        return chunk(number)

    interrupt_when(context.began)
    with pytest.raises(KeyboardInterrupt):
        next(_write_beside_each_other(SimpleNamespace(sparkContext=context), write, range(1, 3), 2))
    assert ("cancelAllJobs()" in caplog.text) != is_committing
    assert ("Repeat the call" in caplog.text) == is_committing
    goes_on.set()
    context.cancelled.set()


def test_chunks_that_have_begun_when_another_one_fails_go_on_to_their_end() -> None:
    context, begun, failed, ended = Context(), threading.Event(), threading.Event(), list[int]()

    def write(number: int) -> ChunkSummary:
        if number == 1:
            assert begun.wait(30)
            failed.set()
            raise ValueError("of a chunk")
        begun.set()
        assert failed.wait(30)
        ended.append(number)
        return chunk(number)

    with pytest.raises(ValueError, match="of a chunk"):
        list(_write_beside_each_other(SimpleNamespace(sparkContext=context), write, [1, 2], 2))
    assert ended == [2] and context.count("cancel") == 0


@pytest.mark.parametrize("group", [None, "the user's"])
def test_without_tags_the_job_group_is_the_name_unless_the_user_has_one(group: str | None) -> None:
    properties: dict[str, str | None] = {JOB_GROUP: group}
    cancelled: list[str] = []
    context = SimpleNamespace(
        getLocalProperty=properties.get, setLocalProperty=properties.__setitem__, cancelJobGroup=cancelled.append
    )
    name = job_name(SimpleNamespace(sparkContext=context))
    if group is not None:
        assert name is None
        return
    assert name is not None
    name.add()
    named = properties[JOB_GROUP]
    name.cancel()
    name.remove()
    assert cancelled == [named] and properties == {JOB_GROUP: None}
