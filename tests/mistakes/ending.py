"""Mistakes about the end of transactions: what an answer means, and which transactions may be aborted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from kafka_sink.commit import (
    commit_step,
    each_line,
    end_txn,
    ledger_read,
    ledger_write,
    marker_search,
    next_step,
    preflight,
    takeover,
    verdict,
)
from kafka_sink.commit.asks import Asks
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.ledger import LedgerRecord, TransactionOutcome
from kafka_sink.commit.ledger_read import LedgerRead
from kafka_sink.commit.listing import OpenTransactions
from kafka_sink.commit.log_scan import FetchedPartition, RawBatch
from kafka_sink.commit.next_step import NextStep
from kafka_sink.commit.open_parts import OpenParts
from kafka_sink.commit.phase import Phase
from kafka_sink.commit.receipt import PreparedTransaction, WrittenPartition
from kafka_sink.commit.session import Conclusion, DriverSession
from kafka_sink.commit.sweep import Sweep, SweepRule
from kafka_sink.kafka.client.ask import Ask, Reply
from kafka_sink.kafka.client.outcome import DriverOutcome, driver_outcome
from kafka_sink.kafka.wire.apis import ONGOING, Api
from kafka_sink.producer.engine.engine import Engine
from tests.sim.delivery.executor import Executor

INVALID_TXN_STATE = 48


def abort_after_intent(patch: pytest.MonkeyPatch) -> None:
    """abort() aborts although the decision was made"""

    def changed(*_: Any) -> NextStep:
        return NextStep(Phase.DISCARDING, conclusion=Conclusion.ABORTED)

    patch.setattr(next_step, "_abort_at_start", changed)


def wrong_version_on_repeat(patch: pytest.MonkeyPatch) -> None:
    """a repeated EndTxn uses transaction version 2, whatever version the first try used"""
    repeat = Asks.repeat

    def changed(self: Asks, now_ms: int, ask: Ask, **how: Any) -> None:
        repeat(self, now_ms, ask, **how)
        if ask.api.name == "EndTxn":
            ask.version_min = ask.version_max = 5

    patch.setattr(Asks, "repeat", changed)


def fenced_is_success(patch: pytest.MonkeyPatch) -> None:
    """PRODUCER_FENCED as the answer to a commit counts as success"""

    def changed(api: Api, error_code: int) -> DriverOutcome:
        found = driver_outcome(api, error_code)
        return DriverOutcome.DONE if found is DriverOutcome.SUPERSEDED else found

    patch.setattr(commit_step, "driver_outcome", changed)
    patch.setattr(end_txn, "driver_outcome", changed)
    patch.setattr(ledger_write, "driver_outcome", changed)


def never_is_done(patch: pytest.MonkeyPatch) -> None:
    """INVALID_TXN_STATE as the answer to a commit counts as already committed"""

    def changed(api: Api, error_code: int) -> DriverOutcome:
        return DriverOutcome.DONE if error_code == INVALID_TXN_STATE else driver_outcome(api, error_code)

    patch.setattr(commit_step, "driver_outcome", changed)
    patch.setattr(end_txn, "driver_outcome", changed)


def silence_is_consent(patch: pytest.MonkeyPatch) -> None:
    """an EndTxn(commit) without an answer counts as carried out"""

    def lost(self: end_txn.CommitTransactions, now_ms: int, reply: Reply) -> None:
        if reply.ask.purpose == end_txn.COMMIT:
            self._settle(reply.ask, TransactionOutcome.COMMITTED)
        else:
            super(end_txn.CommitTransactions, self).on_lost(now_ms, reply)

    patch.setattr(end_txn.CommitTransactions, "on_lost", lost, raising=False)


def no_is_believed(patch: pytest.MonkeyPatch) -> None:
    """a coordinator's INVALID_TXN_STATE is not checked against the log"""
    on_ended = end_txn.CommitTransactions._on_ended

    def changed(self: end_txn.CommitTransactions, now_ms: int, ask: Ask, error_code: int) -> None:
        if error_code == INVALID_TXN_STATE:
            self._settle(ask, TransactionOutcome.LOST)
        else:
            on_ended(self, now_ms, ask, error_code)

    patch.setattr(end_txn.CommitTransactions, "_on_ended", changed)


