"""Aborts transactions that no one else will end: of losing speculative attempts, killed attempts and crashed runs.

An open transaction holds back every read_committed reader of its partitions until its time-out, minutes later. After a
batch is done or aborted, none of this run's transactions should be open, so all of them are aborted. So are those of
runs that the ledger lists as replaced: their decisions were finished first, and they can decide nothing any more. Those
of another run are aborted only if they began before this run's first transaction, by the brokers' clock: a run that
began later is a successor, and aborting its prepared transactions could lose its rows.

Each is ended by its exact producer id and epoch from DescribeTransactions. InitProducerId would need neither, but it
refers to no particular transaction: a late one aborts what the next batch has prepared under the same id. Without
ListTransactions the exact ids are unknown, so nothing is swept; the next attempt under an id aborts its open
transaction.

The open transactions are listed in parallel with other requests of a commit (`open_transactions`), while it decides and
ends its own. That is early enough: later ones are swept after the next batch. Ids of the decision are excluded,
whatever a broker lists: no other transaction begins under them before the commit is over. Transactions of a decision
that is still open in the ledger are excluded one by one, by producer id and epoch: tasks of the next batch use the same
ids, and one of them may have been killed.

One list is not enough after a job that failed or was cancelled: a task's Python worker outlives the task, and may begin
its transaction after the list was made. So the sweep is repeated until nothing new was found for as long as such
workers live (`DeliverySettings.late_tasks_ms`). A batch whose tasks have all ended is swept once.

The abort needs brokers that verify transactions. In transaction version 1 it does not bump the epoch, and brokers
before 3.6 accept a late Produce of the killed task: it opens a transaction that no coordinator knows (a hanging
transaction), and readers stop there permanently. The coordinator's own abort at the time-out bumps the epoch. So on
such brokers nothing is swept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kafka_sink.commit.commit_step import CommitStep, StepChain
from kafka_sink.commit.describe_transactions import DescribeTransactions, TransactionDescription
from kafka_sink.commit.end_txn import AbortTransactions
from kafka_sink.commit.identity import code_of_run, parse_task_identity
from kafka_sink.commit.ledger import UNKNOWN_TIME, Kind, LedgerRecord, LedgerState
from kafka_sink.commit.listing import OpenTransactions
from kafka_sink.commit.messages import NAMED_MAX
from kafka_sink.commit.receipt import PreparedTransaction
from kafka_sink.commit.session import DeliverySettings, DriverOperation, DriverSession, Job
from kafka_sink.frozen import frozen
from kafka_sink.kafka.wire.apis import ONGOING

# Reported once per process, because it does not change.
NOT_VERIFIED = (
    "these brokers (before Kafka 3.6, or with transaction.partition.verification.enable=false) do not verify "
    "transactions, so those left open by killed tasks are not aborted: they end by their own time-out, and readers of "
    "their partitions wait until then"
)
NOT_LISTED = (
    "the brokers do not speak ListTransactions: transactions left open by killed tasks end by their own time-out or "
    "when their id is used again"
)
# While tasks may begin transactions: between two lists.
LIST_AGAIN_MS = 500


@frozen
class SweepRule:
    """`own_run` is None for an operator's command, which ends the transactions of `stopped_runs` (`Job`).
    `named_sink_id`: the sink id under which 0.1.0 kept this stream, perhaps with others; only its runs in the ledger
    count as replaced."""

    sink_id: str
    own_run: str | None
    since_ms: int
    replaced_runs: tuple[str, ...] = ()
    named_sink_id: str = ""
    # Labels may be written concurrently under one sink id: only runs of the same one can be over.
    is_of_label: bool = False
    stopped_runs: frozenset[str] = frozenset()

    def is_candidate(self, transactional_id: str) -> bool:
        identity = parse_task_identity(transactional_id)
        if identity is None:
            return False
        if identity.sink_id == self.sink_id:
            return self._is_over(identity.run) or (self.since_ms >= 0 and self._is_an_elder(identity.run))
        return identity.sink_id == self.named_sink_id and identity.run in self.replaced_runs

    def is_dangling(self, found: TransactionDescription) -> bool:
        identity = parse_task_identity(found.transactional_id)
        if identity is None or found.state != ONGOING or not self.is_candidate(found.transactional_id):
            return False
        return self._is_over(identity.run) or 0 <= found.start_ms < self.since_ms

    def _is_an_elder(self, run: str) -> bool:
        """A run of this line. Those of other labels may be alive, or decided and not finished yet, whenever they
        began."""
        return self.own_run is not None and code_of_run(run) == (code_of_run(self.own_run) if self.is_of_label else "")

    def _is_over(self, run: str) -> bool:
        if self.own_run is None:
            return run in self.stopped_runs
        return run == self.own_run or run in self.replaced_runs


def sweep_rule(session: DriverSession, newest: LedgerRecord | None, job: Job) -> SweepRule:
    """`newest`: the newest record of the batch's ledger key."""
    is_operators = job.operation in (DriverOperation.SWEEP, DriverOperation.FINISH)
    own_run = None if is_operators else session.run
    rule = SweepRule(
        session.sink_id, own_run, UNKNOWN_TIME, named_sink_id=session.named_sink_id, stopped_runs=job.stopped_runs
    )
    is_of_label = job.key is not None and isinstance(job.key.batch_id, str)
    # A run writes only one label: once that is delivered, every run of it is over.
    if newest is None or not (newest.run == session.run or (is_of_label and newest.kind is Kind.DONE)):
        return rule
    runs = (*newest.runs, newest.run)
    since_ms = newest.since_ms
    if newest.run != session.run and job.receipts:
        # Delivered by another run. One in between, which was repeating it and was killed, is in no record: its
        # transactions would stay open. None of this label is committed any more, so a wrong clock does no harm; only
        # a run that is repeating it at this moment, and began later, would have to start its tasks again.
        age_ms = max(receipt.timeout_ms - receipt.remaining_ms for receipt in job.receipts)
        since_ms = max(since_ms, job.wall_ms - age_ms)
    return replace(rule, since_ms=since_ms, replaced_runs=runs, is_of_label=is_of_label)


