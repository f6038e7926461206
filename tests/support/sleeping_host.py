"""The clocks of a host that sleeps: of the kernel's only one goes on, and Python's monotonic clock is not it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kafka_sink.kafka.io import clock


class SleepingHost:
    """Stands for the module `time`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._slept_ns = 0
        patch.setattr(clock, "time", self)

    def sleep_for(self, minutes: int) -> None:
        self._slept_ns += minutes * 60 * 1_000_000_000

    def clock_gettime_ns(self, which: int) -> int:
        return time.clock_gettime_ns(which) + (self._slept_ns if which == time.CLOCK_BOOTTIME else 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)
