"""A clock that the Python processes of Spark on one host share, and that no other host can be taken for.

Spark plans and commits in different processes. The driver's monotonic time between the two is the only duration that
includes all of a write and needs neither the clocks of brokers nor those of executors. The clock counts on while the
host sleeps. Assumption: a kernel tells the id of its boot, and processes that read the same id read the same clock.
Where that is not so (no Linux, another host), no time is told.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from kafka_sink.commit.receipt import HostMoment

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def moment_here() -> HostMoment | None:
    try:
        return HostMoment(
            _BOOT_ID.read_text(encoding="ascii").strip(), int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)
        )
    except (AttributeError, OSError, ValueError):
        return None


def time_since(moments: Iterable[HostMoment | None]) -> int | None:
    """Milliseconds since the earliest of them; None: one was not here, or is not known."""
    now, begun = moment_here(), list(moments)
    if now is None or not begun or any(each is None or each.boot_id != now.boot_id for each in begun):
        return None
    return max(now.at_ms - each.at_ms for each in begun if each is not None)
