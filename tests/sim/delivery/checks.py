"""I13 and I15, checked against the logs as a read_committed reader sees them: each row once, nothing else.

The simulation's own decoder (`tests.sim.decoder`) reads the logs. A batch reported as lost is the exception: exactly
the named transactions are missing, and a replay adds the visible ones a second time. I15 is the same promise where an
assumption was broken: no row is lost or duplicated without an error or a warning that names it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from kafka_sink.commit.identity import TaskIdentity, code_of_run, parse_task_identity
from kafka_sink.commit.ledger import LedgerRecord
from kafka_sink.testing import BrokerCluster
from kafka_sink.testing.transaction_state import CoordinatorState
from tests.sim.checkers import read_log
from tests.sim.delivery.assumptions import Assumptions
from tests.sim.delivery.books import Attempt, Batch, Books
from tests.sim.delivery.breakers import UNNAMED
from tests.sim.delivery.checkpoint import Checkpoint
from tests.sim.delivery.ledger_log import ledger_entries
from tests.sim.delivery.plan import LABELLED
from tests.sim.history import Fate, History
from tests.sim.scenario import TOPICS
from tests.sim.trace import Violation

UNNAMED_PREFIX = "batch-"


class Checks:
    def __init__(
        self, core: BrokerCluster, books: Books, history: History, checkpoints: list[Checkpoint], kind: str,
        in_doubt: Collection[int], open_sinks: Collection[str] = (),
    ) -> None:  # fmt: skip
        """`in_doubt`: records that may be visible or not, because a partition forgot the end of their transaction.
        `open_sinks`: those that the ledger shows to an operator."""
        self.open_sinks = open_sinks
        self.books = books
        self.core = core
        self.checkpoints = checkpoints
        self.kind = kind
        self.views = [
            read_log((name, partition.index), partition.log, is_dead=False)
            for name in TOPICS
            for partition in core.cluster.topics[name].partitions
        ]
        self.history = history
        # Rows that a reader sees, by batch and by attempt.
        self._seen: dict[Batch, Counter[int]] = defaultdict(Counter)
        self._of_attempt: dict[str, Counter[int]] = defaultdict(Counter)
        # Copies of a row that may be visible or not; they do not count as seen.
        self._in_doubt: dict[Batch, Counter[int]] = defaultdict(Counter)
        self._in_doubt_of: dict[str, set[int]] = defaultdict(set)
        for number in in_doubt:
            attempt, row = books.records[number]
            self._in_doubt[attempt.batch][row] += 1
            self._in_doubt_of[attempt.name].add(row)
        for view in self.views:
            for number in view.visible:
                if number in in_doubt:
                    continue
                attempt, row = books.records[number]
                self._seen[attempt.batch][row] += 1
                self._of_attempt[attempt.name][row] += 1

    def check_all(self) -> None:
        for checkpoint in self.checkpoints:
            for batch in checkpoint.batches:
                if not batch.is_committed:
                    raise Violation("I12", f"{batch} was never committed")
        for batch in self.books.batches:
            self._check_losses(batch)
            if batch.must_be_there:
                self._check_delivered(batch)
            elif not batch.losses:
                self._check_dropped(batch)
        if self.kind != UNNAMED:
            self._check_generations()
        for attempt in self.books.attempts.values():
            self._check_attempt(attempt)
        self._check_decided()
        self._check_places()
        self._check_stable()

    def _promise(self, batch: Batch) -> str:
        return "I13" if len(self.books.generations(batch.key)) == 1 else "I15"

    def _check_delivered(self, batch: Batch) -> None:
        for row in range(batch.row_count):
            expected, seen = self._expected(batch, row), self._seen[batch][row]
            if not seen <= expected <= seen + self._in_doubt[batch][row]:
                raise Violation(self._promise(batch), f"row {row} of {batch} is seen {seen} times, not {expected}")

    def _expected(self, batch: Batch, row: int) -> int:
        kept = sum(row in self.books.attempts[name].rows for loss in batch.losses for name in loss.committed)
        return kept if batch.is_accepted else kept + 1

    def _check_dropped(self, batch: Batch) -> None:
        """A batch that was planned and then removed from the checkpoint is whole or absent. A write without a label may
        be visible in part if its driver died and nobody finished it in time: then the ledger shows it."""
        rows = [row for row in range(batch.row_count) if not self._in_doubt[batch][row]]
        counts = [self._seen[batch][row] for row in rows]
        if max(counts, default=0) > 1:
            raise Violation("I15", f"rows of {batch}, which was dropped, are seen {counts} times")
        if len(set(counts)) > 1 and not self._is_shown(batch):
            raise Violation("I15", f"{batch}, which was dropped, is visible in part: {counts}")

    def _is_shown(self, batch: Batch) -> bool:
        attempts = [attempt for attempt in self.books.attempts.values() if attempt.batch is batch]
        return self.kind == UNNAMED and any(attempt.own_identity.sink_id in self.open_sinks for attempt in attempts)

    def _check_generations(self) -> None:
        """At most one of all contents planned under a batch id is visible, apart from those reported as lost."""
        for key in {batch.key for batch in self.books.batches}:
            visible = [one for one in self.books.generations(key) if self._seen[one] and not one.losses]
            if len(visible) > 1:
                raise Violation("I15", f"{len(visible)} contents of {key} are visible: {[str(one) for one in visible]}")

    def _check_losses(self, batch: Batch) -> None:
        for loss in batch.losses:
            if not loss.is_resolved:
                raise Violation("I12", f"the loss of {batch} was not resolved")
            for name in loss.lost:
                if self._of_attempt[name]:
                    raise Violation("I13", f"{name} was said to be lost, but is visible")
            for name in loss.committed:
                if self._of_attempt[name].keys() | self._in_doubt_of[name] != set(self.books.attempts[name].rows):
                    raise Violation("I13", f"{name} was said to be committed, but is not visible")

    def _check_attempt(self, attempt: Attempt) -> None:
        seen = self._of_attempt[attempt.name]
        if not seen:
            return
        why = self.books.forbidden.get(attempt.name)
        if why is not None:
            raise Violation("I13", f"{attempt.name} is visible, although {why}")
        if attempt.receipt is None:
            raise Violation("I13", f"{attempt.name} is visible, but was never prepared")
        if dict(seen) != dict.fromkeys(set(attempt.rows) - self._in_doubt_of[attempt.name], 1):
            raise Violation("I13", f"{attempt.name} is torn: {len(seen)} of {len(attempt.rows)} rows")

    def _check_decided(self) -> None:
        """I23: whatever is decided, nobody of the sink asks to abort it. Operators and other clients may."""
        wrong = sorted((self.books.decided & self.books.aborted) - self.books.ended_by_others)
        if wrong:
            raise Violation("I23", f"{wrong} are part of a decision, and were aborted on request")

    def _check_places(self) -> None:
        """The offsets that tasks were told are right: I1 of the producer, checked here because receipts rely on it."""
        where = {
            number: (view.topic_partition, offset) for view in self.views for offset, number in view.offsets.items()
        }
        for record in self.history.records:
            if record.fate is not Fate.DELIVERED or record.offset < 0 or record.number in self.books.lost_records:
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


def check_nothing_is_open(core: BrokerCluster, assumptions: Assumptions, kind: str) -> None:
    """Directly after the last batch no transaction of a task is open, so no reader waits for a time-out.

    Exception: a run that died before it decided anything, if its first packet arrives after its successor's. No ledger
    knows which of the two is older, and aborting the younger could lose what it has prepared. Its transaction ends by
    its time-out, which `_check_stable` waits for. Also, nobody ends what a batch write without a name has left open.

    Labelled writes are not checked. Only writes of the same label know of each other, and there may be no later one:
    what an undecided run leaves when it dies, or a losing attempt begins after the sweep, ends by its time-out.
    """
    if kind == LABELLED:
        return
    found = ledger_entries(core, assumptions.lost_markers)
    entries = [entry.record for entry in reversed(found) if entry.is_committed]
    for transactional_id, transaction in core.coordinator.transactions.items():
        identity = parse_task_identity(transactional_id)
        if (
            identity is None
            or transaction.pending is not None
            or transaction.record.state is not CoordinatorState.ONGOING
        ):
            continue
        newest = next((record for record in entries if _is_about(record, identity)), None)
        is_known = newest is not None and identity.run in (newest.run, *newest.runs)
        if newest is not None and not is_known and transaction.record.start_ms >= newest.since_ms >= 0:
            continue
        if identity.sink_id.startswith(UNNAMED_PREFIX) or identity.sink_id in assumptions.abandoned:
            continue
        raise Violation("I13", f"{transactional_id} is open, and nobody will end it")


def _is_about(record: LedgerRecord, identity: TaskIdentity) -> bool:
    is_of_label = isinstance(record.key.batch_id, str)
    is_of_same_label = code_of_run(record.run) == code_of_run(identity.run) != ""
    return record.sink_id == identity.sink_id and (not is_of_label or is_of_same_label)
