"""The runs of the second door in a process that forks: a child goes on as another process."""

from __future__ import annotations

import os
import signal
from threading import Event, Thread

from kafka_sink.spark.query_batch import RUNS, QueryBatch

QUERY = QueryBatch("forked")


def test_a_forked_child_waits_for_no_lock_of_its_parent_and_has_a_run_of_its_own() -> None:
    RUNS.value.put(("sink", QUERY), "of the parent")
    is_held, may_end = Event(), Event()

    def hold() -> None:
        with RUNS.value._lock:
            is_held.set()
            may_end.wait(60)

    thread = Thread(target=hold)
    thread.start()
    is_held.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends the child if it waits
        os._exit(0 if RUNS.value.take(("sink", QUERY)) != "of the parent" else 1)
    _, status = os.waitpid(child, 0)
    may_end.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert RUNS.value.take(("sink", QUERY)) == "of the parent"
