"""Mistakes about the decision: who may decide, when it is made, and what an earlier decision means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.commit import committer, ledger, ledger_codec, ledger_read, next_step, preflight, session, takeover
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.identity import Line
from kafka_sink.commit.ledger import OTHER_COUNTS, Kind, LedgerRecord, TransactionOutcome
from kafka_sink.commit.ledger_found import Found
from kafka_sink.commit.ledger_read import LedgerRead
from kafka_sink.commit.ledger_write import LedgerWrite, WriteState
from kafka_sink.commit.manifest import Manifest
from kafka_sink.commit.next_step import NextStep
from kafka_sink.commit.phase import Phase
from kafka_sink.commit.receipt import UNNAMED_BATCH, BatchKey, BatchSummary
from kafka_sink.commit.session import Conclusion, DeliverySettings, DriverOperation, DriverSession, Job
from kafka_sink.commit.sweep import SweepRule
from kafka_sink.commit.time_left import Described, TimeLeft
from kafka_sink.commit.unmarked import UnmarkedTransactions
from kafka_sink.errors.table.commits import CHECKPOINT_SET_BACK
from tests.sim.delivery import closings, query

BEYOND_EVERYTHING = 1 << 40


def _finish_with(patch: pytest.MonkeyPatch, phase: Phase, finished: committer.Handler) -> None:
    patch.setitem(committer.PHASES, phase, committer.PHASES[phase]._replace(finished=finished))


def no_intent(patch: pytest.MonkeyPatch) -> None:
    """transactions are committed without a durable decision"""
    write = Committer._write

    def changed(self: Any, now_ms: int, phase: Phase, record: Any) -> None:
        if phase is Phase.DECIDING:
            self._move(Phase.DECIDING)
            self._commit(now_ms)
        else:
            write(self, now_ms, phase, record)

    patch.setattr(Committer, "_write", changed)


def decision_not_durable(patch: pytest.MonkeyPatch) -> None:
    """the intent's own transaction is not committed before the others are"""

    def produced(self: LedgerWrite, now_ms: int, ask: Any, body: Any) -> None:
        self.asks.drop_all()
        self.state = WriteState.WRITTEN
        self._session.forget_identity()

    patch.setattr(LedgerWrite, "_on_produced", produced)


def recorded_before_committed(patch: pytest.MonkeyPatch) -> None:
    """the done record is written before the commits that it reports"""
    commit, recorded = Committer._commit, Committer._on_recorded

    def changed(self: Any, now_ms: int) -> None:
        commit(self, now_ms)
        if self._job.operation is not DriverOperation.COMMIT:
            return
        self.commits_left, self._current = self._current, None
        self._outcomes, self._has_committed = [TransactionOutcome.COMMITTED] * len(self._record.entries), True
        self._record_outcome(now_ms, self._record)

    def then_committed(self: Any, now_ms: int, step: Any) -> None:
        left = getattr(self, "commits_left", None)
        if left is None or step.state is not WriteState.WRITTEN:
            recorded(self, now_ms, step)
            return
        self.phase, self._current, self.commits_left = Phase.COMMITTING, left, None

    patch.setattr(Committer, "_commit", changed)
    _finish_with(patch, Phase.RECORDING, then_committed)


def doubt_is_no(patch: pytest.MonkeyPatch) -> None:
    """a decision whose EndTxn got no answer counts as not made"""
    patch.setattr(LedgerWrite, "may_be_written", property(lambda self: self.state is WriteState.WRITTEN))


def nameless_not_decided(patch: pytest.MonkeyPatch) -> None:
    """a batch write without a label is committed without a decision"""
    write, committed = Committer._write, Committer._on_committed

    def changed(self: Any, now_ms: int, phase: Phase, record: Any) -> None:
        if phase is Phase.DECIDING and not record.key.is_named:
            self._move(Phase.DECIDING)
            self._commit(now_ms)
        else:
            write(self, now_ms, phase, record)

    def then_delivered(self: Any, now_ms: int, step: Any) -> None:
        if not self._record.key.is_named and all(one is TransactionOutcome.COMMITTED for one in step.outcomes):
            self._move(Phase.RECORDING)
            self._on_delivered(now_ms)
        else:
            committed(self, now_ms, step)

    patch.setattr(Committer, "_write", changed)
    _finish_with(patch, Phase.COMMITTING, then_delivered)


