"""Which way an operation goes: at its start by what the process remembers, later by what the ledger says.

Memory is a cache. A commit may go on from it, because what follows is a write under the remembered epoch: if the broker
takes it, nobody has been the driver since, and the memory was true. Anything else than going on is read first. A write
that is refused as fenced sends the driver back to look. It looks without fencing, to spare a successor. If no other run
has claimed the ledger since, the one that came in between was another process of its own run: it fences, reads and goes
on.

abort() in a process that did not run commit() reads the ledger twice for the same reason, without and then with
fencing: the first reading spares a successor, the second one makes sure that no decision of this run can still arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kafka_sink.delivery import texts
from kafka_sink.delivery.ledger import (
    Finding,
    Kind,
    LedgerRecord,
    LedgerState,
    Likeness,
    finding,
    is_decided,
    is_replaced,
    likeness,
    record_without_rows,
)
from kafka_sink.delivery.receipt import BatchSummary
from kafka_sink.delivery.session import (
    Conclusion,
    Decision,
    DeliverySettings,
    DriverSession,
    Job,
    OnMismatch,
    Operation,
)
from kafka_sink.errors import KafkaSinkError


class Move(Enum):
    FENCE = "fence"
    LOOK = "look"
    JUDGE = "judge"
    FINISH = "finish"
    CHECK = "check"
    RECORD = "record"
    DISCARD = "discard"
    SWEEP = "sweep"
    END = "end"


@dataclass(frozen=True, slots=True)
class Judgement:
    """`conclusion` is what the verdict becomes if the rest goes well; with an `error` it fails all the same."""

    move: Move
    record: LedgerRecord | None = None
    conclusion: Conclusion | None = None
    error: KafkaSinkError | None = None
    note: str = ""


_WITHOUT_BATCH = {
    Operation.FINISH: Move.FENCE,
    Operation.SWEEP: Move.FENCE,
    Operation.ACCEPT: Move.FENCE,
    Operation.REPLAY: Move.FENCE,
    Operation.RECOVER: Move.LOOK,
}


def moved_at_start(job: Job, session: DriverSession) -> Judgement:
    if job.operation in _WITHOUT_BATCH:
        session.forget_identity()
        return Judgement(_WITHOUT_BATCH[job.operation])
    assert job.key is not None, f"{job.operation.value} is about a batch"
    decision = session.decisions.get(job.key)
    if job.operation in (Operation.ABORT, Operation.ABORT_WITHOUT_LEDGER):
        return _abort_at_start(job, session, decision)
    if not (job.has_transactions or job.opens_a_stream):
        return Judgement(Move.END, conclusion=Conclusion.NOTHING_TO_DO)
    if job.operation is Operation.COMMIT_WITHOUT_LEDGER:
        return Judgement(Move.CHECK)
    is_known = session.identity is not None and session.ledger is not None and decision is not Decision.IN_DOUBT
    return Judgement(Move.JUDGE if is_known else Move.FENCE)


def _abort_at_start(job: Job, session: DriverSession, decision: Decision | None) -> Judgement:
    if decision in (Decision.MADE, Decision.IN_DOUBT):
        return Judgement(Move.END, conclusion=Conclusion.LEFT_ALONE)
    if decision is Decision.NONE or job.operation is Operation.ABORT_WITHOUT_LEDGER:
        return Judgement(Move.DISCARD, conclusion=Conclusion.ABORTED)
    # What this process knows of the ledger may be older than a commit in another process of the same run.
    session.forget_identity()
    return Judgement(Move.LOOK)


def judged(
    job: Job,
    session: DriverSession,
    settings: DeliverySettings,
    ledger: LedgerState,
    summary: BatchSummary,
    *,
    is_fenced: bool,
    is_remembered: bool,
) -> Judgement:
    """`is_fenced`: whoever was the driver before is none any more. `is_remembered`: the ledger was read by an operation
    before this one."""
    if is_fenced and ledger.older_key is not None and not session.older_is_fenced:
        return Judgement(Move.FENCE)
    if job.operation is Operation.COMMIT:
        assert job.key is not None
        successor = session.successor(ledger)
        if successor is not None:
            reason = f"its run {successor} has claimed the ledger"
            return Judgement(Move.END, error=texts.fenced(session.sink_id, job.key, summary, reason))
        if not is_fenced and not is_replaced(ledger, job.key, session.run):
            return Judgement(Move.FENCE)
        found = _commit_judged(job, session, settings, ledger, summary)
        is_going_on = found.move in (Move.CHECK, Move.RECORD)
        return Judgement(Move.FENCE) if is_remembered and not is_going_on else found
    if job.operation is Operation.ABORT:
        assert job.key is not None
        if is_decided(ledger, job.key, session.run):
            newest = ledger.find(job.key)
            # All that it named has ended. What is open is of a second writing of the batch, inside foreachBatch.
            move = Move.SWEEP if newest is not None and newest.kind is Kind.DONE else Move.END
            return Judgement(move, conclusion=Conclusion.LEFT_ALONE)
        # Whoever was replaced can decide nothing any more, and must not fence its successor.
        is_settled = is_fenced or is_replaced(ledger, job.key, session.run)
        return Judgement(Move.DISCARD, conclusion=Conclusion.ABORTED) if is_settled else Judgement(Move.FENCE)
    if job.operation is not Operation.RECOVER and not is_fenced:
        return Judgement(Move.FENCE)  # an operator's command that was fenced in between
    if job.operation in (Operation.ACCEPT, Operation.REPLAY):
        return _choice_judged(job, ledger, settings)
    return _open_judged(job, ledger)


def _commit_judged(
    job: Job, session: DriverSession, settings: DeliverySettings, ledger: LedgerState, summary: BatchSummary
) -> Judgement:
    assert job.key is not None
    sink_id, key = session.sink_id, job.key
    found, record = finding(ledger, key, session.run, accept_unknown_sink=settings.accept_unknown_sink)
    if found is Finding.GO_ON and job.has_transactions:
        return Judgement(Move.CHECK)
    if found is Finding.GO_ON:
        return Judgement(Move.RECORD, record_without_rows(sink_id, key, session.run, record, job.wall_ms))
    if found is Finding.UNKNOWN_SINK:
        return Judgement(Move.END, error=texts.unknown_sink(sink_id, key, summary, settings.ledger_topic))
    assert record is not None
    if found in (Finding.FINISH_OWN, Finding.FINISH_OTHER):
        return Judgement(Move.FINISH, record)
    if found is Finding.DELIVERED:
        return _delivered_judged(session, settings, record, summary)
    if found is Finding.LOST:
        return Judgement(Move.END, error=texts.lost(record, record.fates))
    if found is Finding.ROLLED_BACK:
        return Judgement(Move.END, error=texts.rolled_back(sink_id, key, summary, record))
    return Judgement(Move.END, error=texts.superseded(sink_id, key, summary, record))


def _delivered_judged(
    session: DriverSession, settings: DeliverySettings, record: LedgerRecord, summary: BatchSummary
) -> Judgement:
    """What was written again is aborted. It should be the same rows, since Spark logs the input of a batch before it
    runs it. If it is not, a checkpoint was set back, or two things are written under one name: rows would be lost
    without a word. Equal counts are let pass with a warning: that is what rand() and shuffles do."""
    # By this very run: the transactions at hand may be those of the decision. The sweep ends only what is open.
    move = Move.SWEEP if record.run == session.run else Move.DISCARD
    found = likeness(record, summary)
    if found is Likeness.SAME or settings.on_mismatch is OnMismatch.SKIP:
        return Judgement(move, record, conclusion=Conclusion.ALREADY_DELIVERED)
    if found is Likeness.OTHER_COUNTS and settings.on_mismatch is OnMismatch.FAIL:
        return Judgement(move, record, error=texts.other_rows(session.sink_id, record, summary))
    note = texts.other_rows_dropped(record, summary, found.value)
    return Judgement(move, record, conclusion=Conclusion.ALREADY_DELIVERED, note=note)


def _choice_judged(job: Job, ledger: LedgerState, settings: DeliverySettings) -> Judgement:
    """Without a batch named, the choice is about the only stuck one. What was decided in another cluster is stuck."""
    foreign = [record for record in ledger.open_intents() if record.is_of_another_cluster(settings.cluster_id)]
    stuck = [record for record in (*ledger.stuck(), *foreign) if job.key in (None, record.key)]
    if len(stuck) != 1:
        return Judgement(Move.END, conclusion=Conclusion.NOTHING_TO_DO)
    chosen = stuck[0].resolved(is_accepted=job.operation is Operation.ACCEPT, wall_ms=job.wall_ms)
    return Judgement(Move.RECORD, chosen)


def _open_judged(job: Job, ledger: LedgerState) -> Judgement:
    """RECOVER, FINISH and SWEEP: open decisions first. A lost labelled write stops nobody but its own repetition."""
    intents = ledger.open_intents()
    if intents:
        return Judgement(Move.FINISH, intents[0])
    for record in ledger.stuck():
        if isinstance(record.key.batch_id, int):
            return Judgement(Move.END, error=texts.lost(record, record.fates))
    if job.operation is Operation.SWEEP:
        return Judgement(Move.SWEEP)
    return Judgement(Move.END)
