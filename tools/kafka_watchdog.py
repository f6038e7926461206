"""Kills a cluster's brokers and removes its folder when the process that started it is gone.

A test process that is killed (SIGKILL, out of memory, a time-out) runs no clean-up, and a Java broker left behind
holds half a gigabyte. The owner starts this script with a pipe to its standard input; the kernel closes the pipe when
the owner dies, however it dies. Brokers are found by the unique name of the cluster's folder in
their command line. A list of process ids is not needed, which could be outdated or name other processes by then.
Spark starts processes whose command lines we do not write; they inherit the folder in the environment variable MARK.

PR_SET_PDEATHSIG would be shorter, but it fires when the *thread* that started the broker ends, not the process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time

MARK = "PYKAFKA_SINK_FOLDER"
PROC = "/proc"


def can_find_processes() -> bool:
    """Not on macOS, for example."""
    return os.path.isdir(PROC)


def processes_using(folder: str) -> list[int]:
    """Ids of other live processes with an argument inside `folder` or marked with it. Empty without /proc."""
    needle = os.fsencode(folder) + b"/"
    inside = [number for number in _others() if any(needle in word for word in process_words(number, "cmdline"))]
    return inside + [number for number in processes_marked(folder) if number not in inside]


def processes_marked(folder: str) -> list[int]:
    mark = os.fsencode(f"{MARK}={folder}")
    return [number for number in _others() if mark in process_words(number, "environ")]


def _others() -> list[int]:
    names = os.listdir(PROC) if can_find_processes() else []
    return [int(name) for name in names if name.isdigit() and int(name) != os.getpid()]


def process_words(process_id: int, what: str) -> list[bytes]:
    """The `cmdline` or `environ` of a process at its start; empty if it has ended or belongs to another user."""
    with contextlib.suppress(OSError), open(f"{PROC}/{process_id}/{what}", "rb") as words:
        return words.read().split(b"\0")
    return []


def process_stat(process_id: int) -> list[str]:
    """The fields after its name: state, parent and so on; empty if it has ended. The name may contain anything."""
    with contextlib.suppress(OSError), open(f"{PROC}/{process_id}/stat", errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()
    return []


def remove_everything(folder: str) -> None:
    # At least twice: at the first check a broker may be between fork and exec, without its command line.
    for _ in range(3):
        for process_id in processes_using(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    folder = sys.argv[1]
    for stop_signal in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop_signal, signal.SIG_IGN)
    while sys.stdin.buffer.read(1):
        pass
    remove_everything(folder)


if __name__ == "__main__":
    main()
