"""What one operation of the driver needs, keeps for the next one, and says at its end.

Settings and Job are read-only. The `DriverSession` is what a process may keep between the batches of one run: the
driver's producer id and epoch, and the ledger as it was when they were obtained. A process without one (after a
restart, or another process) makes a new one at the cost of one InitProducerId and one read of the ledger. Nothing
relies on having it or on its being current: Spark may commit the next batch in any process, and this one is then out of
date.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from kafka_sink.commit.command_texts import UNKNOWN_BROKERS, BrokerArguments, CommandTexts
from kafka_sink.commit.identity import Line
from kafka_sink.commit.ledger import Kind, LedgerRecord, LedgerState, line_of
from kafka_sink.commit.manifest import Manifest
from kafka_sink.commit.receipt import BatchKey, BatchSummary, TaskReceipt
from kafka_sink.errors import KafkaSinkError, LocalProtocolError
from kafka_sink.errors.table.writes import SPARK_UNEXPECTED
from kafka_sink.kafka.client.ask import Leader
from kafka_sink.kafka.client.backoff import MARKERS_BACKOFF_MS
from kafka_sink.kafka.client.producer_identity import ProducerIdentity
from kafka_sink.options.sink_options import DEFAULT_LEDGER


class OnMismatch(Enum):
    """What to do when a batch that was delivered comes again with other rows; the values are those of the option."""

    FAIL = "fail"
    WARN = "warn"
    SKIP = "skip"


# The part of a transaction's timeout that must be left at the decision, so that a restart can still carry it out.
MARGIN_MS_MAX, MARGIN_SHARE = 60_000, 4


def margin_ms(timeout_ms: int) -> int:
    return min(MARGIN_MS_MAX, timeout_ms // MARGIN_SHARE)


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """`transaction_version` of the cluster: 2 if the feature is finalised at 2 or more (KIP-890), else 1."""

    ledger_topic: str = DEFAULT_LEDGER
    # For the commands in texts.
    brokers: BrokerArguments = UNKNOWN_BROKERS
    # Cluster id that the brokers report; empty if they report none.
    cluster_id: str = ""
    transaction_version: int = 2
    # By how much a fence or a time-out may raise the epoch of the transaction that it aborts. 2 with Kafka 4.0.0
    # (KAFKA-19367).
    fence_raises_max: int = 1
    # A transaction may begin with the epoch that the end of the last one gave (`NodeSet.epoch_of_end_is_safe`).
    epoch_of_end_is_safe: bool = True
    # Brokers reject a record that arrives after the end of its transaction; see sweep.py.
    brokers_verify: bool = True
    # Time a transaction must have left at the decision; a restart of the query must fit into it.
    margin_ms: int = 60_000
    # Limits whatever has no transaction's deadline: recovery, aborting, resolving.
    patience_ms: int = 120_000
    # The sweep only helps readers and never delays a batch by more than this.
    sweep_ms: int = 5_000
    # How long tasks of a failed job may still begin transactions. Spark looks every 2 s for tasks that it has cancelled
    # and destroys their Python workers spark.python.task.killTimeout (2 s) later; 1 s is for requests on their way. The
    # sweep goes on until nothing new was found for this time, and for twice this time at most.
    late_tasks_ms: int = 5_000
    # How long a commit waits for its rows to become visible to readers; 0: it does not check.
    visible_ms: int = 0
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    # While markers are being written (code 51).
    markers_backoff_ms: int = MARKERS_BACKOFF_MS
    backoff_max_ms: int = 1_000
    # How long a log end below an acknowledged offset is attributed to an outdated leader, and a topic that brokers do
    # not know to brokers that have not heard of it yet. After a search of a log for so long another one
    # would end like it.
    short_log_ms: int = 60_000
    parallel_requests: int = 100
    # The deadline is short, and a decision that is found open may have a driver with more time, or a next start: it is
    # not committed into a partition without a leader only because this deadline is over.
    is_help: bool = False
    # For how long the request that decides is repeated although it is refused, if an earlier try may have been carried
    # out. Within that a broker that alone refuses a login is tried again (`REFUSED_BACKOFF_MS` and a fifth).
    refused_ms: int = 75_000
    # How often a commit looks whether the ledger still keeps its decisions, and at its first one; 0: never.
    ledger_look_ms: int = 0
    # A stream that is not in the ledger although its batch number is above 0 is refused unless this is set.
    accept_unknown_sink: bool = False
    on_mismatch: OnMismatch = OnMismatch.FAIL

    @property
    def begins_with_new_epoch(self) -> bool:
        """A transaction of the driver, after another one. Else a late request or marker of that one could end it."""
        return self.transaction_version == 1 or not self.epoch_of_end_is_safe

    @property
    def ledger(self) -> Leader:
        """The topic has one partition."""
        return Leader(self.ledger_topic, 0)

    def line_of(self, sink_id: str, key: BatchKey) -> Line:
        return line_of(sink_id, key, self.ledger_topic)

    @property
    def commands(self) -> CommandTexts:
        return CommandTexts(self.brokers, self.ledger_topic)

    @property
    def ledger_title(self) -> str:
        return f"ledger {self.ledger_topic}-0"


class DriverOperation(Enum):
    COMMIT = "commit"  # receipts of one batch: C0 to C5
    ABORT = "abort"
    RECOVER = "recover"  # at planning: finish an open decision, do not fence
    FINISH = "finish"  # fence, finish an open decision, record it: `pykafka-sink recover`
    SWEEP = "sweep"  # fence, finish, abort open transactions of the sink
    ACCEPT = "accept"  # the operator accepts a lost batch as it is
    REPLAY = "replay"  # the operator has a lost batch run again


# Of the driver's own transactions: what a record needs.
OWN_TIMEOUT_MS_MIN = 1_000
# How long leaders that told of too many producers are not asked again.
CROWDED_MS = 600_000


@dataclass(slots=True)
class DriverSession:
    """State of one run of one line in one process. Plain values; picklable."""

    sink_id: str
    run: str = ""
    # The sink id as the user set it, or "": a stream's `sink_id` contains the query.
    named_sink_id: str = ""
    # The query writes to this sink alone: its own writer, not foreachBatch. So no other sink can have its records.
    is_only_sink: bool = False
    # For people; it is part of the ledger records.
    label: str = ""
    # Of a labelled write: the code of that label (`Line`).
    code: str = ""
    identity: ProducerIdentity | None = None
    # The epoch has been used: unless it can go on (`DeliverySettings.begins_with_new_epoch`), the next transaction
    # requests a new one first.
    is_used: bool = False
    # Timeout of the driver's own transactions, of one record each; less where the brokers do not allow it, and no more
    # than the margin.
    timeout_ms: int = 60_000
    ledger: LedgerState | None = None
    # When this process has last seen that the ledger's topic is compacted.
    ledger_seen_ms: int | None = None
    # When the leaders told of so many producers that asking them takes longer than the rest of a commit.
    crowded_ms: int | None = None
    # They were asked, and told of so few that they may be asked at once about all partitions.
    has_few_producers: bool = False
    # The runs before this run's first claim; None: it has not claimed.
    elders: frozenset[str] | None = None
    # As in `LedgerState`: a driver of an earlier release, and up to which sign of it that driver has been fenced.
    older_sink_id: str = ""
    older_offset: int = -1
    older_fenced: int = -1

    @property
    def line(self) -> Line:
        return Line(self.sink_id, self.code)

    @property
    def transactional_id(self) -> str:
        return self.line.driver_id

    def note_older(self, ledger: LedgerState) -> None:
        self.older_sink_id, self.older_offset = ledger.older_sink_id, ledger.older_offset

    @property
    def query_suffix(self) -> str:
        """The end of every sink id under which this query may have written; empty if others may have it as well."""
        return self.sink_id.removeprefix(self.named_sink_id) if self.is_only_sink and self.named_sink_id else ""

    def looks_at_ledger(self, settings: DeliverySettings, now_ms: int) -> bool:
        seen_ms = self.ledger_seen_ms
        return settings.ledger_look_ms > 0 and (seen_ms is None or now_ms - seen_ms >= settings.ledger_look_ms)

    def asks_leaders(self, now_ms: int) -> bool:
        return self.crowded_ms is None or now_ms - self.crowded_ms >= CROWDED_MS

    def note_claim(self, ledger: LedgerState, claimed_at: int) -> None:
        """Notes what was there at this run's first claim; later claims are of younger runs."""
        if self.elders is None:
            # The acknowledged claim may be a retry after a lost response, or follow one of another process of this run.
            # The first one counts, as it does for every other run.
            first_at = min(claimed_at, ledger.claims.get(self.run, claimed_at))
            decided = {run for record in ledger.newest.values() for run in (record.run, *record.runs)}
            younger = {run for run, offset in ledger.claims.items() if offset > first_at}
            self.elders = frozenset(decided | set(ledger.claims)) - younger - {self.run}

    def successor(self, ledger: LedgerState) -> str | None:
        """A run that claimed the ledger after this run's first claim, or None. An older run that claims again does not
        count: it has been replaced and will notice. Nor does an operator's command, whose claim has no run."""
        if self.elders is None:
            return None
        return next((run for run in ledger.claims if run not in (*self.elders, self.run, "")), None)

    def limit_timeout(self, margin_ms: int) -> None:
        """The request that ends the intent's transaction may be held up on its way. When the margin is over it must not
        decide any more: the transactions that the intent names may have timed out."""
        self.timeout_ms = min(self.timeout_ms, max(margin_ms, OWN_TIMEOUT_MS_MIN))

    def forget_identity(self) -> None:
        """There may be another driver now, or the current epoch is unknown: fence and read again."""
        self.identity = None
        self.ledger = None
        self.is_used = False


