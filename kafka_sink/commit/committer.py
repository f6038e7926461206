"""The driver's state machine: one operation on one batch, from receipts to result. Phases and their order: phase.py.

It is driven by `step`: replies in; asks out, when to call again, and finally a result. It does no I/O and reads no
clock; the same code runs against Kafka, against a model of Kafka, and in tests.

Each phase is a `CommitStep` that asks brokers, or writes a record. PHASES says how a phase is begun, what comes next
when its step is finished, and what it means that the deadline has passed. Before DECIDING it means that nothing
happened. Once EndTxn for the intent has been sent, a decision may exist, and every transaction of the batch is left to
the next driver.

Every operation that needs the ledger begins with C1: fence and claim (or only look), read, and if there is an open
decision, finish it and record its outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from kafka_sink.commit import messages
from kafka_sink.commit.commit_step import CommitStep, Progress
from kafka_sink.commit.end_txn import AbortTransactions, CommitTransactions, partitions_of
from kafka_sink.commit.ledger import (
    UNKNOWN_TIME,
    LedgerRecord,
    LedgerState,
    TransactionOutcome,
    batch_at_hand,
    intent_of,
)  # fmt: skip
from kafka_sink.commit.ledger_codec import Unrecordable
from kafka_sink.commit.ledger_read import LedgerRead
from kafka_sink.commit.ledger_write import LedgerWrite, WriteState, manifest_place
from kafka_sink.commit.listing import OpenTransactions
from kafka_sink.commit.next_step import NextStep, first_step, is_over, may_have_been_decided, next_step
from kafka_sink.commit.phase import TRANSITIONS, Phase, PhaseRow
from kafka_sink.commit.preflight import Preflight
from kafka_sink.commit.receipt import UNNAMED_BATCH, known_extents, summarize_receipts
from kafka_sink.commit.session import CommitResult, Conclusion, DeliverySettings, DriverOperation, DriverSession, Job
from kafka_sink.commit.sweep import Sweep, decided_transactions, open_transactions, sweep_rule
from kafka_sink.commit.takeover import LOOKS_MAX, Claim, Fence, is_first_of_its_line
from kafka_sink.commit.unmarked import UnmarkedTransactions
from kafka_sink.commit.visible import Visible
from kafka_sink.errors import KafkaSinkError, LocalProtocolError
from kafka_sink.kafka.client.ask import Reply


class Committer:
    def __init__(self, settings: DeliverySettings, session: DriverSession, job: Job, now_ms: int) -> None:
        self.phase = Phase.START
        self._settings = settings
        self._session = session
        self._job = job
        self._key = job.key or UNNAMED_BATCH
        assert job.key is None or session.line == settings.line_of(session.sink_id, job.key), "a session is of one line"
        session.limit_timeout(settings.margin_ms)
        self._receipts = job.prepared_receipts(session.run)
        self._summary = summarize_receipts(job.receipts)
        self._batch = batch_at_hand(
            session.sink_id, self._key, session.run, self._summary,
            wall_ms=job.wall_ms, cluster_id=settings.cluster_id, label=session.label, manifest=job.manifest,
        )  # fmt: skip
        self._current: CommitStep | None = None
        # Steps in parallel: the intent as a draft while its batch is checked, then the list of open transactions.
        self._draft: LedgerWrite | None = None
        self._listing: OpenTransactions | None = None
        self._result: CommitResult | None = None
        # What the result will be if nothing more goes wrong; set before discarding and sweeping.
        self._intended = CommitResult(Conclusion.NOTHING_TO_DO)
        self._notes: list[str] = []
        # The ledger as this operation knows it: the session's after fencing, its own copy when it was only read.
        self._ledger: LedgerState | None = session.ledger
        self._claim_offset: int | None = None
        # Transactions of records up to this offset were open before this operation's last fence, so they have ended.
        self._ended_offset = -1
        # This operation has decided its batch; all of its transactions are committed.
        self._has_decided = False
        self._has_committed = False
        self._record: LedgerRecord | None = None
        self._outcomes: list[TransactionOutcome | None] = []
        # The ledger was read by an earlier operation and may be out of date.
        self._is_remembered = True
        self._look_count = 0
        self._help_until_ms: int | None = None
        self._others: tuple[LedgerRecord, ...] = ()
        self._started_ms = now_ms
        self._deadline_ms = now_ms + settings.patience_ms
        if job.operation is DriverOperation.COMMIT and self._receipts:
            self._deadline_ms = now_ms + min(one.remaining_ms for one in self._receipts) - settings.margin_ms

    def step(self, now_ms: int, replies: Sequence[Reply] = ()) -> Progress[CommitResult]:
        if self.phase is Phase.START:
            first = first_step(self._job, self._session)
            if first is None:
                self._judge(now_ms)
            else:
                self._follow(now_ms, first)
            self._conclude(now_ms)
        for reply in replies:
            asked = next((step for step in self.steps() if step.asks.is_out(reply.ask)), None)
            if asked is not None:
                asked.on_reply(now_ms, reply)
                self._deadline_ms = min(self._deadline_ms, self._started_ms + asked.limit_ms)
            self._conclude(now_ms)
        if self._current is not None and now_ms >= self._deadline_ms:
            step, self._current = self._current, None
            PHASES[self.phase].late(self, now_ms, step)
            self._conclude(now_ms)
        if self._current is None:
            return Progress((), None, self._result)
        due = [ask for step in self.steps() for ask in step.asks.take_due(now_ms)]
        return Progress(due, self._wake_at_ms(now_ms), None, self._current.last_trouble)

    def steps(self) -> Iterator[CommitStep]:
        """The step of the current phase and those that run in parallel."""
        return (step for step in (self._current, self._draft, self._listing) if step is not None)

    def _wake_at_ms(self, now_ms: int) -> int | None:
        times = [step.asks.wake_at_ms() for step in self.steps()]
        times.append(self._deadline_ms if self._deadline_ms > now_ms else None)
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def _conclude(self, now_ms: int) -> None:
        while self._current is not None and self._current.is_finished:
            step, self._current = self._current, None
            self._notes += step.notes
            PHASES[self.phase].finished(self, now_ms, step)

    def _move(self, phase: Phase) -> None:
        if phase not in TRANSITIONS[self.phase]:
            raise LocalProtocolError(f"a commit cannot be {phase.value} after it was {self.phase.value}")
        self.phase = phase

    def _end(self, conclusion: Conclusion, error: KafkaSinkError | None = None) -> None:
        self._move(Phase.ENDED)
        ended = replace(self._intended, conclusion=conclusion, error=error, summary=self._summary)
        ended = replace(ended, notes=tuple(self._notes), others=self._others, help_until_ms=self._help_until_ms)
        self._result = replace(ended, ledger=self._ledger)

    def _fail(self, error: KafkaSinkError) -> None:
        self._end(Conclusion.FAILED, error)

    def _fail_as_lost(
        self, record: LedgerRecord, outcomes: Sequence[TransactionOutcome | None], trouble: str = ""
    ) -> None:
        self._fail(messages.lost_error(self._settings.commands, record, outcomes, trouble, self._job.key))

    # ---- C1 ----

    def _follow(self, now_ms: int, judged: NextStep) -> None:
        if judged.forgets:
            self._session.forget_identity()
        if judged.note:
            self._notes.append(judged.note)
        if judged.error is not None:
            self._intended = CommitResult(Conclusion.FAILED, judged.error)
        elif judged.conclusion is not None:
            self._intended = CommitResult(judged.conclusion)
        if judged.phase is Phase.ENDED:
            self._end(self._intended.conclusion, self._intended.error)
            return
        begin = PHASES[judged.phase].begin
        assert begin is not None, f"{judged.phase.value} follows from another phase only"
        begin(self, now_ms, judged.record)

    def _fence(self, now_ms: int, _: LedgerRecord | None = None) -> None:
        self._move(Phase.FENCING)
        self._session.forget_identity()
        self._current = Fence(self._settings, self._session).begin(now_ms)

    def _judge(self, now_ms: int) -> None:
        assert self._ledger is not None
        found = next_step(
            self._job, self._session, self._settings, self._ledger, self._batch, is_remembered=self._is_remembered
        )
        if not self._has_decided or found.phase in (Phase.FENCING, Phase.FINISHING):
            self._follow(now_ms, found)
        elif self._has_committed and is_over(found, self._ledger, self._key, self._session.run):
            self._follow(now_ms, NextStep(Phase.SWEEPING, conclusion=Conclusion.DELIVERED))
        else:
            self._fail_after_decision("another driver has taken over")

    def _fail_after_decision(self, reason: str) -> None:
        """The ledger has the intent of this operation; whatever went wrong later, nothing may be aborted."""
        assert self._record is not None
        if self._has_committed:
            self._fail(messages.not_recorded_error(self._settings.commands, self._record, reason))
        else:
            self._fail_as_lost(self._record, self._outcomes)

    def _on_fenced(self, now_ms: int, step: Fence) -> None:
        if step.identity is None or step.failure is not None:
            self._fail_before_decision(step)
            return
        self._session.identity = step.identity
        self._session.older_fenced = self._session.older_offset
        if self._ledger is None and is_first_of_its_line(self._job, step.identity):
            self._ledger = self._session.ledger = LedgerState(self._session.sink_id)
            self._is_remembered = False
            self._judge(now_ms)
            return
        self._move(Phase.CLAIMING)
        self._current = Claim(self._settings, self._session, self._job.wall_ms).begin(now_ms)

    def _on_claimed(self, now_ms: int, step: Claim) -> None:
        if step.offset is None:
            self._fail_before_decision(step)
        else:
            self._read(now_ms, claim_offset=step.offset)

    def _read(self, now_ms: int, _: LedgerRecord | None = None, *, claim_offset: int | None = None) -> None:
        self._move(Phase.READING)
        self._claim_offset = claim_offset
        is_of_name = self._job.operation is DriverOperation.RECOVER
        read = LedgerRead.of_session(self._settings, self._session, claim_offset=claim_offset, is_of_name=is_of_name)
        self._current = read.begin(now_ms)

    def _may_look_again(self, step: LedgerWrite) -> bool:
        """The record was refused because another driver has fenced this one: another process of this run, or another
        run. False: the cause is different, or it has happened too often."""
        return step.state is WriteState.NOT_WRITTEN and step.is_fenced and self._look_count < LOOKS_MAX

    def _look_again(self, now_ms: int) -> None:
        wait_ms = min(self._look_count * self._settings.retry_backoff_ms, self._settings.backoff_max_ms)
        self._look_count += 1
        self._read(now_ms + wait_ms)

    def _on_read(self, now_ms: int, step: LedgerRead) -> None:
        if step.state is None:
            self._fail_before_decision(step)
            return
        self._ledger, self._others = step.state, step.state.others
        self._is_remembered = False
        self._session.note_older(step.state)
        if self._session.identity is not None:
            assert self._claim_offset is not None
            self._session.ledger = step.state
            self._session.note_claim(step.state, self._claim_offset)
            if step.unmarked_offset > self._ended_offset:
                # The record may be from a driver that fenced this one before this claim was written, and still be open.
                # If it were believed now and aborted later, the ledger would not contain what Spark was told.
                self._ended_offset = self._claim_offset
                self._fence(now_ms)
                return
        self._judge(now_ms)

    def _fail_before_decision(self, step: CommitStep) -> None:
        is_commit = self._job.operation is DriverOperation.COMMIT
        reason = step.lateness if is_commit and step.failure is None else step.reason
        reason = messages.complete_reason(self._settings.commands, self._session.sink_id, reason, step.entry)
        if self._has_decided:
            self._fail_after_decision(reason)
        elif self._job.operation is DriverOperation.ABORT:
            # Whether there is a decision is unknown.
            self._notes.append(f"transactions were left to their time-out: {reason}")
            self._end(Conclusion.LEFT_ALONE)
        elif is_commit:
            self._fail(messages.aborted_error(self._batch, reason, step.entry))
        else:
            self._fail(messages.not_started_error(self._session.sink_id, self._job.operation.value, reason))

    # ---- an open decision of an earlier driver ----

    def _finish(self, now_ms: int, record: LedgerRecord | None) -> None:
        assert record is not None
        if record.is_of_another_cluster(self._settings.cluster_id):
            self._fail(messages.other_cluster_error(record, self._settings))
            return
        self._record = record
        if self._ledger is not None and self._ledger.is_unmarked(record):
            self._move(Phase.PROVING)
            self._current = UnmarkedTransactions.of(self._settings, record, self._receipts).begin(now_ms)
            return
        self._move(Phase.FINISHING)
        if self._is_of_others(record):
            # Help must not keep this write waiting.
            self._help_until_ms = self._help_until_ms or now_ms + self._settings.sweep_ms
            self._deadline_ms = min(self._deadline_ms, self._help_until_ms)
        self._end_transactions(now_ms, record)

    def _end_transactions(self, now_ms: int, record: LedgerRecord, *, are_leaders_known: bool = False) -> None:
        self._current = CommitTransactions(
            self._settings, record.transactions, record.entries, self._receipts, are_leaders_known=are_leaders_known,
            is_help=self._is_of_others(record), host_ahead_ms=self._job.wall_ms - self._started_ms,
        ).begin(now_ms)  # fmt: skip

    def _on_proven(self, now_ms: int, step: UnmarkedTransactions) -> None:
        assert self._record is not None
        record, outcomes = self._record, step.outcomes
        if step.may_be_decided:
            self._move(Phase.FINISHING)
            self._end_transactions(now_ms, record)
        elif step.is_dropped:
            self._drop_unmarked(now_ms, record)
        elif None in outcomes:
            self._fail(messages.unproven_error(self._settings.commands, self._batch, record, step.reason))
        else:
            self._close(now_ms, record, outcomes)

    def _drop_unmarked(self, now_ms: int, record: LedgerRecord) -> None:
        """It was never decided, or nothing of it is visible and its commit has not returned."""
        assert self._ledger is not None
        self._notes.append(messages.dropped_intent_text(record))
        self._ledger = self._ledger.without_unmarked(record)
        self._judge(now_ms)

    def _on_finished(self, now_ms: int, step: CommitTransactions) -> None:
        assert self._record is not None and self._ledger is not None
        record, outcomes = self._record, step.outcomes
        if self._is_of_others(record):
            is_done = all(outcome is TransactionOutcome.COMMITTED for outcome in outcomes)
            if step.is_forbidden or step.leaves_open:
                # Of another team, which has its own operators and starts; or its driver may be alive.
                self._others = tuple(other for other in self._others if other != record)
            self._leave_to_others(now_ms, record, "" if is_done or step.is_forbidden else step.reason)
            return
        if self._ledger.is_unmarked(record) and all(outcome is TransactionOutcome.LOST for outcome in outcomes):
            self._drop_unmarked(now_ms, record)
            return
        if None in outcomes:
            self._fail(messages.unfinished_error(self._settings.commands, self._batch, record, outcomes, step.reason))
            return
        self._close(now_ms, record, outcomes)

    def _close(self, now_ms: int, record: LedgerRecord, outcomes: list[TransactionOutcome | None]) -> None:
        assert self._ledger is not None
        closing, self._outcomes = record.with_outcomes(outcomes, self._job.wall_ms), outcomes
        if not closing.outcomes and self._job.has_decided(record):
            # Its decision was made by this operation, or by nobody before it.
            self._has_decided = self._has_committed = True
        if self._session.identity is not None:
            self._write(now_ms, Phase.CLOSING, closing)
            return
        # This operation has fenced no one, so it must not write: the next commit finds the decision and closes it.
        self._ledger = self._ledger.with_record(closing)
        if closing.outcomes:
            self._fail_as_lost(closing, closing.outcomes)
            return
        self._intended = CommitResult(Conclusion.RECOVERED)
        self._judge(now_ms)

    def _is_of_others(self, record: LedgerRecord) -> bool:
        return self._ledger is not None and record in self._ledger.others

    def _leave_to_others(self, now_ms: int, record: LedgerRecord, trouble: str) -> None:
        """An open decision of a write without a label, whose driver may be alive and commit it just now. Its ids belong
        to that write alone, so to commit them twice is harmless. Only its driver, or an operator, records the end."""
        assert self._ledger is not None
        if trouble:
            self._notes.append(messages.not_helped_text(self._settings.commands, record, trouble))
        self._ledger = self._ledger.without_other(record)
        self._judge(now_ms)

    def _on_closed(self, now_ms: int, step: LedgerWrite) -> None:
        if self._may_look_again(step):
            self._look_again(now_ms)
            return
        if step.record.outcomes:
            self._fail_as_lost(step.record, step.record.outcomes, step.trouble)
        elif step.state is not WriteState.WRITTEN:
            self._fail(messages.not_closed_error(self._settings.commands, self._batch, step.record, step.reason))
        elif self._session.identity is None:
            # Written, but the producer id and epoch for the next record are lost.
            self._fence(now_ms)
        else:
            self._ledger = self._session.ledger
            self._intended = CommitResult(Conclusion.RECOVERED)
            self._judge(now_ms)

    def _write(self, now_ms: int, phase: Phase, record: LedgerRecord) -> None:
        step, self._draft = self._draft, None
        try:
            step = step or LedgerWrite(self._settings, self._session, record).begin(now_ms)
        except Unrecordable as error:
            self._on_unrecordable(now_ms, phase, record, str(error))
            return
        self._move(phase)
        self._current = step
        step.release(now_ms)

    def _on_unrecordable(self, now_ms: int, phase: Phase, record: LedgerRecord, reason: str) -> None:
        """A done record is smaller than its intent. One of a loss is larger: it has the fates of the transactions."""
        if phase is Phase.DECIDING:
            self._abandon(now_ms, reason)
        elif record.outcomes:
            self._fail_as_lost(record, record.outcomes, reason)
        elif self.phase in (Phase.COMMITTING, Phase.FINISHING):
            self._fail(messages.not_recorded_error(self._settings.commands, record, reason))
        else:
            self._fail(messages.aborted_error(self._batch, reason))

    # ---- C2 ----

    def _check(self, now_ms: int, _: LedgerRecord | None = None) -> None:
        self._move(Phase.CHECKING)
        self._current = Preflight(
            self._settings, self._session, self._receipts, self._job.age_max_ms, manifest_place(self._batch),
            waited_ms=now_ms - self._started_ms, append_intent=self._append_intent,
        ).begin(now_ms)  # fmt: skip
        previous = self._previous()
        is_run_known = previous is not None and previous.run == self._session.run and previous.since_ms != UNKNOWN_TIME
        # When its transactions began matters to other runs, and a write without a label has none.
        if is_run_known or not self._key.is_named:
            self._append_intent(now_ms, UNKNOWN_TIME)

    def _append_intent(self, now_ms: int, since_ms: int) -> LedgerWrite | None:
        """It does not depend on the result of the check: it is appended in the meantime, without EndTxn. None: it
        cannot be recorded, as the decision will say."""
        if self._draft is None:
            with suppress(Unrecordable):
                record = intent_of(self._batch, self._receipts, self._previous(), since_ms)
                self._draft = LedgerWrite(self._settings, self._session, record, is_draft=True).begin(now_ms)
        return self._draft

    def _previous(self) -> LedgerRecord | None:
        return None if self._ledger is None else self._ledger.find(self._key)

    def _on_checked(self, now_ms: int, step: Preflight) -> None:
        if step.failure is not None:
            self._abandon(now_ms, step.failure)
            return
        found = step.check()
        problem = found.problem or (step.lateness if now_ms >= self._deadline_ms else None)
        if problem is not None:
            self._abandon(now_ms, problem)
            return
        draft, previous = self._draft, self._previous()
        self._record = draft.record if draft else intent_of(self._batch, self._receipts, previous, found.since_ms)
        self._write(now_ms, Phase.DECIDING, self._record)
        if self.phase is Phase.DECIDING:
            self._listing = open_transactions(self._settings, now_ms)

    def _abandon(self, now_ms: int, reason: str) -> None:
        """No decision was made and none will be."""
        if self._draft is not None:
            # The appended record stays in an open transaction until the next fence or its time-out aborts it.
            self._draft.give_up()
            self._draft = None
        self._intended = CommitResult(Conclusion.FAILED, messages.aborted_error(self._batch, reason))
        self._discard(now_ms)

    # ---- C3 ----

    def _on_decided(self, now_ms: int, step: LedgerWrite) -> None:
        if step.state is not WriteState.WRITTEN:
            self._listing = None
        if self._may_look_again(step):
            self._look_again(now_ms)
            return
        if step.state is WriteState.WRITTEN:
            self._ledger = self._session.ledger
            self._commit(now_ms)
        elif step.state is not WriteState.NOT_WRITTEN:
            self._fail(messages.in_doubt_error(self._settings.commands, step.record, step.reason))
        else:
            often = "its epoch was refused again and again, although no other run has claimed the ledger"
            reason = f"{often} ({step.reason})" if step.is_fenced else step.reason
            self._fail(messages.aborted_error(self._batch, reason))

    # ---- C4 ----

    def _commit(self, now_ms: int) -> None:
        assert self._record is not None
        self._move(Phase.COMMITTING)
        self._has_decided = True
        # C2 has just looked at them.
        self._end_transactions(now_ms, self._record, are_leaders_known=True)

    def _on_committed(self, now_ms: int, step: CommitTransactions) -> None:
        assert self._record is not None
        if None in step.outcomes:
            self._fail(messages.pending_error(self._settings.commands, self._record, step.outcomes, step.reason))
        else:
            self._outcomes = step.outcomes
            self._has_committed = all(outcome is TransactionOutcome.COMMITTED for outcome in step.outcomes)
            self._record_outcome(now_ms, self._record)

    def _record_outcome(self, now_ms: int, record: LedgerRecord) -> None:
        closing = record.with_outcomes(self._outcomes, self._job.wall_ms)
        if self._session.identity is not None and self._job.closes_later(record, closing, self._settings):
            self._on_delivered(now_ms, closing)
        elif self._session.identity is not None:
            self._write(now_ms, Phase.RECORDING, closing)
        else:
            # The answer to the decision was lost, and another driver has fenced this one since. It may have closed it.
            self._look_again(now_ms)

    # ---- C5 ----

    def _record_choice(self, now_ms: int, record: LedgerRecord | None) -> None:
        """Of an operator, or that a batch without rows was seen."""
        assert record is not None
        self._write(now_ms, Phase.RECORDING, record)

    def _on_recorded(self, now_ms: int, step: LedgerWrite) -> None:
        is_choice = self._job.operation in (DriverOperation.ACCEPT, DriverOperation.REPLAY)
        if self._may_look_again(step):
            self._look_again(now_ms)
            return
        if step.record.outcomes:
            self._fail_as_lost(step.record, step.record.outcomes, step.trouble)
        elif step.state is not WriteState.WRITTEN:
            make_error = messages.choice_not_recorded_error if is_choice else messages.not_recorded_error
            self._fail(make_error(self._settings.commands, step.record, step.reason))
        elif is_choice:
            self._end(Conclusion.RESOLVED)
        else:
            self._on_delivered(now_ms)

    def _on_delivered(self, now_ms: int, closing: LedgerRecord | None = None) -> None:
        self._intended = CommitResult(Conclusion.DELIVERED, closing=closing)
        if not self._settings.visible_ms:
            self._sweep(now_ms)
            return
        self._move(Phase.VERIFYING)
        self._deadline_ms = now_ms + self._settings.visible_ms
        self._current = Visible(self._settings, known_extents(self._job.receipts)).begin(now_ms)

    def _on_verified(self, now_ms: int, step: Visible) -> None:
        if step.note:
            self._notes.append(step.note)
        self._sweep(now_ms)

    # ---- transactions without a decision ----

    def _discard(self, now_ms: int, _: LedgerRecord | None = None) -> None:
        self._move(Phase.DISCARDING)
        self._deadline_ms = now_ms + self._settings.patience_ms
        # After the batch of a stream counts as delivered, tasks of the next one may use the same transactional ids.
        waits = self._intended.conclusion is Conclusion.ALREADY_DELIVERED and isinstance(self._key.batch_id, int)
        written = partitions_of(self._receipts)
        self._current = AbortTransactions(self._settings, written, waits_for_leaders=waits).begin(now_ms)

    def _on_discarded(self, now_ms: int, step: AbortTransactions) -> None:
        if step.leaderless:
            error = messages.not_discarded_error(self._batch, min(step.leaderless.values()))
            self._intended = CommitResult(Conclusion.FAILED, error)
        is_abort = self._job.operation is DriverOperation.ABORT
        may_be_decided = is_abort and may_have_been_decided(self._ledger, self._key, self._session.run)
        if may_be_decided and len(step.aborted) < len(self._receipts):
            # One that was not aborted just now may have been committed: by a successor, or long ago.
            self._intended = CommitResult(Conclusion.LEFT_ALONE)
        self._sweep(now_ms)

    def _sweep(self, now_ms: int, _: LedgerRecord | None = None) -> None:
        self._move(Phase.SWEEPING)
        late_ms = self._settings.late_tasks_ms if self._job.has_late_tasks else 0
        self._deadline_ms = now_ms + self._settings.sweep_ms + 2 * late_ms
        listing, self._listing = self._listing, None
        # A list that was requested while these were being committed may have them.
        own = () if listing is None or self._record is None else self._record.transactions
        self._current = Sweep(
            self._settings, sweep_rule(self._session, self._previous(), self._job),
            listing or open_transactions(self._settings, now_ms),
            own=own, decided=decided_transactions(self._ledger), late_ms=late_ms,
        ).begin(now_ms)  # fmt: skip

    def _on_swept(self, now_ms: int, step: Sweep) -> None:
        self._intended = replace(self._intended, swept=step.swept, is_swept=step.is_complete)
        self._end(self._intended.conclusion, self._intended.error)

    # ---- the deadline ----

    def _late_before_decision(self, now_ms: int, step: CommitStep) -> None:
        if self.phase is Phase.CHECKING:
            self._abandon(now_ms, step.lateness)
        else:
            self._fail_before_decision(step)

    def _late_write(self, now_ms: int, step: LedgerWrite) -> None:
        step.give_up()
        PHASES[self.phase].finished(self, now_ms, step)

    def _late_commit(self, now_ms: int, step: CommitTransactions) -> None:
        step.stop_retrying(now_ms)
        self._current = step

    def _late_courtesy(self, now_ms: int, step: CommitStep) -> None:
        self._notes.append(f"{self.phase.value} took too long and was left: {step.last_trouble or 'no answer'}")
        PHASES[self.phase].finished(self, now_ms, step)


PHASES: dict[Phase, PhaseRow] = {
    Phase.FENCING: PhaseRow(Committer._on_fenced, Committer._late_before_decision, Committer._fence),
    Phase.CLAIMING: PhaseRow(Committer._on_claimed, Committer._late_before_decision),
    Phase.READING: PhaseRow(Committer._on_read, Committer._late_before_decision, Committer._read),
    Phase.PROVING: PhaseRow(Committer._on_proven, Committer._late_commit),
    Phase.FINISHING: PhaseRow(Committer._on_finished, Committer._late_commit, Committer._finish),
    Phase.CLOSING: PhaseRow(Committer._on_closed, Committer._late_write),
    Phase.CHECKING: PhaseRow(Committer._on_checked, Committer._late_before_decision, Committer._check),
    Phase.DECIDING: PhaseRow(Committer._on_decided, Committer._late_write),
    Phase.COMMITTING: PhaseRow(Committer._on_committed, Committer._late_commit),
    Phase.RECORDING: PhaseRow(Committer._on_recorded, Committer._late_write, Committer._record_choice),
    Phase.DISCARDING: PhaseRow(Committer._on_discarded, Committer._late_courtesy, Committer._discard),
    Phase.VERIFYING: PhaseRow(Committer._on_verified, Committer._on_verified),
    Phase.SWEEPING: PhaseRow(Committer._on_swept, Committer._late_courtesy, Committer._sweep),
}
