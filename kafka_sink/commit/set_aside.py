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

from enum import Enum

from kafka_sink.commit.commit_step import CommitStep, StepChain
from kafka_sink.commit.ledger import Kind, LedgerRecord, encode_key, line_of_key
from kafka_sink.commit.ledger_write import LedgerWrite, WriteState
from kafka_sink.commit.listing import LedgerListing
from kafka_sink.commit.receipt import UNNAMED_BATCH
from kafka_sink.commit.session import DeliverySettings, DriverSession
from kafka_sink.commit.takeover import Claim, Fence


class Aside(Enum):
    DONE = "set aside"
    CHANGED = "changed meanwhile"
    FAILED = "failed"
    IN_DOUBT = "in doubt"


class LedgerTombstone(LedgerWrite):
    def __init__(self, settings: DeliverySettings, session: DriverSession, ledger_key: str) -> None:
        self._ledger_key = ledger_key
        nothing = LedgerRecord(Kind.REPLAY, session.sink_id, UNNAMED_BATCH, session.run)
        super().__init__(settings, session, nothing)

    def _content(self) -> tuple[bytes, bytes | None]:
        return encode_key(self._ledger_key), None


class SetAside(StepChain):
    """`offset` is where the operator saw the record. `outcome` and `reason` are for when it is finished."""

    def __init__(self, settings: DeliverySettings, ledger_key: str, offset: int, wall_ms: int) -> None:
        self._ledger_key = ledger_key
        self._offset = offset
        self._wall_ms = wall_ms
        line = line_of_key(ledger_key, settings.ledger_topic)
        self._session = DriverSession(line.sink_id, code=line.code)
        super().__init__(settings, Fence(settings, self._session))

    def after(self, now_ms: int, finished: CommitStep) -> CommitStep | None:
        if isinstance(finished, Fence) and finished.identity is not None:
            self._session.identity = finished.identity
            return Claim(self.settings, self._session, self._wall_ms).begin(now_ms)
        if isinstance(finished, Claim) and finished.offset is not None:
            reading = LedgerListing(self.settings, self._session.sink_id, claim_offset=finished.offset)
            return reading.begin(now_ms)
        if isinstance(finished, LedgerListing) and finished.listed is not None:
            unreadable = [(each.ledger_key, each.offset) for each in finished.listed if each.record is None]
            if (self._ledger_key, self._offset) in unreadable:
                return LedgerTombstone(self.settings, self._session, self._ledger_key).begin(now_ms)
        return None

    def fail(self, reason: str) -> None:
        """Time is up."""
        if isinstance(self.current, LedgerTombstone):
            self.current.give_up()
        super().fail(reason)

    @property
    def outcome(self) -> Aside:
        """What was written is known by the state of the tombstone; without one nothing was."""
        if isinstance(self.current, LedgerTombstone):
            known = {WriteState.WRITTEN: Aside.DONE, WriteState.NOT_WRITTEN: Aside.FAILED}
            return known.get(self.current.state, Aside.IN_DOUBT)
        is_read = isinstance(self.current, LedgerListing) and self.current.listed is not None
        return Aside.CHANGED if is_read else Aside.FAILED

    @property
    def reason(self) -> str:
        return self.failure or self.current.reason
