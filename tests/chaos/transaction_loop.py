"""An application that writes in transactions and follows the documentation, and a record of every attempt.

A piece of work is 500 records over 4 partitions in one transaction; every fifth is aborted on purpose. After an error
the transaction is aborted and the same work is done again in a new one, under a new attempt number; if the abort fails,
with a new producer. A step that timed out is called again until it has an outcome: until then a commit may count
neither as done nor as not done.

Records carry attempt, row and checksum, so the log itself shows which attempts are in it and whether they are whole.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from kafka_sink import KafkaSinkError, OperationTimeout, Producer

ROWS = 500
PARTITIONS = 4
ABORT_EVERY = 5
STEP_TRIES = 60
# Frequent enough to be hit by every outage; without a pause, a core would only run transactions.
PAUSE_S = 0.2

_VALUE = struct.Struct(">qiI")


class Fate(Enum):
    OPEN = "open"
    ENDING = "asked to be committed"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "its producer failed while it was being committed"


def row_value(attempt: int, row: int) -> bytes:
    return _VALUE.pack(attempt, row, zlib.crc32(struct.pack(">qi", attempt, row)))


@dataclass
class TransactionLoop:
    settings: Mapping[str, object]
    topic: str
    # By attempt number. The loop writes it and a parallel reader reads it, which must see no attempt before its commit.
    fates: list[Fate] = field(default_factory=list)
    works_done: int = 0
    committed: int = 0
    step_timeouts: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    producers: int = 0
    longest_gap_s: float = 0.0
    last_error: str = ""

    def run(self, is_over: Callable[[], bool]) -> None:
        """Does one piece of work after the other until it is over; each is finished before the next begins."""
        producer = self._new_producer()
        last_done_at = time.monotonic()
        try:
            while not is_over():
                commits = self.works_done % ABORT_EVERY != ABORT_EVERY - 1
                while not self._attempt(producer, commits):
                    if self._must_be_replaced(producer):
                        producer.close(timeout_s=10)
                        producer = self._new_producer()
                self.works_done += 1
                self.committed += commits
                self.longest_gap_s = max(self.longest_gap_s, time.monotonic() - last_done_at)
                last_done_at = time.monotonic()
                time.sleep(PAUSE_S)
        finally:
            producer.close(timeout_s=30)

    def _new_producer(self) -> Producer:
        producer = Producer(self.settings)
        self.producers += 1
        self._until_known(producer.init_transactions)
        return producer

    def _attempt(self, producer: Producer, commits: bool) -> bool:
        """Returns True if the work is done. An attempt that failed was not committed, as its abort confirms."""
        attempt = len(self.fates)
        self.fates.append(Fate.OPEN)
        try:
            self._until_known(producer.begin_transaction)
            producer.send_arrow(rows_of(attempt), topic=self.topic)
            if commits:
                self.fates[attempt] = Fate.ENDING
                self._until_known(producer.commit_transaction)
                self.fates[attempt] = Fate.COMMITTED
            else:
                producer.flush(timeout_s=60)
                self._until_known(producer.abort_transaction)
                self.fates[attempt] = Fate.ABORTED
        except KafkaSinkError as error:
            self._note(error)
            return False
        return True

    def _must_be_replaced(self, producer: Producer) -> bool:
        """Aborts what failed. If even that fails, the producer must be replaced."""
        was_ending = self.fates[-1] is Fate.ENDING
        try:
            self._until_known(producer.abort_transaction)
        except KafkaSinkError as error:
            self._note(error)
            self.fates[-1] = Fate.UNKNOWN if was_ending else Fate.ABORTED
            return True
        self.fates[-1] = Fate.ABORTED
        return False

    def _until_known(self, step: Callable[[], None]) -> None:
        for _ in range(STEP_TRIES):
            try:
                step()
                return
            except OperationTimeout:
                self.step_timeouts += 1
        raise TimeoutError(f"{step} has had no outcome after {STEP_TRIES} calls")

    def _note(self, error: KafkaSinkError) -> None:
        self.errors[type(error).__name__] += 1
        self.last_error = str(error)


def rows_of(attempt: int) -> pa.Table:
    partitions = [row % PARTITIONS for row in range(ROWS)]
    values = [row_value(attempt, row) for row in range(ROWS)]
    return pa.table({"value": pa.array(values, pa.binary()), "partition": pa.array(partitions, pa.int32())})


@dataclass
class TransactionChecker:
    """It gets what a read_committed reader sees; `verdict` compares it with the fates."""

    fates: list[Fate]
    problems: list[str] = field(default_factory=list)
    record_count: int = 0
    _rows: Counter[int] = field(default_factory=Counter)
    _last: dict[int, tuple[int, int]] = field(default_factory=dict)

    def on_record(self, partition: int, value: bytes | None) -> None:
        self.record_count += 1
        if value is None or len(value) != _VALUE.size:
            self._note(f"partition {partition}: a value is not what was sent")
            return
        attempt, row, checksum = _VALUE.unpack(value)
        if checksum != zlib.crc32(struct.pack(">qi", attempt, row)) or row % PARTITIONS != partition:
            self._note(f"partition {partition}: a value is not what was sent there")
            return
        # A reader that runs in parallel must not see a transaction before its commit was requested.
        if self.fates[attempt] in (Fate.OPEN, Fate.ABORTED):
            self._note(f"attempt {attempt} is visible though it is {self.fates[attempt].value}")
        last_attempt, last_row = self._last.get(partition, (-1, -1))
        follows = row == last_row + PARTITIONS if attempt == last_attempt else row == partition
        if attempt < last_attempt or not follows:
            self._note(f"partition {partition}: row {row} of attempt {attempt} after {last_row} of {last_attempt}")
        self._last[partition] = attempt, row
        self._rows[attempt] += 1

    def verdict(self) -> list[str]:
        wrong = []
        for attempt, fate in enumerate(self.fates):
            seen = self._rows[attempt]
            expected = {Fate.COMMITTED: {ROWS}, Fate.UNKNOWN: {0, ROWS}}.get(fate, {0})
            if seen not in expected:
                wrong.append(f"attempt {attempt} is {fate.value} and {seen} of its {ROWS} records are visible")
        return self.problems + wrong

    def _note(self, text: str) -> None:
        if len(self.problems) < 20:
            self.problems.append(text)