@dataclass(frozen=True, slots=True)
class Job:
    """One operation on one batch. `wall_ms` is written to records for people; else it counts only where a wrong clock
    does no harm: which leftovers of a delivered label its repetition aborts (`sweep_rule`)."""

    operation: DriverOperation
    key: BatchKey | None = None
    receipts: Sequence[TaskReceipt] = ()
    wall_ms: int = 0
    # ABORT: a commit of this batch may have begun.
    may_be_decided: bool = True
    # SWEEP: runs whose open transactions are aborted. They were stopped before their lines were fenced and finished.
    stopped_runs: frozenset[str] = frozenset()
    # Some task of the batch left no message. Its process may live on, and begin a transaction.
    has_late_tasks: bool = False
    # COMMIT: what is written beside the record that closes the decision, without what the receipts say.
    manifest: Manifest | None = None
    # COMMIT: for how long its transactions can have been open at most when it begins, by this host's own clocks. None:
    # not known.
    age_max_ms: int | None = None
    # COMMIT: the process lives on after its result, and writes `CommitResult.closing` then.
    may_close_later: bool = False

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

    def has_decided(self, record: LedgerRecord) -> bool:
        """The decision is about the transactions at hand. Another write of the same batch has others."""
        own = {receipt.transaction for receipt in self.receipts if receipt.transaction is not None}
        return self.operation is DriverOperation.COMMIT and own == set(record.transactions)

    @property
    def is_recorded(self) -> bool:
        """Even if no task has written anything: readers wait for the manifest of every batch."""
        return self.has_transactions or self.opens_a_stream or self.manifest is not None

    def closes_later(self, decided: LedgerRecord, closing: LedgerRecord, settings: DeliverySettings) -> bool:
        """The end of a transaction of version 2 takes its epoch with it, so whoever finds this decision open can end it
        once more, whatever has begun under its ids since. In version 1 the record stays a part of the commit. So it
        does for batch writes, which may have no next commit, and for a batch of which something is missing."""
        versions = {settings.transaction_version, *(entry.transaction_version for entry in decided.entries)}
        is_of_stream = self.key is not None and isinstance(self.key.batch_id, int)
        return self.may_close_later and is_of_stream and versions == {2} and closing.kind is Kind.DONE

    @property
    def opens_a_stream(self) -> bool:
        """A stream's first batch is recorded even if it has no rows: if the stream is missing from the ledger at a
        later batch, the ledger was deleted or is another one."""
        return self.operation is DriverOperation.COMMIT and self.key is not None and self.key.is_first


