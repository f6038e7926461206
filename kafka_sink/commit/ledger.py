"""The ledger: one durable record per decision.

A batch is decided by an intent record that names all its transactions. From then on each of them must be committed, by
whichever process is the driver, and a done record closes the decision. If a transaction was not committed, a stuck
record keeps the outcome of each until an operator accepts the batch as it is (a done record with `is_accepted`) or has
it run again (a replay record).

A stream has one ledger key, its sink id with the query in it: batches are numbered, so the newest record is enough. A
batch write with a label has its own key; otherwise re-running an older export could not be told from a new one. Each of
them is a line of decisions with its own driver and claims (`Line` in identity.py). Release 0.1.0 kept a stream under
the sink id without the query; such a record of the same query belongs to this stream. 0.1.0 and 0.2.0 had one driver
for all labels of a sink.

`runs` are the runs that the run of this record has replaced, oldest first. A driver that finds itself among them has
been replaced and must not fence its successor. `since_ms` is when the run's first transaction began, by the brokers'
clock: a transaction of another run that began earlier belongs to a run that is over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from kafka_sink.commit.identity import (
    Line,
    TaskIdentity,
    code_of_label,
    parse_task_identity,
    sink_id_of_query,
)
from kafka_sink.commit.manifest import Manifest, manifest_key, manifest_value
from kafka_sink.commit.receipt import BatchKey, BatchSummary, PreparedTransaction, TaskReceipt, without_letters
from kafka_sink.errors import LocalProtocolError
from kafka_sink.errors.table.writes import SPARK_UNEXPECTED

# A driver that was replaced more runs ago than this and still lives is fenced by the broker; the list does not help it.
RUNS_MAX = 32
UNKNOWN_TIME = -1
OTHER_COUNTS, OTHER_CONTENT = "other counts", "as many rows, with other content or in another order"


class Kind(Enum):
    INTENT = "intent"
    DONE = "done"
    STUCK = "stuck"
    REPLAY = "replay"


class TransactionOutcome(Enum):
    COMMITTED = "c"
    LOST = "l"
    # It has ended, but no marker is left that tells the outcome.
    UNRESOLVED = "u"


@dataclass(frozen=True, slots=True)
class TransactionEntry:
    """One transaction of a decision: what EndTxn needs, and one record whose partition shows the outcome.

    The first two numbers are those in its id, which may come from a task of an earlier batch.
    """

    spark_partition: int
    attempt: int
    producer_id: int
    producer_epoch: int
    transaction_version: int
    topic: str
    partition: int
    last_offset: int
    row_count: int
    # Spark partition of the task that wrote it; None: as in the id.
    task_partition: int | None = None

    @property
    def spark_task(self) -> int:
        return self.spark_partition if self.task_partition is None else self.task_partition


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    kind: Kind
    sink_id: str
    key: BatchKey
    run: str
    runs: tuple[str, ...] = ()
    since_ms: int = UNKNOWN_TIME
    wall_ms: int = 0
    row_count: int = 0
    # Rows per topic.
    topics: Mapping[str, int] = field(default_factory=dict)
    # Besides the counts, this tells the rows from other rows under the same name; None in records of older releases.
    digest: int | None = None
    entries: tuple[TransactionEntry, ...] = ()
    # In a stuck record, one per entry.
    outcomes: tuple[TransactionOutcome, ...] = ()
    is_accepted: bool = False
    # The cluster of its transactions; empty if unknown.
    cluster_id: str = ""
    # Readable name of the sink (identity.py); empty if there is none, and in records of older releases.
    label: str = ""
    # What is written together with the record that closes the decision; None: nothing.
    manifest: Manifest | None = None

    def is_of_another_cluster(self, cluster_id: str) -> bool:
        return bool(self.cluster_id and cluster_id) and self.cluster_id != cluster_id

    def transactional_id(self, entry: TransactionEntry) -> str:
        return TaskIdentity(self.sink_id, self.run, entry.spark_partition, entry.attempt).transactional_id

    @property
    def name_count(self) -> int:
        described = 0 if self.manifest is None else len(self.manifest.written) + len(self.manifest.topic_ids)
        return len(self.topics) + len(self.entries) + described

    @property
    def transactions(self) -> list[PreparedTransaction]:
        return [
            PreparedTransaction(
                self.transactional_id(entry), entry.producer_id, entry.producer_epoch, entry.transaction_version
            )
            for entry in self.entries
        ]

    def as_closed(self, kind: Kind, wall_ms: int, *, is_accepted: bool = False) -> LedgerRecord:
        manifest = self.manifest if kind is Kind.DONE else None
        closed = replace(self, kind=kind, entries=(), outcomes=(), manifest=manifest)
        return replace(closed, is_accepted=is_accepted, wall_ms=wall_ms)

    @property
    def manifest_record(self) -> tuple[bytes, bytes] | None:
        """Key and value of the manifest that says that this batch is whole, or that an operator took it as it is."""
        if self.manifest is None or self.kind is not Kind.DONE:
            return None
        sink, (query_id, batch_id) = self.manifest.sink, self.key
        named: dict[str, object] = {"sink": sink, "query": query_id, "batch": batch_id, "run": self.run}
        named |= {"name": self.label} if self.label else {}
        named |= {"cluster": self.cluster_id} if self.cluster_id else {}
        named |= {"accepted": True} if self.is_accepted else {}
        named |= {
            "rows": self.row_count - self.manifest.letter_count,
            "digest": f"{self.digest or 0:016x}",
            "closed_ms": self.wall_ms,
        }
        return manifest_key(sink, query_id, batch_id), manifest_value(self.manifest, named)

    def with_outcomes(self, outcomes: Sequence[TransactionOutcome | None], wall_ms: int) -> LedgerRecord:
        known = [outcome for outcome in outcomes if outcome is not None]
        if all(outcome is TransactionOutcome.COMMITTED for outcome in known):
            return self.as_closed(Kind.DONE, wall_ms)
        return replace(self, kind=Kind.STUCK, outcomes=tuple(known), wall_ms=wall_ms)


class OtherName(NamedTuple):
    """A name under which the ledger has decisions of this stream as well. `latest`: the latest batch; None: not all of
    its records can be read. `is_newer`: than the newest record under the own name. `topics`: of the latest batch."""

    name: str
    latest: BatchKey | None
    is_newer: bool
    topics: frozenset[str] = frozenset()

    def is_elsewhere(self, topics: Collection[str]) -> bool:
        """Whether its rows and these go to topics that have nothing in common: then the name is hardly the one that
        this query had before, and more likely that of a copy of its checkpoint."""
        return bool(self.topics and topics) and self.topics.isdisjoint(topics)


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The newest committed record of each ledger key of one line, or of several. `key_count`: of the whole sink.

    `unmarked` are keys whose newest record has no marker although its transaction has ended: an intent that may have
    been decided. `settled` has the newest records without those.

    `claims` has for each run the offset of its first claim, as far as compaction has kept them. `older_key` is the key
    under which 0.1.0 kept the decisions of this stream; None if there are none, or if there are newer ones.
    `older_sink_id` is the sink id whose driver of an earlier release may be alive and decide here as well, and
    `older_offset` grows with each sign of it; -1: there is none.

    `stopped`: runs whose open transactions an operator's command aborts, whenever its requests arrive. They decide
    nothing any more.

    `closed` are keys of batch writes without a label that are done: nobody asks for them again, so nothing is kept.
    `others`: open decisions of such writes, by any driver. `elsewhere`: other names under which the ledger has records
    of this stream, the one with the latest batch first. `chunks`: labels of chunks of the export of this line.
    """

    sink_id: str
    newest: Mapping[str, LedgerRecord] = field(default_factory=dict)
    claims: Mapping[str, int] = field(default_factory=dict)
    stopped: frozenset[str] = frozenset()
    older_key: str | None = None
    older_sink_id: str = ""
    older_offset: int = -1
    key_count: int = 0
    closed: frozenset[str] = frozenset()
    others: tuple[LedgerRecord, ...] = ()
    unmarked: frozenset[str] = frozenset()
    settled: Mapping[str, LedgerRecord] = field(default_factory=dict)
    elsewhere: tuple[OtherName, ...] = ()
    chunks: tuple[str, ...] = ()

    @property
    def name_count(self) -> int:
        """Topics, partitions, transactions and runs: what makes one state larger than another."""
        return len(self.claims) + sum(record.name_count for record in (*self.newest.values(), *self.others))

    def with_record(self, record: LedgerRecord) -> LedgerState:
        key = ledger_key(record.sink_id, record.key)
        return replace(self, newest={**self.newest, key: record}, unmarked=self.unmarked - {key})

    def without_unmarked(self, record: LedgerRecord) -> LedgerState:
        """The state without an intent that was found to be undecided."""
        key = ledger_key(record.sink_id, record.key)
        others = {name: known for name, known in self.newest.items() if name != key}
        settled = {key: self.settled[key]} if key in self.settled else {}
        return replace(self, newest={**others, **settled}, unmarked=self.unmarked - {key})

    def without_other(self, record: LedgerRecord) -> LedgerState:
        return replace(self, others=tuple(other for other in self.others if other != record))

    def is_unmarked(self, record: LedgerRecord) -> bool:
        return ledger_key(record.sink_id, record.key) in self.unmarked

    def find(self, key: BatchKey) -> LedgerRecord | None:
        found = self.newest.get(ledger_key(self.sink_id, key))
        if found is None and self.older_key is not None:
            return self.newest.get(self.older_key)
        return found

    def newest_of(self, kind: Kind) -> list[LedgerRecord]:
        return [record for _, record in sorted(self.newest.items()) if record.kind is kind]


