"""What each attempt wrote, what Spark's checkpoints contain, and what the sink reported about each batch.

The checks compare this with the logs. A row is (batch, number). Each attempt that writes a row makes a record with its
own number, so the logs show which attempt wrote what. A `Batch` is a set of rows under a batch id: other rows under the
same id are another batch, of a later generation.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from kafka_sink.commit.identity import TaskIdentity
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from tests.sim.scenario import TOPICS

LETTER_EVERY = 3


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt of one task: its rows, and the record numbers they got.

    `name` belongs to this attempt alone. Several attempts may use `identity` (of the transactional id) in turn.
    """

    name: str
    own_identity: TaskIdentity
    batch: Batch
    rows: tuple[int, ...]
    records: dict[int, int] = field(default_factory=dict)
    receipt: TaskReceipt | None = None
    identity: TaskIdentity = field(init=False)

    def __post_init__(self) -> None:
        self.identity = self.own_identity

    @property
    def transactional_id(self) -> str:
        return self.identity.transactional_id

    @property
    def run(self) -> str:
        return self.own_identity.run

    @property
    def spark_partition(self) -> int:
        return self.own_identity.spark_partition

    @property
    def number(self) -> int:
        return self.own_identity.attempt

    @property
    def key(self) -> BatchKey:
        return self.batch.key


@dataclass(slots=True, eq=False)
class Loss:
    """A CommitLost as it was reported: which transactions of the batch are visible and which never will be."""

    batch: Batch
    lost: frozenset[str]
    committed: frozenset[str]
    is_replayed: bool
    since_ms: int
    said_count: int = 1
    is_resolved: bool = False

    @property
    def key(self) -> BatchKey:
        return self.batch.key


@dataclass(slots=True, eq=False)
class Batch:
    """A batch as Spark planned it: its rows never change. `must_be_there`: the sink has reported it as delivered."""

    key: BatchKey
    number: int
    row_count: int
    generation: int = 0
    is_committed: bool = False
    must_be_there: bool = False
    was_tried: bool = False
    # How often it was in the part of a checkpoint that was set back, or other rows were written under its name.
    set_back_count: int = 0
    # The topic is a function of the row; otherwise it is drawn each time the row is written.
    has_fixed_topics: bool = False
    # Why the batch may be missing although the query continued: a warning said so, or an option allows it.
    excuse: str = ""
    losses: list[Loss] = field(default_factory=list)

    @property
    def is_accepted(self) -> bool:
        return any(loss.is_resolved and not loss.is_replayed for loss in self.losses)

    def topic_of(self, row: int) -> str:
        return TOPICS[(row * 5 + row // 2 + self.generation) % 3 % len(TOPICS)]

    def may_go_to(self, topic: str, row: int) -> bool:
        return not self.has_fixed_topics or self.topic_of(row) == topic

    def digest_of(self, rows: tuple[int, ...]) -> int:
        """The digest that a task computes of its own rows, in their order."""
        return zlib.crc32(f"{self.key} {self.generation} {rows}".encode())

    def __str__(self) -> str:
        return f"{self.key}{f', generation {self.generation}' if self.generation else ''}"


def is_letter(row: int) -> bool:
    """Instead of this row a dead letter is written, into a topic that has rows, too."""
    return row % LETTER_EVERY == LETTER_EVERY - 1


class Books:
    def __init__(self) -> None:
        # All batches that were ever planned, also those that a checkpoint has lost since.
        self.batches: list[Batch] = []
        # Attempts by name, and by the exact transaction that they have prepared.
        self.attempts: dict[str, Attempt] = {}
        self.prepared: dict[tuple[str, int, int], Attempt] = {}
        # Attempts whose receipt nobody took: another one had won, or the batch was over.
        self.losers: set[Attempt] = set()
        # Record number -> (attempt, row).
        self.records: dict[int, tuple[Attempt, int]] = {}
        # Attempts of which nothing may ever be visible, with the result that says so.
        self.forbidden: dict[str, str] = {}
        # Transactions (id, producer id, epoch) that the coordinator has aborted because they timed out.
        self.timed_out: set[tuple[str, int, int]] = set()
        # Transactions that an operator has ended, and those that a driver has begun to check.
        self.ended_by_others: set[tuple[str, int, int]] = set()
        self.checked: set[tuple[str, int, int]] = set()
        # Numbers of acknowledged records that brokers have lost.
        self.lost_records: set[int] = set()
        # Transactions of decisions whose marker is in the ledger, and those that the coordinator was asked to abort.
        self.decided: set[tuple[str, int, int]] = set()
        self.aborted: set[tuple[str, int, int]] = set()

    def generations(self, key: BatchKey) -> list[Batch]:
        return [batch for batch in self.batches if batch.key == key]

    def wrote(self, attempt: Attempt, row: int, record: int) -> None:
        attempt.records[row] = record
        self.records[record] = (attempt, row)

    def has_prepared(self, attempt: Attempt, receipt: TaskReceipt) -> None:
        attempt.receipt = receipt
        transaction = receipt.transaction
        assert transaction is not None
        exact = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
        self.prepared[exact] = attempt

    def attempt_of(self, receipt: TaskReceipt) -> Attempt | None:
        transaction = receipt.transaction
        if transaction is None:
            return None
        return self.prepared[transaction.transactional_id, transaction.producer_id, transaction.producer_epoch]

    def forbid(self, receipts: list[TaskReceipt], why: str) -> None:
        for receipt in receipts:
            attempt = self.attempt_of(receipt)
            if attempt is not None:
                self.forbidden.setdefault(attempt.name, why)