def nameless_abort_without_ledger(patch: pytest.MonkeyPatch) -> None:
    """abort() of a batch write without a label aborts without reading the ledger"""
    abort_at_start = next_step._abort_at_start

    def changed(job: Any) -> NextStep:
        if not job.key.is_named:
            return NextStep(Phase.DISCARDING, conclusion=Conclusion.ABORTED)
        return abort_at_start(job)

    patch.setattr(next_step, "_abort_at_start", changed)


# ---- lines ----


def claim_of_another_label_is_a_rival(patch: pytest.MonkeyPatch) -> None:
    """all labels of a sink claim the same key, and a claim of another label counts as a takeover"""

    def one_line(sink_id: str, key: BatchKey, ledger_topic: str) -> Line:
        return Line(sink_id)

    for module in (query, session):
        patch.setattr(module, "line_of", one_line)
    patch.setattr(ledger_read, "line_of_key", lambda key, _: Line(key.partition("/")[0]))


def label_of_any_ledger(patch: pytest.MonkeyPatch) -> None:
    """exports of one label share their line, whatever ledger each of them has"""
    of_ledger = ledger.code_of_label
    patch.setattr(ledger, "code_of_label", lambda label, _: of_ledger(label, ""))


def open_decision_of_another_label_finished(patch: pytest.MonkeyPatch) -> None:
    """a driver finishes the open decisions of all labels of its sink, and fails if one of them is lost"""
    patch.setattr(LedgerRead, "_is_of_line", lambda *_: True)


def label_swept_by_its_neighbour(patch: pytest.MonkeyPatch) -> None:
    """every run of the sink that began earlier counts as over, whatever its label"""
    patch.setattr(SweepRule, "_is_an_elder", lambda *_: True)


# ---- which driver is current ----


def no_fencing(patch: pytest.MonkeyPatch) -> None:
    """the ledger is read first, and older drivers are fenced afterwards"""
    follow = Committer._follow

    def changed(self: Any, now_ms: int, found: NextStep) -> None:
        if found.phase is Phase.FENCING and self._ledger is None:
            self.phase = type(self.phase).CLAIMING
            follow(self, now_ms, NextStep(Phase.READING))
        else:
            follow(self, now_ms, found)

    on_read, on_fenced = Committer._on_read, Committer._on_fenced

    def read(self: Any, now_ms: int, step: Any) -> None:
        if self._session.identity is None and step.state is not None and self._job.operation.value == "commit":
            self._ledger = step.state
            self.phase = type(self.phase).CLOSING
            follow(self, now_ms, NextStep(Phase.FENCING))
        else:
            on_read(self, now_ms, step)

    def fenced(self: Any, now_ms: int, step: Any) -> None:
        if self._ledger is not None and step.identity is not None:
            self._session.identity, self._session.ledger = step.identity, self._ledger
            self.phase = type(self.phase).READING
            self._judge(now_ms)
        else:
            on_fenced(self, now_ms, step)

    patch.setattr(Committer, "_follow", changed)
    _finish_with(patch, Phase.READING, read)
    _finish_with(patch, Phase.FENCING, fenced)


def no_claim(patch: pytest.MonkeyPatch) -> None:
    """the ledger is read without a claim, up to the end that its leader reports"""

    def fenced(self: Any, now_ms: int, step: Any) -> None:
        self._session.identity = step.identity
        self.phase = Phase.CLAIMING
        self._read(now_ms, None)
        # Everything that was read counts as below a claim.
        self._claim_offset = BEYOND_EVERYTHING

    _finish_with(patch, Phase.FENCING, fenced)


def stale_identity_believed(patch: pytest.MonkeyPatch) -> None:
    """a fenced driver ends, even if another process of its own run fenced it"""
    patch.setattr(Committer, "_may_look_again", lambda *_: False)


def expiry_is_a_rival(patch: pytest.MonkeyPatch) -> None:
    """a driver whose id has expired assumes that another driver has taken over"""
    may_look_again = Committer._may_look_again

    def changed(self: Any, step: Any) -> bool:
        has_expired = step.failure is not None and "INVALID_PRODUCER_ID_MAPPING" in step.failure
        return not has_expired and may_look_again(self, step)

    patch.setattr(Committer, "_may_look_again", changed)


def claim_of_another_run_ignored(patch: pytest.MonkeyPatch) -> None:
    """a run that was replaced fences its successor and continues"""
    patch.setattr(DriverSession, "successor", lambda *_: None)


