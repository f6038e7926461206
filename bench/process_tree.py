"""CPU time and memory of a process and all its descendants, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """Used so far, by those that have ended as well, as far as their parents have waited for them."""
    return sum(ticks for _, ticks in _tree(root)) / _TICKS_PER_SECOND


def peak_bytes(root: int) -> int:
    """The highest resident set that any single Python process of the tree has had."""
    peaks = [_peak(pid) for pid, _ in _tree(root) if pid != root]
    return max(peaks, default=0)


def _tree(root: int) -> Iterator[tuple[int, int]]:
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name in parentheses may hold anything, spaces as well.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        ticks[int(entry.name)] = sum(int(field) for field in fields[11:15])
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        if pid in ticks:
            yield pid, ticks[pid]
        waiting += children.get(pid, ())


def _peak(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
