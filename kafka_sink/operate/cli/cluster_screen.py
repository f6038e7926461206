"""What `pykafka-sink watch` shows of a cluster, and how it looks as plain text. rich_screen.py draws it."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.frozen import frozen
from kafka_sink.operate.cli.report import table
from kafka_sink.operate.cli.status import TOPIC_TITLES, WORDS
from kafka_sink.operate.status.findings import Finding, Severity, span

# How many looks the small picture of a pace has.
HISTORY = 24
TITLES = ("", "SINK", "NAME", "BATCH", "STATE", "ROWS/S", "ROWS", "AGE", "OPEN")
MARKS = {Severity.FINE: "", Severity.LOOK: "!", Severity.ACT: "!!"}
# Of the topics whose readers wait.
TOPICS_SHOWN_MAX = 8
# One finding with two commands.
WRONG_LINES_MIN = 5


@frozen
class Pace:
    """Rows per second, now and in earlier looks. `is_about`: of several batches the ledger has only the newest; the
    others are taken to be as large."""

    per_s: float
    is_about: bool
    history: tuple[float, ...]

    def __str__(self) -> str:
        return f"{'~' if self.is_about else ''}{self.per_s:,.0f}"


@frozen
class SinkLine:
    """The worst and newest decision of a sink. `pace` None: this is the first look."""

    severity: Severity
    sink_id: str
    name: str
    batch: str
    verdict: str
    pace: Pace | None
    row_count: int
    age_ms: int
    open_count: int
    at_ms: int

    def cells(self) -> tuple[object, ...]:
        pace = "-" if self.pace is None else str(self.pace)
        return (
            MARKS[self.severity], self.sink_id, self.name or "-", self.batch, self.verdict, pace, self.row_count,
            span(self.age_ms), self.open_count,
        )  # fmt: skip


@frozen
class Screen:
    """What there is to be drawn. `command_lines`: findings, and what mends them."""

    headline: str
    severity: Severity
    problem: str
    findings: Sequence[Finding]
    command_lines: Sequence[str]
    sinks: Sequence[SinkLine]
    topics: Sequence[tuple[object, ...]]
    notes: Sequence[str]

    def wrong_lines(self, room: int) -> Sequence[str]:
        """Half of the screen is for the sinks."""
        if len(self.command_lines) <= max(room // 2, WRONG_LINES_MIN):
            return self.command_lines
        kept = max(room // 2, WRONG_LINES_MIN) - 1
        return [*self.command_lines[:kept], f"`status` tells all {len(self.findings)} findings"]

    def fit(self, room: int) -> tuple[Sequence[SinkLine], int]:
        """As many sinks as there is room for, and how many are left out: what is wrong, and what wrote last, stays."""
        if len(self.sinks) <= room:
            return self.sinks, 0
        kept = sorted(self.sinks, key=lambda each: (-each.severity, -each.at_ms))[: max(1, room)]
        return [each for each in self.sinks if each in kept], len(self.sinks) - len(kept)


def plain_lines(screen: Screen, room: int | None = None) -> list[str]:
    lines = [f"{WORDS[screen.severity]}: {screen.headline}"]
    lines += [f"NOT SEEN NOW: {screen.problem}"] if screen.problem else []
    lines += [*(screen.command_lines if room is None else screen.wrong_lines(room)), ""]
    of_topics = ["", *table(TOPIC_TITLES, screen.topics)] if screen.topics else []
    of_notes = ["", *screen.notes] if screen.notes else []
    room = len(screen.sinks) if room is None else room - len(lines) - len(of_topics) - len(of_notes) - 2
    shown, left_out = screen.fit(room)
    lines += table(TITLES, [each.cells() for each in shown]) if shown else []
    lines += [f"and {left_out} more"] if left_out else []
    return [*lines, *of_topics, *of_notes]


def one_line(screen: Screen) -> str:
    """Of a file or a pipe: the commands are on the screen, and in `status`."""
    parts = [f"{WORDS[screen.severity]}: {screen.headline}"]
    parts += [f"not seen now: {screen.problem}"] if screen.problem else []
    parts += [f"{WORDS[each.severity]}: {each.text}" for each in screen.findings]
    return "; ".join([*parts, *screen.notes])
