"""The measurements of one task attempt: its producer's counters at begin and end, and a few times."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kafka_sink.metrics.figures import NOTHING, ProducerTotals, TaskFigures
from kafka_sink.wire.codes import code

if TYPE_CHECKING:
    from kafka_sink.producer.producer import Producer

NO_ANSWER = "NO_ANSWER"


class TaskMeter:
    """Call `begin` again when the task continues with another producer. A task without rows calls nothing."""

    def __init__(self, attempt_number: int = 0) -> None:
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
