"""Threads that write the last record of a commit, and who waits for them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kafka_sink.commit.identity import sink_id_of_query
from kafka_sink.spark import closings
from kafka_sink.spark.closings import Closings
from tests.support.joined_threads import JoinedThreads

ROOT = Path(__file__).parents[2]
SINK = sink_id_of_query("orders", "a query")
AT_EXIT = """
import time
from kafka_sink.spark.closings import CLOSINGS

def close():
    time.sleep(0.3)
    print("closed", flush=True)

CLOSINGS.value.begin("sink", close)
"""


class Held:
    """A record that is being written until the test lets it go."""

    def __init__(self, found: Closings, sink_id: str = SINK) -> None:
        self.is_free, self.is_over = threading.Event(), threading.Event()
        found.begin(sink_id, self.close)

    def close(self) -> None:
        self.is_free.wait(60)
        self.is_over.set()

    def let_go_soon(self) -> None:
        threading.Timer(0.05, self.is_free.set).start()


@pytest.mark.parametrize("name", [SINK, "orders", None], ids=["its-sink", "its-name", "all"])
def test_who_needs_the_sink_waits_for_its_record(name: str | None) -> None:
    found = Closings()
    held = Held(found)
    held.let_go_soon()
    found.wait(name)
    assert held.is_over.is_set()
    found.wait(name)  # there is none any more


@pytest.mark.parametrize("name", [sink_id_of_query("orders", "another"), "order", "orders-eu"])
def test_other_sinks_do_not_wait(name: str) -> None:
    found = Closings()
    held = Held(found)
    found.wait(name)
    assert not held.is_over.is_set()
    held.is_free.set()
    found.wait()


def test_a_record_that_takes_too_long_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closings, "WAIT_S", 0.05)
    found = Closings()
    held = Held(found)
    found.wait(SINK)
    assert not held.is_over.is_set()
    held.is_free.set()


def test_all_records_together_are_waited_for_no_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = JoinedThreads(monkeypatch)
    found = Closings()
    monkeypatch.setattr(closings, "Thread", clock.thread)
    for sink in ("orders", "returns", "stock"):
        found.begin(sink, lambda: None)
    found.wait()
    assert clock.waited_s == [closings.WAIT_S, 0, 0]


def test_one_whose_thread_is_about_to_start_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next commit of the sink comes from another thread of the process."""
    found, is_over, seen = Closings(), threading.Event(), list[bool]()

    class Late(threading.Thread):
        def start(self) -> None:
            next_commit.start()
            next_commit.join(0.2)  # it would be over if it did not wait
            super().start()

    def wait() -> None:
        found.wait(SINK)
        seen.append(is_over.is_set())

    next_commit = threading.Thread(target=wait)
    monkeypatch.setattr(closings, "Thread", Late)
    found.begin(SINK, is_over.set)
    next_commit.join(60)
    assert seen == [True]


def test_without_a_thread_it_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter is about to end, or the process may have no more threads."""

    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(closings, "Thread", Refused)
    found, said = Closings(), []
    found.begin(SINK, lambda: said.append(time.monotonic()))
    assert len(said) == 1
    found.wait()


def test_the_end_of_the_process_waits_for_it() -> None:
    run = subprocess.run([sys.executable, "-c", AT_EXIT], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout.strip()) == (0, "closed")
