"""Whether Spark still waits for this task. After its job was cancelled or has failed, nobody reads its message, and the
driver has aborted what it found: a transaction that begins now would hold back readers until its time-out.

Spark tells a Python worker nothing about a cancelled task. But it closes the connection when its own side of the task
has ended, however long the worker lives on. A worker that it still wants to destroy sees nothing; the driver looks for
its transaction again (commit/sweep.py).

Assumptions: the connection is `infile` of `main` in `pyspark/worker.py`, in the call stack of each task; and Spark
closes neither direction of it before it has the task's message. Where there is no such connection, or it cannot be
looked at, Spark counts as waiting.
"""

from __future__ import annotations

import select
import sys
from contextlib import suppress
from types import FrameType
from typing import Any

# As a module of the daemon, and as the program of a worker without one.
WORKERS = ("pyspark.worker", "__main__")
# Only Linux tells that the other side has closed while unread bytes are there.
CLOSED = getattr(select, "POLLRDHUP", 0) | getattr(select, "POLLHUP", 0) | getattr(select, "POLLERR", 0)


def is_spark_waiting() -> bool:
    """To be called in the thread in which Spark calls the task. Reads nothing."""
    connection = _connection()
    if connection is None or not hasattr(select, "poll"):
        return True
    with suppress(AttributeError, OSError, ValueError):  # no file of the system, or closed
        poll = select.poll()
        poll.register(connection.fileno(), CLOSED)
        return not any(event & CLOSED for _, event in poll.poll(0))
    return True


def _connection() -> Any:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "main" and frame.f_globals.get("__name__") in WORKERS:
            return frame.f_locals.get("infile")
        frame = frame.f_back
    return None
