"""CPU time and memory of a process and all its descendants, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tools.kafka_watchdog import process_stat, process_words

BROKER, JVM, PYTHON = "broker", "Spark's JVM", "Python"
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """CPU seconds used so far, including ended processes if their parents have waited for them."""
    return sum(ticks for _, ticks in _tree(root)) / _TICKS_PER_SECOND


def cpu_by_kind(root: int) -> dict[str, float]:
    """Seconds used so far by the Kafka brokers, by Spark's JVM and by its Python processes below a process."""
    found = {BROKER: 0.0, JVM: 0.0, PYTHON: 0.0}
    for pid, ticks in _tree(root):
        program, *arguments = process_words(pid, "cmdline") or [b""]
        kind = PYTHON if b"pyspark.daemon" in arguments else None
        if b"java" in program:
            kind = JVM if any(b"org.apache.spark" in word for word in arguments) else BROKER
        if kind is not None:
            found[kind] += ticks / _TICKS_PER_SECOND
    return found


def peak_bytes(root: int) -> int:
    """The highest resident set that any single Python process of the tree has had."""
    peaks = [_status_bytes(pid, "VmHWM:") for pid, _ in _tree(root) if pid != root]
    return max(peaks, default=0)


def python_workers(root: int) -> list[int]:
    """The processes that PySpark's daemons have forked: tasks, planning, commits."""
    daemons = {pid for pid, _ in _tree(root) if b"pyspark.daemon" in process_words(pid, "cmdline")}
    # A fork has its parent's command line.
    return sorted(pid for pid in daemons if (stat := process_stat(pid)) and int(stat[1]) in daemons)


def resident_bytes(pid: int) -> int:
    return _status_bytes(pid, "VmRSS:")


def compiler_ticks(pid: int) -> dict[str, int]:
    """CPU time so far of each living thread in which a JVM compiles code."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            if (thread / "comm").read_text().startswith(("C1 Compiler", "C2 Compiler")):
                fields = (thread / "stat").read_text().rpartition(")")[2].split()
                found[thread.name] = int(fields[11]) + int(fields[12])
    return found


def compiler_seconds_since(before: dict[str, int], now: dict[str, int]) -> float:
    """A JVM ends idle compiler threads; what these did last is not counted."""
    return sum(ticks - before.get(thread, 0) for thread, ticks in now.items()) / _TICKS_PER_SECOND


def _tree(root: int) -> Iterator[tuple[int, int]]:
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        fields = process_stat(int(entry.name))
        if not fields:
            continue  # it has just ended
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        ticks[int(entry.name)] = sum(int(field) for field in fields[11:15])
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        if pid in ticks:
            yield pid, ticks[pid]
        waiting += children.get(pid, ())


def _status_bytes(pid: int, field: str) -> int:
    """0 if the process has just ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return 0