def younger_run_taken_for_an_elder(patch: pytest.MonkeyPatch) -> None:
    """every run that claimed before the ledger was read counts as older, even if its claim follows the reader's own"""
    note_claim = DriverSession.note_claim

    def changed(self: DriverSession, ledger: Any, claimed_at: int) -> None:
        note_claim(self, replace(ledger, claims=dict.fromkeys(ledger.claims, claimed_at)), claimed_at)

    patch.setattr(DriverSession, "note_claim", changed)


# ---- what an earlier decision means ----


def _judge_as_new(patch: pytest.MonkeyPatch, is_ignored: Callable[[NextStep], bool]) -> None:
    """Where the ledger says this, the batch goes on as if it said nothing."""
    judge_commit = next_step._judge_commit

    def changed(*arguments: Any) -> NextStep:
        found = judge_commit(*arguments)
        return NextStep(Phase.CHECKING) if is_ignored(found) else found

    patch.setattr(next_step, "_judge_commit", changed)


def open_decision_ignored(patch: pytest.MonkeyPatch) -> None:
    """a batch that an earlier run has decided is decided again"""
    _judge_as_new(patch, lambda found: found.phase is Phase.FINISHING)


def delivered_batch_delivered_again(patch: pytest.MonkeyPatch) -> None:
    """a batch that Spark runs again is delivered again"""
    _judge_as_new(patch, lambda found: found.phase in (Phase.DISCARDING, Phase.SWEEPING))


def set_back_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """a batch older than the newest one in the ledger is written again"""
    _judge_as_new(patch, lambda found: found.error is not None and found.error.entry is CHECKPOINT_SET_BACK)


def unmarked_intent_ignored(patch: pytest.MonkeyPatch) -> None:
    """an intent without a marker counts as not written, even if a claim follows it"""
    on_newest = LedgerRead._on_newest

    def changed(self: LedgerRead, found: Any, _unmarked: Any) -> None:
        on_newest(self, found, {})

    patch.setattr(LedgerRead, "_on_newest", changed)


def unmarked_intent_believed(patch: pytest.MonkeyPatch) -> None:
    """an intent without a marker counts as decided, whatever has become of its transactions"""

    def changed(self: UnmarkedTransactions, _now_ms: int) -> None:
        self._open.update(one.number for one in self._decided)

    patch.setattr(UnmarkedTransactions, "ask_first", changed)


def open_intent_believed(patch: pytest.MonkeyPatch) -> None:
    """an intent without a marker counts as decided at once, although it may be open in a younger driver"""
    began = Committer.__init__

    def changed(self: Any, *arguments: Any) -> None:
        began(self, *arguments)
        self._ended_offset = BEYOND_EVERYTHING

    patch.setattr(Committer, "__init__", changed)


def stable_offset_believed_unread(patch: pytest.MonkeyPatch) -> None:
    """a record below the last stable offset counts as committed, though its marker may be above what was read"""

    def changed(self: LedgerRead) -> bool:
        self._ended_offset = self._last_stable_offset
        return False

    patch.setattr(LedgerRead, "_may_have_unread_marker", changed)


def moved_checkpoint_is_new(patch: pytest.MonkeyPatch) -> None:
    """a stream that the ledger knows under another name counts as one that it does not know"""
    patch.setattr(LedgerRead, "_is_elsewhere", lambda *_: False)


def name_of_earlier_believed(patch: pytest.MonkeyPatch) -> None:
    """a name that the ledger knows is the right one, although another one has got further since"""
    patch.setattr(next_step, "_is_ahead", lambda _other, newest: newest is None)


def plain_record_ignored(patch: pytest.MonkeyPatch) -> None:
    """a record under a ledger key that was written without a transaction counts as not written"""
    keep = LedgerRead._keep

    def changed(self: LedgerRead, ledger_key: str, found: Found) -> None:
        if not found.is_plain:
            keep(self, ledger_key, found)

    patch.setattr(LedgerRead, "_keep", changed)


def copy_hides_a_later_batch(patch: pytest.MonkeyPatch) -> None:
    """the highest record of a stream counts, also if a mirror has put an earlier batch above a later one"""
    patch.setattr(ledger_read, "is_of_earlier_batch", lambda _ledger_key, _upper, _lower: False)


def cluster_not_compared(patch: pytest.MonkeyPatch) -> None:
    """a driver goes on in whichever cluster its address leads to, under the id of the one before"""
    for module in (takeover, preflight):
        patch.setattr(module, "moved_problem", lambda _settings, _metadata: None)


def fingerprint_not_compared(patch: pytest.MonkeyPatch) -> None:
    """a repeated batch counts as the delivered one, whatever its rows are"""
    patch.setattr(next_step, "difference", lambda *_: None)


