"""The runs of the second door in a process that forks, where a child goes on as another process, and in one that has
one Spark application after the other."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.spark import second_door
from kafka_sink.spark.query_batch import RUNS, QueryBatch

OWNER = ("application", "sink", QueryBatch("forked"))


def test_a_forked_child_waits_for_no_lock_of_its_parent_and_has_a_run_of_its_own() -> None:
    RUNS.value.put(OWNER, "of the parent")
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
        os._exit(0 if RUNS.value.take(OWNER) != "of the parent" else 1)
    _, status = os.waitpid(child, 0)
    may_end.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert RUNS.value.take(OWNER) == "of the parent"


class ConnectSession(SimpleNamespace):
    """Of a client, which goes on with another server."""


ConnectSession.__module__ = "pyspark.sql.connect.session"


def classic(application: str) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(applicationId=application))


def connected(application: str) -> Any:
    told = {"spark.app.id": application}
    return ConnectSession(session_id="of the client", conf=SimpleNamespace(get=told.__getitem__))


def connected_where_nothing_is_told(application: str) -> Any:
    return ConnectSession(session_id=f"session of {application}", conf=SimpleNamespace())


@pytest.mark.parametrize("session_of", [classic, connected, connected_where_nothing_is_told])
def test_the_next_application_of_a_process_uses_none_of_the_ids_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch, session_of: Callable[[str], Any]
) -> None:
    """Spark numbers its attempts anew, and nothing else in an id would differ."""
    runs: list[str] = []

    class Written:
        def __init__(self, frame: Any, planned: Any, key: BatchKey, run: str, **_: object) -> None:
            runs.append(run)

        def carry_out(self) -> None: ...

    monkeypatch.setattr(second_door, "_Write", Written)
    planned: Any = SimpleNamespace(sink_id=session_of.__name__)
    for batch_id, application in enumerate(("app-1", "app-1", "app-2")):
        frame: Any = SimpleNamespace(sparkSession=session_of(application))
        second_door._write_batch_of_query(frame, planned, BatchKey("q", batch_id), QueryBatch("q"))
    assert runs[0] == runs[1] != runs[2]
