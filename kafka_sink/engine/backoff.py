"""How long to wait before the next try: exponential with jitter (KIP-580). Pure: the randomness comes in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# Java's spread: a cluster that comes back must not be hit by all its clients at the same moment.
JITTER = 0.2


@dataclass(frozen=True, slots=True)
class Backoff:
    initial_ms: int
    max_ms: int
    jitter: Callable[[], float]

    def delay_ms(self, failures: int) -> int:
        """The wait after so many failures in a row; 0 failures: none."""
        if failures <= 0:
            return 0
        # The exponent is capped before the power is taken: failures may count into the millions.
        delay = min(self.initial_ms * 2 ** min(failures - 1, 30), max(self.max_ms, self.initial_ms))
        return max(0, round(delay * (1 - JITTER + 2 * JITTER * self.jitter())))
