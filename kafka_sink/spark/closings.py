"""The records that close the decisions of a stream, written by threads while Spark goes on with its next batch.

A decision that is not closed yet is right all the same: whoever finds it ends its transactions once more, learns that
all are committed, and closes it (docs/commit-protocol.md). So nothing depends on these threads. But the next operation
of this process on the same sink waits for its thread, because it would fence it otherwise, and so does the end of the
process, for a moment.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from threading import Lock, Thread

from kafka_sink.commit.identity import belongs_to
from kafka_sink.kafka.io.per_process import PerProcess
from kafka_sink.kafka.io.side_by_side import join_all

# Threads that take longer are left alone: the next commit fences it and closes the decision itself.
WAIT_S = 5.0


class Closings:
    def __init__(self) -> None:
        self._lock = Lock()
        self._threads: dict[Thread, str] = {}

    def begin(self, sink_id: str, close: Callable[[], None]) -> None:
        """`close` must not raise."""

        def run() -> None:
            try:
                close()
            finally:
                with self._lock:
                    self._threads.pop(thread, None)

        # The program does not wait for daemons.
        thread = Thread(target=run, name=f"closing {sink_id}", daemon=True)
        try:
            # At once: a thread that is known and has not started cannot be waited for.
            with self._lock:
                thread.start()
                self._threads[thread] = sink_id
        except RuntimeError:  # no more threads, or the interpreter is about to end
            close()

    def wait(self, name: str | None = None) -> None:
        """For those of a sink, or of the queries under a name; None: of all."""
        with self._lock:
            found = [thread for thread, sink_id in self._threads.items() if name is None or belongs_to(sink_id, name)]
        if found:
            join_all(found, WAIT_S)


CLOSINGS = PerProcess(Closings)
# Not in Spark's workers, which end without it.
atexit.register(lambda: CLOSINGS.value.wait())
