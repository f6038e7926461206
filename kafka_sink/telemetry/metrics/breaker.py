"""A receiver that does not answer is skipped for a while, so that not every commit waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_sink.kafka.io.per_process import PerProcess

PAUSE_S = 30.0
# End of the pause by receiver.
PAUSES: PerProcess[dict[str, float]] = PerProcess(dict)


@contextmanager
def circuit_breaker(receiver: str) -> Iterator[bool]:
    """False while the receiver is skipped. An exception inside starts the pause, and is raised."""
    known = PAUSES.value
    if time.monotonic() < known.get(receiver, 0.0):
        yield False
        return
    try:
        yield True
    except BaseException:
        known[receiver] = time.monotonic() + PAUSE_S
        raise
