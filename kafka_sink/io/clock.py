"""The two clocks, and the only place that reads them.

`monotonic_ms` drives every deadline and never goes back; `timestamp_ms` is wall time, goes into records, and may jump.
The two must never be compared with each other.
"""

from __future__ import annotations

import time

_NS_PER_MS = 1_000_000


class Clock:
    """Replaced by a fake in tests."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // _NS_PER_MS

    # As it is, without a method around it: the network asks three times a turn.
    monotonic_ns = staticmethod(time.monotonic_ns)

    def timestamp_ms(self) -> int:
        return time.time_ns() // _NS_PER_MS
