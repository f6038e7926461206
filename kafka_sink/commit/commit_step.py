"""What the steps of the driver's state machine have in common: asks out, replies in, a result at the end.

A step is begun, is given the replies to its asks, and is asked for its result; it knows nothing of the other steps or
of deadlines. The caller gives up on it when time is up, and `last_trouble` then says what it was waiting for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from kafka_sink.commit.asks import Asks
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import RemoteProtocolError
from kafka_sink.errors.table.commits import LEDGER_DAMAGED, LEDGER_UNREADABLE, NOT_COMMITTED
from kafka_sink.errors.table.entry import ErrorEntry
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.ask import Ask, Reply, ReplyKind
from kafka_sink.kafka.client.outcome import DriverOutcome, describe_answer, driver_outcome

MORE_TIME = (
    "Make batches shorter (maxOffsetsPerTrigger), or raise transaction.timeout.ms together with the brokers' "
    "transaction.max.timeout.ms; or set delivery.guarantee=at-least-once"
)

# Longer than any transaction may be open.
UNLIMITED_MS = 1 << 40

# How long brokers must say that a topic is gone.
GONE_MS = 5_000

V_co = TypeVar("V_co", covariant=True)
StepT = TypeVar("StepT", bound="CommitStep")


@frozen
class Progress(Generic[V_co]):
    """What a state machine wants next: send `asks`; step again on any reply, or at `wake_at_ms`. With a result it is
    done. `trouble` is why it still waits, for the log."""

    asks: Sequence[Ask]
    wake_at_ms: int | None = None
    result: V_co | None = None
    trouble: str = ""


class CommitStep(ABC):
    def __init__(self, settings: DeliverySettings) -> None:
        self.settings = settings
        self.asks = Asks(settings)
        # Why it ended without a result, and what the error table says about that.
        self.failure: str | None = None
        self.entry: ErrorEntry = NOT_COMMITTED
        self.last_trouble = ""
        self._notes: list[str] = []
        # What it has found out about how long its whole operation may take.
        self.limit_ms = UNLIMITED_MS
        # Since when brokers have said that a topic is not there.
        self._gone_since_ms: int | None = None

    @property
    def is_finished(self) -> bool:
        """Once begun: every ask has been answered for good, or the step has failed."""
        return not len(self.asks)

    @property
    def notes(self) -> list[str]:
        """What people are told about it, when it is finished."""
        return self._notes

    @property
    def reason(self) -> str:
        """Why it failed, or what it was waiting for."""
        return self.failure if self.failure is not None else self.last_trouble or "no answer in time"

    @property
    def lateness(self) -> str:
        """Why it was given up at the deadline of a batch."""
        heard = f"the last trouble was: {self.last_trouble}" if self.last_trouble else "no answer came"
        return f"too little time is left before its transactions time out ({heard}). {MORE_TIME}"

    def begin(self: StepT, now_ms: int) -> StepT:
        """Asks the first questions; before that, nothing is sent."""
        self.ask_first(now_ms)
        return self

    @abstractmethod
    def ask_first(self, now_ms: int) -> None: ...

    @abstractmethod
    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        """Handles the answer of one broker."""

    def on_reply(self, now_ms: int, reply: Reply) -> None:
        if not self.asks.accept(reply):
            return
        if reply.kind.is_unanswered:
            self.last_trouble = f"{reply.ask.purpose}: {reply.error or 'no answer'}"
            self.on_lost(now_ms, reply)
        elif reply.kind is ReplyKind.ANSWERED:
            try:
                self.on_bodies(now_ms, reply)
            except RemoteProtocolError as error:
                self.on_refused(now_ms, reply.ask, str(error))
                if error.entry in (LEDGER_DAMAGED, LEDGER_UNREADABLE):
                    self.entry = error.entry
        elif reply.kind is ReplyKind.LEADERLESS:
            self.on_leaderless(now_ms, reply)
        elif reply.kind is ReplyKind.UNSUPPORTED:
            self.on_unsupported(now_ms, reply)
        else:
            self.on_refused(now_ms, reply.ask, str(reply.error or reply.kind.value))

    def on_bodies(self, now_ms: int, reply: Reply) -> None:
        for body in reply.bodies:
            self.on_body(now_ms, reply.ask, body)

    def on_lost(self, now_ms: int, reply: Reply) -> None:
        """Not sent, or it may have been carried out: then only the identical request may be sent again."""
        self.asks.repeat(now_ms, reply.ask, find_again=True)

    def on_leaderless(self, now_ms: int, reply: Reply) -> None:
        """It was not sent, because one of its `led_partitions` has no leader."""
        self.on_refused(now_ms, reply.ask, str(reply.error))

    def on_unsupported(self, now_ms: int, reply: Reply) -> None:
        self.on_refused(now_ms, reply.ask, str(reply.error or reply.kind.value))

    def on_refused(self, now_ms: int, ask: Ask, reason: str, *, is_fenced: bool = False) -> None:
        self.fail(reason)

    def fail(self, reason: str) -> None:
        self.asks.drop_all()
        self.failure = reason

    def note_topic(self, now_ms: int, *, is_gone: bool) -> None:
        if not is_gone:
            self._gone_since_ms = None
        elif self._gone_since_ms is None:
            self._gone_since_ms = now_ms

    def is_gone_for_good(self, now_ms: int, patience_ms: int = GONE_MS) -> bool:
        """Brokers learn of a new topic one after the other, so a topic is believed to be gone only after a while."""
        return self._gone_since_ms is not None and now_ms - self._gone_since_ms >= patience_ms

    def refuse_or_repeat(self, now_ms: int, ask: Ask, error_code: int) -> bool:
        """False: there is no error, and nothing was done."""
        found = driver_outcome(ask.api, error_code)
        if found is not DriverOutcome.DONE and not self.repeat_if_meant(now_ms, ask, error_code):
            self.on_refused(now_ms, ask, self.error_text(ask, error_code), is_fenced=found is DriverOutcome.FENCED)
        return found is not DriverOutcome.DONE

    def repeat_if_meant(self, now_ms: int, ask: Ask, error_code: int) -> bool:
        """False: the error means more than "ask again", or there is none; nothing was done."""
        found = driver_outcome(ask.api, error_code)
        if not found.is_again:
            return False
        self.last_trouble = self.error_text(ask, error_code)
        self.asks.repeat(
            now_ms, ask, find_again=found is DriverOutcome.FIND_AGAIN, soon=found is DriverOutcome.REPEAT_SOON
        )
        return True

    def error_text(self, ask: Ask, error_code: int) -> str:
        return describe_answer(ask.api.name, error_code)


class SingleStep(Generic[StepT]):
    """One step as a state machine of its own. The result is the step: finished, failed or given up."""

    def __init__(self, step: StepT, deadline_ms: int) -> None:
        self._single = step
        self._deadline_ms = deadline_ms
        self._has_begun = False

    def step(self, now_ms: int, replies: Sequence[Reply]) -> Progress[StepT]:
        if not self._has_begun:
            self._has_begun = True
            self._single.begin(now_ms)
        for reply in replies:
            if not self._single.is_finished:
                self._single.on_reply(now_ms, reply)
        if not self._single.is_finished and now_ms >= self._deadline_ms:
            self._single.fail(f"no time left ({self._single.last_trouble or 'no answer'})")
        if self._single.is_finished:
            return Progress((), None, self._single)
        due = self._single.asks.take_due(now_ms)
        moments = (self._single.asks.wake_at_ms(), self._deadline_ms)
        return Progress(due, min(moment for moment in moments if moment is not None), None)


class StepChain(CommitStep):
    """Steps one after the other; the chain has the asks of the current one."""

    def __init__(self, settings: DeliverySettings, first: CommitStep) -> None:
        super().__init__(settings)
        self.current = first

    def ask_first(self, now_ms: int) -> None:
        self.current.begin(now_ms)
        self.advance(now_ms)

    @abstractmethod
    def after(self, now_ms: int, finished: CommitStep) -> CommitStep | None:
        """The step that follows, begun; None: it was the last one."""

    def on_reply(self, now_ms: int, reply: Reply) -> None:
        self.current.on_reply(now_ms, reply)
        self.advance(now_ms)

    def advance(self, now_ms: int) -> None:
        while self.current.is_finished:
            following = self.after(now_ms, self.current)
            if following is None:
                break
            self.current = following
        self.asks, self.last_trouble = self.current.asks, self.current.last_trouble

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        raise AssertionError("answers go to the step that asked")