def decided_transactions(ledger: LedgerState | None) -> list[PreparedTransaction]:
    """Of decisions that are not closed. User code that catches a commit's error goes on: then a batch is aborted, and
    the one before is not finished."""
    intents = () if ledger is None else ledger.newest_of(Kind.INTENT)
    return [one for each in intents for one in each.transactions]


def open_transactions(settings: DeliverySettings, now_ms: int) -> OpenTransactions:
    """Begun, if what it lists could be aborted. Of every sink: the rule of the sweep selects."""
    listing = OpenTransactions(settings, None, [ONGOING])
    if can_end_safely(settings):
        return listing.begin(now_ms)
    listing.notes.append(NOT_VERIFIED)
    return listing


def can_end_safely(settings: DeliverySettings) -> bool:
    return settings.transaction_version > 1 or settings.brokers_verify


class Sweep(StepChain):
    """Lists, describes and aborts; any failure is a note, never an error. `listing` has begun. `own`: what this
    operation has decided. What is listed as open under one of these ids is committed by now, or has to be.
    `decided`: those of earlier decisions. `late_ms`: how long it is repeated after the last find."""

    def __init__(
        self,
        settings: DeliverySettings,
        rule: SweepRule,
        listing: OpenTransactions,
        *,
        own: Iterable[PreparedTransaction] = (),
        decided: Iterable[PreparedTransaction] = (),
        late_ms: int = 0,
    ) -> None:
        super().__init__(settings, listing)
        # Everything was looked at, and nothing is left open.
        self.is_complete = False
        self._rule = rule
        self._own_ids = {one.transactional_id for one in own}
        self._decided = {(one.transactional_id, one.identity) for one in decided}
        self._notes = listing.notes
        self._swept: dict[str, None] = {}
        self._late_ms = late_ms
        self._listed_ms = self._quiet_at_ms = 0
        # Brokers list transactions, and aborting them does no harm.
        self._can_find = can_end_safely(settings)

    def ask_first(self, now_ms: int) -> None:
        self._listed_ms, self._quiet_at_ms = now_ms, now_ms + self._late_ms
        self.advance(now_ms)

    @property
    def notes(self) -> list[str]:
        left_open = self.current.left_open if isinstance(self.current, AbortTransactions) else {}
        told = [f"transaction {name} was left open: {reason}" for name, reason in sorted(left_open.items())]
        return self._notes + told[:NAMED_MAX]

    @property
    def swept(self) -> tuple[str, ...]:
        aborting = self.current.aborted if isinstance(self.current, AbortTransactions) else ()
        return tuple(dict.fromkeys((*self._swept, *aborting)))

    def after(self, now_ms: int, finished: CommitStep) -> CommitStep | None:
        if isinstance(finished, OpenTransactions):
            return self._describe(now_ms, finished) or self._again(now_ms, finished)
        if isinstance(finished, DescribeTransactions):
            return self._abort(now_ms, finished)
        return self._again(now_ms, finished)

    def _again(self, now_ms: int, finished: CommitStep) -> OpenTransactions | None:
        """The next list, while a task may have begun a transaction after the last one."""
        found = finished.aborted if isinstance(finished, AbortTransactions) else ()
        self._swept.update(dict.fromkeys(found))
        if found and self._late_ms:
            self._quiet_at_ms = now_ms + self._late_ms
        has_all = not self.notes
        if not self._late_ms or not self._can_find or (has_all and self._listed_ms >= self._quiet_at_ms):
            self.is_complete = has_all
            return None
        self._listed_ms = now_ms + LIST_AGAIN_MS
        listing = open_transactions(self.settings, self._listed_ms)
        self._notes = listing.notes
        return listing

    def _describe(self, now_ms: int, listing: OpenTransactions) -> DescribeTransactions | None:
        if not listing.is_supported:
            self._can_find = False
            self._notes.append(NOT_LISTED)
        elif listing.failure is not None:
            self._can_find = False
            self._notes.append(f"dangling transactions could not be looked for: {listing.failure}")
        ids = [name for name in listing.ids if self._rule.is_candidate(name) and name not in self._own_ids]
        return DescribeTransactions(self.settings, ids).begin(now_ms) if ids else None

    def _abort(self, now_ms: int, described: DescribeTransactions) -> AbortTransactions:
        if described.failure is not None:
            self._can_find = False
            self._notes.append(f"dangling transactions could not be described: {described.failure}")
        version = self.settings.transaction_version
        written = {
            PreparedTransaction(found.transactional_id, *found.identity, version): found.partitions
            for found in described.found.values()
            if self._rule.is_dangling(found) and (found.transactional_id, found.identity) not in self._decided
        }
        return AbortTransactions(self.settings, written).begin(now_ms)
