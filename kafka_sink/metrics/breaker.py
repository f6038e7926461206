"""A receiver that does not answer is left out for a while, so that commits do not wait for it one after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

PAUSE_S = 30.0


@contextmanager
def circuit_breaker(receiver: str) -> Iterator[bool]:
    """False while the receiver is left alone. What is raised inside begins that pause, and goes on."""
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
    """Until when, by receiver. Of this process; a forked child finds out by itself."""
    return {}
