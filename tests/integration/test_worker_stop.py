"""A process that Spark's JVM ends with a signal, while a write runs there and otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from kafka_sink.spark.process import FACTORY

# The JVM sends the signal twice: when it stops the worker, and when it stops the worker's factory.
WRITE = """
import os, signal, sys, threading, time
from kafka_sink.spark.worker_stop import raise_when_stopped

def stop():
    os.kill(os.getpid(), signal.SIGTERM)

def write():
    try:
        with raise_when_stopped():
            {tasks}
    except Exception:
        print("the function goes on")
    except BaseException as error:
        stop()
        print("aborted", type(error).__name__, flush=True)
        raise
    {after}
    print("committed")

{call}
"""


def run(tasks: str, after: str = "pass", call: str = "write()", *, is_sparks: bool = True) -> tuple[int, list[str]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(FACTORY)}
    if is_sparks:
        environment[f"{FACTORY}PORT"] = "1"
    command = [sys.executable, "-c", WRITE.format(tasks=tasks, after=after, call=call)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_a_write_whose_query_is_stopped_is_aborted_before_its_process_ends() -> None:
    assert run("stop(); time.sleep(60)") == (128 + signal.SIGTERM, ["aborted SystemExit"])


@pytest.mark.parametrize("is_sparks", [True, False])
def test_a_write_that_nobody_stops_leaves_the_signal_as_it_was(is_sparks: bool) -> None:
    known = "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL"
    assert run("pass", known, is_sparks=is_sparks) == (0, ["committed"])


def test_during_a_commit_the_process_ends_as_in_a_crash() -> None:
    assert run("pass", "stop()") == (-signal.SIGTERM, [])


def test_a_user_s_process_and_its_handlers_are_left_alone() -> None:
    assert run("stop(); time.sleep(60)", is_sparks=False) == (-signal.SIGTERM, [])
    own = "signal.signal(signal.SIGTERM, lambda *_: print('own')); write()"
    assert run("stop()", call=own) == (0, ["own", "committed"])


def test_a_write_in_another_thread_goes_on_without_a_handler() -> None:
    call = "thread = threading.Thread(target=write); thread.start(); thread.join()"
    assert run("pass", call=call) == (0, ["committed"])
