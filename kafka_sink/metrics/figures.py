"""What a task tells about itself beside its receipt, and what the driver knows of a whole batch.

Figures travel in the commit message, by pickle, and hold plain values only. A receipt is what a commit needs; nothing
here is needed by anybody but people. A message without figures (of a task without the option, or of an older release)
is as good as any: its rows are counted by its receipt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafka_sink.exactly_once.receipt import BatchKey, TaskReceipt


class ProducerTotals(NamedTuple):
    """What a producer has counted since it was made: under the Java client's names, under ours, and what was sent
    again by error."""

    java: Mapping[str, float]
    own: Mapping[str, float]
    retried: Mapping[str, int]

    def since(self, before: ProducerTotals) -> ProducerTotals:
        return ProducerTotals(
            _difference(self.java, before.java),
            _difference(self.own, before.own),
            {name: count for name in self.retried if (count := self.retried[name] - before.retried.get(name, 0))},
        )


NOTHING = ProducerTotals({}, {}, {})


class TaskFigures(NamedTuple):
    """`began_ms` is the executor's clock, and is only shown; durations are of its monotonic clock."""

    attempt_number: int
    began_ms: int
    send_ms: float
    prepare_ms: float
    has_new_id: bool
    totals: ProducerTotals


@dataclass(frozen=True)
class BatchReport:
    """One commit or abort, as the driver saw it. `figures` stand in the order of the receipts."""

    sink: str
    query: str
    key: BatchKey
    run: str
    client_id: str
    outcome: str
    receipts: Sequence[TaskReceipt]
    figures: Sequence[TaskFigures | None]
    began_ms: int
    ended_ms: int
    commit_ms: float
    has_dead_letters: bool = False
    error: str = ""
    error_text: str = ""
    # An abort behind a commit that failed, and has been told with the spans of the tasks.
    follows_commit: bool = False

    @property
    def is_delivered(self) -> bool:
        return self.outcome == DELIVERED

    @property
    def first_task_ms(self) -> int:
        """When its first task began, or the commit where no task has told it."""
        return min((each.began_ms for each in self.figures if each is not None), default=self.began_ms)


DELIVERED, ALREADY_DELIVERED, ABORTED, LEFT_OPEN, FAILED = (
    "delivered", "already_delivered", "aborted", "left_open", "failed",
)  # fmt: skip


def sum_counts(counts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in counts:
        if not found:
            found = dict(each)
            continue
        for name, count in each.items():
            found[name] = found.get(name, 0) + count
    return found


def _difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0) for name, value in after.items()}
