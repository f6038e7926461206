"""What readers see of a transaction: a read_committed answer from the offset of its last row is the verdict.

Such an answer ends at the last stable offset, below which every transaction has ended, and lists the aborted
transactions that overlap it. If the row is there and that offset is above it, the transaction was aborted if the list
has one of its producer id that began at the row or before, and committed if not: a producer id has one transaction at a
time in a partition, so no other one contains the row. One batch tells that, however much was written since.

Whatever is less certain is no verdict: retention or compaction has taken the row, a broker leaves out aborted rows
itself, another topic has a record there, an older transaction holds the last stable offset back, or nobody knows the
offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka_sink.commit.commit_step import CommitStep
from kafka_sink.commit.ledger import TransactionEntry, TransactionOutcome
from kafka_sink.commit.log_scan import (
    READ_COMMITTED,
    FetchedPartition,
    RawBatch,
    fetch_ask,
    raw_batches,
    read_fetch_answer,
)
from kafka_sink.commit.receipt import PreparedTransaction, WrittenPartition
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.kafka.client.ask import Ask, Leader, Reply
from kafka_sink.kafka.client.outcome import DriverOutcome, driver_outcome
from kafka_sink.kafka.wire.apis import FETCH

VERDICT = "ask what readers see"
# A broker returns at least one batch, however small the limit.
ONE_BATCH = 1
# Of a question that changes nothing.
TRIES_MAX = 3

# A partition that a transaction wrote to, and the last offset there.
Witness = TransactionEntry | WrittenPartition


def verdict_ask(witness: Witness, number: int) -> Ask:
    log = Leader(witness.topic, witness.partition)
    return fetch_ask(
        VERDICT, log, witness.last_offset, number=number, isolation_level=READ_COMMITTED, bytes_max=ONE_BATCH
    )


def verdict_of(
    found: FetchedPartition, transaction: PreparedTransaction, witness: Witness
) -> TransactionOutcome | None:
    """None: this answer does not tell."""
    if not 0 <= witness.last_offset < found.last_stable_offset:
        return None
    batch = next(raw_batches(found.records), None)
    if batch is None or not _has_its_row(batch, transaction, witness):
        return None
    is_aborted = any(
        producer_id == transaction.producer_id and first_offset <= witness.last_offset
        for producer_id, first_offset in found.aborted
    )
    return TransactionOutcome.LOST if is_aborted else TransactionOutcome.COMMITTED


def _has_its_row(batch: RawBatch, transaction: PreparedTransaction, witness: Witness) -> bool:
    """The last row is the last one of its batch. Compaction keeps a batch's offsets, and the last batch of a producer
    even without records."""
    is_of_transaction = (batch.producer_id, batch.producer_epoch) == transaction.identity
    has_rows = batch.is_transactional and not batch.is_control and batch.record_count > 0
    return is_of_transaction and has_rows and batch.next_offset == witness.last_offset + 1


class SeenByReaders(CommitStep):
    """`outcomes` has those of these transactions whose rows tell. Whoever may not read a topic is told nothing."""

    def __init__(
        self, settings: DeliverySettings, asked: Iterable[tuple[PreparedTransaction, TransactionEntry]]
    ) -> None:
        super().__init__(settings)
        self.outcomes: dict[PreparedTransaction, TransactionOutcome] = {}
        self._asked = [each for each in asked if each[1].last_offset >= 0]

    def ask_first(self, now_ms: int) -> None:
        for number, (_, witness) in enumerate(self._asked):
            self.asks.add(now_ms, verdict_ask(witness, number))

    def on_refused(self, now_ms: int, ask: Ask, reason: str, *, is_fenced: bool = False) -> None:
        self.asks.drop(ask)

    def on_lost(self, now_ms: int, reply: Reply) -> None:
        """Without a leader, or of a topic that is gone, nothing is told: who asks may ask again."""
        if reply.ask.failures < TRIES_MAX - 1:
            super().on_lost(now_ms, reply)
        else:
            self.asks.drop(reply.ask)

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        found = read_fetch_answer(body)
        is_gone = driver_outcome(FETCH, found.error_code) is DriverOutcome.OUT_OF_RANGE
        if not is_gone and self.refuse_or_repeat(now_ms, ask, found.error_code):
            return
        self.asks.drop(ask)
        transaction, witness = self._asked[ask.number]
        outcome = None if is_gone else verdict_of(found, transaction, witness)
        if outcome is not None:
            self.outcomes[transaction] = outcome
