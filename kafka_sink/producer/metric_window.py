"""A value observed over a sliding window of time, measured as the Java client's metrics do.

The window consists of samples of `window_ms` each. A new value goes into the current sample, or starts the next one
when the current is full; samples whose last value is older than the whole window are dropped. One extra sample is kept
for the part of an old sample that still overlaps the window. Average, maximum and rates come from the same samples, so
one call per event is enough.

Frequent events are appended to `pending`, a plain list, and counted later, many at once (`settle`).

No clock and no lock: the caller passes the time and serialises the calls. Only `pending` may be appended to
concurrently.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class _Sample:
    started_ms: int
    last_event_ms: int
    count: int = 0
    sum: float = 0.0
    max: float = -math.inf

    def reset(self, now_ms: int) -> None:
        self.started_ms = self.last_event_ms = now_ms
        self.count, self.sum, self.max = 0, 0.0, -math.inf


class MetricWindow:
    """`total` and `total_count` are cumulative; everything else is about the window."""

    __slots__ = ("_current", "_sample_count", "_samples", "_window_ms", "pending", "total", "total_count")

    def __init__(self, sample_count: int, window_ms: int) -> None:
        self._sample_count = sample_count
        self._window_ms = window_ms
        self._samples: list[_Sample] = []
        self._current = 0
        self.pending: list[float] = []
        self.total = 0.0
        self.total_count = 0

    def record(self, value: float, now_ms: int) -> None:
        self._record(value, 1, value, now_ms)

    def settle(self, now_ms: int) -> None:
        """Counts pending values. A value that another thread appends meanwhile is counted the next time."""
        values = self.pending.copy()
        if values:
            del self.pending[: len(values)]
            self._record(sum(values), len(values), max(values), now_ms)

    def _record(self, value_sum: float, count: int, largest: float, now_ms: int) -> None:
        self.total += value_sum
        self.total_count += count
        sample = self._sample_for(now_ms)
        sample.count += count
        sample.sum += value_sum
        sample.last_event_ms = now_ms
        if largest > sample.max:
            sample.max = largest

    def average(self, now_ms: int) -> float:
        count = self.window_count(now_ms)
        return self.window_sum(now_ms) / count if count else math.nan

    def maximum(self, now_ms: int) -> float:
        self._purge(now_ms)
        found = [sample.max for sample in self._samples if sample.count]
        return max(found) if found else math.nan

    def rate(self, now_ms: int) -> float:
        """Sum of the values per second."""
        return self.window_sum(now_ms) * 1000 / self._elapsed_ms(now_ms)

    def count_rate(self, now_ms: int) -> float:
        """Number of values per second."""
        return self.window_count(now_ms) * 1000 / self._elapsed_ms(now_ms)

    def window_sum(self, now_ms: int) -> float:
        self._purge(now_ms)
        return sum(sample.sum for sample in self._samples)

    def window_count(self, now_ms: int) -> int:
        self._purge(now_ms)
        return sum(sample.count for sample in self._samples)

    def _sample_for(self, now_ms: int) -> _Sample:
        if not self._samples:
            self._samples.append(_Sample(now_ms, now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.started_ms < self._window_ms:
            return sample
        self._current = (self._current + 1) % (self._sample_count + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms, now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def _purge(self, now_ms: int) -> None:
        for sample in self._samples:
            if now_ms - sample.last_event_ms >= self._sample_count * self._window_ms:
                sample.reset(now_ms)

    def _elapsed_ms(self, now_ms: int) -> int:
        # All but the last sample are assumed complete: otherwise the rate would be huge right after the start.
        if not self._samples:
            # The first read starts the first sample, as the first value would.
            self._samples.append(_Sample(now_ms, now_ms))
        elapsed_ms = now_ms - min(sample.started_ms for sample in self._samples)
        missing = self._sample_count - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1)
