"""What a step has asked and not been told yet: which asks are sent now, and when the next one is due.

An ask is added once, taken when it is due and the limit allows, and handed back through `accept` with its reply. Then
its owner drops it, or has it repeated with the back-off for the reason. The owner neither counts tries nor reads the
clock, and the body is the same at each try: an EndTxn with any other content would be another request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from kafka_sink.commit.session import DeliverySettings
from kafka_sink.kafka.client.ask import Ask, Reply, Target


class Asks:
    def __init__(self, settings: DeliverySettings) -> None:
        self._settings = settings
        # By purpose and number.
        self._open: dict[tuple[str, int], Ask] = {}
        # How many of them are under way. A commit of many transactions has one ask for each, and takes a few at each
        # step: counting them would cost more than all the rest.
        self._out_count = 0

    def add(self, now_ms: int, ask: Ask) -> None:
        """In place of one with the same purpose and number, to which no reply counts any more."""
        ask.timeout_ms, ask.due_ms = self._settings.request_timeout_ms, now_ms
        replaced = self.find(ask.purpose, ask.number)
        if replaced is not None:
            self._out_count -= replaced.is_out
        self._open[ask.purpose, ask.number] = ask

    def take_due(self, now_ms: int) -> list[Ask]:
        """The asks to send now, oldest first, and no more in flight than the settings allow."""
        waiting = (ask for ask in self._open.values() if not ask.is_out and ask.due_ms <= now_ms)
        due = list(islice(waiting, self._room()))
        for ask in due:
            ask.is_out = True
        self._out_count += len(due)
        return due

    def wake_at_ms(self) -> int | None:
        """When the next waiting ask is due; None: only replies can cause progress."""
        if not self._room():
            return None
        return min((ask.due_ms for ask in self._open.values() if not ask.is_out), default=None)

    def _room(self) -> int:
        return max(self._settings.parallel_requests - self._out_count, 0)

    def accept(self, reply: Reply) -> bool:
        """False: its ask is not under way, or its owner has dropped it."""
        if not self.is_out(reply.ask):
            return False
        reply.ask.is_out = False
        self._out_count -= 1
        return True

    def is_out(self, ask: Ask) -> bool:
        return ask.is_out and self.find(ask.purpose, ask.number) is ask

    def repeat(self, now_ms: int, ask: Ask, *, find_again: bool = False, soon: bool = False) -> None:
        step = self._settings.markers_backoff_ms if soon else self._settings.retry_backoff_ms
        delay_ms = min(step * (ask.failures + 1), self._settings.backoff_max_ms)
        ask.again(now_ms + delay_ms, find_again=find_again)

    def narrow(self, ask: Ask, target: Target, body: Mapping[str, Any]) -> None:
        """To what is left of one that was answered in part."""
        ask.target, ask.body = target, body

    def drop(self, ask: Ask) -> None:
        self._out_count -= self._open.pop((ask.purpose, ask.number)).is_out

    def drop_all(self) -> None:
        self._open.clear()
        self._out_count = 0

    def waiting_for_retry(self) -> list[Ask]:
        """Those that were answered or lost at least once and are not in flight."""
        return [ask for ask in self._open.values() if ask.failures and not ask.is_out]

    def find(self, purpose: str, number: int = 0) -> Ask | None:
        return self._open.get((purpose, number))

    def __iter__(self) -> Iterator[Ask]:
        return iter(self._open.values())

    def __len__(self) -> int:
        return len(self._open)