def marker_epoch_not_compared(patch: pytest.MonkeyPatch) -> None:
    """any later marker of a producer id counts as the end of a transaction"""

    def ended_by(self: LedgerRead, marker: RawBatch, **_: Any) -> tuple[int, int]:
        waiting = [one for one in self._waiting if one[0] == marker.producer_id]
        return min(waiting, default=(marker.producer_id, marker.producer_epoch))

    def can_end(*_: Any) -> bool:
        return True

    patch.setattr(LedgerRead, "_transaction_ended_by", ended_by)
    patch.setattr(marker_search, "can_end", can_end)


def row_of_another_believed(patch: pytest.MonkeyPatch) -> None:
    """whatever is at the offset of a transaction's last row tells how that transaction ended"""
    patch.setattr(verdict, "_has_its_row", lambda *_: True)


def stable_offset_not_compared(patch: pytest.MonkeyPatch) -> None:
    """a row that is shown tells how its transaction ended, though this may be open"""
    verdict_of = verdict.verdict_of

    def changed(found: FetchedPartition, *asked: Any) -> TransactionOutcome | None:
        return verdict_of(found._replace(last_stable_offset=2**62), *asked)

    _patch_verdict(patch, changed)


def aborted_list_ignored(patch: pytest.MonkeyPatch) -> None:
    """every transaction whose last row is below the last stable offset counts as committed"""
    verdict_of = verdict.verdict_of

    def changed(found: FetchedPartition, *asked: Any) -> TransactionOutcome | None:
        return verdict_of(found._replace(aborted=()), *asked)

    _patch_verdict(patch, changed)


def _patch_verdict(patch: pytest.MonkeyPatch, changed: Callable[..., TransactionOutcome | None]) -> None:
    for module in (verdict, end_txn):
        patch.setattr(module, "verdict_of", changed)


def partitions_not_compared(patch: pytest.MonkeyPatch) -> None:
    """a transaction is decided by its state and epoch alone, whatever it still holds of what its task has written"""
    list_of_partitions_not_compared(patch)
    leaders_not_asked(patch)


def list_of_partitions_not_compared(patch: pytest.MonkeyPatch) -> None:
    """where leaders tell nothing, a transaction counts as holding what it no longer lists"""
    patch.setattr(preflight, "_unlisted_partition", lambda *_: None)


def leaders_not_asked(patch: pytest.MonkeyPatch) -> None:
    """whether a transaction still holds its rows is checked with the coordinator's list of partitions alone"""
    patch.setattr(OpenParts, "closed_part", lambda *_: None)


def start_offset_not_compared(patch: pytest.MonkeyPatch) -> None:
    """a transaction that is open in a partition counts as holding all rows there, wherever it begins"""
    closed_part = OpenParts.closed_part

    def changed(self: OpenParts, transaction: PreparedTransaction, written: Iterable[WrittenPartition]) -> str | None:
        return closed_part(self, transaction, [one._replace(first_offset=-1) for one in written])

    patch.setattr(OpenParts, "closed_part", changed)


def lost_rows_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """a batch is decided although leaders tell of fewer of its records than were acknowledged"""
    patch.setattr(OpenParts, "short_parts", lambda *_: iter(()))


def first_refusal_believed(patch: pytest.MonkeyPatch) -> None:
    """one answer of a coordinator or leader refuses a batch, also that of a broker that was frozen and is replaced"""
    patch.setattr(preflight, "LOOKS_AGAIN", 0)


def sweep_of_every_run(patch: pytest.MonkeyPatch) -> None:
    """the sweep also aborts transactions that a successor has prepared"""
    patch.setattr(SweepRule, "is_candidate", lambda self, name: name.startswith(f"{self.sink_id}-"))
    patch.setattr(SweepRule, "is_dangling", lambda self, found: found.state == ONGOING)


def command_aborts_whatever_is_open(patch: pytest.MonkeyPatch) -> None:
    """a command aborts whatever is open when it comes to that, and not only what it has listed and stopped"""
    is_over = SweepRule._is_over
    patch.setattr(SweepRule, "_is_over", lambda self, run: self.own_run is None or is_over(self, run))


def stop_ignored(patch: pytest.MonkeyPatch) -> None:
    """a driver decides although a command has stopped its run"""
    patch.setattr(ledger_read, "stop_key", lambda sink_id, run: "/none/")


