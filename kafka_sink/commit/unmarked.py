"""How the transactions of an intent without a marker stand, before anything is done about it.

The marker that is lost may have been that of a commit, and then the batch is decided; or that of an abort, and then it
is not. Only EndTxn of a decision commits a transaction, and nobody but others aborts one of a decision: a time-out, or
another tool. So what has become of them tells:

 one is committed                      decided. The others are committed as well
 all are open                          it may be decided, and nothing of it is lost: they are committed
 one is aborted, the others are open   nothing of it is visible, and it cannot become visible as a whole any more. The
                                       open ones are aborted, and then they are looked at again
 all are aborted                       as if it had never been decided: the batch may be written again
 one does not tell                     nothing is ended. Whoever comes next looks again

In the third row the batch may have been decided, if the first of its transactions timed out before one was committed.
To drop it is right even so: no row of it is visible, and its commit has not returned, as that needs all of them to be
committed. To commit the rest would show a batch in part of which its commit may have said that nothing is visible.

That a transaction is open is what its coordinator says, which may be outdated; that one is committed it says only if
it is. So a batch is dropped only when the logs show that all are aborted, and what was called open is aborted first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka_sink.commit.describe_transactions import described_partitions
from kafka_sink.commit.end_txn import ABORT, PARTITIONS, CommitTransactions, DecidedTransaction, Partitions, end_ask
from kafka_sink.commit.ledger import LedgerRecord, TransactionOutcome
from kafka_sink.commit.receipt import PreparedTransaction, TaskReceipt
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.kafka.client.ask import Ask, Coordinator, Reply
from kafka_sink.kafka.client.outcome import DriverOutcome, driver_outcome
from kafka_sink.kafka.wire.apis import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)


class UnmarkedTransactions(CommitTransactions):
    """Commits nothing. `outcomes`: None also of one that is open."""

    def __init__(self, settings: DeliverySettings, *about: Any) -> None:
        super().__init__(settings, *about)
        # Numbers of those that are open, and of those whose coordinator cannot be asked: there the log alone tells.
        self._open: set[int] = set()
        self._untold: set[int] = set()
        # Those that their coordinators call aborted.
        self._aborted: set[int] = set()

    @classmethod
    def of(
        cls, settings: DeliverySettings, record: LedgerRecord, receipts: Sequence[TaskReceipt]
    ) -> UnmarkedTransactions:
        return cls(settings, record.transactions, record.entries, receipts)

    @property
    def outcomes(self) -> list[TransactionOutcome | None]:
        """Where the log does not tell any more how one has ended, its coordinator does: where brokers have lost the end
        of a log, the marker is in the place of the rows."""
        return [
            TransactionOutcome.LOST if found is TransactionOutcome.UNRESOLVED and number in self._aborted else found
            for number, found in enumerate(super().outcomes)
        ]

    def ask_first(self, now_ms: int) -> None:
        for one in self._decided:
            self._ask_partitions(now_ms, one)

    @property
    def may_be_decided(self) -> bool:
        return TransactionOutcome.COMMITTED in self.outcomes or len(self._open) == len(self._decided)

    @property
    def is_dropped(self) -> bool:
        return all(outcome is TransactionOutcome.LOST for outcome in self.outcomes)

    def stop_retrying(self, now_ms: int) -> None:
        """Nothing was asked that has to be answered."""
        self._stops_retrying = True
        for search in list(self._searches.values()):
            self._give_up(now_ms, search)
        self.asks.drop_all()

    def on_reply(self, now_ms: int, reply: Reply) -> None:
        super().on_reply(now_ms, reply)
        if TransactionOutcome.COMMITTED in self.outcomes:
            # The others may time out while the rest is looked at.
            self.asks.drop_all()
        elif self.is_finished and self._cannot_become_visible():
            self._abort_open(now_ms)

    def _cannot_become_visible(self) -> bool:
        has_ended = {number for number, found in enumerate(self.outcomes) if found is TransactionOutcome.LOST}
        return bool(has_ended) and len(has_ended) + len(self._open) == len(self._decided)

    def _abort_open(self, now_ms: int) -> None:
        for number in sorted(self._open):
            one = self._decided[number]
            partitions: Partitions = (one.log,) if one.partitions is None else one.partitions
            self.asks.add(
                now_ms, end_ask(ABORT, one.transaction, commit=False, number=number, led_partitions=partitions)
            )
        self._open.clear()

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        if ask.purpose == ABORT:
            self._on_aborted(now_ms, ask, body["error_code"])
        else:
            super().on_body(now_ms, ask, body)

    def _on_aborted(self, now_ms: int, ask: Ask, error_code: int) -> None:
        """Aborted now or before, or committed: that is looked at again."""
        is_over = driver_outcome(END_TXN, error_code) is DriverOutcome.SUPERSEDED
        if is_over or not self.refuse_or_repeat(now_ms, ask, error_code):
            self.asks.drop(ask)
            self._ask_verdict(now_ms, self._decided[ask.number])

    def _on_described(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        one = self._decided[ask.number]
        one.is_described = True
        for state in body["transaction_states"]:
            if self.repeat_if_meant(now_ms, ask, state["error_code"]):
                return
            if driver_outcome(DESCRIBE_TRANSACTIONS, state["error_code"]) is DriverOutcome.REFUSED:
                self._untold.add(one.number)
            elif _is_committed(state, one.transaction):
                one.outcome = TransactionOutcome.COMMITTED
            elif _is_aborted(state, one.transaction):
                self._aborted.add(one.number)
            elif _is_open(state, one.transaction):
                one.partitions = described_partitions(state)
                self._open.add(one.number)
        self.asks.drop(ask)
        if one.outcome is None and one.number not in self._open:
            self._ask_verdict(now_ms, one)

    def _go_on_to_end(self, now_ms: int, ask: Ask) -> None:
        """These brokers, or this one, do not describe transactions."""
        one = self._decided[ask.number]
        one.is_described = True
        self._untold.add(one.number)
        self.asks.drop(ask)
        self._ask_verdict(now_ms, one)

    def _ask_end(self, now_ms: int, one: DecidedTransaction, *, are_leaders_known: bool) -> Ask:
        """Its log shows it open. Where a decided one would be ended, its coordinator is asked once more."""
        name = one.transaction.transactional_id
        ask = Ask(Coordinator(name), DESCRIBE_TRANSACTIONS, {"transactional_ids": [name]}, PARTITIONS, one.number)
        if one.number in self._untold:
            self._open.add(one.number)
        else:
            self.asks.add(now_ms, ask)
        return ask


def _is_open(state: Mapping[str, Any], transaction: PreparedTransaction) -> bool:
    return state["transaction_state"] == ONGOING and _identity(state) == transaction.identity


def _is_committed(state: Mapping[str, Any], transaction: PreparedTransaction) -> bool:
    """Where EndTxn(commit) would be answered with success. In transaction version 2 the end has raised the epoch."""
    raised = 1 if transaction.transaction_version > 1 else 0
    ended = transaction.producer_id, transaction.producer_epoch + raised
    return state["transaction_state"] in (PREPARE_COMMIT, COMPLETE_COMMIT) and _identity(state) == ended


def _is_aborted(state: Mapping[str, Any], transaction: PreparedTransaction) -> bool:
    """A time-out raises the epoch in both versions, EndTxn in one."""
    producer_id, epoch = transaction.identity
    ended = (producer_id, epoch), (producer_id, epoch + 1)
    return state["transaction_state"] in (PREPARE_ABORT, COMPLETE_ABORT) and _identity(state) in ended


def _identity(state: Mapping[str, Any]) -> tuple[int, int]:
    return state["producer_id"], state["producer_epoch"]
