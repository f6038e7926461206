"""What the steps of the driver's state machine have in common: requests out, responses in, a result at the end.

A step is given responses and asked for its result; it knows nothing of the other steps or of deadlines. The caller
gives up on it when time is up, and `last_trouble` then says what it was waiting for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from kafka_sink.commit.outcome import Meaning, describe_answer, meaning
from kafka_sink.commit.retry_queue import RetryQueue
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import RemoteProtocolError
from kafka_sink.errors.table.commits import LEDGER_UNREADABLE, NOT_COMMITTED
from kafka_sink.errors.table.entry import ErrorEntry
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.admin_request import AdminRequest, AdminResponse, RequestKey, ResponseKind
from kafka_sink.kafka.wire.apis import Api

MORE_TIME = (
    "Make batches shorter (maxOffsetsPerTrigger), or raise transaction.timeout.ms together with the brokers' "
    "transaction.max.timeout.ms; or set delivery.guarantee=at-least-once"
)

# How long brokers must say that a topic is gone.
GONE_MS = 5_000

V_co = TypeVar("V_co", covariant=True)


@frozen
class Progress(Generic[V_co]):
    """What a state machine wants next: send `requests`; step again on any answer, or at `wake_at_ms`. With a verdict it
    is done. `trouble` is why it still waits, for the log."""

    requests: Sequence[AdminRequest]
    wake_at_ms: int | None = None
    verdict: V_co | None = None
    trouble: str = ""


class CommitStep(ABC):
    def __init__(self, settings: DeliverySettings) -> None:
        self.settings = settings
        self.queue = RetryQueue(settings)
        # Why it ended without a result, and what the error table says about that.
        self.failure: str | None = None
        self.entry: ErrorEntry = NOT_COMMITTED
        self.last_trouble = ""
        # Since when brokers have said that a topic is not there.
        self._gone_since_ms: int | None = None

    @property
    def is_finished(self) -> bool:
        """Every request has been answered for good, or the step has failed."""
        return self.queue.count == 0

    @property
    def reason(self) -> str:
        """Why it failed, or what it was waiting for."""
        return self.failure if self.failure is not None else self.last_trouble or "no answer in time"

    @property
    def lateness(self) -> str:
        """Why it was given up at the deadline of a batch."""
        heard = f"the last trouble was: {self.last_trouble}" if self.last_trouble else "no answer came"
        return f"too little time is left before its transactions time out ({heard}). {MORE_TIME}"

    @abstractmethod
    def on_body(self, now_ms: int, key: RequestKey, body: Mapping[str, Any]) -> None:
        """Handles one response of one broker."""

    def on_answer(self, now_ms: int, answer: AdminResponse) -> None:
        if not self.queue.accept(answer):
            return
        if answer.kind is ResponseKind.LOST:
            self.last_trouble = f"{answer.key.purpose}: {answer.error or 'no answer'}"
            self.on_lost(now_ms, answer)
        elif answer.kind is ResponseKind.ANSWERED:
            try:
                self.on_bodies(now_ms, answer)
            except RemoteProtocolError as error:
                self.on_refused(now_ms, answer.key, str(error))
                if error.entry is LEDGER_UNREADABLE:
                    self.entry = error.entry
        elif answer.kind is ResponseKind.LEADERLESS:
            self.on_leaderless(now_ms, answer)
        else:
            self.on_refused(now_ms, answer.key, str(answer.error or answer.kind.value))

    def on_bodies(self, now_ms: int, answer: AdminResponse) -> None:
        for body in answer.bodies:
            self.on_body(now_ms, answer.key, body)

    def on_lost(self, now_ms: int, answer: AdminResponse) -> None:
        """It may have been carried out, so only the identical request may be sent again."""
        self.queue.repeat(now_ms, answer.key, find_again=True)

    def on_leaderless(self, now_ms: int, answer: AdminResponse) -> None:
        """It was not sent, because one of its `led_partitions` has no leader."""
        self.on_refused(now_ms, answer.key, str(answer.error))

    def on_refused(self, now_ms: int, key: RequestKey, reason: str, *, is_fenced: bool = False) -> None:
        self.fail(reason)

    def fail(self, reason: str) -> None:
        self.queue.drop_all()
        self.failure = reason

    def is_gone_for_good(self, now_ms: int, *, is_gone: bool) -> bool:
        """Brokers learn of a new topic one after the other, so a topic is believed to be gone only after a while."""
        if not is_gone:
            self._gone_since_ms = None
        elif self._gone_since_ms is None:
            self._gone_since_ms = now_ms
        return self._gone_since_ms is not None and now_ms - self._gone_since_ms >= GONE_MS

    def is_done(self, now_ms: int, key: RequestKey, api: Api, error_code: int) -> bool:
        """False: the request is repeated, or it was refused."""
        found = meaning(api, error_code)
        if found is not Meaning.DONE and not self.is_repeated(now_ms, key, api, error_code):
            self.on_refused(now_ms, key, self.error_text(key, api, error_code), is_fenced=found is Meaning.FENCED)
        return found is Meaning.DONE

    def is_repeated(self, now_ms: int, key: RequestKey, api: Api, error_code: int) -> bool:
        """True: the meaning is only "retry", and the retry is queued."""
        found = meaning(api, error_code)
        if found not in (Meaning.REPEAT, Meaning.REPEAT_SOON, Meaning.FIND_AGAIN):
            return False
        self.last_trouble = self.error_text(key, api, error_code)
        self.queue.repeat(now_ms, key, find_again=found is Meaning.FIND_AGAIN, soon=found is Meaning.REPEAT_SOON)
        return True

    def error_text(self, key: RequestKey, api: Api, error_code: int) -> str:
        return describe_answer(api.name, error_code)


PartT = TypeVar("PartT", bound=CommitStep)


class SingleStep(Generic[PartT]):
    """One step as a state machine of its own. The verdict is the step: finished, failed or given up."""

    def __init__(self, part: PartT, deadline_ms: int) -> None:
        self._part = part
        self._deadline_ms = deadline_ms

    def step(self, now_ms: int, answers: Sequence[AdminResponse]) -> Progress[PartT]:
        for answer in answers:
            if not self._part.is_finished:
                self._part.on_answer(now_ms, answer)
        if not self._part.is_finished and now_ms >= self._deadline_ms:
            self._part.fail(f"no time left ({self._part.last_trouble or 'no answer'})")
        if self._part.is_finished:
            return Progress((), None, self._part)
        requests = self._part.queue.take_due(now_ms)
        moments = (self._part.queue.wake_at_ms(), self._deadline_ms)
        return Progress(requests, min(moment for moment in moments if moment is not None), None)


class StepChain(CommitStep):
    """Steps one after the other; the chain has the requests of the current one."""

    def __init__(self, settings: DeliverySettings, first: CommitStep) -> None:
        super().__init__(settings)
        self.part = first
        self.queue = first.queue

    @abstractmethod
    def after(self, now_ms: int, part: CommitStep) -> CommitStep | None:
        """The step that follows `part`, which is finished; None: it was the last one."""

    def on_answer(self, now_ms: int, answer: AdminResponse) -> None:
        self.part.on_answer(now_ms, answer)
        self.go_on(now_ms)

    def go_on(self, now_ms: int) -> None:
        while self.part.is_finished:
            following = self.after(now_ms, self.part)
            if following is None:
                break
            self.part = following
        self.queue, self.last_trouble = self.part.queue, self.part.last_trouble

    def on_body(self, now_ms: int, key: RequestKey, body: Mapping[str, Any]) -> None:
        raise AssertionError("answers go to the part that asked")