def stopped_behind_the_fence(patch: pytest.MonkeyPatch) -> None:
    """a command fences a line before it stops the runs there: it stops them with its claim"""
    waiting: set[tuple[str, str]] = set()

    def wait(settings: Any, runs: set[tuple[str, str]], wall_ms: int) -> Iterator[None]:
        waiting.update(runs)
        return
        yield

    append = takeover.Claim.append

    def changed(self: takeover.Claim, now_ms: int, purpose: str, records: list[tuple[str, bytes]]) -> None:
        stops = [] if self._session.run else [(takeover.stop_key(*run), b"") for run in sorted(waiting)]
        append(self, now_ms, purpose, [*records, *stops])

    patch.setattr(each_line, "_stop", wait)
    patch.setattr(takeover.Claim, "append", changed)


def command_fences_known_lines_alone(patch: pytest.MonkeyPatch) -> None:
    """a command fences and finishes no line of which the ledger has no open decision yet"""
    patch.setattr(each_line, "lines_of", lambda found: set())


def no_sweep(patch: pytest.MonkeyPatch) -> None:
    """transactions that killed tasks and crashed runs left open stay open"""
    patch.setattr(SweepRule, "is_dangling", lambda *_: False)


def leaders_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """where leaders are not asked, a batch is decided although one of its partitions has none"""
    patch.setattr(DriverSession, "asks_leaders", lambda *_: False)
    patch.setattr(preflight, "_leaderless_partitions", lambda *_: ())


def repeated_without_leader(patch: pytest.MonkeyPatch) -> None:
    """an EndTxn is repeated although its partition may have lost its leader"""
    add = Asks.add

    def changed(self: Asks, now_ms: int, ask: Ask) -> None:
        ask.led_partitions = ask.led_now
        add(self, now_ms, ask)

    patch.setattr(Asks, "add", changed)


def finished_without_leader(patch: pytest.MonkeyPatch) -> None:
    """an earlier decision is finished although its partitions may have no leader"""
    end_transactions = Committer._end_transactions

    def changed(self: Committer, now_ms: int, record: LedgerRecord, **_: bool) -> None:
        end_transactions(self, now_ms, record, are_leaders_known=True)

    patch.setattr(Committer, "_end_transactions", changed)


def leader_awaited_until_the_time_out(patch: pytest.MonkeyPatch) -> None:
    """a decided transaction waits for a leader until it times out"""
    patch.setattr(end_txn.CommitTransactions, "_last_call_ms", lambda *_: None)


def help_without_leader(patch: pytest.MonkeyPatch) -> None:
    """help for another driver commits into a partition without a leader when its own time is up"""
    begin = end_txn.CommitTransactions.__init__

    def changed(self: end_txn.CommitTransactions, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **{**named, "is_help": False})

    patch.setattr(end_txn.CommitTransactions, "__init__", changed)


def aborted_without_leader(patch: pytest.MonkeyPatch) -> None:
    """a transaction is aborted although one of its partitions has no leader"""
    end_ask = end_txn.end_ask

    def changed(*request: Any, commit: bool, **how: Any) -> Ask:
        return end_ask(*request, commit=commit, **{**how, **({} if commit else {"led_partitions": ()})})

    patch.setattr(end_txn, "end_ask", changed)


def closed_without_leader(patch: pytest.MonkeyPatch) -> None:
    """a task aborts its transaction although one of its partitions has no leader"""
    patch.setattr(Engine, "_needs_leaders", lambda *_: False)


def ids_of_an_open_decision_left_open(patch: pytest.MonkeyPatch) -> None:
    """what is open under an id of a decision that is not closed is left open, whichever transaction it is"""
    init = Sweep.__init__

    def changed(self: Any, *arguments: Any, own: Any = (), decided: Any = (), **more: Any) -> None:
        init(self, *arguments, own=[*own, *decided], **more)

    patch.setattr(Sweep, "__init__", changed)


def swept_once(patch: pytest.MonkeyPatch) -> None:
    """after a cancelled job the open transactions are listed once, although its tasks live on"""
    again = Sweep._again

    def once(self: Sweep, now_ms: int, finished: commit_step.CommitStep) -> OpenTransactions | None:
        self._late_ms = 0
        return again(self, now_ms, finished)

    patch.setattr(Sweep, "_again", once)


def task_does_not_ask(patch: pytest.MonkeyPatch) -> None:
    """a task begins its transaction although Spark no longer waits for it"""
    patch.setattr(Executor, "asks_in_vain", lambda _: False)
