"""What a task reports besides its receipt, and the driver's report of a whole batch.

Figures are pickled in the commit message, and contain plain values only. A commit needs only the receipts; figures are
for people. A message without figures (of a task without the option, or of an older release) is valid: its rows are
counted by its receipt.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.kafka.wire.codes import code

if TYPE_CHECKING:
    from kafka_sink.producer.producer import Producer

NO_ANSWER = "NO_ANSWER"


class ProducerTotals(NamedTuple):
    """A producer's counters since it was created: with the Java client's names, with this package's, and retries by
    error."""

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
    """`began_ms` is by the executor's clock, and is only shown; durations are by its monotonic clock."""

    attempt_number: int
    began_ms: int
    send_ms: float
    prepare_ms: float
    has_new_id: bool
    totals: ProducerTotals


class TaskMeter:
    """Call `begin` again when the task continues with another producer. A task without rows calls nothing."""

    def __init__(self, attempt_number: int) -> None:
        self.figures: TaskFigures | None = None
        self._attempt_number = attempt_number
        self._began_ms = int(time.time() * 1000)
        self._began_s = self._sent_s = time.monotonic()
        self._before: ProducerTotals = NOTHING

    def begin(self, producer: Producer) -> None:
        self._before = totals_of(producer)

    def on_sent(self) -> None:
        self._sent_s = time.monotonic()

    def end(self, producer: Producer, *, has_new_id: bool) -> None:
        self.figures = TaskFigures(
            attempt_number=self._attempt_number,
            began_ms=self._began_ms,
            send_ms=(self._sent_s - self._began_s) * 1000,
            prepare_ms=(time.monotonic() - self._sent_s) * 1000,
            has_new_id=has_new_id,
            totals=totals_of(producer).since(self._before),
        )


def totals_of(producer: Producer) -> ProducerTotals:
    java, sums, retried = producer.totals()
    own = {
        "record_batches": sums["batches"],
        "record_batch_bytes": sums["batch-bytes"],
        "produce_requests": sums["produce-answers"],
        "produce_request_seconds": sums["produce-latency-ms"] / 1000,
        "throttle_seconds": sums["throttle-ms"] / 1000,
        "buffer_wait_seconds": java["bufferpool-wait-time-ns-total"] / 1e9,
        "split_batches": java["batch-split-total"],
    }
    by_name = {NO_ANSWER if error is None else code(error).name: count for error, count in retried.items()}
    return ProducerTotals(java, own, by_name)


@dataclass(frozen=True)
class BatchReport:
    """One commit or abort, as seen by the driver. `figures` are in the order of the receipts."""

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
    # An abort after a failed commit, which has been reported with its tasks' spans. It may have finished the batch.
    follows_commit: bool = False

    @property
    def first_task_ms(self) -> int:
        """When its first task began, or the commit if no task has reported it, or by a clock that is ahead."""
        return min((self.began_ms, *(each.began_ms for each in self.figures if each is not None)))


DELIVERED, ALREADY_DELIVERED, ABORTED, LEFT_OPEN, FAILED = (
    "delivered", "already_delivered", "aborted", "left_open", "failed",
)  # fmt: skip


def sum_counts(counts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: Any = Counter()  # by its type for whole numbers only
    for each in counts:
        found.update(each)
    return dict(found)


def _difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0) for name, value in after.items()}
