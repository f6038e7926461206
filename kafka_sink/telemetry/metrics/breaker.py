"""A receiver that does not answer is skipped for a while, so that not every commit waits for it.

It is skipped by those who send with the same key and certificates: whose own are at fault silences no one else.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from kafka_sink.errors import TransportError
from kafka_sink.kafka.io.per_process import PerProcess

PAUSE_S = 30.0
# End of the pause.
PAUSES: PerProcess[dict[tuple[Hashable, ...], float]] = PerProcess(dict)


@contextmanager
def circuit_breaker(*receiver: Hashable) -> Iterator[bool]:
    """`receiver`: its address, and what is sent with a request. False while it is skipped. The pause begins with the
    errors of one that does not answer, or says that it is ill. A refusal is raised outside: it is about a request."""
    known = PAUSES.value
    if time.monotonic() < known.get(receiver, 0.0):
        yield False
        return
    try:
        yield True
    except (TransportError, OSError):
        known[receiver] = time.monotonic() + PAUSE_S
        raise