class Conclusion(Enum):
    DELIVERED = "delivered"
    ALREADY_DELIVERED = "already delivered"  # by an earlier run; this run's transactions were aborted
    NOTHING_TO_DO = "nothing to do"
    ABORTED = "aborted"
    LEFT_ALONE = "left alone"  # abort() found a decision, or could not rule one out; its transactions were not aborted
    RECOVERED = "recovered"  # also: abort() of a batch write found its decision, and all of it is committed
    RESOLVED = "resolved"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CommitResult:
    """How an operation ended. `error` is set if and only if it is FAILED; the caller raises it."""

    conclusion: Conclusion
    error: KafkaSinkError | None = None
    summary: BatchSummary | None = None
    # Transactional ids aborted by the sweep.
    swept: tuple[str, ...] = ()
    # Things an operator should read once: a fallback, a sweep that could not be done.
    notes: tuple[str, ...] = ()
    # No transaction of the batch is open, and no task of it can begin another one.
    is_swept: bool = False
    # RECOVER: open decisions of batch writes without a label, by any driver whose transactions this login may end; and
    # until when it may help them. None: it has not.
    others: tuple[LedgerRecord, ...] = ()
    help_until_ms: int | None = None
    # DELIVERED: the record that closes the decision, if it is not written yet.
    closing: LedgerRecord | None = None
    # As this operation knows it at its end; None: it did not look.
    ledger: LedgerState | None = None

    @property
    def has_nothing_open(self) -> bool:
        """No decision of the line is open or has lost rows, neither of this batch nor of an earlier one."""
        return self.ledger is not None and not any(map(self.ledger.newest_of, (Kind.INTENT, Kind.STUCK)))
