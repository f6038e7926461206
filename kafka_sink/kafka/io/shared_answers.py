"""Answers that threads share: of those that ask the same question at once, one asks and the others wait for it.

An exception is never shared: those that waited ask for themselves then, at once and side by side, because asking may
take as long as a time-out. They do so as well if the answer takes long, so that nobody depends on a thread that was
interrupted.

An answer is valid for as long as nobody had a reason to doubt it since its question began. Such a reason may lie in
files that several processes see, and that several threads find at once. So it has names: a question that was begun
because of the same ones is recent enough.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

from kafka_sink.kafka.io.clock import WAIT_PIECE_S

KeyT = TypeVar("KeyT", bound=Hashable)
AnswerT = TypeVar("AnswerT")
# In pieces of a second: longer than planning takes with healthy brokers.
WAITS_MAX = 5


class _Question(Generic[KeyT, AnswerT]):
    def __init__(self, key: KeyT, reasons: frozenset[str], doubt_count: int) -> None:
        self.key = key
        self.reasons = reasons
        self.doubt_count = doubt_count
        self.answers: list[AnswerT] = []  # at most one
        # Held by who asks. A lock, because Ctrl-C in the wait for an `Event` can leave the event's own lock taken, and
        # then who asks would wait for ever.
        self._asking = Lock()
        self._asking.acquire()

    def wait(self) -> None:
        for _ in range(WAITS_MAX):
            if self._asking.acquire(timeout=WAIT_PIECE_S):
                self._asking.release()
                return

    def end(self) -> None:
        self._asking.release()


class SharedAnswers(Generic[KeyT, AnswerT]):
    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._lock = Lock()
        self._kept: dict[KeyT, AnswerT] = {}  # least recently used first
        self._asked: list[_Question[KeyT, AnswerT]] = []
        self._doubt_count = 0

    def doubt(self) -> None:
        """From now on only answers to questions that begin later are valid."""
        with self._lock:
            self._doubt()

    def get(self, key: KeyT, ask: Callable[[], AnswerT], reasons: frozenset[str] = frozenset()) -> AnswerT:
        """`reasons` to doubt what is known."""
        question: _Question[KeyT, AnswerT]
        with self._lock:
            known = self._kept.pop(key, None) if not reasons else None
            if known is not None:
                self._kept[key] = known
                return known
            others = self._find_asked(key, reasons)
            if others is None:
                if reasons:
                    self._doubt()
                question = _Question(key, reasons, self._doubt_count)
                self._asked.append(question)
        if others is not None:
            others.wait()
            with self._lock:
                if others.answers and others.doubt_count == self._doubt_count:
                    return others.answers[0]
                question = _Question(key, reasons, self._doubt_count)
        try:
            answer = ask()
            with self._lock:
                question.answers.append(answer)
                if question.doubt_count == self._doubt_count:
                    self._keep(key, answer)
            return answer
        finally:
            with self._lock:
                if question in self._asked:
                    self._asked.remove(question)
            question.end()

    def _doubt(self) -> None:
        self._kept.clear()
        self._asked.clear()
        self._doubt_count += 1

    def _find_asked(self, key: KeyT, reasons: frozenset[str]) -> _Question[KeyT, AnswerT] | None:
        for question in self._asked:
            if question.key == key and question.reasons >= reasons:
                return question
        return None

    def _keep(self, key: KeyT, answer: AnswerT) -> None:
        self._kept[key] = answer
        while len(self._kept) > self._kept_max:
            del self._kept[next(iter(self._kept))]
