"""The clock of a simulation: a queue of events, ordered by time and, within a millisecond, by planning."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Loop:
    def __init__(self) -> None:
        self.now_ms = 0
        self.events_count = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._planned = 0

    def at(self, when_ms: int, action: Callable[[], None]) -> None:
        self._planned += 1
        heapq.heappush(self._queue, (max(when_ms, self.now_ms), self._planned, action))

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, action)

    @property
    def next_ms(self) -> int | None:
        return self._queue[0][0] if self._queue else None

    def run_next(self) -> None:
        self.now_ms, _, action = heapq.heappop(self._queue)
        self.events_count += 1
        action()
