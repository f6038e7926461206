"""Planted mistakes of the commit protocol: the simulation must find each within a stated number of seeds.

Some are those of the model's search (`tests/model/planted.py`), planted here in a world with time, networks and real
engines; the others need just that. `TRIALS` says within how many seeds, counted from 1, a mistake is caught, and
which assumptions about the surroundings those seeds break.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from kafka_sink.delivery import ending, judgement
from kafka_sink.delivery.identity import TaskIdentity
from kafka_sink.delivery.ledger import Finding, PledgeFate, finding
from kafka_sink.delivery.ledger_read import LedgerRead
from kafka_sink.delivery.ledger_write import LedgerWrite, WriteEvent, WriteState
from kafka_sink.delivery.opening import Opening
from kafka_sink.delivery.outcome import Meaning, end_meaning
from kafka_sink.delivery.preflight import ONGOING
from kafka_sink.delivery.sweep import SweepRule
from kafka_sink.engine.transaction import Transaction
from tests.model import planted
from tests.sim.delivery import query, stage
from tests.sim.delivery.breakers import LIES, LOST_MARKERS, PROCESSES, SET_BACK, TWINS
from tests.sim.delivery.job import SparkJob
from tests.sim.delivery.plan import draw
from tests.sim.delivery.simulation import run
from tests.sim.delivery.stage import Stage

Mutation = Callable[[], AbstractContextManager[None]]
SHARED_RUN = "0" * 16
INVALID_TXN_STATE = 48


def _finding_changed(*ignored: Finding) -> Any:
    def changed(*arguments: Any, **named: Any) -> Any:
        found, record = finding(*arguments, **named)
        return (Finding.GO_ON if found in ignored else found), record

    return mock.patch.object(judgement, "finding", changed)


@contextmanager
def ids_shared_between_runs() -> Iterator[None]:
    """A run that starts again uses the transactional ids of the run that crashed."""

    def shared(self: SparkJob, spark_partition: int, number: int) -> TaskIdentity:
        return TaskIdentity(self.stage.sink_id(self.batch.key, ""), SHARED_RUN, spark_partition, number)

    with (
        mock.patch.object(query, "run_hash", return_value=SHARED_RUN),
        mock.patch.object(query, "run_of_label", return_value=SHARED_RUN),
        mock.patch.object(Stage, "next_attempt", return_value=0),
        mock.patch.object(SparkJob, "identity", shared),
    ):
        yield


@contextmanager
def open_decision_ignored() -> Iterator[None]:
    """A batch that an earlier run has decided is decided again, with other transactions."""
    with _finding_changed(Finding.FINISH_OWN, Finding.FINISH_OTHER):
        yield


@contextmanager
def delivered_batch_delivered_again() -> Iterator[None]:
    """Spark runs a batch again that it has not written into its commit log; so does the sink."""
    with _finding_changed(Finding.DELIVERED):
        yield


@contextmanager
def decision_not_durable() -> Iterator[None]:
    """The intent is written, but its own transaction is not committed before the others are."""

    def produced(self: LedgerWrite, now_ms: int, body: Any) -> None:
        self.inquiry.drop_all()
        self._move(WriteEvent.APPENDED)
        self.state = WriteState.WRITTEN
        self._session.forget_identity()

    with mock.patch.object(LedgerWrite, "_on_produced", produced):
        yield


@contextmanager
def doubt_is_no() -> Iterator[None]:
    """A decision whose EndTxn got no answer is taken for none."""
    with mock.patch.object(LedgerWrite, "may_be_written", property(lambda self: self.state is WriteState.WRITTEN)):
        yield


@contextmanager
def never_is_done() -> Iterator[None]:
    """INVALID_TXN_STATE as the answer to a commit is taken for "it has been committed"."""

    def changed(error_code: int, *, commit: bool) -> Meaning:
        return Meaning.DONE if error_code == INVALID_TXN_STATE else end_meaning(error_code, commit=commit)

    with mock.patch.object(ending, "end_meaning", changed):
        yield


@contextmanager
def silence_is_consent() -> Iterator[None]:
    """An EndTxn(commit) without an answer counts as carried out."""

    def lost(self: ending.Commits, now_ms: int, answer: Any) -> None:
        if answer.key.purpose == ending.COMMIT:
            self._settle(answer.key, PledgeFate.COMMITTED)
        else:
            super(ending.Commits, self).on_lost(now_ms, answer)

    with mock.patch.object(ending.Commits, "on_lost", lost, create=True):
        yield


@contextmanager
def sweep_of_every_run() -> Iterator[None]:
    """The sweep aborts whatever is open under the sink's name, also what a successor has prepared."""
    with (
        mock.patch.object(SweepRule, "is_candidate", lambda self, name: name.startswith(f"{self.sink_id}-")),
        mock.patch.object(SweepRule, "is_dangling", lambda self, found: found.state == ONGOING),
    ):
        yield


