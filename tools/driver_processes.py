"""Finds the Python processes with which Spark plans and commits on the driver, by their parent processes.

PySpark's JVM starts one `pyspark.daemon` for each kind of work, with the module in its command line. The daemon forks a
process if none of its own is free, and the JVM gives each call to any free process. So a process serves other queries
in between, and what it remembers of a query may be old: tests of this kill these processes. The function of a
foreachBatch over Spark Connect has a process of its own, which the JVM starts itself. Processes that run tasks have no
module in their command line and are not included. Linux only.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress

from tools.kafka_watchdog import process_stat, process_words
from tools.waiting import wait_until

# Python data sources plan and commit in modules of the first, foreachBatch of Spark Connect runs in the second.
MODULES = (b"pyspark.sql.worker.", b"pyspark.sql.connect.streaming.worker.")
_DAEMON = b"pyspark.daemon"
# Part of the command line of a JVM that a Python process started for its session.
_SHELL = b"pyspark-shell"
DEAD_S = 60


def driver_processes(module: str = "", *, owner: int | None = None) -> list[int]:
    """The ids of these processes for the sessions that this process (or `owner`) has started. `module` selects one kind
    of work, such as "commit". The daemons themselves are not included."""
    parents = _parents()
    words = {number: process_words(number, "cmdline") for number in parents}
    wanted = os.getpid() if owner is None else owner
    machines = {number for number, parent in parents.items() if parent == wanted and _SHELL in words[number]}
    daemons = {number for number, parent in parents.items() if parent in machines and _DAEMON in words[number]}
    return sorted(
        number
        for number, parent in parents.items()
        if parent in daemons | machines
        and number not in daemons
        and any(_is_of(word, module) for word in words[number])
    )


def select_connected(process_ids: Iterable[int], ports: Collection[int]) -> list[int]:
    """Those that have a TCP connection to one of these ports of this host."""
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    links = {f"socket:[{row[9]}]" for row in rows if int(row[2].rpartition(":")[2], 16) in ports}
    return [number for number in process_ids if not links.isdisjoint(_open_files(number))]


def _open_files(process_id: int) -> set[str]:
    found = set()
    with suppress(OSError):
        for name in os.listdir(f"/proc/{process_id}/fd"):
            with suppress(OSError):
                found.add(os.readlink(f"/proc/{process_id}/fd/{name}"))
    return found


def kill(process_id: int) -> bool:
    """True if the process still existed."""
    with suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGKILL)
        return True
    return False


def kill_driver(process: subprocess.Popen[bytes]) -> list[int]:
    """A driver that leads a process group, or what has started it: all that writes to brokers for it, and its JVM. They
    are dead when this returns. The processes with which Spark commits have groups of their own, and would finish a
    commit without the JVM. They are killed while the JVM is stopped and starts no other ones; their ids are returned.
    The Python processes of tasks find out by themselves."""
    _signal_group(process, signal.SIGSTOP)
    committing = _driver_processes_under(process.pid)
    for process_id in committing:
        kill(process_id)
    _signal_group(process, signal.SIGKILL)
    process.wait(DEAD_S)
    wait_until(lambda: not any(map(_is_running, committing)), "the processes that commit are dead", DEAD_S)
    return committing


def _driver_processes_under(process_id: int) -> list[int]:
    """At any depth: a command may start a server, which starts the JVM of the session."""
    parents = _parents()
    words = {number: process_words(number, "cmdline") for number in parents}

    def is_one(number: int) -> bool:
        is_forked = _DAEMON in words.get(parents[number], ())
        is_of_spark = any(_is_of(word, "") for word in words[number])
        return is_of_spark and (is_forked or _DAEMON not in words[number]) and process_id in _ancestors(parents, number)

    return sorted(filter(is_one, parents))


def _ancestors(parents: Mapping[int, int], number: int) -> Iterator[int]:
    while number in parents:
        number = parents[number]
        yield number


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _is_running(process_id: int) -> bool:
    return process_stat(process_id)[:1] not in ([], ["Z"])


def _is_of(word: bytes, module: str) -> bool:
    return word.startswith(MODULES) and module.encode() in word


def _parents() -> dict[int, int]:
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    stats = {number: process_stat(number) for number in numbers}
    return {number: int(stat[1]) for number, stat in stats.items() if stat and stat[0] != "Z"}