def ledger_key(sink_id: str, key: BatchKey) -> str:
    """A sink id has no slash, so the keys of two sinks are never the same."""
    return f"{sink_id}/{key.batch_id}" if isinstance(key.batch_id, str) else sink_id


def decode_key(key: bytes | None) -> str:
    """Without a loss, so that two keys stay two, and a record can take the place of a foreign one (`encode_key`)."""
    return (key or b"").decode(errors="surrogateescape")


def encode_key(key: str) -> bytes:
    return key.encode(errors="surrogateescape")


def line_of(sink_id: str, key: BatchKey, ledger_topic: str) -> Line:
    """The line that decides about a batch."""
    return line_of_key(ledger_key(sink_id, key), ledger_topic)


def line_of_key(ledger_key: str, ledger_topic: str) -> Line:
    sink_id, _, label = ledger_key.partition("/")
    return Line(sink_id, code_of_label(label, ledger_topic) if label else "")


def claim_key(line: Line) -> str:
    """No sink id is empty, so no ledger key of any sink begins with a slash."""
    return f"/driver/{line.sink_id}/{line.code}" if line.code else f"/driver/{line.sink_id}"


def line_of_claim(key: str, code: str | None) -> Line:
    """`code`: the one in the claim, as the driver of a labelled write may claim under the key of its sink as well."""
    sink_id, _, code_of_key = key.removeprefix(claim_key(Line(""))).partition("/")
    return Line(sink_id, code_of_key or code or "")


