"""The metrics of one stream since its application began: cumulative counters, and the newest batches.

A stream is a sink and a query; all batch writes without a query under one sink id count as one. They are stored as
JSON: the reader may be another process, and another release.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_sink.commit.receipt import UNNAMED_BATCH
from kafka_sink.telemetry.metrics.definitions import BUCKETS_S
from kafka_sink.telemetry.metrics.figures import DELIVERED, FAILED, BatchReport, ProducerTotals, sum_counts

FORMAT = 1
RECENT_MAX = 10
# Cached, because `json.dumps` makes an encoder for each call. The data has no cycles, so the check is off.
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
MS = 1000.0


@dataclass
class StreamFigures:
    """`values` by name of the metric, then by the value of its own label, "" if it has none."""

    sink: str
    query: str
    query_id: str
    client_id: str
    began_ms: int
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    # Counts per bucket, not cumulative, and the sum of all values.
    histograms: dict[str, tuple[list[int], float]] = field(default_factory=dict)
    java: dict[str, float] = field(default_factory=dict)
    recent: list[dict[str, Any]] = field(default_factory=list)
    # The first of them as JSON.
    recent_texts: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def labels(self) -> dict[str, str]:
        return {"sink": self.sink, "query": self.query, "query_id": self.query_id}

    @property
    def has_nameless(self) -> bool:
        """Whether some of the newest batches are batch writes without a label."""
        return any(batch["batch_id"] == UNNAMED_BATCH.batch_id for batch in self.recent)

    def value(self, name: str, label: str | None = None) -> float:
        """The value of one label, or the sum over all."""
        found = self.values.get(name, {})
        return sum(found.values()) if label is None else found.get(label, 0)

    def count(self, name: str, amount: float, label: str = "") -> None:
        """A counter starts at 0 before its first count, so that its first increase is visible."""
        found = self.values.setdefault(name, {})
        found[label] = found.get(label, 0) + amount

    def set(self, name: str, value: float, label: str = "") -> None:
        self.values.setdefault(name, {})[label] = value

    def observe(self, name: str, value_s: float) -> None:
        counts, total = self.histograms.get(name, ([0] * (len(BUCKETS_S) + 1), 0.0))
        counts[bisect_left(BUCKETS_S, value_s)] += 1
        self.histograms[name] = (counts, total + value_s)

    def take(self, report: BatchReport) -> None:
        """Counts one commit or abort."""
        self.client_id = report.client_id
        if report.outcome != FAILED:  # the abort follows, and reports the outcome
            self.count("batches", 1, report.outcome)
        if report.error:
            self.count("commit_errors", 1, report.error)
            self.set("last_commit_error_timestamp_seconds", report.ended_ms / MS, report.error)
        rows = self._take_delivered(report) if report.outcome == DELIVERED else {}
        self.recent.append(
            {
                "batch_id": report.key.batch_id,
                "run": report.run,
                "outcome": report.outcome,
                "rows": sum(rows.values()),
                "topics": rows,
                "tasks": len(report.receipts),
                "ended_ms": report.ended_ms,
                "commit_ms": round(report.commit_ms, 3),
                "batch_ms": report.ended_ms - report.first_task_ms,
                "error": report.error,
                "error_text": report.error_text,
            }
        )
        dropped = max(0, len(self.recent) - RECENT_MAX)
        del self.recent[:dropped], self.recent_texts[:dropped]

    def _take_delivered(self, report: BatchReport) -> dict[str, int]:
        rows: dict[str, int] = {}
        for receipt in report.receipts:
            for written in receipt.written:
                rows[written.topic] = rows.get(written.topic, 0) + written.row_count
            self.count("bytes", receipt.bytes)
            for reason, count in receipt.record_errors.items():
                self.count("dead_letters" if report.has_dead_letters else "dropped_rows", count, reason)
                self.set("last_left_out_timestamp_seconds", report.ended_ms / MS, reason)
        for topic, count in rows.items():
            self.count("rows", count, topic)
        self.count("tasks", len(report.receipts))
        self._take_tasks(report)
        self.observe("commit_seconds", report.commit_ms / MS)
        self.observe("batch_seconds", (report.ended_ms - report.first_task_ms) / MS)
        if isinstance(report.key.batch_id, int):
            self.set("last_batch_id", report.key.batch_id)
        self.set("last_batch_rows", sum(rows.values()))
        self.set("last_batch_timestamp_seconds", report.ended_ms / MS)
        return rows

    def _take_tasks(self, report: BatchReport) -> None:
        totals: list[ProducerTotals] = []
        for receipt, figures in zip(report.receipts, report.figures, strict=True):
            if figures is None:
                continue
            totals.append(figures.totals)
            self.count("task_retries", figures.attempt_number)
            self.observe("task_send_seconds", figures.send_ms / MS)
            if receipt.transaction is not None:
                self.count("transactions", 1, "new" if figures.has_new_id else "reused")
                self.observe("task_prepare_seconds", figures.prepare_ms / MS)
        for name, value in sum_counts(each.own for each in totals).items():
            self.count(name, value)
        for error, count in sum_counts(each.retried for each in totals).items():
            self.count("retried_records", count, error)
        self.java = sum_counts([self.java, *(each.java for each in totals)])


def stream_of(report: BatchReport) -> StreamFigures:
    """A stream without metrics yet."""
    return StreamFigures(report.sink, report.query, report.key.query_id, report.client_id, report.began_ms)


def to_json(figures: StreamFigures) -> str:
    """Batches are immutable, so the text of each is made once: they are half of the total."""
    content = {"format": FORMAT, **figures.__dict__}
    recent, texts = content.pop("recent"), content.pop("recent_texts")
    while len(texts) < len(recent):
        texts.append(_encode(recent[len(texts)]))
    return f'{_encode(content)[:-1]},"recent":[{",".join(texts)}]}}'


def from_json(text: str) -> StreamFigures:
    """Raises ValueError if this release did not write it; an unknown field is ignored."""
    try:
        read: Mapping[str, Any] = json.loads(text)
        if read["format"] != FORMAT:
            raise ValueError(f"figures of format {read['format']}")
        known = {name: read[name] for name in StreamFigures.__dataclass_fields__ if name in read}
        figures = StreamFigures(**known)
        figures.histograms = {name: (list(found[0]), found[1]) for name, found in figures.histograms.items()}
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"no figures of a stream: {error!r}") from None
    return figures
