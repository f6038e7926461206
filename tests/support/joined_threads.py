"""Threads that never end, and a clock that goes on only while somebody waits for one of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafka_sink.kafka.io import side_by_side


class JoinedThreads:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        self.waited_s: list[float] = []
        patch.setattr(side_by_side, "time", SimpleNamespace(monotonic=lambda: self.now_s))

    def thread(self, **_: object) -> HeldThread:
        return HeldThread(self)


class HeldThread:
    def __init__(self, clock: JoinedThreads) -> None:
        self._clock = clock

    def start(self) -> None: ...

    def join(self, timeout_s: float) -> None:
        self._clock.waited_s.append(timeout_s)
        self._clock.now_s += timeout_s
