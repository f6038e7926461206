"""Scheduled actions, ordered by time and, within one millisecond, in the order they were scheduled."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Schedule:
    """`now_ms` advances only through `run_due`, and never goes back: a caller with an older time gets the newer one."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Without a delay it runs now, inside this call: most operations of a quiet cluster need no event."""
        if delay_ms <= 0:
            action()
            return
        self._count += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._count, action))

    def run_due(self, now_ms: int) -> None:
        while self._queue and self._queue[0][0] <= now_ms:
            due_ms, _, action = heapq.heappop(self._queue)
            self.now_ms = max(self.now_ms, due_ms)
            action()
        self.now_ms = max(self.now_ms, now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        return self._queue[0][0] if self._queue else None
