"""Mistakes that a commit protocol can make, each as a change of the real machine. The search has to find every one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from kafka_sink.delivery import committer, ending, judgement, ledger_write
from kafka_sink.delivery.committer import Committer
from kafka_sink.delivery.identity import TaskIdentity
from kafka_sink.delivery.inquiry import Inquiry
from kafka_sink.delivery.judgement import Judgement, Move
from kafka_sink.delivery.ledger import Likeness
from kafka_sink.delivery.ledger_read import LedgerRead
from kafka_sink.delivery.opening import Opening
from kafka_sink.delivery.outcome import Meaning, end_meaning
from kafka_sink.delivery.phase import Event, Phase
from kafka_sink.delivery.request import CoordinatorOf, DriverRequest, RequestKey
from kafka_sink.delivery.session import Conclusion
from kafka_sink.wire.apis import INIT_PRODUCER_ID
from tests.model.world import World


@contextmanager
def no_intent() -> Iterator[None]:
    """Transactions are committed without a durable decision."""
    write = Committer._write

    def changed(self: Any, now_ms: int, event: Event, record: Any) -> None:
        if event is Event.DECIDE:
            self._commit(now_ms)
        else:
            write(self, now_ms, event, record)

    with mock.patch.object(Committer, "_write", changed):
        yield


@contextmanager
def abort_after_intent() -> Iterator[None]:
    """Spark's abort() is obeyed although the decision was made."""

    def changed(*_: Any) -> Judgement:
        return Judgement(Move.DISCARD, conclusion=Conclusion.ABORTED)

    with mock.patch.object(judgement, "_abort_at_start", changed):
        yield


@contextmanager
def wrong_generation_on_repeat() -> Iterator[None]:
    """The repeat of an end goes out by the rules of generation 2, whatever the first try was.

    Not in `PLANTED`: since each no of a coordinator is held against the log, this world has no harm in it.
    """
    repeat = Inquiry.repeat

    def changed(self: Any, now_ms: int, key: Any, **how: Any) -> None:
        repeat(self, now_ms, key, **how)
        question = self._open[key]
        if question.request.api.name == "EndTxn":
            question.request = replace(question.request, version_min=5, version_max=5)

    with mock.patch.object(Inquiry, "repeat", changed):
        yield


@contextmanager
def fenced_is_success() -> Iterator[None]:
    """PRODUCER_FENCED as the answer to a commit is taken for "somebody has committed it already"."""

    def changed(error_code: int, *, commit: bool) -> Meaning:
        found = end_meaning(error_code, commit=commit)
        return Meaning.DONE if found is Meaning.SUPERSEDED else found

    with mock.patch.object(ending, "end_meaning", changed), mock.patch.object(ledger_write, "end_meaning", changed):
        yield


@contextmanager
def ids_shared_between_runs() -> Iterator[None]:
    """A run that starts again uses the transactional ids of the run that crashed."""

    def changed(self: Any, driver: Any, task: int) -> TaskIdentity:
        return TaskIdentity("sink", "0" * 16, task, 0)

    with (
        mock.patch.object(World, "_task_identity", changed),
        mock.patch.object(World, "_run", return_value="0" * 16),
    ):
        yield


@contextmanager
def no_fencing() -> Iterator[None]:
    """The ledger is read first and older drivers are shut out afterwards: their decision can slip in between."""
    follow = Committer._follow

    def changed(self: Any, now_ms: int, found: Judgement) -> None:
        if found.move is Move.FENCE and self._ledger is None:
            self.phase = type(self.phase).CLAIMING
            follow(self, now_ms, Judgement(Move.LOOK))
        else:
            follow(self, now_ms, found)

    on_read, on_fenced = Committer._on_read, Committer._on_fenced

    def read(self: Any, now_ms: int, part: Any) -> None:
        if self._session.identity is None and part.state is not None and self._job.operation.value == "commit":
            self._ledger = part.state
            self.phase = type(self.phase).CLOSING
            follow(self, now_ms, Judgement(Move.FENCE))
        else:
            on_read(self, now_ms, part)

    def fenced(self: Any, now_ms: int, part: Any) -> None:
        if self._ledger is not None and part.identity is not None:
            self._session.identity, self._session.ledger = part.identity, self._ledger
            self.phase = type(self.phase).READING
            self._judge(now_ms)
        else:
            on_fenced(self, now_ms, part)

    patched = {**committer._ON_FINISHED, Phase.READING: read, Phase.FENCING: fenced}
    with mock.patch.object(Committer, "_follow", changed), mock.patch.object(committer, "_ON_FINISHED", patched):
        yield


@contextmanager
def no_claim() -> Iterator[None]:
    """Fenced, and then read to the end that the leader tells: an outdated one tells what it knew."""

    def fenced(self: Any, now_ms: int, part: Any) -> None:
        self._session.identity = part.identity
        self.phase = Phase.CLAIMING
        self._read(now_ms, None)
        # As if all that was read stood below a claim.
        self._claim_offset = 1 << 40

    patched = {**committer._ON_FINISHED, Phase.FENCING: fenced}
    with mock.patch.object(committer, "_ON_FINISHED", patched):
        yield


@contextmanager
def stale_identity_believed() -> Iterator[None]:
    """A write that is refused as fenced means that another driver has taken over, whoever it was."""
    with mock.patch.object(Opening, "_look_again", return_value=False):
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
def fingerprint_not_compared() -> Iterator[None]:
    """A batch that was delivered and comes again is taken for the same, whatever its rows are."""
    with mock.patch.object(judgement, "likeness", return_value=Likeness.SAME):
        yield


@contextmanager
def id_used_again_after_a_lost_answer() -> Iterator[None]:
    """A task uses an id although an InitProducerId for it is still on its way."""
    task = World._task

    def changed(self: World, state: Any, driver: Any, number: int) -> Any:
        name = self._task_identity(driver, number).transactional_id
        body = {"transactional_id": name, "transaction_timeout_ms": 1_000}
        late = DriverRequest(RequestKey("init of a task", number), CoordinatorOf(name), INIT_PRODUCER_ID, body, 0, 5, 1)
        orphans = tuple(sorted((*state.orphans, self._request_number(late))))
        return task(self, state._replace(orphans=orphans), driver, number)

    with mock.patch.object(World, "_task", changed):
        yield


PLANTED: dict[str, Callable[[], Any]] = {
    found.__name__: found
    for found in (
        no_intent,
        abort_after_intent,
        fenced_is_success,
        ids_shared_between_runs,
        no_fencing,
        no_claim,
        stale_identity_believed,
        unmarked_intent_ignored,
        fingerprint_not_compared,
        id_used_again_after_a_lost_answer,
    )
}