def stop_key(sink_id: str, run: str) -> str:
    """Each run has a key of its own: compaction must not remove one stop because of a later one, or of a claim."""
    return f"/stop/{sink_id}/{run}"


def is_of_stream(record: LedgerRecord, sink_id: str) -> bool:
    """Whether a record of 0.1.0, under the sink id without the query, belongs to this query. A first batch without
    tasks has no query id: the next query under that sink id is taken for its continuation."""
    return not record.key.query_id or sink_id_of_query(record.sink_id, record.key.query_id) == sink_id


def difference(record: LedgerRecord, batch: LedgerRecord) -> str | None:
    """How the rows that a batch has now differ from those that were delivered under the same key."""
    if record.topics != batch.topics:
        return OTHER_COUNTS
    return None if record.digest in (None, batch.digest) else OTHER_CONTENT


def is_decided(state: LedgerState, key: BatchKey, run: str) -> bool:
    """Whether this run's transactions for this batch may be part of a decision. Checked before aborting any of them."""
    newest = state.find(key)
    return newest is not None and newest.run == run and newest.key == key and newest.kind is not Kind.REPLAY


def is_closed(state: LedgerState, key: BatchKey) -> bool:
    """Whether a batch write is done. Only its own run writes under its key, unless it has a label."""
    newest = state.find(key)
    return ledger_key(state.sink_id, key) in state.closed or (newest is not None and newest.kind is Kind.DONE)


