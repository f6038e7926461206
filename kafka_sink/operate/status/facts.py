"""What one look at a cluster has found. findings.py judges it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.identity import Line, parse_task_identity
from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.listing import Listed
from kafka_sink.commit.open_decisions import OpenDecision
from kafka_sink.frozen import frozen

Partition = tuple[str, int]
# Of transaction.max.timeout.ms, if brokers do not tell it.
TRANSACTION_MAX_MS = 900_000


@frozen
class LedgerFacts:
    """`judged`: how open decisions stand, and `since_ms`: since when, by ledger key. `problem`: why it was not read.
    `lines`: those of which it has a record or a claim."""

    topic: str
    listed: Sequence[Listed] = ()
    judged: Mapping[str, OpenDecision] = field(default_factory=dict)
    since_ms: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""
    lines: Collection[Line] = frozenset()


@frozen
class OpenProducer:
    """A leader has a transaction of it open, and no coordinator told of one there. `since_ms`: the first look that saw
    it. `told`: what the coordinator says of its transactional id; None: no coordinator lists its producer id to this
    principal. `is_aborted`: the coordinator has aborted this very transaction."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    since_ms: int = 0
    told: TransactionDescription | None = None
    is_aborted: bool = False


@frozen
class ClusterFacts:
    """`transactions`: all that are open, of whichever application. `id_counts`: transactional ids of tasks that
    coordinators know, by sink id. `ends`: stable offset and end of each partition that a sink has written to, and of
    `asked_topics`. `hanging`: their coordinators know better; `unlisted`: nobody tells, and none may be open for longer
    than `transaction_max_ms`. `drivers`: ids of drivers that coordinators know and whose tasks have transactions open.
    `notes`: what is missing here, because somebody did not answer. `limits`: what these
    brokers never tell."""

    at_ms: int
    cluster_id: str
    ledgers: Sequence[LedgerFacts]
    transactions: Sequence[TransactionDescription] = ()
    id_counts: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[Partition, tuple[int, int]] = field(default_factory=dict)
    hanging: Sequence[OpenProducer] = ()
    unlisted: Sequence[OpenProducer] = ()
    transaction_max_ms: int = TRANSACTION_MAX_MS
    asked_topics: Sequence[str] = ()
    notes: Sequence[str] = ()
    limits: Sequence[str] = ()
    drivers: Collection[str] = frozenset()

    @property
    def decided_ids(self) -> frozenset[str]:
        return frozenset(
            each.record.transactional_id(entry)
            for ledger in self.ledgers
            for each in ledger.listed
            if each.record is not None and each.record.kind is Kind.INTENT
            for entry in each.record.entries
        )

    @property
    def written_topics(self) -> frozenset[str]:
        """The topics of all sinks that are known, of what their tasks are writing now, and those that were asked
        for."""
        written = {
            topic
            for ledger in self.ledgers
            for each in ledger.listed
            if each.record is not None
            for topic in each.record.topics
        }
        of_tasks = [one for one in self.transactions if parse_task_identity(one.transactional_id) is not None]
        return frozenset(written.union(self.asked_topics, (topic for one in of_tasks for topic, _ in one.partitions)))

    @property
    def behind(self) -> Mapping[Partition, int]:
        """Of partitions whose read_committed readers do not see the end: how many offsets they do not see."""
        return {where: end - stable for where, (stable, end) in self.ends.items() if end > stable}
