"""What Spark knows of a query (its checkpoint), what each attempt wrote, and what the sink said about each batch.

The one side of every comparison with the logs. A row is (batch, number); every attempt that writes it makes a record
with a number of its own, so that a reader of the logs can tell who wrote what.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_sink.delivery.receipt import BatchKey, TaskReceipt


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt of one task: its rows, and the record numbers they got."""

    transactional_id: str
    key: BatchKey
    run: str
    spark_partition: int
    number: int
    rows: tuple[int, ...]
    records: dict[int, int] = field(default_factory=dict)
    receipt: TaskReceipt | None = None


@dataclass(slots=True, eq=False)
class Loss:
    """CommitLost, as it was said: which transactions of the batch are visible and which never will be."""

    key: BatchKey
    lost: frozenset[str]
    committed: frozenset[str]
    is_replayed: bool
    since_ms: int
    said_count: int = 1
    is_resolved: bool = False


@dataclass(slots=True, eq=False)
class Batch:
    """Planned by Spark: the rows never change after that."""

    key: BatchKey
    number: int
    row_count: int
    is_committed: bool = False
    losses: list[Loss] = field(default_factory=list)

    @property
    def is_accepted(self) -> bool:
        return any(loss.is_resolved and not loss.is_replayed for loss in self.losses)


class Books:
    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.attempts: dict[str, Attempt] = {}
        # Record number -> (attempt, row).
        self.records: dict[int, tuple[Attempt, int]] = {}
        # Transactional ids of which nothing may ever be visible, and who said so.
        self.forbidden: dict[str, str] = {}
        # Transactional ids that the coordinator has aborted by time.
        self.timed_out: set[str] = set()

    def batch(self, key: BatchKey) -> Batch:
        return next(batch for batch in self.batches if batch.key == key)

    def next_uncommitted(self) -> Batch | None:
        return next((batch for batch in self.batches if not batch.is_committed), None)

    def rename(self, attempt: Attempt, number: int) -> None:
        """It goes on under another transactional id; nothing was written under the old one."""
        del self.attempts[attempt.transactional_id]
        attempt.number = number
        prefix = attempt.transactional_id.rpartition("-")[0]
        attempt.transactional_id = f"{prefix}-{number}"
        self.attempts[attempt.transactional_id] = attempt

    def wrote(self, attempt: Attempt, row: int, record: int) -> None:
        attempt.records[row] = record
        self.records[record] = (attempt, row)

    def forbid(self, receipts: list[TaskReceipt], why: str) -> None:
        for receipt in receipts:
            if receipt.transaction is not None:
                self.forbidden.setdefault(receipt.transaction.transactional_id, why)
