"""The output of a command: a JSON object, or lines for people, with the same content; and the confirmation before
changes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_sink.commit.ledger import Kind, LedgerRecord
from kafka_sink.commit.open_decisions import OpenDecision, Standing
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.commits import COMMAND_WRONG
from kafka_sink.operate.cli.streams import printable, write_error

DONE, OPEN, USAGE, UNREACHABLE, REFUSED = range(5)


@dataclass(frozen=True, slots=True)
class Report:
    exit_code: int
    content: dict[str, Any]
    lines: Sequence[str] = field(default_factory=list)
    # Instead of the content: a plain list.
    objects: list[dict[str, str]] | None = None


def verdict_word(record: LedgerRecord, found: OpenDecision | None = None) -> str:
    if found is not None and found.standing in (Standing.COMMITTED, Standing.OVERDUE):
        return str(found.standing.value)
    if record.kind is Kind.DONE:
        return "accepted" if record.is_accepted else "delivered"
    return {Kind.INTENT: "open", Kind.STUCK: "lost", Kind.REPLAY: "replay"}[record.kind]


def decision(record: LedgerRecord, wall_ms: int, found: OpenDecision | None = None) -> dict[str, Any]:
    """`found`: how it stands, if it is open and that was asked. `transactions` are listed until it is closed."""
    outcomes: list[str | None] = [outcome.name.lower() for outcome in record.outcomes] or [None] * len(record.entries)
    return {
        "sink_id": record.sink_id,
        "name": record.label or None,
        "query_id": record.key.query_id or None,
        "batch_id": record.key.batch_id,
        "verdict": verdict_word(record, found),
        "time_left_ms": None if found is None else found.left_ms,
        "row_count": record.row_count,
        "topics": dict(sorted(record.topics.items())),
        "run": record.run,
        "recorded_at_ms": record.wall_ms,
        "age_ms": max(0, wall_ms - record.wall_ms),
        "transactions": [
            {
                "transactional_id": record.transactional_id(entry),
                "spark_partition": entry.spark_task,
                "row_count": entry.row_count,
                "fate": outcome,
                "witness": {"topic": entry.topic, "partition": entry.partition, "offset": entry.last_offset},
            }
            for entry, outcome in zip(record.entries, outcomes, strict=True)
        ],
    }


def batch_word(key: BatchKey) -> str:
    if not key.is_named:
        return "without a name"
    return f"{key.batch_id} of {key.query_id}" if key.query_id else f"{key.batch_id!r}"


def batch_named(key: BatchKey) -> str:
    """For a sentence."""
    return f"batch {batch_word(key)}" if key.is_named else "a batch write without a name"


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Columns of minimal width; numbers right-aligned."""
    every = [list(row) for row in rows]
    cells = [list(titles), *([str(cell) for cell in row] for row in every)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(titles))]
    is_number = [all(isinstance(row[index], int) for row in every) for index in range(len(titles))]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, is_number, strict=True)
        ).rstrip()
        for row in cells
    ]


class Declined(Exception):
    """The user declined."""


GO_ON = "Go on? [yes/no] "
YES: tuple[str, ...] = ("y", "yes")


def confirm(
    given: argparse.Namespace, lines: Sequence[str], question: str = GO_ON, answers: Sequence[str] = YES
) -> None:
    """Asks on standard error, so that standard output has only the JSON object."""
    if given.yes:
        return
    write_error(printable("\n".join([*lines, question])))
    try:
        answer = sys.stdin.readline()
    except OSError:  # it cannot be read, as under nohup
        answer = ""
    if not answer:
        text = "nobody is there to be asked: nothing was changed. Add --yes to go on without a question"
        raise ConfigError(text, COMMAND_WRONG)
    if answer.strip().lower() not in answers:
        raise Declined("nothing was changed")
