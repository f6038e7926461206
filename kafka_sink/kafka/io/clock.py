"""The clocks of producer and driver, and the only place that reads them.

`monotonic_ms` drives every deadline and never goes back; `timestamp_ms` is wall-clock time for records, and may jump.
The two must never be compared with each other.

A producer's time stands still while its host sleeps, as with the Java client: after it wakes up, a delivery has as much
time left as before. Transactions do not: brokers end them however long a host sleeps. So their ages, and all that the
driver does until it commits them, are by `boot_ns`.

Assumption: the kernel knows that it slept. Of a virtual machine that is paused, or restored from a copy, it does not.
So a commit looks at the wall clock as well, which is set right then, and where one of the two says that much time has
passed it asks the brokers (spark/process.py, commit/preflight.py). What stood still in the middle of a commit is not
noticed.
"""

from __future__ import annotations

import time

# Longer waits for other threads are split: a signal just before a thread goes to sleep does not wake it, and Ctrl-C
# would be noticed only at the end of the wait.
WAIT_PIECE_S = 1.0
_NS_PER_MS = 1_000_000
# Linux has a clock of its own that goes on during sleep; macOS has only this name for it. None: there is none to ask.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def boot_ns() -> int:
    """Since the host was started, with the time that it slept."""
    return time.monotonic_ns() if _BOOT_CLOCK is None else time.clock_gettime_ns(_BOOT_CLOCK)


def boot_s() -> float:
    return boot_ns() / 1e9


class Clock:
    """Tests replace it by a fake."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // _NS_PER_MS

    # Without a wrapping method: the network reads it three times per iteration.
    monotonic_ns = staticmethod(time.monotonic_ns)

    def timestamp_ms(self) -> int:
        return time.time_ns() // _NS_PER_MS


class BootClock(Clock):
    """For deadlines that brokers keep as well."""

    def monotonic_ms(self) -> int:
        return boot_ns() // _NS_PER_MS

    monotonic_ns = staticmethod(boot_ns)