def digest_not_compared(patch: pytest.MonkeyPatch) -> None:
    """only the row counts of a repeated batch are compared"""

    def changed(record: LedgerRecord, batch: LedgerRecord) -> str | None:
        return None if record.topics == batch.topics else OTHER_COUNTS

    patch.setattr(next_step, "difference", changed)


def record_not_read_back(patch: pytest.MonkeyPatch) -> None:
    """a ledger record is written without a check that it can be read back"""

    def changed(record: LedgerRecord) -> bytes:
        return ledger_codec._encode(ledger_codec._content(record))

    patch.setattr(ledger_codec, "encode_record", changed)


def manifest_with_the_decision(patch: pytest.MonkeyPatch) -> None:
    """the manifest is written with the decision, when nothing of the batch is visible yet"""
    of_done = LedgerRecord.manifest_record.fget
    assert of_done is not None

    def changed(self: LedgerRecord) -> tuple[bytes, bytes] | None:
        if self.kind is Kind.DONE:
            return None
        return of_done(replace(self, kind=Kind.DONE, entries=(), outcomes=()))

    patch.setattr(LedgerRecord, "manifest_record", property(changed))


def recovery_forgets_the_manifest(patch: pytest.MonkeyPatch) -> None:
    """a driver that closes the decision of an earlier one writes no manifest"""
    write = Committer._write

    def changed(self: Committer, now_ms: int, phase: Phase, record: LedgerRecord) -> None:
        write(self, now_ms, phase, replace(record, manifest=None) if phase is Phase.CLOSING else record)

    patch.setattr(Committer, "_write", changed)


def manifest_of_another_topic(patch: pytest.MonkeyPatch) -> None:
    """all topics of a manifest have the id of one of them"""
    fill = ledger._fill

    def changed(manifest: Manifest, summary: BatchSummary) -> Manifest:
        filled = fill(manifest, summary)
        return replace(filled, topic_ids=dict.fromkeys(filled.topic_ids, min(filled.topic_ids.values(), default="")))

    patch.setattr(ledger, "_fill", changed)


def dead_letters_are_rows(patch: pytest.MonkeyPatch) -> None:
    """dead letters count as rows of their batch in its manifest"""
    patch.setattr(ledger, "without_letters", lambda written, dead_letters: tuple(written))


def last_receipt_taken_for_now(patch: pytest.MonkeyPatch) -> None:
    """a batch has the time that it had when the last row was written, if that is more than its host knows of"""

    def changed(self: TimeLeft, described: Described, *, is_asked: bool) -> int:
        by_brokers_ms = self._by_brokers_ms(described)
        return by_brokers_ms if self._by_host_ms is None else max(by_brokers_ms, self._by_host_ms)

    patch.setattr(TimeLeft, "is_in_doubt", lambda *_: False)
    patch.setattr(TimeLeft, "described_ms", changed)


def next_decision_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    """a decision counts as closed when its commit has returned, and the next one does not wait for its record"""
    end = Committer._end

    def changed(self: Any, *result: Any) -> None:
        closing = self._intended.closing
        if closing is not None and self._session.ledger is not None:
            self._session.ledger = self._session.ledger.with_record(closing)
        end(self, *result)

    patch.setattr(Committer, "_end", changed)
    patch.setattr(closings.Closings, "wait", lambda self, session, then: then(session))


def closing_forgets_the_manifest(patch: pytest.MonkeyPatch) -> None:
    """the record that closes a decision after the commit has no manifest beside it"""
    delivered = Committer._on_delivered

    def changed(self: Any, now_ms: int, closing: LedgerRecord | None = None) -> None:
        delivered(self, now_ms, None if closing is None else replace(closing, manifest=None))

    patch.setattr(Committer, "_on_delivered", changed)


def closed_later_in_version_1(patch: pytest.MonkeyPatch) -> None:
    """the record that closes a decision may come after the commit in transaction version 1 as well"""

    def changed(self: Job, _: LedgerRecord, closing: LedgerRecord, __: Any) -> bool:
        return self.may_close_later and not (self.key or UNNAMED_BATCH).is_label and closing.kind is Kind.DONE

    patch.setattr(Job, "closes_later", changed)


def late_marker_decides(patch: pytest.MonkeyPatch) -> None:
    """a driver goes on with the epoch of its last record's marker where leaders take that marker a second time"""
    patch.setattr(DeliverySettings, "begins_with_new_epoch", property(lambda self: self.transaction_version == 1))
