"""`pykafka-sink watch`: shows what a sink does, periodically. Read-only.

Batches and rows come from the ledger, transactions and offsets from the brokers. The duration of commits is not in
Kafka; with --metrics-url it comes from the application's endpoint.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.ledger import LedgerRecord
from kafka_sink.errors import KafkaSinkError
from kafka_sink.frozen import frozen
from kafka_sink.operate.cli.read_commands import unreadable_lines
from kafka_sink.operate.cli.refresh import Look, repeat
from kafka_sink.operate.cli.report import Report, batch_word, table, verdict_word
from kafka_sink.operate.cli.sink_client import SinkClient
from kafka_sink.operate.status.findings import span
from kafka_sink.telemetry.metrics.notebook import mean_commit_s, sink_metrics
from kafka_sink.telemetry.metrics.stream_figures import StreamFigures

# A screen has no more room; the others are summed.
PARTITIONS_SHOWN_MAX = 20


@frozen
class Snapshot:
    """`ends`: high watermark and last stable offset of each partition."""

    at_ms: int
    records: Sequence[LedgerRecord]
    transactions: Sequence[TransactionDescription]
    ends: Mapping[tuple[str, int], tuple[int, int]]
    figures: Sequence[StreamFigures]
    notes: Sequence[str]


def watch(sink: SinkClient, given: argparse.Namespace) -> Report:
    sink.known_decisions()  # raises if there are none
    before: Snapshot | None = None

    def look() -> Look:
        nonlocal before
        now = take_snapshot(sink, given.metrics_url)
        shown = make_look(sink.named_sink, now, before)
        before = now
        return shown

    return repeat(look, given)


def take_snapshot(sink: SinkClient, metrics_url: str | None) -> Snapshot:
    found = sink.list_decisions()
    records = [each.record for each in found if each.record is not None]
    listing = sink.list_open_transactions()
    notes = [*unreadable_lines([each for each in found if each.record is None]), *listing.notes]
    figures: Sequence[StreamFigures] = ()
    if metrics_url is not None:
        try:
            figures = [each for each in sink_metrics(metrics_url) if each.sink == sink.named_sink]
        except KafkaSinkError as error:
            notes.append(str(error))
    topics = sorted({topic for record in records for topic in record.topics})
    ends, trouble = sink.list_log_ends(topics)
    if trouble:
        notes.append(trouble)
    return Snapshot(sink.wall_ms, records, listing.found, ends, figures, notes)


def make_look(sink_id: str, now: Snapshot, before: Snapshot | None) -> Look:
    rates = {record.key: _pace(record, now, before) for record in now.records}
    behind = {where: max(0, end - stable) for where, (end, stable) in now.ends.items()}
    held = sum(behind.values())
    oldest_ms = max((now.at_ms - each.start_ms for each in now.transactions), default=0)
    open_text = f"{len(now.transactions)} open transactions"
    open_text += f", the oldest for {span(oldest_ms)}" if now.transactions else ""
    rows = [
        (batch_word(record.key), verdict_word(record), record.row_count, rates[record.key], _commit_word(record, now),
         span(now.at_ms - record.wall_ms))
        for record in now.records
    ]  # fmt: skip
    lines = [f"sink {sink_id}", ""]
    lines += table(("BATCH", "VERDICT", "ROWS", "ROWS/S", "COMMIT", "AGE"), rows)
    lines += ["", open_text, "", *_partition_lines(now.ends, behind)]
    lines += ["", *now.notes] if now.notes else []
    parts = [
        f"{batch} {verdict} {age} ago, {row_count} rows, {rate} rows/s, commit {commit}"
        for batch, verdict, row_count, rate, commit, age in rows
    ]
    line = "; ".join([f"sink {sink_id}", *parts, open_text, f"{held} offsets not visible yet", *now.notes])
    return Look(lines, line, _content(sink_id, now, rates, behind))


def _pace(record: LedgerRecord, now: Snapshot, before: Snapshot | None) -> str:
    """Rows per second since the previous snapshot. Of several batches in between the ledger has only the newest; the
    others are assumed to be as large, marked by `~`."""
    number = record.key.batch_id
    if before is None or not isinstance(number, int):
        return "-"
    known = [each.key.batch_id for each in before.records if each.key.query_id == record.key.query_id]
    numbers = [each for each in known if isinstance(each, int)]
    if not numbers:
        return "-"
    batches = number - numbers[0]
    if batches <= 0:
        return "0"
    pace = record.row_count * batches * 1000 / max(1, now.at_ms - before.at_ms)
    return f"{'~' if batches > 1 else ''}{pace:.0f}"


def _commit_word(record: LedgerRecord, now: Snapshot) -> str:
    for figures in now.figures:
        if figures.query_id == record.key.query_id and (seconds := mean_commit_s(figures)):
            return f"{seconds * 1000:.0f} ms"
    return "-"


def _partition_lines(
    ends: Mapping[tuple[str, int], tuple[int, int]], behind: Mapping[tuple[str, int], int]
) -> Sequence[str]:
    """Partitions that hold back most first."""
    ordered = sorted(ends, key=lambda where: (-behind[where], where))
    rows = [
        (f"{topic}-{partition}", *ends[topic, partition], behind[topic, partition])
        for topic, partition in ordered[:PARTITIONS_SHOWN_MAX]
    ]
    lines = table(("PARTITION", "END", "STABLE", "BEHIND"), rows) if rows else ["no topic written yet"]
    rest = ordered[PARTITIONS_SHOWN_MAX:]
    return [*lines, f"and {len(rest)} partitions more, {sum(behind[each] for each in rest)} behind"] if rest else lines


def _content(
    sink_id: str, now: Snapshot, rates: Mapping[Any, str], behind: Mapping[tuple[str, int], int]
) -> dict[str, Any]:
    return {
        "at_ms": now.at_ms,
        "sink_id": sink_id,
        "batches": [
            {"query_id": record.key.query_id or None, "batch_id": record.key.batch_id,
             "verdict": verdict_word(record), "row_count": record.row_count, "rows_per_s": rates[record.key],
             "age_ms": max(0, now.at_ms - record.wall_ms)}
            for record in now.records
        ],
        "open_transactions": [
            {"transactional_id": one.transactional_id, "age_ms": max(0, now.at_ms - one.start_ms)}
            for one in now.transactions
        ],
        "partitions": [
            {"topic": topic, "partition": partition, "end": end, "stable": stable, "behind": behind[topic, partition]}
            for (topic, partition), (end, stable) in sorted(now.ends.items())
        ],
        "notes": list(now.notes),
    }  # fmt: skip
