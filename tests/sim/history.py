"""What the applications wrote and what they were told about it. The checks compare this with the logs.

Every record of a run has its own number. A transaction here is that of the application: from its begin to the end that
the application was told, across several engines if a receipt was handed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

TopicPartition = tuple[str, int]


class Fate(Enum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    # The producer said that it may or may not be in the log, or died before it said anything.
    UNKNOWN = "unknown"


class End(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    # The engine died or gave up before the end was known; `wanted_commit` says whether it may be committed.
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Transaction:
    number: int
    transactional_id: str
    records: list[Record] = field(default_factory=list)
    end: End = End.OPEN
    wanted_commit: bool = False
    # The offsets of a consumer group that were sent with it.
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    # From then on only the holder of the receipt may end it.
    is_prepared: bool = False
    has_decision: bool | None = None


@dataclass(slots=True, eq=False)
class Record:
    number: int
    client: str
    topic_partition: TopicPartition
    is_idempotent: bool
    acks: int
    transaction: Transaction | None
    fate: Fate = Fate.PENDING
    offset: int = -1
    reason: str = ""

    def __str__(self) -> str:
        topic, partition = self.topic_partition
        where = f"{topic}-{partition}"
        inside = "" if self.transaction is None else f" of transaction {self.transaction.number}"
        return f"record {self.number} of {self.client} for {where}{inside} ({self.fate.value} {self.reason})"


class History:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.transactions: list[Transaction] = []

    def new_record(
        self, client: str, topic_partition: TopicPartition, *, is_idempotent: bool, acks: int,
        transaction: Transaction | None,
    ) -> Record:  # fmt: skip
        record = Record(len(self.records), client, topic_partition, is_idempotent, acks, transaction)
        self.records.append(record)
        if transaction is not None:
            transaction.records.append(record)
        return record

    def begin(self, transactional_id: str) -> Transaction:
        transaction = Transaction(len(self.transactions), transactional_id)
        self.transactions.append(transaction)
        return transaction
