"""The output of a command: a JSON object, or lines for people, with the same content; and the confirmation before
changes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_sink.cli.streams import printable, write_error
from kafka_sink.error_table.commits import COMMAND_WRONG
from kafka_sink.errors import ConfigError
from kafka_sink.exactly_once.ledger import Kind, LedgerRecord
from kafka_sink.exactly_once.receipt import BatchKey

DONE, OPEN, USAGE, UNREACHABLE, REFUSED = range(5)

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


@dataclass(frozen=True, slots=True)
class Report:
    exit_code: int
    content: dict[str, Any]
    lines: Sequence[str] = field(default_factory=list)
    # Instead of the content: a plain list.
    objects: list[dict[str, str]] | None = None


def verdict_word(record: LedgerRecord) -> str:
    if record.kind is Kind.DONE:
        return "accepted" if record.is_accepted else "delivered"
    return {Kind.INTENT: "open", Kind.STUCK: "lost", Kind.REPLAY: "replay"}[record.kind]


def decision(record: LedgerRecord, wall_ms: int) -> dict[str, Any]:
    """`transactions` are listed until the decision is closed."""
    outcomes: list[str | None] = [outcome.name.lower() for outcome in record.outcomes] or [None] * len(record.entries)
    return {
        "sink_id": record.sink_id,
        "name": record.label or None,
        "query_id": record.key.query_id or None,
        "batch_id": record.key.batch_id,
        "verdict": verdict_word(record),
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


def age_word(age_ms: int) -> str:
    seconds = max(0, age_ms) // 1000
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


class Declined(Exception):
    """The user declined."""


def confirm(given: argparse.Namespace, lines: Sequence[str]) -> None:
    """Asks on standard error, so that standard output has only the JSON object."""
    if given.yes:
        return
    write_error(printable("\n".join([*lines, "Go on? [yes/no] "])))
    try:
        answer = sys.stdin.readline()
    except OSError:  # it cannot be read, as under nohup
        answer = ""
    if not answer:
        raise ConfigError("nobody is there to be asked: nothing was changed. --yes does not ask", COMMAND_WRONG)
    if answer.strip().lower() not in ("y", "yes"):
        raise Declined("nothing was changed")
