"""Asks that are repeated until each has an answer, as a state machine: the one loop of all single questions.

What may be repeated is said by the ask (`Repeat`). An answer can be an answer and yet not enough (a leader that is
behind, a topic that is being created): `lacks` says so with the error to raise if it stays like that, and raises what
no repetition mends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka_sink.commit.commit_step import Progress
from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.client.ask import Ask, Reply

Bodies = tuple[Mapping[str, Any], ...]
Lacks = Callable[[Bodies], KafkaSinkError | None]


def lacks_nothing(_: Bodies) -> None:
    return None


class Asking:
    """The result: the last reply to each ask, and what it lacks. `delay_ms`: after so many failures. `try_ms`: for one
    try. Without `needs_all`, brokers that do not answer are left out if at least one does."""

    def __init__(
        self,
        asks: Sequence[Ask],
        *,
        deadline_ms: int,
        try_ms: int,
        delay_ms: Callable[[int], int],
        lacks: Lacks = lacks_nothing,
        needs_all: bool = True,
    ) -> None:
        self._asks = asks
        self._deadline_ms = deadline_ms
        self._try_ms = try_ms
        self._delay_ms = delay_ms
        self._lacks = lacks
        self._needs_all = needs_all
        self._found: dict[Ask, tuple[Reply, KafkaSinkError | None]] = {}
        # What the last answer lacked. A last try that is cut off by the deadline says less.
        self._lacked: dict[Ask, KafkaSinkError] = {}

    def step(self, now_ms: int, replies: Sequence[Reply]) -> Progress[list[tuple[Reply, KafkaSinkError | None]]]:
        for reply in replies:
            if reply.ask.is_out and reply.ask in self._asks:
                self._on_reply(now_ms, reply)
        if len(self._found) == len(self._asks):
            return Progress((), None, [self._found[ask] for ask in self._asks])
        due = [ask for ask in self._waiting() if ask.due_ms <= now_ms]
        for ask in due:
            ask.is_out = True
            ask.timeout_ms = max(0, min(self._try_ms, self._deadline_ms - now_ms))
        return Progress(due, min((ask.due_ms for ask in self._waiting()), default=None))

    def _waiting(self) -> list[Ask]:
        return [ask for ask in self._asks if not ask.is_out and ask not in self._found]

    def _on_reply(self, now_ms: int, reply: Reply) -> None:
        ask = reply.ask
        ask.is_out = False
        is_answered = reply.error is None or (bool(reply.bodies) and not self._needs_all)
        trouble = self._lacks(reply.bodies) if is_answered else reply.error
        if is_answered and trouble is not None:
            self._lacked[ask] = trouble
        due_ms = now_ms + self._delay_ms(ask.failures + 1)
        may_repeat = is_answered or ask.may_repeat(reply.kind)
        if trouble is None or not may_repeat:
            self._found[ask] = reply, trouble
        elif due_ms >= self._deadline_ms:
            self._found[ask] = reply, self._lacked.get(ask, trouble)
        else:
            ask.again(due_ms, find_again=True)
