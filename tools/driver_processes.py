"""The Python processes that Spark keeps beside the driver to plan and to commit, found by whose children they are.

PySpark's JVM starts one `pyspark.daemon` for each kind of work, named by the module it runs; the daemon forks a process
whenever none of its own is free, and the JVM hands calls to whichever is. Which query a process serves next is decided
call by call, so what a process remembers of a query may be old: these are the processes to kill in a test of that.
Those that run tasks have no module in their command line and are left alone. Linux only.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

# Data sources of Python plan and commit in the first, foreachBatch of a Spark Connect session runs in the second.
MODULES = (b"pyspark.sql.worker.", b"pyspark.sql.connect.streaming.worker.")
_DAEMON = b"pyspark.daemon"
# In the command line of a JVM that a Python process started for a session of its own.
_SHELL = b"pyspark-shell"


def driver_processes(module: str = "", *, owner: int | None = None) -> list[int]:
    """Of the sessions that this process (or `owner`) has started; `module` narrows it to one kind of work, such as
    "commit". Daemons are not among them: their children are."""
    parents = _parents()
    words = {number: _words(number) for number in parents}
    wanted = os.getpid() if owner is None else owner
    machines = {number for number, parent in parents.items() if parent == wanted and _SHELL in words[number]}
    daemons = {number for number, parent in parents.items() if parent in machines and _DAEMON in words[number]}
    return sorted(
        number
        for number, parent in parents.items()
        if parent in daemons and any(_is_of(word, module) for word in words[number])
    )


def kill(process_id: int) -> bool:
    """Whether it was there still."""
    with suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGKILL)
        return True
    return False


def _is_of(word: bytes, module: str) -> bool:
    return word.startswith(MODULES) and module.encode() in word


def _parents() -> dict[int, int]:
    found: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            # The name in brackets may hold spaces; what follows the last bracket does not.
            state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(path.name)] = int(parent)
    return found


def _words(number: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    return []
