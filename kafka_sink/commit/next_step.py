"""The next step of an operation: at first from what the process remembers, later from the ledger.

Memory is a cache. A commit may proceed from it, because it writes under the remembered epoch: if the broker accepts the
write, there was no other driver in between and the memory was right. Any other conclusion requires reading first. After
a write that is refused as fenced, the driver reads the ledger again, without fencing, to leave a successor alone. If no
other run has claimed the ledger since, it was fenced by another process of its own run: it fences, reads and continues.

For the same reason abort() reads the ledger twice, without and then with fencing: the first time leaves a successor
alone, the second makes sure that no decision of this run can still arrive. After a commit that raised, Spark calls
abort() in another process, which does not know whether a decision was made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka_sink.commit import messages
from kafka_sink.commit.division import division_of
from kafka_sink.commit.ledger import (
    OTHER_COUNTS,
    Kind,
    LedgerRecord,
    LedgerState,
    OtherName,
    difference,
    intent_of,
    is_closed,
    is_decided,
    is_replaced,
)
from kafka_sink.commit.phase import Phase
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import (
    Conclusion,
    DeliverySettings,
    DriverOperation,
    DriverSession,
    Job,
    OnMismatch,
)
from kafka_sink.errors import KafkaSinkError


@dataclass(frozen=True, slots=True)
class NextStep:
    """`conclusion` is the result if all further steps succeed; with an `error` the operation fails in any case.
    `forgets`: what the process remembers is not to be relied on."""

    phase: Phase
    record: LedgerRecord | None = None
    conclusion: Conclusion | None = None
    error: KafkaSinkError | None = None
    note: str = ""
    forgets: bool = False


_OF_OPERATORS = (DriverOperation.FINISH, DriverOperation.SWEEP, DriverOperation.ACCEPT, DriverOperation.REPLAY)


def first_step(job: Job, session: DriverSession) -> NextStep | None:
    """None: what the process remembers is enough for `next_step`."""
    if job.operation in (DriverOperation.RECOVER, *_OF_OPERATORS):
        return NextStep(Phase.READING if job.operation is DriverOperation.RECOVER else Phase.FENCING)
    assert job.key is not None, f"{job.operation.value} is about a batch"
    if job.operation is DriverOperation.ABORT:
        return _abort_at_start(job)
    if not job.is_recorded:
        return NextStep(Phase.ENDED, conclusion=Conclusion.NOTHING_TO_DO)
    return NextStep(Phase.FENCING) if session.ledger is None else None


def _abort_at_start(job: Job) -> NextStep:
    if not job.may_be_decided:
        return NextStep(Phase.DISCARDING, conclusion=Conclusion.ABORTED)
    assert job.key is not None
    # Another process of the same run may have committed since this one read the ledger. A write without a label has no
    # successor that could be disturbed.
    return NextStep(Phase.READING if job.key.is_named else Phase.FENCING, forgets=True)


def next_step(
    job: Job,
    session: DriverSession,
    settings: DeliverySettings,
    ledger: LedgerState,
    batch: LedgerRecord,
    *,
    is_remembered: bool,
) -> NextStep:
    """`batch`: the one at hand. `is_remembered`: the ledger was read by an earlier operation."""
    # Earlier drivers have been fenced.
    is_fenced = session.identity is not None
    if is_fenced and ledger.older_offset > session.older_fenced:
        return NextStep(Phase.FENCING)
    if job.operation is DriverOperation.COMMIT:
        assert job.key is not None
        successor = session.successor(ledger)
        if successor is not None:
            return _fail(messages.fenced_error(settings.commands, batch, f"its run {successor} has claimed the ledger"))
        # A driver that was replaced can decide nothing any more and must not fence its successor.
        if not is_fenced and not is_replaced(ledger, job.key, session.run):
            return NextStep(Phase.FENCING)
        found = _judge_commit(job, settings, ledger, batch)
        if is_remembered:
            return found if found.phase in (Phase.CHECKING, Phase.RECORDING) else NextStep(Phase.FENCING)
        return _remind_of_option(found, job.key, settings, ledger)
    if job.operation is DriverOperation.ABORT:
        return _judge_abort(job, session, ledger, is_fenced=is_fenced)
    if job.operation is not DriverOperation.RECOVER and not is_fenced:
        return NextStep(Phase.FENCING)  # an operator's command that was fenced in between
    if job.operation in (DriverOperation.ACCEPT, DriverOperation.REPLAY):
        return _judge_choice(job, ledger, settings)
    return _judge_open(job, settings, ledger)


def is_over(found: NextStep, ledger: LedgerState, key: BatchKey, run: str) -> bool:
    """Of a batch that is committed. A successor has recorded that a batch write is done, or is about to: it finds the
    decision and sees that all is committed. A stream has to stop because of it; a batch write has nothing more to do.
    """
    newest = ledger.find(key)
    if newest is None:
        # Nothing is kept of one without a label.
        return not key.is_named and is_closed(ledger, key)
    is_own = newest.run == run and newest.kind in (Kind.INTENT, Kind.DONE)
    return found.conclusion is Conclusion.ALREADY_DELIVERED or (is_own and key.is_label)


def may_have_been_decided(ledger: LedgerState | None, key: BatchKey, run: str) -> bool:
    """And be over, although the ledger has no decision of it."""
    is_forgotten = not key.is_named  # once compaction has removed what closed it
    return ledger is not None and (is_forgotten or is_replaced(ledger, key, run))


def _remind_of_option(found: NextStep, key: BatchKey, settings: DeliverySettings, ledger: LedgerState) -> NextStep:
    """ledger.accept.new.sink is for the first batch of a stream; later it hides mistakes."""
    is_known = not key.is_label and ledger.find(key) is not None
    is_superfluous = settings.accept_unknown_sink and is_known and not found.note
    return replace(found, note=messages.STILL_ACCEPTED) if is_superfluous else found


def _judge_abort(job: Job, session: DriverSession, ledger: LedgerState, *, is_fenced: bool) -> NextStep:
    assert job.key is not None
    if is_decided(ledger, job.key, session.run) or (not job.key.is_named and is_closed(ledger, job.key)):
        return _abort_decided(job, ledger, is_fenced=is_fenced)
    # As for a commit: a driver that was replaced does not fence.
    is_settled = is_fenced or is_replaced(ledger, job.key, session.run)
    return NextStep(Phase.DISCARDING, conclusion=Conclusion.ABORTED) if is_settled else NextStep(Phase.FENCING)


def _abort_decided(job: Job, ledger: LedgerState, *, is_fenced: bool) -> NextStep:
    """The next run of a stream finishes its decisions. Nobody needs to run a batch write again, so it is finished here:
    all of it has been written, and its process died, or had no time left. Spark reports the failed commit all the
    same, so the log says that the rows are visible."""
    assert job.key is not None
    newest = ledger.find(job.key)
    if job.key.is_label and newest is not None and newest.kind is Kind.INTENT:
        return NextStep(Phase.FINISHING, newest) if is_fenced else NextStep(Phase.FENCING)
    # All its transactions have ended. Open ones are from a second write of the batch, inside foreachBatch.
    move = Phase.SWEEPING if is_closed(ledger, job.key) else Phase.ENDED
    is_visible = job.key.is_label and is_closed(ledger, job.key)
    return NextStep(move, conclusion=Conclusion.RECOVERED if is_visible else Conclusion.LEFT_ALONE)


def _judge_commit(job: Job, settings: DeliverySettings, ledger: LedgerState, batch: LedgerRecord) -> NextStep:
    newest = ledger.find(batch.key)
    if newest is not None:
        if newest.kind is Kind.STUCK:
            return _fail(messages.lost_error(settings.commands, newest, newest.outcomes, now=batch.key))
        is_passed_over = newest.kind is Kind.REPLAY and batch.key.is_later_than(newest.key)
        if is_passed_over and not settings.accept_unknown_sink:
            return _fail(messages.passed_over_error(newest, batch.key))
        if newest.key == batch.key and newest.kind is Kind.DONE:
            return _judge_delivered(settings, newest, batch)
        if batch.run in newest.runs:
            return _fail(messages.superseded_error(settings.commands, batch, newest))
        if newest.key.is_later_than(batch.key):
            return _fail(messages.rolled_back_error(batch, newest))
    intents = ledger.newest_of(Kind.INTENT)
    if intents:
        return NextStep(Phase.FINISHING, intents[0])
    begun = [each for each in map(division_of, ledger.chunks) if each and each.batch_id == batch.key.batch_id]
    if begun:
        return _fail(messages.divided_error(batch, begun[0], begun.count(begun[0])))
    ahead = [other for other in ledger.elsewhere if _is_ahead(other, newest)]
    if ahead and not settings.accept_unknown_sink:
        return _fail(messages.other_name_error(batch, ahead, newest, settings.ledger_topic))
    is_continued = isinstance(batch.key.batch_id, int) and batch.key.batch_id > 0
    if newest is None and is_continued and not settings.accept_unknown_sink:
        return _fail(messages.unknown_sink_error(settings.commands, batch))
    if job.has_transactions and batch.run in ledger.stopped:
        return _fail(messages.aborted_error(batch, messages.SWEPT))
    if job.has_transactions:
        return NextStep(Phase.CHECKING)
    # Nothing is to be decided; the record only says that the batch was seen.
    return NextStep(Phase.RECORDING, intent_of(batch, (), newest).as_closed(Kind.DONE, job.wall_ms))


def _is_ahead(other: OtherName, newest: LedgerRecord | None) -> bool:
    """The name of a query is the one that has got furthest: its driver is not fenced under another one, and what it has
    decided is not known there. Batches are compared and not offsets: a decision under a name that is no longer used may
    be closed at any time, by an operator's command or in the background."""
    if newest is None:
        return True
    if other.latest is None:
        return other.is_newer
    return newest.key != other.latest and not newest.key.is_later_than(other.latest)


