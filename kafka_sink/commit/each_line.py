"""What an operator's command does to a sink: `recover` and `transactions --abort`, in all lines of its decisions. And
what the abort of a stream's batch does, if none of its tasks has ended: the same, to what it can tell is its own.

A generator of state machines: it yields one after the other, each as a function of the time at which it begins, and is
sent the result. So the same code runs with a client, and in the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from typing import Any

from kafka_sink.commit.commit_step import SingleStep, StepT
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.identity import Line, TaskIdentity, code_of_run, parse_task_identity
from kafka_sink.commit.ledger import line_of_key
from kafka_sink.commit.listing import LedgerListing, NotAnswered, TransactionListing
from kafka_sink.commit.own_runs import AwaitedRuns
from kafka_sink.commit.session import CommitResult, DeliverySettings, DriverOperation, DriverSession, Job
from kafka_sink.commit.sweep import NOT_VERIFIED, can_end_safely
from kafka_sink.commit.takeover import StopRuns
from kafka_sink.kafka.wire.apis import ONGOING

# Makes a state machine that begins at this time.
Begin = Callable[[int], Any]


def carry_out(script: Generator[Begin, Any, list[CommitResult]], run: Callable[[Begin], Any]) -> list[CommitResult]:
    """`run` lets a state machine begin, and returns its result."""
    result: Any = None
    while True:
        try:
            begin = script.send(result)
        except StopIteration as ended:
            results: list[CommitResult] = ended.value
            return results
        result = run(begin)


def operate_each_line(
    settings: DeliverySettings, sink_id: str, operation: DriverOperation, wall_ms: int
) -> Generator[Begin, Any, list[CommitResult]]:
    """FINISH or SWEEP of every sink under the name: a stream's query is part of its sink id.

    Each line of decisions has a driver of its own, which is fenced, and then its decisions are finished. An open
    transaction may be about to be decided in a line of which the ledger knows nothing yet; its run tells which one
    that is. A run is aborted after it was stopped, its line was fenced, and all lines of the sink were finished: what
    it has decided by then is committed, and it decides nothing any more."""
    decisions = (yield from _ask_for(settings, LedgerListing(settings, sink_id), "the ledger")).listed or []
    lines = {line_of_key(each.ledger_key, settings.ledger_topic) for each in decisions if each.is_open}
    runs: set[tuple[str, str]] = set()
    if operation is DriverOperation.SWEEP:
        listing = TransactionListing(settings, sink_id)
        listed = (yield from _ask_for(settings, listing, "the list of transactions")).found
        lines |= lines_of(listed)
        runs = {(one.sink_id, one.run) for one in _identities(each for each in listed if each.state == ONGOING)}
        yield from _stop(settings, runs, wall_ms)
    sink_ids = {line.sink_id for line in lines} | {each.sink_id for each in decisions} or {sink_id}
    results: list[CommitResult] = []
    for own_id in sorted(sink_ids):
        finish = Job(DriverOperation.FINISH, wall_ms=wall_ms)
        finished: list[CommitResult] = []
        for line in sorted(lines):
            if line.sink_id == own_id and line.code:
                finished.append((yield _operation(settings, finish, line)))
        results += finished
        if all(result.error is None for result in finished):
            stopped = frozenset(run for of_sink, run in runs if of_sink == own_id)
            job = replace(finish, operation=operation, stopped_runs=stopped)
            results.append((yield _operation(settings, job, Line(own_id))))
    return results


def end_own_runs(
    settings: DeliverySettings, sink_id: str, code: str, wall_ms: int
) -> Generator[Begin, Any, list[CommitResult]]:
    """SWEEP of the runs that begin with `code`, in the queries under the name. All of them are over, but a driver of an
    earlier one may be frozen in its commit: so they are stopped first, as by an operator, and whoever takes part in
    their lines finds that. A run that no broker has listed yet is waited for as long as tasks may begin transactions.

    Without a code it only looks: if nothing of the sink is open, nothing is of this batch. A decision of an earlier
    batch that waits for a leader is left to the next start, which has more time."""
    if not can_end_safely(settings):
        raise NotAnswered(NOT_VERIFIED)
    settings = replace(settings, patience_ms=settings.sweep_ms + 2 * settings.late_tasks_ms, is_help=True)
    results: list[CommitResult] = []
    ended: set[tuple[str, str]] = set()
    late_ms = settings.late_tasks_ms
    while True:
        awaited = AwaitedRuns(settings, sink_id, code, known=ended, late_ms=late_ms)
        runs = (yield from _ask_for(settings, awaited, "the list of transactions")).runs
        if not runs:
            return results
        if not code:
            raise NotAnswered("which of those of its sink are its own is not known, as none of its tasks has ended")
        yield from _stop(settings, runs, wall_ms)
        for own_id in sorted({of_sink for of_sink, _ in runs}):
            stopped = frozenset(run for of_sink, run in runs if of_sink == own_id)
            job = Job(DriverOperation.SWEEP, wall_ms=wall_ms, stopped_runs=stopped, has_late_tasks=True)
            results.append((yield _operation(settings, job, Line(own_id))))
        # The sweep went on until no task could begin a transaction.
        ended, late_ms = ended | runs, 0


def _stop(settings: DeliverySettings, runs: set[tuple[str, str]], wall_ms: int) -> Generator[Begin, Any, None]:
    if runs:
        yield from _ask_for(settings, StopRuns(settings, runs, wall_ms), "the ledger")


def _operation(settings: DeliverySettings, job: Job, line: Line) -> Begin:
    return lambda now_ms: Committer(settings, DriverSession(line.sink_id, code=line.code), job, now_ms)


def _step(settings: DeliverySettings, step: StepT) -> Begin:
    return lambda now_ms: SingleStep(step, now_ms + settings.patience_ms)


def _ask_for(settings: DeliverySettings, step: StepT, what: str) -> Generator[Begin, Any, StepT]:
    finished: StepT = yield _step(settings, step)
    if finished.failure is not None:
        raise NotAnswered(f"{what} was not available: {finished.failure}")
    return finished


def lines_of(found: Iterable[TransactionDescription]) -> set[Line]:
    """The lines in which the transactions may be decided."""
    return {Line(one.sink_id, code_of_run(one.run)) for one in _identities(found)}


def _identities(found: Iterable[TransactionDescription]) -> Iterator[TaskIdentity]:
    return filter(None, (parse_task_identity(one.transactional_id) for one in found))
