"""What happened: a running hash (equal seeds must give equal hashes), and counters, which show what never happened.

The lines themselves are kept only on request.
"""

from __future__ import annotations

import hashlib
from collections import Counter


class Violation(AssertionError):
    """A broken promise. `invariant` is its number in docs/simulation.md."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class Trace:
    def __init__(self, *, keep: bool = False) -> None:
        self.counts: Counter[str] = Counter()
        self.lines: list[str] | None = [] if keep else None
        self._hash = hashlib.blake2b(digest_size=12)

    def note(self, now_ms: int, text: str) -> None:
        line = f"{now_ms:>8} {text}"
        self._hash.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] += times

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