def _judge_delivered(settings: DeliverySettings, record: LedgerRecord, batch: LedgerRecord) -> NextStep:
    """The second write is aborted. It should have the same rows, since Spark logs the input of a batch before running
    it. Otherwise a checkpoint was set back, or two outputs use one name, and rows would be lost silently. Equal counts
    are accepted with a warning, as rand() and shuffles cause them. Not so within one run: Spark repeats no batch there,
    so these are two writes inside foreachBatch."""
    is_own = record.run == batch.run
    # Delivered by this very run: the transactions at hand may be those of the decision. The sweep ends only open ones.
    move = Phase.SWEEPING if is_own else Phase.DISCARDING
    found = difference(record, batch)
    if found is None or settings.on_mismatch is OnMismatch.SKIP:
        return NextStep(move, record, conclusion=Conclusion.ALREADY_DELIVERED)
    if (found == OTHER_COUNTS or is_own) and settings.on_mismatch is OnMismatch.FAIL:
        error = messages.other_rows_error(record, batch, found, is_own=is_own)
        return NextStep(move, record, error=error)
    note = messages.dropped_rows_text(record, batch, found)
    return NextStep(move, record, conclusion=Conclusion.ALREADY_DELIVERED, note=note)


def _judge_choice(job: Job, ledger: LedgerState, settings: DeliverySettings) -> NextStep:
    """Without a batch, the choice is about the only stuck one. A decision made in another cluster is stuck."""
    foreign = [record for record in ledger.newest_of(Kind.INTENT) if record.is_of_another_cluster(settings.cluster_id)]
    stuck = [record for record in (*ledger.newest_of(Kind.STUCK), *foreign) if job.key in (None, record.key)]
    if len(stuck) != 1:
        return NextStep(Phase.ENDED, conclusion=Conclusion.NOTHING_TO_DO)
    is_accepted = job.operation is DriverOperation.ACCEPT
    kind = Kind.DONE if is_accepted else Kind.REPLAY
    return NextStep(Phase.RECORDING, stuck[0].as_closed(kind, job.wall_ms, is_accepted=is_accepted))


def _judge_open(job: Job, settings: DeliverySettings, ledger: LedgerState) -> NextStep:
    """RECOVER, FINISH and SWEEP: open decisions first. A lost labelled write blocks only its own repetition."""
    intents = ledger.newest_of(Kind.INTENT)
    if intents:
        return NextStep(Phase.FINISHING, intents[0])
    for record in ledger.newest_of(Kind.STUCK):
        if isinstance(record.key.batch_id, int):
            return _fail(messages.lost_error(settings.commands, record, record.outcomes))
    if job.operation is DriverOperation.SWEEP:
        return NextStep(Phase.SWEEPING)
    return NextStep(Phase.FINISHING, ledger.others[0]) if ledger.others else NextStep(Phase.ENDED)


def _fail(error: KafkaSinkError) -> NextStep:
    return NextStep(Phase.ENDED, error=error)
