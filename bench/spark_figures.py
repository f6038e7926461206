"""The measurements of one run of one Spark sink, and the medians of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.spark_cases import Case


@dataclass(frozen=True)
class Result:
    sink: str
    case: str
    rows: int
    seconds: float
    python_cpu_seconds: float
    jvm_cpu_seconds: float
    broker_share: float
    peak_rss_bytes: int

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


@dataclass(frozen=True)
class Figures:
    """Figures over all rounds of one sink in one case. CPU is in microseconds per row."""

    rate: float
    rate_min: float
    rate_max: float
    python_us: float
    jvm_us: float
    broker_share: float

    @property
    def cpu_us(self) -> float:
        return self.python_us + self.jvm_us


def figures(sink: str, case: Case, results: Sequence[Result]) -> Figures | None:
    own = [each for each in results if (each.sink, each.case) == (sink, case.name)]
    if not own:
        return None
    rates = [each.rate for each in own]
    return Figures(
        median(rates),
        min(rates),
        max(rates),
        median(each.python_cpu_seconds / each.rows * 1e6 for each in own),
        median(each.jvm_cpu_seconds / each.rows * 1e6 for each in own),
        median(each.broker_share for each in own),
    )
