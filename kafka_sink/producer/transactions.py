"""The transactional half of the public producer.

Every method waits at most max.block.ms and then raises `OperationTimeout`; the step itself goes on, and calling the
same method again waits for the same end. Only the engine knows which step may follow which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from kafka_sink.engine import commands as c
from kafka_sink.engine.transaction import TransactionReceipt
from kafka_sink.errors import KafkaSinkError, LocalProtocolError, OperationTimeout
from kafka_sink.producer.offsets import ConsumerGroup, OffsetAndMetadata, read_offsets
from kafka_sink.producer.operations import Operations

Self = TypeVar("Self", bound="TransactionMethods")


class TransactionMethods:
    _operations: Operations

    def init_transactions(self) -> bool:
        """Once, before the first transaction: fences older producers with the same transactional.id.

        False: one of the tries got no answer and may still arrive, which would fence this producer and abort its
        transaction, even a prepared one. That matters only to those who hand prepared transactions to somebody else.
        """
        return bool(self._operations.step("init_transactions()", c.InitTransactions, metric="txn-init"))

    def begin_transaction(self) -> None:
        self._operations.step("begin_transaction()", c.BeginTransaction, metric="txn-begin")

    def send_offsets_to_transaction(
        self, offsets: Mapping[tuple[str, int], int | OffsetAndMetadata], group: str | ConsumerGroup
    ) -> None:
        """Consumed offsets, by (topic, partition), become visible together with the records. Give the offset to be
        read next."""
        if not offsets:
            return
        checked = read_offsets(offsets, group)
        self._operations.step(
            "send_offsets_to_transaction()",
            lambda operation_id: replace(checked, operation_id=operation_id),
            metric="txn-send-offsets",
        )

    def commit_transaction(self) -> None:
        """Sends what is queued, waits for it, and commits. Raises if any record of the transaction failed; then only
        `abort_transaction` is possible."""
        self._end("commit_transaction()", "txn-commit", commit=True)

    def abort_transaction(self) -> None:
        self._end("abort_transaction()", "txn-abort", commit=False)

    def _end(self, name: str, metric: str, *, commit: bool) -> None:
        self._operations.step(
            name,
            lambda operation_id: c.EndTransaction(operation_id, commit),
            metric=metric,
            is_behind_rows=True,
            refusal=LocalProtocolError(f"no record can be sent: {name} is under way"),
        )

    def prepare_transaction(self) -> TransactionReceipt:
        """Waits until all records are acknowledged and detaches: from now on the holder of the receipt ends it."""
        receipt = self._operations.step(
            "prepare_transaction()",
            c.PrepareTransaction,
            is_behind_rows=True,
            refusal=LocalProtocolError("no record can be sent: the transaction is being prepared"),
        )
        assert isinstance(receipt, TransactionReceipt)
        return receipt

    def resume_transaction(self, receipt: TransactionReceipt) -> None:
        """In place of `init_transactions`: takes over a prepared transaction, to commit or abort it."""
        self._operations.step("resume_transaction()", lambda operation_id: c.ResumeTransaction(operation_id, receipt))

    @contextmanager
    def transaction(self: Self) -> Iterator[Self]:
        """Begins a transaction; commits it at the end of the block, aborts it if the block or the commit fails.

        A commit that ran into its time-out is neither: it may still succeed, and is left to the caller.
        """
        self.begin_transaction()
        try:
            yield self
        except BaseException as error:
            self._abort_because_of(error)
            raise
        try:
            self.commit_transaction()
        except OperationTimeout:
            raise
        except BaseException as error:
            self._abort_because_of(error)
            raise

    def _abort_because_of(self, error: BaseException) -> None:
        """The error that led here is the one to be seen, not that aborting failed as well."""
        try:
            self.abort_transaction()
        except KafkaSinkError as failure:
            if error.__context__ is None:
                error.__context__ = failure
