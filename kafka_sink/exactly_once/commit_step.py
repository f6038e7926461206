"""What the parts of the driver's machine have in common: questions out, answers in, a result when there is one.

A part is told of answers and asked for its result; it knows nothing of the other parts and of deadlines. Whoever runs
it gives up on it when time is up, and `last_trouble` then says what it was waiting for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from kafka_sink.errors import RemoteProtocolError
from kafka_sink.exactly_once.outcome import Meaning, described
from kafka_sink.exactly_once.request import AnswerStatus, DriverAnswer, RequestKey
from kafka_sink.exactly_once.retry_queue import RetryQueue
from kafka_sink.exactly_once.session import DeliverySettings
from kafka_sink.frozen import frozen

MORE_TIME = (
    "Make batches shorter (maxOffsetsPerTrigger), or raise transaction.timeout.ms together with the brokers' "
    "transaction.max.timeout.ms; or set delivery.guarantee=at-least-once"
)


@frozen
class StepFailure:
    """Why a part ended without what it was for."""

    reason: str
    is_fenced: bool = False


class CommitStep(ABC):
    def __init__(self, settings: DeliverySettings) -> None:
        self.settings = settings
        self.inquiry = RetryQueue(settings)
        self.failure: StepFailure | None = None
        self.last_trouble = ""

    @property
    @abstractmethod
    def is_finished(self) -> bool: ...

    @property
    def lateness(self) -> str:
        """Why it was given up at the deadline of a batch."""
        heard = f"the last trouble was: {self.last_trouble}" if self.last_trouble else "no answer came"
        return f"too little time is left before its transactions time out ({heard}). {MORE_TIME}"

    @abstractmethod
    def on_body(self, now_ms: int, key: RequestKey, body: Mapping[str, Any]) -> None:
        """One answer of one broker."""

    def on_answer(self, now_ms: int, answer: DriverAnswer) -> None:
        if not self.inquiry.returned(answer):
            return
        if answer.fate is AnswerStatus.LOST:
            self.on_lost(now_ms, answer)
        elif answer.fate is AnswerStatus.ANSWERED:
            try:
                self.on_bodies(now_ms, answer)
            except RemoteProtocolError as error:
                self.on_refused(now_ms, answer.key, str(error))
        else:
            self.on_refused(now_ms, answer.key, str(answer.error or answer.fate.value))

    def on_bodies(self, now_ms: int, answer: DriverAnswer) -> None:
        for body in answer.bodies:
            self.on_body(now_ms, answer.key, body)

    def on_lost(self, now_ms: int, answer: DriverAnswer) -> None:
        """It may have been carried out, so nothing but the same request again is right."""
        self.last_trouble = f"{answer.key.purpose}: {answer.error or 'no answer'}"
        self.inquiry.repeat(now_ms, answer.key, find_again=True)

    def on_refused(self, now_ms: int, key: RequestKey, reason: str) -> None:
        self.fail(reason)

    def fail(self, reason: str, *, is_fenced: bool = False) -> None:
        self.inquiry.drop_all()
        self.failure = StepFailure(reason, is_fenced)

    def repeats(self, now_ms: int, key: RequestKey, found: Meaning, api_name: str, error_code: int) -> bool:
        """True: this meaning asks for nothing but another try, and it is on its way."""
        if found not in (Meaning.REPEAT, Meaning.REPEAT_SOON, Meaning.FIND_AGAIN):
            return False
        self.last_trouble = described(api_name, error_code)
        self.inquiry.repeat(now_ms, key, find_again=found is Meaning.FIND_AGAIN, soon=found is Meaning.REPEAT_SOON)
        return True
