"""What one operation of the driver needs, keeps for the next one, and says at its end.

Settings and Job are read only. The `DriverSession` is what a process may keep between the batches of one run: the
driver's producer id and epoch, and what the ledger said when they were fenced in. Whoever has lost it (another process,
a restart) makes a new one and pays one InitProducerId and one reading of the ledger; nothing relies on having it, and
nothing relies on its being true: Spark commits the next batch in any process, and what this one knows is then old.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kafka_sink.error_table.writes import SPARK_UNEXPECTED
from kafka_sink.errors import KafkaSinkError, LocalProtocolError
from kafka_sink.exactly_once.identity import driver_transactional_id
from kafka_sink.exactly_once.ledger import LedgerState
from kafka_sink.exactly_once.receipt import BatchKey, BatchSummary, TaskReceipt


class OnMismatch(Enum):
    """What to do when a batch that was delivered comes again with other rows; the values are those of the option."""

    FAIL = "fail"
    WARN = "warn"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """`transaction_version` of the cluster: 2 if the feature is finalised at 2 or more (KIP-890), else 1."""

    ledger_topic: str = "__pykafka_sink_ledger"
    ledger_partition: int = 0
    # Of the brokers that are asked; empty if they do not tell.
    cluster_id: str = ""
    transaction_version: int = 2
    # A record that arrives after the end of its transaction is refused; see sweep.py.
    brokers_verify: bool = True
    # Time a transaction must have left at the decision; a restart of the query has to fit into it.
    margin_ms: int = 60_000
    # Bounds everything that no transaction's deadline bounds: recovery, aborting, resolving.
    patience_ms: int = 120_000
    # The sweep is a courtesy to readers and never makes a batch late by more than this.
    sweep_ms: int = 5_000
    # For so long a commit waits until readers can see its rows; 0: it does not ask.
    visible_ms: int = 0
    request_timeout_ms: int = 30_000
    # Of the driver's own transactions, which hold one record each; less where the brokers do not allow it.
    driver_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    # While markers are being written (code 51).
    markers_backoff_ms: int = 20
    backoff_max_ms: int = 1_000
    # For so long a log that ends before what it acknowledged is taken for the word of an outdated leader.
    short_log_ms: int = 60_000
    parallel_requests: int = 100
    # A stream whose batch number is above 0 but which the ledger does not know is refused unless this is set.
    accept_unknown_sink: bool = False
    on_mismatch: OnMismatch = OnMismatch.FAIL

    @property
    def ledger_title(self) -> str:
        return f"ledger {self.ledger_topic}-{self.ledger_partition}"


class DriverOperation(Enum):
    COMMIT = "commit"  # receipts of one batch, with the ledger: C0 to C5
    COMMIT_WITHOUT_LEDGER = "commit without ledger"  # batch writes without an id: C2 and C4
    ABORT = "abort"
    ABORT_WITHOUT_LEDGER = "abort without ledger"
    RECOVER = "recover"  # at planning: finish an open decision, fence nobody
    FINISH = "finish"  # fence, finish an open decision, record it: `pykafka-sink recover`
    SWEEP = "sweep"  # fence, finish, abort every open transaction of the sink
    ACCEPT = "accept"  # the operator takes a lost batch as it is
    REPLAY = "replay"  # the operator has a lost batch run again


# A process that lives long remembers the decisions of its last batches; older ones are in the ledger.
DECISIONS_MAX = 64


class DriverIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int


class Decision(Enum):
    """What this process knows about a batch it tried to commit."""

    NONE = "none"  # certainly no decision: its transactions may be aborted
    IN_DOUBT = "in doubt"
    MADE = "made"


@dataclass(slots=True)
class DriverSession:
    """Of one run of one sink in one process. Plain values; picklable."""

    sink_id: str
    run: str = ""
    # The sink as the user named it, or "": for a stream `sink_id` has the query in it.
    named_sink_id: str = ""
    # For people; it stands in the records of the ledger.
    label: str = ""
    identity: DriverIdentity | None = None
    # The identity has been used: in transaction version 1 the next transaction asks for a new epoch first.
    is_used: bool = False
    # What the brokers allowed in place of `driver_timeout_ms`.
    allowed_timeout_ms: int | None = None
    ledger: LedgerState | None = None
    decisions: dict[BatchKey, Decision] = field(default_factory=dict)
    # The offset of the first claim of this run, and the runs that were there before it.
    claimed_at: int | None = None
    elders: frozenset[str] = frozenset()
    # The ledger has shown decisions of the release before, and its driver has been fenced.
    has_older_driver: bool = False
    older_is_fenced: bool = False

    @property
    def transactional_id(self) -> str:
        return driver_transactional_id(self.sink_id)

    @property
    def sink_ids(self) -> frozenset[str]:
        return frozenset({self.sink_id, self.named_sink_id})

    def remember(self, key: BatchKey, decision: Decision) -> None:
        self.decisions.pop(key, None)
        self.decisions[key] = decision
        while len(self.decisions) > DECISIONS_MAX:
            del self.decisions[next(iter(self.decisions))]

    def note_claim(self, ledger: LedgerState, claimed_at: int) -> None:
        """What this run found when it came first; all that comes later is younger."""
        if self.claimed_at is None:
            # The claim that was answered may be a repeat of one whose answer was lost, or that of another process of
            # this run. The first one counts: every other run goes by that one, too.
            self.claimed_at = min(claimed_at, ledger.claims.get(self.run, claimed_at))
            decided = {run for record in ledger.newest.values() for run in (record.run, *record.runs)}
            younger = {run for run, offset in ledger.claims.items() if offset > self.claimed_at}
            self.elders = frozenset(decided | set(ledger.claims)) - younger - {self.run}

    def successor(self, ledger: LedgerState) -> str | None:
        """A run that claimed the ledger after this one had come, or None. An elder that comes back is not one: it has
        been replaced and will notice. Nor is a command of an operator, who names no run."""
        if self.claimed_at is None:
            return None
        for run, offset in ledger.claims.items():
            if run and run != self.run and run not in self.elders and offset > self.claimed_at:
                return run
        return None

    def timeout_ms(self, settings: DeliverySettings) -> int:
        return settings.driver_timeout_ms if self.allowed_timeout_ms is None else self.allowed_timeout_ms

    def forget_identity(self) -> None:
        """Somebody else may be the driver now, or the coordinator's epoch is unknown: fence and read again."""
        self.identity = None
        self.ledger = None
        self.is_used = False


