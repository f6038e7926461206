"""I13, against the logs as a read_committed reader finds them: each row of each batch once, and nothing else.

Readings are those of the simulation's own decoder (`tests.sim.decoder`). A lost batch is the exception that was said
aloud: of it exactly the named transactions are missing, and a replay adds the visible ones a second time.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from kafka_sink.delivery.identity import parsed_task_identity
from kafka_sink.testing import BrokerCluster
from kafka_sink.testing.transaction_state import State
from tests.sim.checkers import read_log
from tests.sim.delivery.books import Attempt, Batch, Books
from tests.sim.delivery.ledger_log import ledger_entries
from tests.sim.history import Fate, History
from tests.sim.scenario import TOPICS
from tests.sim.trace import Violation


class Checks:
    def __init__(self, core: BrokerCluster, books: Books, history: History) -> None:
        self.books = books
        self.core = core
        self.views = [
            read_log((name, partition.index), partition.log, is_dead=False)
            for name in TOPICS
            for partition in core.cluster.topics[name].partitions
        ]
        self.history = history
        # Rows that a reader sees, by batch and by attempt.
        self._seen: dict[Batch, Counter[int]] = defaultdict(Counter)
        self._of_attempt: dict[str, Counter[int]] = defaultdict(Counter)
        for view in self.views:
            for number in view.visible:
                attempt, row = books.records[number]
                self._seen[books.batch(attempt.key)][row] += 1
                self._of_attempt[attempt.transactional_id][row] += 1

    def check_all(self) -> None:
        for batch in self.books.batches:
            self._check_losses(batch)
            self._check_batch(batch)
        for attempt in self.books.attempts.values():
            self._check_attempt(attempt)
        self._check_places()
        self._check_stable()

    def _check_batch(self, batch: Batch) -> None:
        if not batch.is_committed:
            raise Violation("I12", f"{batch.key} was never committed")
        for row in range(batch.row_count):
            expected, seen = self._expected(batch, row), self._seen[batch][row]
            if seen != expected:
                raise Violation("I13", f"row {row} of {batch.key} is seen {seen} times, not {expected}")

    def _expected(self, batch: Batch, row: int) -> int:
        kept = sum(
            row in self.books.attempts[transactional_id].rows
            for loss in batch.losses
            for transactional_id in loss.committed
        )
        return kept if batch.is_accepted else kept + 1

    def _check_losses(self, batch: Batch) -> None:
        for loss in batch.losses:
            if not loss.is_resolved:
                raise Violation("I12", f"the loss of {batch.key} was not resolved")
            for transactional_id in loss.lost:
                if self._of_attempt[transactional_id]:
                    raise Violation("I13", f"{transactional_id} was said to be lost, but is visible")
            for transactional_id in loss.committed:
                if len(self._of_attempt[transactional_id]) != len(self.books.attempts[transactional_id].rows):
                    raise Violation("I13", f"{transactional_id} was said to be committed, but is not visible")

    def _check_attempt(self, attempt: Attempt) -> None:
        seen = self._of_attempt[attempt.transactional_id]
        if not seen:
            return
        why = self.books.forbidden.get(attempt.transactional_id)
        if why is not None:
            raise Violation("I13", f"{attempt.transactional_id} is visible, although {why}")
        if attempt.receipt is None:
            raise Violation("I13", f"{attempt.transactional_id} is visible, but was never prepared")
        if dict(seen) != dict.fromkeys(attempt.rows, 1):
            raise Violation("I13", f"{attempt.transactional_id} is torn: {len(seen)} of {len(attempt.rows)} rows")

    def _check_places(self) -> None:
        """What a task was told of where its rows are; I1 of the producer, here because receipts rest on it."""
        where = {
            number: (view.topic_partition, offset) for view in self.views for offset, number in view.offsets.items()
        }
        for record in self.history.records:
            if record.fate is not Fate.DELIVERED or record.offset < 0:
                continue
            if where.get(record.number) != (record.topic_partition, record.offset):
                raise Violation("I1", f"{record} is not at offset {record.offset}")

    def _check_stable(self) -> None:
        for name in TOPICS:
            for partition in self.core.cluster.topics[name].partitions:
                log = partition.log
                if not log.last_stable_offset == log.high_watermark == log.end_offset:
                    marks = (log.last_stable_offset, log.high_watermark, log.end_offset)
                    raise Violation("I12", f"{name}-{partition.index}: stable, replicated and end offset are {marks}")


def check_nothing_is_open(core: BrokerCluster) -> None:
    """Right after the last batch, before any time-out: a reader waits for nobody.

    Except for a run that died before it decided anything, if its first packet comes after its successor's: no ledger
    knows which of the two is the older, and to abort the younger could lose what it has prepared. That one ends by its
    time-out, which `_check_stable` waits for.
    """
    newest = next((entry.record for entry in reversed(ledger_entries(core)) if entry.is_committed), None)
    for transactional_id, transaction in core.coordinator.transactions.items():
        identity = parsed_task_identity(transactional_id)
        if identity is None or transaction.pending is not None or transaction.record.state is not State.ONGOING:
            continue
        is_known = newest is not None and identity.run in (newest.run, *newest.runs)
        if newest is not None and not is_known and transaction.record.start_ms >= newest.since_ms >= 0:
            continue
        raise Violation("I13", f"{transactional_id} is open, and nobody will end it")
