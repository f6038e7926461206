"""The two clocks, and the only place that reads them.

`monotonic_ms` drives every deadline and never goes back; `timestamp_ms` is wall-clock time for records, and may jump.
The two must never be compared with each other.
"""

from __future__ import annotations

import time

_NS_PER_MS = 1_000_000


class Clock:
    """Tests replace it by a fake."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // _NS_PER_MS

    # Without a wrapping method: the network reads it three times per iteration.
    monotonic_ns = staticmethod(time.monotonic_ns)

    def timestamp_ms(self) -> int:
        return time.time_ns() // _NS_PER_MS