@contextmanager
def no_sweep() -> Iterator[None]:
    """What killed tasks and crashed runs left open stays open until its time-out."""
    with mock.patch.object(SweepRule, "is_dangling", return_value=False):
        yield


@contextmanager
def late_init_ignored() -> Iterator[None]:
    """A task keeps its transactional id although an InitProducerId for it may still arrive."""
    initialized = Transaction.on_initialized

    def changed(self: Transaction, identity: Any, *, is_alone: bool) -> None:
        initialized(self, identity, is_alone=True)

    with mock.patch.object(Transaction, "on_initialized", changed):
        yield


@contextmanager
def stale_identity_believed() -> Iterator[None]:
    """A write that is refused as fenced means that another driver has taken over, whoever it was."""
    with mock.patch.object(Opening, "_look_again", return_value=False):
        yield


@contextmanager
def name_is_identity() -> Iterator[None]:
    """Two queries under one sink id share their driver and their ledger."""
    with mock.patch.object(stage, "sink_id_of_query", lambda named, _query_id: named):
        yield


@contextmanager
def unmarked_intent_ignored() -> Iterator[None]:
    """An intent whose marker is lost counts as not written, also behind a claim."""
    on_newest = LedgerRead._on_newest

    def changed(self: LedgerRead, found: Any, _unmarked: Any) -> None:
        on_newest(self, found, {})

    with mock.patch.object(LedgerRead, "_on_newest", changed):
        yield


@contextmanager
def set_back_is_not_noticed() -> Iterator[None]:
    """A batch below the newest one in the ledger is written again."""
    with _finding_changed(Finding.ROLLED_BACK):
        yield


@contextmanager
def no_is_believed() -> Iterator[None]:
    """A coordinator that says INVALID_TXN_STATE to a commit is not held against the log."""
    on_ended = ending.Commits._on_ended

    def changed(self: ending.Commits, now_ms: int, key: Any, error_code: int) -> None:
        if error_code == INVALID_TXN_STATE:
            self._settle(key, PledgeFate.LOST)
        else:
            on_ended(self, now_ms, key, error_code)

    with mock.patch.object(ending.Commits, "_on_ended", changed):
        yield


@dataclass(frozen=True)
class Trial:
    """How many seeds a mistake may take, and which assumptions each of them breaks."""

    limit: int
    breakers: frozenset[str] = frozenset()


def breaking(limit: int, *breakers: str) -> Trial:
    return Trial(limit, frozenset(breakers))


TRIALS: dict[Mutation, Trial] = {
    planted.no_intent: Trial(20),
    planted.abort_after_intent: Trial(100),
    planted.wrong_generation_on_repeat: Trial(100),
    planted.fenced_is_success: Trial(100),
    planted.no_fencing: Trial(100),
    planted.no_claim: Trial(700),
    ids_shared_between_runs: Trial(5),
    open_decision_ignored: Trial(10),
    delivered_batch_delivered_again: Trial(5),
    decision_not_durable: Trial(100),
    never_is_done: Trial(100),
    no_sweep: Trial(20),
    late_init_ignored: Trial(100),
    silence_is_consent: Trial(100),
    doubt_is_no: Trial(800),
    sweep_of_every_run: Trial(200),
    stale_identity_believed: breaking(20, PROCESSES),
    name_is_identity: breaking(30, TWINS),
    unmarked_intent_ignored: breaking(30, LOST_MARKERS),
    no_is_believed: breaking(100, LIES),
    set_back_is_not_noticed: breaking(20, SET_BACK),
}


def seeds_until_caught(mutation: Mutation, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The first seed that breaks a promise with this mistake planted, and which promise."""
    for seed in seeds:
        with mutation():
            violation = run(draw(seed, TRIALS[mutation].breakers)).violation
        if violation is not None:
            return seed, violation.invariant
    return None
