"""Other processes: whether they are alive, and which is Spark's JVM. From /proc on Linux, elsewhere from ps."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

GENERATIONS_MAX = 8


class ProcessFacts(NamedTuple):
    """`began` distinguishes a process from a later one with the same id."""

    name: str
    parent: int
    began: str


def ancestor_called(name: str) -> int | None:
    pid = os.getppid()
    for _ in range(GENERATIONS_MAX):
        facts = facts_of(pid)
        if facts is None:
            return None
        if facts.name == name:
            return pid
        pid = facts.parent
    return None


def facts_of(pid: int) -> ProcessFacts | None:
    """None: there is no such process, it is a zombie, or it is unknown."""
    if pid <= 0:
        return None
    with suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # The name is in parentheses and may contain any character.
        name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        return None if rest[0] == "Z" else ProcessFacts(name, int(rest[1]), rest[19])
    if Path("/proc/self/stat").exists():
        return None
    with suppress(OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        command = ["ps", "-o", "ppid=,lstart=,comm=", "-p", str(pid)]
        words = subprocess.run(command, capture_output=True, timeout=5).stdout.decode(errors="replace").split()
        return ProcessFacts(os.path.basename(" ".join(words[6:])), int(words[0]), " ".join(words[1:6]))
    return None
