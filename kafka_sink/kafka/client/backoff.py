"""Exponential back-off with jitter: how long to wait before the next try, given how many failed in a row.

Knows neither clock nor randomness: both come in as arguments. Jitter of 20 % both ways is Kafka's own figure (KIP-144,
KIP-580); it keeps a thousand producers from reconnecting to a restarted broker in the same millisecond.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka_sink.frozen import frozen

JITTER = 0.2
# 2**31 ms are 24 days: no option allows more, and the power stays a small integer.
DOUBLINGS_MAX = 31
# While a broker writes the markers of the previous transaction (code 51): usually milliseconds. Each further wait is
# longer by this much, for clusters where it takes minutes.
MARKERS_BACKOFF_MS = 20


@frozen
class Backoff:
    first_ms: int
    longest_ms: int
    jitter: Callable[[], float]

    def delay_ms(self, failures: int) -> int:
        """The delay after this many consecutive failures (at least one). The maximum includes the jitter."""
        doublings = min(max(0, failures - 1), DOUBLINGS_MAX)
        grown_ms = min(self.first_ms << doublings, max(self.first_ms, self.longest_ms))
        factor = 1 - JITTER + 2 * JITTER * self.jitter()
        return min(round(grown_ms * factor), max(self.first_ms, self.longest_ms))
