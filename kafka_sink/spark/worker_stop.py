"""How the process of a function for foreachBatch learns over Spark Connect that its query is stopped.

The server sends it SIGTERM, twice at once, and Python would end without a word: neither would the job of the write be
cancelled, nor what its tasks have finished be aborted, and readers would wait until the time-out. So while the tasks of
a write run, the first signal raises here, as Ctrl-C does in a user's process, and the write ends like any that is
interrupted. Then the process ends. Spark does not wait for it. During a commit the signal ends the process as before,
which is a crash like others: the next start finishes what was decided.

Assumptions, for PySpark 3.5 to 4.3: the function is called in the main thread of a process of its own, which the JVM
ends with `Process.destroy` (`PythonWorkerFactory`), and which has no handler of its own.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kafka_sink.spark.process import is_sparks


@contextmanager
def raise_when_stopped() -> Iterator[None]:
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not is_sparks() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is _end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> None:
    """Not by an exception that a user's function would catch. Later signals must not end the abort that follows."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)