def is_nameless(ledger_key: str) -> bool:
    """Of a batch write without a label."""
    sink_id, slash, label = ledger_key.partition("/")
    return bool(sink_id and slash) and not label


def is_replaced(state: LedgerState, key: BatchKey, run: str) -> bool:
    """Whether a successor of this run has decided something. Before that it had fenced this run and finished its
    decisions, so no transaction of this run that is still open can be part of a decision."""
    newest = state.find(key)
    return newest is not None and run in newest.runs


def batch_at_hand(
    sink_id: str,
    key: BatchKey,
    run: str,
    summary: BatchSummary,
    *,
    wall_ms: int = 0,
    cluster_id: str = "",
    label: str = "",
    manifest: Manifest | None = None,
) -> LedgerRecord:
    """What is known of a batch before its decision: an intent without its transactions."""
    return LedgerRecord(
        kind=Kind.INTENT,
        sink_id=sink_id,
        key=key,
        run=run,
        wall_ms=wall_ms,
        row_count=summary.row_count,
        topics=summary.topic_rows,
        digest=summary.digest,
        cluster_id=cluster_id,
        label=label,
        manifest=None if manifest is None else _fill(manifest, summary),
    )


def _fill(manifest: Manifest, summary: BatchSummary) -> Manifest:
    rows = without_letters(summary.written, summary.dead_letters)
    return replace(manifest, written=rows, dead_letters=summary.dead_letters, topic_ids=summary.topic_ids)


def intent_of(
    batch: LedgerRecord, receipts: Sequence[TaskReceipt], previous: LedgerRecord | None, since_ms: int = UNKNOWN_TIME
) -> LedgerRecord:
    """`receipts`: those with a transaction. `previous`: the newest record of the same ledger key; its list of runs is
    continued."""
    if previous is not None and previous.run == batch.run and previous.since_ms != UNKNOWN_TIME:
        since_ms = previous.since_ms
    ordered = sorted(receipts, key=lambda receipt: (receipt.spark_partition, receipt.attempt))
    return replace(
        batch,
        runs=successor_runs(previous, batch.run),
        since_ms=since_ms,
        entries=tuple(transaction_entry_of(batch.sink_id, batch.run, receipt) for receipt in ordered),
    )


def successor_runs(previous: LedgerRecord | None, run: str) -> tuple[str, ...]:
    if previous is None:
        return ()
    runs = previous.runs if previous.run == run else (*previous.runs, previous.run)
    return runs[-RUNS_MAX:]


def transaction_entry_of(sink_id: str, run: str, receipt: TaskReceipt) -> TransactionEntry:
    transaction = receipt.transaction
    assert transaction is not None
    identity = parse_task_identity(transaction.transactional_id)
    if identity is None or (identity.sink_id, identity.run) != (sink_id, run) or receipt.is_empty:
        # The ledger keeps only the numbers of the id; a receipt of another run or sink cannot be recorded.
        raise LocalProtocolError(
            f"a receipt of {transaction.transactional_id!r} with {len(receipt.written)} partitions was handed in as "
            f"one of run {run!r} of sink {sink_id!r}",
            SPARK_UNEXPECTED,
        )
    witness = receipt.witness
    is_named_so = identity.spark_partition == receipt.spark_partition
    return TransactionEntry(
        spark_partition=identity.spark_partition,
        attempt=identity.attempt,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_version=transaction.transaction_version,
        topic=witness.topic,
        partition=witness.partition,
        last_offset=witness.last_offset,
        row_count=receipt.row_count,
        task_partition=None if is_named_so else receipt.spark_partition,
    )
