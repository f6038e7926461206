"""A receiver that does not answer is skipped for a while, so that not every commit waits for it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

PAUSE_S = 30.0


@contextmanager
def circuit_breaker(receiver: str) -> Iterator[bool]:
    """False while the receiver is skipped. An exception inside starts the pause, and is raised."""
    known = pauses(os.getpid())
    if time.monotonic() < known.get(receiver, 0.0):
        yield False
        return
    try:
        yield True
    except BaseException:
        known[receiver] = time.monotonic() + PAUSE_S
        raise


@cache
def pauses(pid: int) -> dict[str, float]:
    """End of the pause by receiver, for this process; a forked child starts without any."""
    return {}
