"""What a finished task returns to the driver, and the summary of a whole batch.

A receipt with a transaction is all that another process needs to end it. A task that delivered at least once or had no
rows returns a receipt without one: the driver counts all three alike and looks at `transaction` only to commit.

Receipts are pickled from executor to driver and contain plain values only. `remaining_ms` is how much of the
transaction's time was left when the receipt was made, on a clock of the executor: no two hosts' clocks are ever
compared. `planned_at` was told on the driver's host before any task began, and is only compared there.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_sink.kafka.client.cluster import topic_id_text
from kafka_sink.kafka.client.producer_identity import ProducerIdentity

# 63 bits: the ledger stores it as a number.
DIGEST_MAX = 2**63 - 1
BatchId = int | str
"""A number for streams, whose batches are ordered; a string for batch writes, which can only be equal or different."""


class BatchKey(NamedTuple):
    """What a decision is about. `query_id` is empty for batch writes."""

    query_id: str
    batch_id: BatchId

    @property
    def is_first(self) -> bool:
        """The first batch of a stream; streams count from 0."""
        return self.batch_id == 0

    @property
    def is_label(self) -> bool:
        """A batch write, which is one of a kind; the batches of a stream have numbers."""
        return isinstance(self.batch_id, str)

    @property
    def is_named(self) -> bool:
        """A batch write without a label is not: its sink id is its own, and nobody can write it again."""
        return self != UNNAMED_BATCH

    def is_later_than(self, other: BatchKey) -> bool:
        """Of the same stream: Spark runs a batch when it counts all earlier ones as done."""
        if self.query_id != other.query_id or not isinstance(self.batch_id, int):
            return False
        return isinstance(other.batch_id, int) and self.batch_id > other.batch_id

    def __str__(self) -> str:
        if self.query_id:
            return f"batch {self.batch_id} of query {self.query_id}"
        return f"batch {self.batch_id!r}" if self.batch_id != "" else "the batch write"


# A batch write without a label.
UNNAMED_BATCH = BatchKey("", "")


class WrittenPartition(NamedTuple):
    """What one task, or a whole batch, wrote to one partition; other writers' records may lie between the offsets.
    Offsets of -1: a broker did not say where the rows are, or some of them."""

    topic: str
    partition: int
    row_count: int
    first_offset: int
    last_offset: int

    def merge(self, other: WrittenPartition) -> WrittenPartition:
        """Of offsets that are not known nothing is left: who tells a range must know that (`unknown`)."""
        known = [each.first_offset for each in (self, other) if each.first_offset >= 0]
        first, last = min(known, default=-1), max(self.last_offset, other.last_offset)
        return WrittenPartition(self.topic, self.partition, self.row_count + other.row_count, first, last)

    @property
    def untold(self) -> WrittenPartition:
        return self._replace(first_offset=-1, last_offset=-1)


class PreparedTransaction(NamedTuple):
    """A transaction whose records are all in the log and that has not been ended, with the fields of EndTxn.
    `transaction_version` is 1 or 2 (KIP-890)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)


class HostMoment(NamedTuple):
    """Of one boot of one host; those of others cannot be compared with it. `wall_ms`: by the clock that can be set."""

    boot_id: str
    at_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class TaskReceipt:
    """`transaction` None: the task wrote nothing, or it wrote without a transaction."""

    key: BatchKey
    run: str
    spark_partition: int
    attempt: int
    transaction: PreparedTransaction | None = None
    # The transaction's timeout, and what was left of it.
    timeout_ms: int = 0
    remaining_ms: int = 0
    # Offsets of the rows whose place is known: a commit asks about them.
    written: tuple[WrittenPartition, ...] = ()
    row_count: int = 0
    bytes: int = 0
    retry_count: int = 0
    send_ms: int = 0
    # Rows skipped because of an option, by reason.
    record_errors: Mapping[str, int] = field(default_factory=dict)
    # Digest of the incoming keys and values, in order (formats/records/digest.py).
    digest: int = 0
    # Of the topics in `written`, where brokers have them: a topic that was deleted and created again has another one.
    topic_ids: Mapping[str, builtins.bytes] = field(default_factory=dict)
    # What of `written` is letters about rows that could not be sent (record.errors=dead-letter).
    dead_letters: tuple[WrittenPartition, ...] = ()
    # Partitions with rows whose place is not known, besides others. Nobody is told of a range there.
    unknown: tuple[tuple[str, int], ...] = ()
    # When the write was planned.
    planned_at: HostMoment | None = None

    @property
    def is_empty(self) -> bool:
        return not self.written

    @property
    def witness(self) -> WrittenPartition:
        """One partition is enough to learn a transaction's outcome: each of them gets a marker after its records.

        Preferably one with a known offset: a broker may acknowledge a retried request without it.
        """
        return min(self.written, key=lambda written: (written.last_offset < 0, written))


