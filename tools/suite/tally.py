"""Counts the messages of the processes, and writes the line of a file and the summary, which ends with the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tools.suite.plan import Cost

OUTCOMES = ("passed", "failed", "skipped")


class Tally:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.unsteady: list[str] = []
        self.costs: dict[str, Cost] = {}
        self._of_file: dict[str, Counter[str]] = {}
        self._skips: Counter[tuple[str, str]] = Counter()

    def take(self, told: Mapping[str, Any]) -> str | None:
        """Counts one message. Returns the name of the file if the message completes one."""
        if "skipped" in told:
            self._skips[told["file"], told["skipped"]] += 1
        if "test" in told:
            self.counts[told["outcome"]] += 1
            self._of_file.setdefault(told["file"], Counter())[told["outcome"]] += 1
            if told["outcome"] == "failed":
                self.failures.append(told["test"])
        if "done" not in told:
            return None
        file: str = told["done"]
        self.costs[file] = Cost(told["seconds"], told["cpu_s"], frozenset(told["shared"].split()))
        return file

    def fail(self, what: str) -> None:
        """Counts a failure outside of a test as a failed test."""
        self.counts["failed"] += 1
        self.failures.append(what)

    def passed_alone(self, test: str) -> None:
        """A failed test that passed when it was tried again by itself."""
        self.failures.remove(test)
        self.unsteady.append(test)
        self.counts["failed"] -= 1
        self.counts["passed"] += 1

    @property
    def is_good(self) -> bool:
        """False also for a run without any test."""
        return not self.failures and self.counts.total() > 0

    def line_of(self, file: str) -> str:
        counts = self._of_file.get(file, Counter())
        told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
        return f"{file}: {told}, {self.costs[file].seconds:.1f} s"

    def summary(self, again: Iterable[str]) -> list[str]:
        """`again`: commands that repeat the failed tests."""
        lines = []
        if self._skips:
            lines.append("skipped:")
            lines += [f"  {count} in {file}: {reason}" for (file, reason), count in sorted(self._skips.items())]
        if self.unsteady:
            lines += ["unsteady: failed once, passed alone (find out why, the output is above):"]
            lines += [f"  {test}" for test in self.unsteady]
        if self.failures:
            lines += ["failed:", *(f"  {what}" for what in self.failures)]
        if self.failures or self.unsteady:
            lines += ["again:", *(f"  {command}" for command in again)]
        return [*lines, ", ".join(f"{self.counts[outcome]} {outcome}" for outcome in OUTCOMES)]
