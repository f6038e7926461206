"""The driver's machine: one operation on one batch, from its receipts to a verdict. Phases and their order: phase.py.

It is driven by `step`: answers in, requests out, when to call again, and in the end a verdict. It does no I/O and knows
no clock; the same machine runs against Kafka, against a model of it, and against tests.

Each phase is a `CommitStep` that asks and is answered, or a record to be written. When a part is finished its phase
draws the conclusion and moves on; when the deadline has passed, the phase says what being late means there. Before
DECIDING it means that nothing happened; from the moment EndTxn of the intent is asked for it means that a decision may
be made, and then every transaction of the batch is left to whoever is the driver next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kafka_sink.exactly_once import messages
from kafka_sink.exactly_once.commit_step import CommitStep
from kafka_sink.exactly_once.end_txn import (
    AbortTransactions,
    CommitTransactions,
    TransactionToEnd,
    last_writes_of,
    transactions_to_end,
)
from kafka_sink.exactly_once.ledger import UNKNOWN_TIME, Kind, LedgerRecord, TransactionOutcome, intent_of, is_replaced
from kafka_sink.exactly_once.ledger_codec import Unrecordable
from kafka_sink.exactly_once.ledger_write import LedgerWrite, WriteState
from kafka_sink.exactly_once.next_step import first_step
from kafka_sink.exactly_once.phase import Phase, PhaseEvent
from kafka_sink.exactly_once.preflight import DescribeTransactions, checked, checked_by_time_alone
from kafka_sink.exactly_once.receipt import TaskReceipt
from kafka_sink.exactly_once.recovery import LedgerRecovery, closing_of, reason_of
from kafka_sink.exactly_once.request import DriverAnswer, DriverRequest
from kafka_sink.exactly_once.session import CommitResult, Conclusion, Decision, DriverOperation
from kafka_sink.exactly_once.sweep import OpenTransactions, Sweep, SweepRule
from kafka_sink.exactly_once.visible import Visible
from kafka_sink.frozen import frozen


@frozen
class Progress:
    """Send `requests`; call again with any answer, or at `wake_at_ms`. A verdict ends it."""

    requests: Sequence[DriverRequest]
    wake_at_ms: int | None
    verdict: CommitResult | None


class Committer(LedgerRecovery):
    """The loop, C2 to C5, and what is left to clean up. `LedgerRecovery` has the state and what comes before."""

    def step(self, now_ms: int, answers: Sequence[DriverAnswer] = ()) -> Progress:
        if not self._has_begun:
            self._has_begun = True
            self._follow(now_ms, first_step(self._job, self._session))
        for answer in answers:
            for part in self._parts():
                if part.inquiry.is_out(answer.key):
                    part.on_answer(now_ms, answer)
                    break
            self._conclude(now_ms)
        if self._part is not None and now_ms >= self._deadline_ms:
            _AT_DEADLINE[self.phase](self, now_ms)
            self._conclude(now_ms)
        if self._part is None:
            return Progress((), None, self._verdict)
        requests = [request for part in self._parts() for request in part.inquiry.due(now_ms)]
        return Progress(requests, self._wake_at_ms(now_ms), None)

    def _parts(self) -> list[CommitStep]:
        """The one that the phase is about, and what goes on beside it."""
        return [part for part in (self._part, self._draft, self._listing) if part is not None]

    def _wake_at_ms(self, now_ms: int) -> int | None:
        times = [part.inquiry.wake_at_ms() for part in self._parts()]
        times.append(self._deadline_ms if self._deadline_ms > now_ms else None)
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def _conclude(self, now_ms: int) -> None:
        while self._part is not None and self._part.is_finished:
            part, self._part = self._part, None
            _ON_FINISHED[self.phase](self, now_ms, part)

    # ---- C2 ----

    def _check(self, now_ms: int) -> None:
        self._move(PhaseEvent.CHECK)
        ids = [receipt.transaction.transactional_id for receipt in self._receipts if receipt.transaction is not None]
        self._part = DescribeTransactions(self._settings, ids, now_ms)
        previous = self._previous()
        if previous is not None and previous.run == self._session.run and previous.since_ms != UNKNOWN_TIME:
            # Nothing in the intent depends on what is being asked: it is appended meanwhile, and not decided.
            self._begin_draft(now_ms)

    def _previous(self) -> LedgerRecord | None:
        return None if self._ledger is None else self._ledger.find(self._key)

    def _intent(self, since_ms: int) -> LedgerRecord:
        intent = intent_of(
            self._session.sink_id,
            self._key,
            self._session.run,
            self._receipts,
            previous=self._previous(),
            since_ms=since_ms,
            wall_ms=self._job.wall_ms,
        )
        return replace(intent, cluster_id=self._settings.cluster_id)

    def _begin_draft(self, now_ms: int) -> None:
        try:
            record = self._intent(UNKNOWN_TIME)
            self._draft = LedgerWrite(self._settings, self._session, record, now_ms, is_draft=True)
        except Unrecordable as error:
            self._abandon(now_ms, str(error))

    def _on_checked(self, now_ms: int, part: CommitStep) -> None:
        assert isinstance(part, DescribeTransactions)
        transactions = [receipt.transaction for receipt in self._receipts if receipt.transaction is not None]
        if part.failure is not None:
            self._abandon(now_ms, part.failure.reason)
            return
        if part.is_supported:
            found = checked(transactions, part.found, self._settings.margin_ms)
        else:
            self._notes.append("the brokers do not speak DescribeTransactions: only the time left was checked")
            found = checked_by_time_alone(transactions, self._settings.margin_ms)
        if found.problem is not None:
            self._abandon(now_ms, found.problem)
            return
        self._deadline_ms = min(self._deadline_ms, self._started_ms + found.time_left_ms - self._settings.margin_ms)
        self._record = self._intent(found.since_ms) if self._draft is None else self._draft.record
        if self._job.operation is DriverOperation.COMMIT_WITHOUT_LEDGER:
            self._commit(now_ms)
        else:
            self._write(now_ms, PhaseEvent.DECIDE, self._record)

    def _abandon(self, now_ms: int, reason: str) -> None:
        """No decision was made and none will be."""
        if self._draft is not None:
            # What was appended stays without an end until the next fencing, or its time-out, aborts it.
            self._draft.give_up()
            self._draft = None
        error = messages.aborted(self._session.sink_id, self._key, self._summary, reason)
        self._session.remember(self._key, Decision.NONE)
        self._outcome = CommitResult(Conclusion.FAILED, error)
        self._discard(now_ms)

    # ---- C3 ----

    def _on_decided(self, now_ms: int, part: CommitStep) -> None:
        assert isinstance(part, LedgerWrite)
        reason = reason_of(part)
        if self._look_again(now_ms, part):
            return
        if part.state is WriteState.WRITTEN:
            self._session.remember(self._key, Decision.MADE)
            self._ledger = self._session.ledger
            self._commit(now_ms)
        elif part.state is not WriteState.NOT_WRITTEN:
            self._session.remember(self._key, Decision.IN_DOUBT)
            self._fail(messages.in_doubt(part.record, reason))
        elif part.failure is not None and part.failure.is_fenced:
            often = f"its epoch was refused again and again, although no other run has claimed the ledger ({reason})"
            self._fail(messages.aborted(self._session.sink_id, self._key, self._summary, often))
        else:
            self._fail(messages.aborted(self._session.sink_id, self._key, self._summary, reason))

    # ---- C4 ----

    def _commit(self, now_ms: int) -> None:
        assert self._record is not None
        self._move(PhaseEvent.COMMIT)
        self._session.remember(self._key, Decision.MADE)
        self._has_decided = True
        if self._job.operation is DriverOperation.COMMIT_WITHOUT_LEDGER:
            # Nobody will finish it later: go on past the margin, until time-outs make every answer definite.
            self._deadline_ms += self._settings.margin_ms + self._settings.patience_ms
        endings = transactions_to_end(self._record)
        self._decided.update(endings)
        self._part = CommitTransactions(self._settings, endings, last_writes_of(self._record), now_ms)
        self._listing = self._open_transactions(now_ms)

    def _on_committed(self, now_ms: int, part: CommitStep) -> None:
        assert isinstance(part, CommitTransactions) and self._record is not None
        record = self._record
        has_lost = any(fate in (TransactionOutcome.LOST, TransactionOutcome.UNRESOLVED) for fate in part.fates)
        if self._job.operation is DriverOperation.COMMIT_WITHOUT_LEDGER:
            if has_lost or None in part.fates:
                self._fail(messages.lost_without_ledger(record, part.fates, reason_of(part)))
            else:
                self._on_delivered(now_ms)
        elif None in part.fates:
            self._fail(messages.pending(record, part.fates, reason_of(part)))
        else:
            self._fates = part.fates
            self._has_committed = not has_lost
            self._record_outcome(now_ms, record)

    def _record_outcome(self, now_ms: int, record: LedgerRecord) -> None:
        closing = closing_of(record, self._fates, self._job.wall_ms)
        if self._session.identity is not None:
            self._write(now_ms, PhaseEvent.RECORD, closing)
        elif closing.fates:
            self._fail(messages.lost(closing, closing.fates))
        else:
            self._fail(messages.not_recorded(record, "the driver's epoch is unknown since the decision was written"))

    # ---- C5 ----

    def _on_recorded(self, now_ms: int, part: CommitStep) -> None:
        assert isinstance(part, LedgerWrite)
        is_choice = self._job.operation in (DriverOperation.ACCEPT, DriverOperation.REPLAY)
        if self._look_again(now_ms, part):
            return
        if part.record.fates:
            self._fail(messages.lost(part.record, part.record.fates))
        elif part.state is not WriteState.WRITTEN:
            said = messages.choice_not_recorded if is_choice else messages.not_recorded
            self._fail(said(part.record, reason_of(part)))
        elif is_choice:
            self._end(Conclusion.RESOLVED)
        else:
            self._on_delivered(now_ms)

    # ---- whether readers see it ----

    def _on_delivered(self, now_ms: int) -> None:
        self._outcome = CommitResult(Conclusion.DELIVERED)
        if not self._settings.visible_ms:
            self._sweep(now_ms)
            return
        self._move(PhaseEvent.VERIFY)
        self._deadline_ms = now_ms + self._settings.visible_ms
        self._part = Visible(self._settings, self._summary.written, now_ms)
        self._conclude(now_ms)

    def _on_verified(self, now_ms: int, part: CommitStep) -> None:
        assert isinstance(part, Visible)
        if part.note:
            self._notes.append(part.note)
        self._sweep(now_ms)

    def _late_to_be_seen(self, now_ms: int) -> None:
        part, self._part = self._part, None
        assert part is not None
        self._on_verified(now_ms, part)

    # ---- what no decision names ----

    def _discard(self, now_ms: int) -> None:
        self._move(PhaseEvent.DISCARD)
        endings = [ending for ending in map(_ending_of, self._receipts) if ending not in self._decided]
        self._deadline_ms = now_ms + self._settings.patience_ms
        self._part = AbortTransactions(self._settings, endings, now_ms)
        self._conclude(now_ms)

    def _on_discarded(self, now_ms: int, part: CommitStep) -> None:
        assert isinstance(part, AbortTransactions)
        for transactional_id, reason in sorted(part.left_open.items())[: messages.NAMED_MAX]:
            self._notes.append(
                f"transaction {transactional_id} could not be aborted and ends by its time-out: {reason}"
            )
        is_replaced_run = self._ledger is not None and is_replaced(self._ledger, self._key, self._session.run)
        may_be_decided = is_replaced_run and self._job.operation is DriverOperation.ABORT
        may_be_decided = may_be_decided or self._job.operation is DriverOperation.ABORT_WITHOUT_LEDGER
        if may_be_decided and len(part.aborted) < len(self._receipts):
            # What was not aborted just now may have been committed: by a successor, which finishes what this run
            # decided; without a ledger by the commit that failed in another process.
            self._outcome = CommitResult(Conclusion.LEFT_ALONE)
        self._sweep(now_ms)

    def _sweep(self, now_ms: int) -> None:
        self._move(PhaseEvent.SWEEP)
        newest = None if self._ledger is None else self._ledger.find(self._key)
        is_operators = self._job.operation in (DriverOperation.SWEEP, DriverOperation.FINISH)
        own_run = None if is_operators else self._session.run
        rule = SweepRule(self._session.sink_id, own_run, UNKNOWN_TIME, named_sink_id=self._session.named_sink_id)
        is_of_label = isinstance(self._key.batch_id, str)
        # A run that writes a label writes nothing else: once it is delivered that run is over, whoever's it was.
        is_over = is_of_label and newest is not None and newest.kind is Kind.DONE
        if newest is not None and (is_over or newest.run == self._session.run):
            runs = (*newest.runs, newest.run) if is_over else newest.runs
            rule = replace(rule, since_ms=newest.since_ms, replaced_runs=runs, is_of_label=is_of_label)
        self._deadline_ms = now_ms + self._settings.sweep_ms
        committed_ids: frozenset[str] = frozenset()
        listing, self._listing = self._listing, None
        if listing is None:
            listing = self._open_transactions(now_ms)
        elif self._record is not None:
            # It was asked for while these were being committed.
            committed_ids = frozenset(ending.transactional_id for ending in transactions_to_end(self._record))
        self._part = Sweep(self._settings, rule, listing, now_ms, committed_ids=committed_ids)
        self._conclude(now_ms)

    def _open_transactions(self, now_ms: int) -> OpenTransactions:
        sink_ids = frozenset({self._session.sink_id, self._session.named_sink_id})
        return OpenTransactions(self._settings, sink_ids, now_ms)

    def _on_swept(self, now_ms: int, part: CommitStep) -> None:
        assert isinstance(part, Sweep)
        self._notes += part.notes
        outcome = self._outcome
        self._outcome = CommitResult(outcome.conclusion, outcome.error, swept=part.swept)
        self._end(outcome.conclusion, outcome.error)

    # ---- the deadline ----

    def _late_before_decision(self, now_ms: int) -> None:
        part, self._part = self._part, None
        assert part is not None
        if self.phase is Phase.CHECKING:
            self._abandon(now_ms, part.lateness)
        else:
            self._session.forget_identity()
            self._fail_before_decision(part)

    def _late_write(self, now_ms: int) -> None:
        part, self._part = self._part, None
        assert isinstance(part, LedgerWrite)
        part.give_up()
        _ON_FINISHED[self.phase](self, now_ms, part)

    def _late_commit(self, now_ms: int) -> None:
        assert isinstance(self._part, CommitTransactions)
        self._part.last_call(now_ms)

    def _late_courtesy(self, now_ms: int) -> None:
        part, self._part = self._part, None
        assert part is not None
        self._notes.append(f"{self.phase.value} took too long and was left: {part.last_trouble or 'no answer'}")
        _ON_FINISHED[self.phase](self, now_ms, part)


_ON_FINISHED = {
    Phase.FENCING: Committer._on_fenced,
    Phase.CLAIMING: Committer._on_claimed,
    Phase.READING: Committer._on_read,
    Phase.FINISHING: Committer._on_finished,
    Phase.CLOSING: Committer._on_closed,
    Phase.CHECKING: Committer._on_checked,
    Phase.DECIDING: Committer._on_decided,
    Phase.COMMITTING: Committer._on_committed,
    Phase.RECORDING: Committer._on_recorded,
    Phase.DISCARDING: Committer._on_discarded,
    Phase.VERIFYING: Committer._on_verified,
    Phase.SWEEPING: Committer._on_swept,
}

_AT_DEADLINE = {
    Phase.FENCING: Committer._late_before_decision,
    Phase.CLAIMING: Committer._late_before_decision,
    Phase.READING: Committer._late_before_decision,
    Phase.FINISHING: Committer._late_commit,
    Phase.CLOSING: Committer._late_write,
    Phase.CHECKING: Committer._late_before_decision,
    Phase.DECIDING: Committer._late_write,
    Phase.COMMITTING: Committer._late_commit,
    Phase.RECORDING: Committer._late_write,
    Phase.DISCARDING: Committer._late_courtesy,
    Phase.VERIFYING: Committer._late_to_be_seen,
    Phase.SWEEPING: Committer._late_courtesy,
}


def _ending_of(receipt: TaskReceipt) -> TransactionToEnd:
    transaction = receipt.transaction
    assert transaction is not None
    return TransactionToEnd(
        transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, transaction.generation
    )
