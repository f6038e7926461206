"""`pykafka-sink watch` without a sink: all sinks of a cluster, periodically. Read-only.

What is wrong is what `status` finds; what may end by itself is shown from the second look on that finds it. The pace is
that of the ledger: rows of the batches that were decided since the previous look. A look that fails is told in the
headline, over what was seen before, and the watch goes on.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kafka_sink.commit.ledger import LedgerRecord
from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.auth.refused import RefusedLogin
from kafka_sink.operate.cli.cluster_screen import (
    HISTORY,
    TOPICS_SHOWN_MAX,
    Pace,
    Screen,
    SinkLine,
    one_line,
    plain_lines,
)
from kafka_sink.operate.cli.refresh import Look, repeat
from kafka_sink.operate.cli.report import Report
from kafka_sink.operate.cli.status import (
    WORDS,
    StatusSession,
    describe,
    finding_lines,
    limits_of,
    sink_objects,
    waiting_topics,
)
from kafka_sink.operate.status.collect import Repeated
from kafka_sink.operate.status.facts import ClusterFacts
from kafka_sink.operate.status.findings import Finding, Severity, span, worst


def watch_cluster(session: StatusSession, given: argparse.Namespace) -> Report:
    repeated, paces, refused = Repeated(session.cluster, limits_of(given)), Paces(), RefusedLogin()
    facts, found = repeated.look()  # raises if there is nothing to watch

    def look() -> Look:
        nonlocal facts, found
        problem = ""
        if paces.is_begun:
            try:
                facts, found = refused.try_once(repeated.look)
            except KafkaSinkError as error:
                problem = str(error)
        if not problem:
            paces.add(facts)
        screen = make_screen(session, facts, found, paces, problem)
        room = shutil.get_terminal_size().lines - 2 if sys.stdout.isatty() else None
        return Look(
            plain_lines(screen, room), one_line(screen), content_of(facts, found, paces, problem),
            partial(draw_screen, screen),
        )  # fmt: skip

    return repeat(look, given)


class Paces:
    """By ledger topic and sink."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], LedgerRecord] = {}
        self._at_ms: int | None = None
        self._history: dict[tuple[str, str], deque[float]] = {}
        self.now: Mapping[tuple[str, str], Pace] = {}

    @property
    def is_begun(self) -> bool:
        return self._at_ms is not None

    def add(self, facts: ClusterFacts) -> None:
        records = {
            (ledger.topic, each.ledger_key): each.record
            for ledger in facts.ledgers
            for each in ledger.listed
            if each.record is not None
        }
        if self._at_ms is not None:
            past_s = max(1, facts.at_ms - self._at_ms) / 1000
            self.now = dict(self._measure(records, past_s))
        # A ledger that was not read this time is compared with what it said last.
        self._records |= records
        self._at_ms = facts.at_ms

    def _measure(
        self, records: Mapping[tuple[str, str], LedgerRecord], past_s: float
    ) -> Iterator[tuple[tuple[str, str], Pace]]:
        rows: dict[tuple[str, str], int] = {}
        about = set[tuple[str, str]]()
        for (topic, ledger_key), record in records.items():
            batches = _batches_since(record, self._records.get((topic, ledger_key)))
            sink = topic, record.sink_id
            rows[sink] = rows.get(sink, 0) + record.row_count * batches
            if batches > 1:
                about.add(sink)
        for sink, count in rows.items():
            history = self._history.setdefault(sink, deque(maxlen=HISTORY))
            history.append(count / past_s)
            yield sink, Pace(count / past_s, sink in about, tuple(history))


def _batches_since(record: LedgerRecord, before: LedgerRecord | None) -> int:
    """How many batches were decided: the ledger has the newest one only."""
    if before is None:
        return 1
    if before.key == record.key:
        return int(before.run != record.run and not record.key.query_id)
    number, last = record.key.batch_id, before.key.batch_id
    is_next = isinstance(number, int) and isinstance(last, int) and before.key.query_id == record.key.query_id
    return max(0, int(number) - int(last)) if is_next else 1


def make_screen(
    session: StatusSession, facts: ClusterFacts, found: Sequence[Finding], paces: Paces, problem: str
) -> Screen:
    sinks = sink_lines(facts, found, paces.now)
    counts = {severity: sum(each.severity is severity for each in found) for severity in (Severity.ACT, Severity.LOOK)}
    wrong = ", ".join(f"{count} {WORDS[severity]}" for severity, count in counts.items() if count)
    per_s = sum(each.per_s for each in paces.now.values())
    headline = f"{len(sinks)} sink{'s' if len(sinks) != 1 else ''}, {per_s:,.0f} rows/s, {wrong or 'nothing is wrong'}"
    topics = [
        (each["topic"], each["behind"], span(each["oldest_ms"]), ", ".join(each["by"][:2]) or "-")
        for each in waiting_topics(facts)[:TOPICS_SHOWN_MAX]
    ]
    missing = [*facts.notes, *(each.problem for each in facts.ledgers if each.problem), *facts.limits]
    lines = finding_lines(list(found), session.brokers, session.cluster.named)
    return Screen(headline, worst(found), problem, found, lines, sinks, topics, missing)


def sink_lines(
    facts: ClusterFacts, found: Sequence[Finding], paces: Mapping[tuple[str, str], Pace]
) -> Sequence[SinkLine]:
    """One of each sink, the worst first."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sink_objects(facts, list(found)):
        where = row["ledger_topic"], row["sink_id"]
        rows[where] = max(rows.get(where, row), row, key=lambda each: (each["severity"], each["at_ms"]))
    lines = [
        SinkLine(
            row["severity"], row["sink_id"], row["name"] or "", _batch(row), row["verdict"], paces.get(where),
            row["row_count"], row["age_ms"], row["open_transactions"], row["at_ms"],
        )
        for where, row in rows.items()
    ]  # fmt: skip
    return sorted(lines, key=lambda each: (-each.severity, each.sink_id))


def _batch(row: Mapping[str, Any]) -> str:
    """Without the query, which has a row of its own."""
    return str(row["batch"] if row["batch_id"] is None else row["batch_id"])


def draw_screen(screen: Screen) -> Any:
    from kafka_sink.operate.cli.rich_screen import draw  # needs a package that not everybody has

    return draw(screen)


def content_of(facts: ClusterFacts, found: Sequence[Finding], paces: Paces, problem: str) -> dict[str, Any]:
    """The object of `status --json`, and the paces."""
    content = describe(facts, list(found))
    per_s = {
        "rows_per_s": [
            {"ledger_topic": topic, "sink_id": sink_id, "rows_per_s": round(pace.per_s, 3), "is_about": pace.is_about}
            for (topic, sink_id), pace in sorted(paces.now.items())
        ]
    }
    return {**content, **per_s, "problem": problem}
