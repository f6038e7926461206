"""Threads that ask the same share an answer, and nothing else."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from kafka_sink.kafka.io import shared_answers
from kafka_sink.kafka.io.shared_answers import SharedAnswers

THREADS = 10
TIMEOUT_S = 60


class Asked:
    """A question whose answers the test gives."""

    def __init__(self) -> None:
        self.calls: list[Future[str]] = []
        self.has_come = threading.Semaphore(0)
        self._lock = threading.Lock()

    def __call__(self) -> str:
        call: Future[str] = Future()
        with self._lock:
            self.calls.append(call)
        self.has_come.release()
        return call.result(TIMEOUT_S)

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.has_come.acquire(timeout=TIMEOUT_S)


class Group:
    """Threads that ask at once."""

    def __init__(self, pool: ThreadPoolExecutor, count: int, get: Callable[[], str]) -> None:
        self._barrier = threading.Barrier(count)
        self._found = [pool.submit(self._run, get) for _ in range(count)]

    def _run(self, get: Callable[[], str]) -> str:
        self._barrier.wait(TIMEOUT_S)
        return get()

    def results(self) -> list[str]:
        return [each.result(TIMEOUT_S) for each in self._found]

    def errors(self) -> list[BaseException | None]:
        return [each.exception(TIMEOUT_S) for each in self._found]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2 * THREADS) as pool:
        yield pool


@pytest.fixture
def await_waiting(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Returns when so many wait for the answer of another one. They wait for as long as it takes."""
    has_begun = threading.Semaphore(0)
    wait = shared_answers._Question.wait

    def tell(question: Any) -> None:
        has_begun.release()
        wait(question)

    def await_them(count: int) -> None:
        for _ in range(count):
            assert has_begun.acquire(timeout=TIMEOUT_S)

    monkeypatch.setattr(shared_answers._Question, "wait", tell)
    monkeypatch.setattr(shared_answers, "WAITS_MAX", TIMEOUT_S)
    return await_them


def test_of_those_that_ask_at_once_one_asks_and_later_ones_know(
    pool: ThreadPoolExecutor, await_waiting: Callable[[int], None]
) -> None:
    answers, asked = SharedAnswers[str, str](8), Asked()
    group = Group(pool, THREADS, lambda: answers.get("a", asked))
    asked.wait()
    await_waiting(THREADS - 1)
    asked.calls[0].set_result("yes")
    assert group.results() == ["yes"] * THREADS
    assert answers.get("a", asked) == "yes"
    assert len(asked.calls) == 1


def test_an_exception_is_the_askers_alone_and_the_others_ask_side_by_side(
    pool: ThreadPoolExecutor, await_waiting: Callable[[int], None]
) -> None:
    answers, asked = SharedAnswers[str, str](8), Asked()
    group = Group(pool, THREADS, lambda: answers.get("a", asked))
    asked.wait()
    await_waiting(THREADS - 1)
    asked.calls[0].set_exception(ValueError("first"))
    asked.wait(THREADS - 1)  # all of them, before any has an answer
    for number, call in enumerate(asked.calls[1:]):
        if number % 2:
            call.set_exception(ValueError(str(number)))
        else:
            call.set_result("yes")
    errors = [each for each in group.errors() if each is not None]
    assert sorted(map(str, errors)) == sorted(["first", *(str(number) for number in range(1, THREADS - 1, 2))])
    assert len({id(each) for each in errors}) == len(errors)
    assert answers.get("a", asked) == "yes", "one that has failed takes nothing away"


def test_an_answer_to_a_question_from_before_a_doubt_is_neither_shared_nor_kept(
    pool: ThreadPoolExecutor, await_waiting: Callable[[int], None]
) -> None:
    answers, asked = SharedAnswers[str, str](8), Asked()
    early = Group(pool, 2, lambda: answers.get("a", asked))
    asked.wait()
    await_waiting(1)
    answers.doubt()
    late = Group(pool, 1, lambda: answers.get("a", asked))
    asked.wait()
    asked.calls[0].set_result("old")
    asked.wait()  # the other early one, which has not the answer of before the doubt either
    for call in asked.calls[1:]:
        call.set_result("new")
    assert late.results() == ["new"]
    assert sorted(early.results()) == ["new", "old"]
    assert answers.get("a", asked) == "new"


def test_all_that_find_the_same_reasons_to_doubt_ask_once(
    pool: ThreadPoolExecutor, await_waiting: Callable[[int], None]
) -> None:
    answers, asked = SharedAnswers[str, str](8), Asked()
    assert answers.get("a", lambda: "known") == "known"
    group = Group(pool, THREADS, lambda: answers.get("a", asked, frozenset({"mark"})))
    asked.wait()
    await_waiting(THREADS - 1)
    another = Group(pool, 1, lambda: answers.get("a", asked, frozenset({"mark", "newer mark"})))
    asked.wait()
    asked.calls[1].set_result("newest")
    assert another.results() == ["newest"]
    asked.calls[0].set_result("older")
    found = [answers.get("a", lambda: "asked again") for _ in range(2)]
    assert found == ["newest", "newest"]
    # Those that waited for the first one ask again.
    asked.wait(THREADS - 1)
    for call in asked.calls[2:]:
        call.set_result("newest")
    assert sorted(group.results()) == sorted(["older", *["newest"] * (THREADS - 1)])


def test_nobody_depends_on_a_thread_that_never_answers(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_answers, "WAIT_PIECE_S", 0.01)
    answers, asked = SharedAnswers[str, str](8), Asked()
    stuck = Group(pool, 1, lambda: answers.get("a", asked))
    asked.wait()
    assert answers.get("a", lambda: "mine") == "mine"
    assert answers.get("a", asked) == "mine"
    asked.calls[0].set_result("late")
    assert stuck.results() == ["late"]


def test_the_least_recently_used_answers_are_forgotten() -> None:
    answers = SharedAnswers[str, str](2)
    for key in ("a", "b", "a", "c"):
        answers.get(key, lambda: "first")
    assert [answers.get(key, lambda: "second") for key in ("a", "c", "b")] == ["first", "first", "second"]


def test_ctrl_c_in_the_wait_for_another_thread_leaves_that_thread_alone(
    pool: ThreadPoolExecutor, await_waiting: Callable[[int], None]
) -> None:
    answers, asked = SharedAnswers[str, str](8), Asked()
    asking = Group(pool, 1, lambda: answers.get("a", asked))
    asked.wait()

    def strike() -> None:
        await_waiting(1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        striking = pool.submit(strike)
        with pytest.raises(KeyboardInterrupt):
            answers.get("a", asked)
        striking.result(TIMEOUT_S)
    finally:
        signal.signal(signal.SIGINT, before)
    asked.calls[0].set_result("yes")
    assert asking.results() == ["yes"]
    assert answers.get("a", asked) == "yes"
