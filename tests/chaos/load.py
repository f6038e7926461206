"""One thread that sends numbered records while brokers fail, and a record of the results.

Most records are sent by `send_arrow` with an explicit partition, every tenth by `send` with a key. The rate is such
that some are left for the time after the outage, so that a fault always hits a producer that is sending.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa

from kafka_sink import Producer
from kafka_sink.errors import KafkaSinkError
from tests.chaos.numbered_records import numbered_value
from tests.chaos.outages import Outage

ARROW_ROWS = 900
KEYED_ROWS = 100
KEYS = 20
KEY_STREAM_FIRST = 1000
# Shares of all records: before the outage, and at most until it ends.
SHARE_BEFORE = 0.1
SHARE_UNTIL_END = 0.9

GROUP = "producer-metrics"


@dataclass
class Progress:
    """The sender thread reports each completed call here."""

    errors: list[KafkaSinkError] = field(default_factory=list)
    done_at: list[float] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on_done(self, error: KafkaSinkError | None) -> None:
        with self._lock:
            self.done_at.append(time.monotonic())
            if error is not None:
                self.errors.append(error)

    def longest_gap_s(self) -> float:
        return max((after - before for before, after in zip(self.done_at, self.done_at[1:], strict=False)), default=0)

    def count_between(self, start: float, end: float) -> int:
        return sum(start <= moment <= end for moment in self.done_at)


@dataclass
class Load:
    producer: Producer
    topic: str
    partitions: int
    total: int
    sent: Counter[int] = field(default_factory=Counter)
    progress: Progress = field(default_factory=Progress)
    position: int = 0

    def run(self, outage: Outage, expected_outage_s: float) -> None:
        """Sends all records; the outage begins after the first tenth. Returns when both are over."""
        while self.position < self.total:
            if outage.started_at == 0.0 and self.position >= SHARE_BEFORE * self.total:
                self.producer.flush(timeout_s=60)
                outage.start()
            if self._is_due(outage, expected_outage_s):
                self._send_portion()
            else:
                time.sleep(0.01)
        outage.join()
        self.producer.flush(timeout_s=130)

    def _is_due(self, outage: Outage, expected_s: float) -> bool:
        if outage.started_at == 0.0 or outage.is_over:
            return True
        # The length of the outage is unknown: the rate falls, but never to zero.
        elapsed = time.monotonic() - outage.started_at
        share = SHARE_BEFORE + (SHARE_UNTIL_END - SHARE_BEFORE) * (1 - math.exp(-1.5 * elapsed / expected_s))
        return self.position < share * self.total

    def _send_portion(self) -> None:
        partitions = [number % self.partitions for number in range(ARROW_ROWS)]
        values = [self._next_value(partition) for partition in partitions]
        table = pa.table({"value": pa.array(values, pa.binary()), "partition": pa.array(partitions, pa.int32())})
        future = self.producer.send_arrow(table, topic=self.topic)
        future.add_done_callback(lambda done: self.progress.on_done(done.exception()))
        for number in range(KEYED_ROWS):
            key = number % KEYS
            last = self.producer.send(
                self.topic,
                value=self._next_value(KEY_STREAM_FIRST + key),
                key=b"key-%d" % key,
                on_delivery=lambda metadata, error: self._on_keyed(error),
            )
        last.add_done_callback(lambda done: self.progress.on_done(done.exception()))

    def _on_keyed(self, error: KafkaSinkError | None) -> None:
        if error is not None:
            self.progress.errors.append(error)

    def _next_value(self, stream: int) -> bytes:
        value = numbered_value(stream, self.sent[stream], self.position)
        self.sent[stream] += 1
        self.position += 1
        return value


def metric(producer: Producer, name: str) -> float:
    """A metric of the whole producer."""
    values = [value for (group, found, _), value in producer.metrics().items() if (group, found) == (GROUP, name)]
    if len(values) != 1:
        raise KeyError(name)
    return values[0]
