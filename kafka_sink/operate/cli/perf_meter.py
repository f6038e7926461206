"""The measurements of `perf`: rates and latencies, in total and since the last line, formatted as in Kafka's tool."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

MIB = 1024 * 1024
PERCENTILES = (50.0, 95.0, 99.0, 99.9)


@dataclass(slots=True)
class _Sum:
    started_s: float
    records: int = 0
    byte_count: int = 0
    latency_ms: float = 0.0
    longest_ms: float = 0.0

    def add(self, records: int, byte_count: int, latency_ms: float) -> None:
        self.records += records
        self.byte_count += byte_count
        self.latency_ms += latency_ms * records
        self.longest_ms = max(self.longest_ms, latency_ms)

    def rates(self, now_s: float) -> tuple[float, float, float]:
        """Records and MiB per second, and the mean latency of a record."""
        seconds = max(1e-9, now_s - self.started_s)
        return self.records / seconds, self.byte_count / MIB / seconds, self.latency_ms / max(1, self.records)


class Meter:
    """`record` and `fail` are called by the sender thread, everything else by the thread that writes."""

    def __init__(self, interval_s: float, *, tell: Callable[[str], None] | None) -> None:
        self._interval_s = interval_s
        self._tell = tell
        self._lock = threading.Lock()
        # Records by latency, in tenths of a millisecond: a test that runs for days needs no more memory.
        self._latencies: Counter[float] = Counter()
        self._error: BaseException | None = None
        self.begin()

    def begin(self) -> None:
        now_s = time.monotonic()
        self._all, self._window, self._last_s = _Sum(now_s), _Sum(now_s), now_s

    def record(self, records: int, byte_count: int, latency_ms: float) -> None:
        with self._lock:
            self._all.add(records, byte_count, latency_ms)
            self._window.add(records, byte_count, latency_ms)
            self._latencies[round(latency_ms, 1)] += records
            self._last_s = time.monotonic()

    def fail(self, error: BaseException) -> None:
        self._error = self._error or error

    def check(self) -> None:
        """Raises the first error of a record."""
        if self._error is not None:
            raise self._error

    def tell_if_due(self) -> None:
        now_s = time.monotonic()
        if self._tell is None or now_s - self._window.started_s < self._interval_s:
            return
        with self._lock:
            window, self._window = self._window, _Sum(now_s)
        records_per_s, mib_per_s, mean_ms = window.rates(now_s)
        self._tell(
            f"{window.records} records sent, {records_per_s:.1f} records/sec ({mib_per_s:.2f} MB/sec), "
            f"{mean_ms:.1f} ms avg latency, {window.longest_ms:.1f} ms max latency."
        )

    def last_line(self) -> str:
        found = self.summary()
        latency_ms = found["latency_ms"]
        shares = ", ".join(f"{latency_ms[f'p{share:g}']:.0f} ms {share:g}th" for share in PERCENTILES)
        return (
            f"{found['records']} records sent, {found['records_per_s']:f} records/sec "
            f"({found['mib_per_s']:.2f} MB/sec), {latency_ms['mean']:.2f} ms avg latency, "
            f"{latency_ms['max']:.2f} ms max latency, {shares}."
        )

    def summary(self) -> dict[str, Any]:
        with self._lock:
            records_per_s, mib_per_s, mean_ms = self._all.rates(self._last_s)
            latencies = {"mean": mean_ms, "max": self._all.longest_ms}
            latencies |= {f"p{share:g}": percentile(self._latencies.items(), share) for share in PERCENTILES}
            return {
                "records": self._all.records,
                "records_per_s": records_per_s,
                "mib_per_s": mib_per_s,
                "latency_ms": latencies,
            }


def percentile(latencies: Collection[tuple[float, int]], share: float) -> float:
    """The latency not exceeded by this share of the records; each entry counts for some records."""
    wanted = sum(records for _, records in latencies) * share / 100
    seen = 0
    for latency_ms, records in sorted(latencies):
        seen += records
        if seen >= wanted:
            return latency_ms
    return 0.0