@dataclass(frozen=True, slots=True)
class Job:
    """One operation on one batch. `wall_ms` goes into records for people to read, and into nothing else."""

    operation: DriverOperation
    key: BatchKey | None = None
    receipts: Sequence[TaskReceipt] = ()
    wall_ms: int = 0

    @property
    def has_transactions(self) -> bool:
        return any(receipt.transaction is not None for receipt in self.receipts)

    def prepared_receipts(self, run: str) -> list[TaskReceipt]:
        """The receipts with a transaction."""
        prepared = [receipt for receipt in self.receipts if receipt.transaction is not None]
        for receipt in prepared:
            if receipt.key != self.key or receipt.run != run:
                raise LocalProtocolError(
                    f"a receipt of run {receipt.run!r} and {receipt.key} was handed in for run {run!r} and {self.key}",
                    SPARK_UNEXPECTED,
                )
        return prepared

    @property
    def opens_a_stream(self) -> bool:
        """A stream's first batch is recorded even if it has no rows: a ledger that knows nothing of a stream in its
        later batches was deleted, or is another one."""
        return self.operation is DriverOperation.COMMIT and self.key is not None and self.key.is_first


class Conclusion(Enum):
    DELIVERED = "delivered"
    ALREADY_DELIVERED = "already delivered"  # by an earlier run; this run's transactions were aborted
    NOTHING_TO_DO = "nothing to do"
    ABORTED = "aborted"
    LEFT_ALONE = "left alone"  # abort() found a decision, or could not rule one out; what it names was not aborted
    RECOVERED = "recovered"
    RESOLVED = "resolved"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CommitResult:
    """How an operation ended. `error` is set exactly when it is FAILED; raise it."""

    conclusion: Conclusion
    error: KafkaSinkError | None = None
    summary: BatchSummary | None = None
    # Transactional ids that the sweep aborted.
    swept: tuple[str, ...] = ()
    # Things an operator should read once: a fallback, a sweep that could not be done.
    notes: tuple[str, ...] = ()
