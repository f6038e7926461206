"""Sets an unreadable ledger record aside on an operator's command, by writing a null value for its key.

An unreadable record blocks its sink permanently, because the decision is unknown. This unblocks it at a price: the
record's content is lost, so the sink counts as unknown afterwards.

  Fence, Claim       fence earlier drivers; what is read next is complete
  LedgerListing      is the record that the operator saw still the newest of its key, and still unreadable?
  LedgerTombstone    a record with the same key and a null value, in a transaction of the driver's id

A null value means the same to a reader now and after compaction, which removes both. The operator is assumed to have
checked that no newer release can read the record, and what happened to its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from kafka_sink.client.admin_request import AdminResponse
from kafka_sink.exactly_once.commit_step import CommitStep, Progress
from kafka_sink.exactly_once.ledger import Kind, LedgerRecord, encode_key
from kafka_sink.exactly_once.ledger_write import LedgerWrite, WriteState
from kafka_sink.exactly_once.listing import LedgerListing
from kafka_sink.exactly_once.receipt import BatchKey
from kafka_sink.exactly_once.session import DeliverySettings, DriverSession
from kafka_sink.exactly_once.takeover import Claim, Fence


class Aside(Enum):
    DONE = "set aside"
    CHANGED = "changed meanwhile"
    FAILED = "failed"
    IN_DOUBT = "in doubt"


@dataclass(frozen=True, slots=True)
class AsideVerdict:
    outcome: Aside
    reason: str = ""


class LedgerTombstone(LedgerWrite):
    def __init__(self, settings: DeliverySettings, session: DriverSession, ledger_key: str, now_ms: int) -> None:
        self._ledger_key = ledger_key
        nothing = LedgerRecord(Kind.REPLAY, session.sink_id, BatchKey("", ""), session.run)
        super().__init__(settings, session, nothing, now_ms)

    def _content(self) -> tuple[bytes, bytes | None]:
        return encode_key(self._ledger_key), None


class SetAside:
    """`offset` is where the operator saw the record. Run like a Committer."""

    def __init__(self, settings: DeliverySettings, ledger_key: str, offset: int, wall_ms: int, now_ms: int) -> None:
        self._settings = settings
        self._ledger_key = ledger_key
        self._offset = offset
        self._wall_ms = wall_ms
        self._session = DriverSession(ledger_key.partition("/")[0])
        self._deadline_ms = now_ms + settings.patience_ms
        self._verdict: AsideVerdict | None = None
        self._part: CommitStep = Fence(settings, self._session, now_ms)

    def step(self, now_ms: int, answers: Sequence[AdminResponse] = ()) -> Progress[AsideVerdict]:
        for answer in answers:
            if self._verdict is None:
                self._part.on_answer(now_ms, answer)
                self._go_on(now_ms)
        if self._verdict is None and now_ms >= self._deadline_ms:
            self._give_up()
        if self._verdict is not None:
            return Progress((), None, self._verdict)
        requests = self._part.queue.take_due(now_ms)
        wake_at_ms = self._part.queue.wake_at_ms()
        return Progress(requests, min(wake_at_ms or self._deadline_ms, self._deadline_ms), None)

    def _go_on(self, now_ms: int) -> None:
        part = self._part
        if not part.is_finished:
            return
        if isinstance(part, Fence) and part.identity is not None:
            self._session.identity = part.identity
            self._part = Claim(self._settings, self._session, self._wall_ms, now_ms)
        elif isinstance(part, Claim) and part.offset is not None:
            self._part = LedgerListing(self._settings, self._session.sink_id, now_ms, claim_offset=part.offset)
        elif isinstance(part, LedgerListing) and part.listed is not None:
            if any(self._is_the_one(each.ledger_key, each.offset, each.record) for each in part.listed):
                self._part = LedgerTombstone(self._settings, self._session, self._ledger_key, now_ms)
            else:
                self._verdict = AsideVerdict(Aside.CHANGED)
        elif isinstance(part, LedgerTombstone):
            self._verdict = _verdict_of(part)
        else:
            self._verdict = AsideVerdict(Aside.FAILED, part.reason)

    def _is_the_one(self, ledger_key: str, offset: int, record: LedgerRecord | None) -> bool:
        return record is None and (ledger_key, offset) == (self._ledger_key, self._offset)

    def _give_up(self) -> None:
        if isinstance(self._part, LedgerTombstone):
            self._part.give_up()
            self._verdict = _verdict_of(self._part)
        else:
            self._verdict = AsideVerdict(Aside.FAILED, f"no time left ({self._part.reason})")


def _verdict_of(part: LedgerTombstone) -> AsideVerdict:
    if part.state is WriteState.WRITTEN:
        return AsideVerdict(Aside.DONE)
    outcome = Aside.FAILED if part.state is WriteState.NOT_WRITTEN else Aside.IN_DOUBT
    return AsideVerdict(outcome, part.reason)
