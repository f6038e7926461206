"""The rows for the comparison of Spark sinks: the five main cases, and shapes that differ from them in one property."""

from __future__ import annotations

from dataclasses import dataclass

# In place of one length: values of every length from 100 to 2000 bytes.
MIXED = 0


@dataclass(frozen=True)
class Case:
    value_bytes: int
    is_keyed: bool
    codec: str
    # Rows in Spark's cache. A write sends them `times` times, so that its fixed cost is small beside that of the rows.
    cached_rows: int
    partitions: int = 4
    tasks: int = 2
    has_headers: bool = False
    times: int = 4

    @property
    def rows(self) -> int:
        return self.cached_rows * self.times

    @property
    def name(self) -> str:
        """Names only what differs from the usual."""
        size = "mixed" if self.value_bytes == MIXED else f"{self.value_bytes}B"
        parts = [size, "keyed" if self.is_keyed else "nokey", self.codec]
        parts += ["headers"] if self.has_headers else []
        parts += [f"{self.partitions}-partitions"] if self.partitions != 4 else []
        parts += [f"{self.tasks}-tasks" if self.tasks > 1 else "1-task"] if self.tasks != 2 else []
        return "-".join(parts)


CASES = (
    Case(100, True, "lz4", 1_500_000),
    Case(100, True, "none", 1_500_000),
    Case(100, False, "none", 1_500_000),
    Case(1000, True, "lz4", 300_000),
    Case(1000, True, "none", 300_000),
)

SHAPES = (
    *CASES,
    Case(100, False, "lz4", 1_500_000),
    Case(100, True, "zstd", 1_000_000),
    Case(100, True, "lz4", 1_000_000, has_headers=True),
    Case(100, True, "lz4", 1_000_000, tasks=1),
    Case(100, True, "lz4", 1_500_000, partitions=1),
    Case(100, True, "lz4", 1_500_000, partitions=64),
    Case(100, True, "lz4", 1_500_000, partitions=1000, times=1),
    Case(MIXED, True, "lz4", 300_000),
    Case(MIXED, True, "none", 300_000),
    Case(1000, False, "none", 300_000),
    Case(1000, True, "zstd", 300_000),
    Case(10_000, True, "lz4", 40_000),
    Case(10_000, True, "none", 40_000),
)
