"""The first half of the driver's machine: its state and its moves, C1, and the decision that was left open before.

Every operation that needs the ledger comes through here: fence and claim (or only look), read, judge, and as long as
there is an open decision, finish it and record how it ended. What comes after is the other half, committer.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from kafka_sink.errors import CommitAborted, KafkaSinkError, LocalProtocolError
from kafka_sink.exactly_once import messages
from kafka_sink.exactly_once.commit_step import CommitStep
from kafka_sink.exactly_once.end_txn import CommitTransactions, TransactionToEnd, last_writes_of, transactions_to_end
from kafka_sink.exactly_once.ledger import LedgerRecord, LedgerState, TransactionOutcome
from kafka_sink.exactly_once.ledger_codec import Unrecordable
from kafka_sink.exactly_once.ledger_read import LedgerRead
from kafka_sink.exactly_once.ledger_write import LedgerWrite, WriteState
from kafka_sink.exactly_once.next_step import NextStep, StepKind, next_step
from kafka_sink.exactly_once.phase import TRANSITIONS, Phase, PhaseEvent
from kafka_sink.exactly_once.receipt import BatchKey, summarised
from kafka_sink.exactly_once.session import (
    CommitResult,
    Conclusion,
    Decision,
    DeliverySettings,
    DriverOperation,
    DriverSession,
    Job,
)
from kafka_sink.exactly_once.sweep import OpenTransactions
from kafka_sink.exactly_once.takeover import Claim, Fence

NO_KEY = BatchKey("", "")
# How often one operation goes on after it was fenced although no other run came. Spark runs one commit of a query at a
# time, so once is the rule. Requests of a process that was killed may come late, and a coordinator that is none any
# more may say it for seconds: with the waits between them these are some seven seconds.
LOOKS_MAX = 12


class LedgerRecovery(ABC):
    def __init__(self, settings: DeliverySettings, session: DriverSession, job: Job, now_ms: int) -> None:
        self.phase = Phase.START
        self._settings = settings
        self._session = session
        self._job = job
        self._key = job.key or NO_KEY
        self._receipts = [receipt for receipt in job.receipts if receipt.transaction is not None]
        self._summary = summarised(job.receipts)
        for receipt in self._receipts:
            if receipt.key != self._key or receipt.run != session.run:
                raise LocalProtocolError(
                    f"a receipt of run {receipt.run!r} and {receipt.key} was handed in for run {session.run!r} and "
                    f"{self._key}"
                )
        self._part: CommitStep | None = None
        # What goes on beside it: the intent as a draft while its batch is checked, then the list of open transactions.
        self._draft: LedgerWrite | None = None
        self._listing: OpenTransactions | None = None
        self._verdict: CommitResult | None = None
        # What the verdict will be if nothing more goes wrong; set before discarding and sweeping.
        self._outcome = CommitResult(Conclusion.NOTHING_TO_DO, summary=self._summary)
        self._notes: list[str] = []
        # The ledger as this operation knows it: the session's once fenced, its own when only looked at.
        self._ledger: LedgerState | None = session.ledger if session.identity is not None else None
        self._claim_offset: int | None = None
        # What stands in the ledger up to here was there before the last fence of this operation, so it has ended.
        self._ended_offset = -1
        # This operation has decided its batch; all of its transactions are committed.
        self._has_decided = False
        self._has_committed = False
        self._record: LedgerRecord | None = None
        self._fates: list[TransactionOutcome | None] = []
        # It was read by an operation before this one, and may be old.
        self._is_remembered = True
        self._looks_left = LOOKS_MAX
        # Transactions of decisions that were finished here: nothing aborts them.
        self._decided: set[TransactionToEnd] = set()
        self._started_ms = now_ms
        self._deadline_ms = now_ms + self._patience_ms()
        self._has_begun = False

    def _patience_ms(self) -> int:
        transactions = [receipt.transaction for receipt in self._receipts if receipt.transaction is not None]
        if self._job.operation in (DriverOperation.COMMIT, DriverOperation.COMMIT_WITHOUT_LEDGER) and transactions:
            return min(transaction.remaining_ms for transaction in transactions) - self._settings.margin_ms
        return self._settings.patience_ms

    def _move(self, event: PhaseEvent) -> None:
        target = TRANSITIONS[self.phase].get(event)
        if target is None:
            raise LocalProtocolError(f"{event.value} is not possible while {self.phase.value}")
        self.phase = target

    def _end(self, conclusion: Conclusion, error: KafkaSinkError | None = None) -> None:
        self._move(PhaseEvent.END)
        self._part = None
        swept = self._outcome.swept
        self._verdict = CommitResult(conclusion, error, self._summary, swept, tuple(self._notes))

    def _fail(self, error: KafkaSinkError) -> None:
        if isinstance(error, CommitAborted) and self._job.operation is DriverOperation.COMMIT:
            self._session.remember(self._key, Decision.NONE)
        self._end(Conclusion.FAILED, error)

    # ---- C1 ----

    def _follow(self, now_ms: int, judgement: NextStep) -> None:
        move, record = judgement.move, judgement.record
        if judgement.note:
            self._notes.append(judgement.note)
        if judgement.error is not None:
            self._outcome = CommitResult(Conclusion.FAILED, judgement.error)
        elif judgement.conclusion is not None:
            self._outcome = CommitResult(judgement.conclusion)
        if move is StepKind.FENCE:
            self._move(PhaseEvent.FENCE)
            self._session.forget_identity()
            self._part = Fence(self._settings, self._session, now_ms)
        elif move is StepKind.LOOK:
            self._read(now_ms, None)
        elif move is StepKind.JUDGE:
            self._judge(now_ms)
        elif move is StepKind.FINISH:
            self._finish(now_ms, record)
        elif move is StepKind.CHECK:
            self._check(now_ms)
        elif move is StepKind.RECORD:
            assert record is not None
            self._write(now_ms, PhaseEvent.RECORD, record)
        elif move is StepKind.DISCARD:
            self._discard(now_ms)
        elif move is StepKind.SWEEP:
            self._sweep(now_ms)
        elif judgement.error is not None:
            self._fail(judgement.error)
        else:
            self._end(self._outcome.conclusion)

    def _judge(self, now_ms: int) -> None:
        assert self._ledger is not None
        is_fenced = self._session.identity is not None
        found = next_step(
            self._job,
            self._session,
            self._settings,
            self._ledger,
            self._summary,
            is_fenced=is_fenced,
            is_remembered=self._is_remembered,
        )
        if not self._has_decided or found.move in (StepKind.FENCE, StepKind.FINISH):
            self._follow(now_ms, found)
        elif self._has_committed and found.conclusion is Conclusion.ALREADY_DELIVERED:
            self._follow(now_ms, replace(found, move=StepKind.SWEEP, conclusion=Conclusion.DELIVERED))
        else:
            self._fail_after_decision("another driver has taken over")

    def _fail_after_decision(self, reason: str) -> None:
        """The ledger has the intent of this operation; whatever went wrong later, nothing may be aborted."""
        assert self._record is not None
        if self._has_committed:
            self._fail(messages.not_recorded(self._record, reason))
        elif self._fates and None not in self._fates:
            self._fail(messages.lost(self._record, self._fates))
        else:
            self._fail(messages.pending(self._record, self._fates, reason))

    def _on_fenced(self, now_ms: int, part: CommitStep) -> None:
        assert isinstance(part, Fence)
        if part.identity is None or part.failure is not None:
            self._fail_before_decision(part)
            return
        self._session.identity = part.identity
        self._session.older_is_fenced = self._session.has_older_driver
        self._move(PhaseEvent.CLAIM)
        self._part = Claim(self._settings, self._session, self._job.wall_ms, now_ms)

    def _on_claimed(self, now_ms: int, part: CommitStep) -> None:
        assert isinstance(part, Claim)
        if part.offset is None:
            self._session.forget_identity()
            self._fail_before_decision(part)
            return
        self._read(now_ms, part.offset)

    def _read(self, now_ms: int, claim_offset: int | None) -> None:
        self._move(PhaseEvent.READ)
        self._part = self._reading(now_ms, claim_offset)

    def _reading(self, now_ms: int, claim_offset: int | None) -> LedgerRead:
        self._claim_offset = claim_offset
        return LedgerRead(
            self._settings,
            self._session.sink_id,
            now_ms,
            named_sink_id=self._session.named_sink_id,
            claim_offset=claim_offset,
            is_of_name=self._job.operation is DriverOperation.RECOVER,
        )

    def _look_again(self, now_ms: int, part: LedgerWrite) -> bool:
        """The record was refused because somebody else has been the driver since: another process of this run, or
        another run. False: it was not that, or it has happened too often."""
        is_fenced = part.failure is not None and part.failure.is_fenced
        if part.state is not WriteState.NOT_WRITTEN or not is_fenced or self._looks_left == 0:
            return False
        again = LOOKS_MAX - self._looks_left
        self._looks_left -= 1
        self._move(PhaseEvent.LOOK_AGAIN)
        wait_ms = min(again * self._settings.retry_backoff_ms, self._settings.backoff_max_ms)
        self._part = self._reading(now_ms + wait_ms, None)
        return True

    def _on_read(self, now_ms: int, part: CommitStep) -> None:
        assert isinstance(part, LedgerRead)
        if part.state is None:
            self._session.forget_identity()
            self._fail_before_decision(part)
            return
        self._ledger = part.state
        self._is_remembered = False
        self._session.has_older_driver = self._session.has_older_driver or part.state.older_key is not None
        if self._session.identity is not None:
            assert self._claim_offset is not None
            self._session.ledger = part.state
            self._session.meet(part.state, self._claim_offset)
            if part.unmarked_offset > self._ended_offset:
                # It may be of a driver that fenced this one before its claim was there, and be open still.
                self._ended_offset = self._claim_offset
                self._follow(now_ms, NextStep(StepKind.FENCE))
                return
        self._judge(now_ms)

    def _fail_before_decision(self, part: CommitStep) -> None:
        reason = reason_of(part) if part.failure is not None or self._job.key is None else part.lateness
        if self._has_decided:
            self._fail_after_decision(reason)
            return
        if self._job.operation is DriverOperation.ABORT:
            # A decision can be neither found nor ruled out.
            self._notes.append(f"transactions were left to their time-out: {reason}")
            self._end(Conclusion.LEFT_ALONE)
        elif self._job.key is None:
            self._fail(messages.not_started(self._session.sink_id, self._job.operation.value, reason))
        else:
            self._fail(messages.aborted(self._session.sink_id, self._key, self._summary, reason))

    # ---- an open decision of before ----

    def _finish(self, now_ms: int, record: LedgerRecord | None) -> None:
        assert record is not None
        if record.is_of_another_cluster(self._settings.cluster_id):
            self._fail(messages.other_cluster(record, self._settings))
            return
        self._move(PhaseEvent.FINISH)
        self._record = record
        endings = transactions_to_end(record)
        self._decided.update(endings)
        self._part = CommitTransactions(self._settings, endings, last_writes_of(record), now_ms)

    def _on_finished(self, now_ms: int, part: CommitStep) -> None:
        assert isinstance(part, CommitTransactions) and self._record is not None and self._ledger is not None
        record, fates = self._record, part.fates
        if self._ledger.is_unmarked(record) and all(fate is TransactionOutcome.LOST for fate in fates):
            # Nobody can have decided it: a decision is carried out until something of it is visible.
            self._ledger = self._ledger.without_unmarked(record)
            self._decided.difference_update(transactions_to_end(record))
            self._judge(now_ms)
            return
        if None in fates:
            reason = reason_of(part)
            if self._job.key in (None, record.key):
                self._fail(messages.pending(record, fates, reason))
            else:
                self._fail(messages.other_pending(self._session.sink_id, self._key, self._summary, record, reason))
            return
        closing, self._fates = closing_of(record, part.fates, self._job.wall_ms), fates
        if self._session.identity is not None:
            self._write(now_ms, PhaseEvent.CLOSE, closing)
            return
        # Nobody was fenced, so nothing may be written: the next commit finds the decision and closes it.
        self._ledger = self._ledger.with_record(closing)
        if closing.fates:
            self._fail(messages.lost(closing, closing.fates))
            return
        remaining = self._ledger.open_intents()
        if remaining:
            self._finish(now_ms, remaining[0])
        else:
            self._end(Conclusion.RECOVERED)

    def _on_closed(self, now_ms: int, part: CommitStep) -> None:
        assert isinstance(part, LedgerWrite)
        if self._look_again(now_ms, part):
            return
        if part.record.fates:
            self._fail(messages.lost(part.record, part.record.fates))
        elif part.state is not WriteState.WRITTEN:
            self._fail(messages.not_recorded(part.record, reason_of(part)))
        elif self._session.identity is None:
            # Written, but the identity for the next record is gone.
            self._follow(now_ms, NextStep(StepKind.FENCE))
        else:
            self._ledger = self._session.ledger
            self._outcome = CommitResult(Conclusion.RECOVERED)
            self._judge(now_ms)

    def _write(self, now_ms: int, event: PhaseEvent, record: LedgerRecord) -> None:
        part = None
        if event is PhaseEvent.DECIDE:
            part, self._draft = self._draft, None
        try:
            part = part or LedgerWrite(self._settings, self._session, record, now_ms)
        except Unrecordable as error:
            self._on_unrecordable(now_ms, event, record, str(error))
            return
        self._move(event)
        self._part = part
        part.release(now_ms)

    def _on_unrecordable(self, now_ms: int, event: PhaseEvent, record: LedgerRecord, reason: str) -> None:
        """What closes a decision has less to say than the decision had, so this is about new batches."""
        if event is PhaseEvent.DECIDE:
            self._abandon(now_ms, reason)
        elif self.phase in (Phase.COMMITTING, Phase.FINISHING):
            self._fail(messages.not_recorded(record, reason))
        else:
            self._fail(messages.aborted(self._session.sink_id, self._key, self._summary, reason))

    # ---- the other half ----

    @abstractmethod
    def _check(self, now_ms: int) -> None: ...

    @abstractmethod
    def _abandon(self, now_ms: int, reason: str) -> None: ...

    @abstractmethod
    def _discard(self, now_ms: int) -> None: ...

    @abstractmethod
    def _sweep(self, now_ms: int) -> None: ...


def closing_of(record: LedgerRecord, fates: Sequence[TransactionOutcome | None], wall_ms: int) -> LedgerRecord:
    known = [fate for fate in fates if fate is not None]
    if all(fate is TransactionOutcome.COMMITTED for fate in known):
        return record.closed(wall_ms)
    return record.stuck(known, wall_ms)


def reason_of(part: CommitStep) -> str:
    if part.failure is not None:
        return part.failure.reason
    if isinstance(part, CommitTransactions) and part.obstacles:
        return next(iter(part.obstacles.values()))
    return part.last_trouble or "no answer in time"