class TopicSummary(NamedTuple):
    row_count: int
    partition_count: int


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """A batch in figures, for the ledger, the log and Spark's progress report."""

    receipt_count: int
    empty_count: int
    row_count: int
    bytes: int
    retry_count: int
    send_ms_max: int
    topics: Mapping[str, TopicSummary]
    written: tuple[WrittenPartition, ...]
    record_errors: Mapping[str, int]
    # The sum over the tasks: independent of their order.
    digest: int = 0
    # What of `written` is letters about rows that could not be sent.
    dead_letters: tuple[WrittenPartition, ...] = ()
    # As Kafka's tools print them; without those that brokers have not told.
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def topic_rows(self) -> dict[str, int]:
        return {topic: found.row_count for topic, found in self.topics.items()}


def summarize_receipts(receipts: Iterable[TaskReceipt]) -> BatchSummary:
    every = list(receipts)
    written, dead_letters = _split_told(every)
    ids = {one for receipt in every for one in receipt.topic_ids.items()}
    errors: dict[str, int] = {}
    for receipt in every:
        for reason, count in receipt.record_errors.items():
            errors[reason] = errors.get(reason, 0) + count
    return BatchSummary(
        receipt_count=len(every),
        empty_count=sum(receipt.is_empty for receipt in every),
        row_count=sum(receipt.row_count for receipt in every),
        bytes=sum(receipt.bytes for receipt in every),
        retry_count=sum(receipt.retry_count for receipt in every),
        send_ms_max=max((receipt.send_ms for receipt in every), default=0),
        topics=_topics(written),
        written=written,
        record_errors=dict(sorted(errors.items())),
        digest=sum(receipt.digest for receipt in every) & DIGEST_MAX,
        dead_letters=dead_letters,
        topic_ids={topic: topic_id_text(found) for topic, found in sorted(ids)},
    )


def known_extents(receipts: Iterable[TaskReceipt]) -> tuple[WrittenPartition, ...]:
    """What is known of the offsets of a batch, also where its range in a partition is not."""
    return _merge_partitions(one for receipt in receipts for one in receipt.written)


def _split_told(receipts: Sequence[TaskReceipt]) -> tuple[tuple[WrittenPartition, ...], tuple[WrittenPartition, ...]]:
    """All that was written, and the dead letters of it, by partition. A range without some of its rows is none."""
    unknown = {where for receipt in receipts for where in receipt.unknown}
    unknown |= {one[:2] for receipt in receipts for one in receipt.written if one.first_offset < 0}
    letters = _merge_partitions(one for receipt in receipts for one in receipt.dead_letters)
    written, dead_letters = (
        tuple(one.untold if one[:2] in unknown else one for one in found)
        for found in (known_extents(receipts), letters)
    )
    return written, dead_letters


def without_letters(
    written: Iterable[WrittenPartition], dead_letters: Iterable[WrittenPartition]
) -> tuple[WrittenPartition, ...]:
    """The rows. Those that name the topic of the letters themselves share its partitions with them: there letters are
    between the offsets, as records of other writers may be."""
    letters = {each[:2]: each.row_count for each in dead_letters}
    counted = (each._replace(row_count=each.row_count - letters.get(each[:2], 0)) for each in written)
    return tuple(each for each in counted if each.row_count)


def group_by_topic(written: Iterable[WrittenPartition]) -> dict[str, list[WrittenPartition]]:
    found: dict[str, list[WrittenPartition]] = {}
    for each in written:
        found.setdefault(each.topic, []).append(each)
    return found


def _merge_partitions(every: Iterable[WrittenPartition]) -> tuple[WrittenPartition, ...]:
    """One for each partition, in order."""
    partitions: dict[tuple[str, int], WrittenPartition] = {}
    for each in every:
        known = partitions.get(each[:2])
        partitions[each[:2]] = each if known is None else known.merge(each)
    return tuple(partitions[where] for where in sorted(partitions))


def _topics(written: Iterable[WrittenPartition]) -> dict[str, TopicSummary]:
    found: dict[str, TopicSummary] = {}
    for each in sorted(written):
        rows, partitions = found.get(each.topic, TopicSummary(0, 0))
        found[each.topic] = TopicSummary(rows + each.row_count, partitions + 1)
    return found
