"""Looking without touching: what the ledger holds, and which transactions are open. For an operator's eyes.

Nothing here fences, ends or writes anything, so it may be done while queries run; what it shows may be out of date by
the time it is read. A record whose marker is not there yet counts as not written, as in every reading of the ledger.

`SingleStep` runs one part as a machine of its own: `client.run(Alone(LedgerListing(...), deadline_ms))` returns the
part, finished, failed or given up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from kafka_sink.errors import RemoteProtocolError
from kafka_sink.exactly_once.commit_step import CommitStep
from kafka_sink.exactly_once.identity import belongs_to, parsed_task_identity
from kafka_sink.exactly_once.ledger import LedgerRecord
from kafka_sink.exactly_once.ledger_codec import decode_record
from kafka_sink.exactly_once.ledger_read import LedgerRead
from kafka_sink.exactly_once.outcome import Meaning, described, meaning
from kafka_sink.exactly_once.preflight import DescribeTransactions, TransactionDescription
from kafka_sink.exactly_once.request import DriverAnswer, DriverRequest, EveryBroker, RequestKey
from kafka_sink.exactly_once.session import DeliverySettings
from kafka_sink.frozen import frozen
from kafka_sink.wire.apis import LIST_TRANSACTIONS

LIST = RequestKey("list open transactions")
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")

PartT = TypeVar("PartT", bound=CommitStep)


@frozen
class SingleStepProgress(Generic[PartT]):
    requests: Sequence[DriverRequest]
    wake_at_ms: int | None
    verdict: PartT | None


class SingleStep(Generic[PartT]):
    def __init__(self, part: PartT, deadline_ms: int) -> None:
        self._part = part
        self._deadline_ms = deadline_ms

    def step(self, now_ms: int, answers: Sequence[DriverAnswer]) -> SingleStepProgress[PartT]:
        for answer in answers:
            if not self._part.is_finished:
                self._part.on_answer(now_ms, answer)
        if self._part.is_finished:
            return SingleStepProgress((), None, self._part)
        if now_ms >= self._deadline_ms:
            self._part.fail(f"no time left ({self._part.last_trouble or 'no answer'})")
            return SingleStepProgress((), None, self._part)
        requests = self._part.inquiry.due(now_ms)
        moments = (self._part.inquiry.wake_at_ms(), self._deadline_ms)
        return SingleStepProgress(requests, min(moment for moment in moments if moment is not None), None)


@frozen
class Listed:
    """The newest record of one ledger key. `record` None: it cannot be read, and `problem` says why."""

    ledger_key: str
    offset: int
    record: LedgerRecord | None
    problem: str = ""

    @property
    def sink_id(self) -> str:
        return self.ledger_key.partition("/")[0]


class LedgerListing(LedgerRead):
    """The newest record of each key, of one sink or (None) of all. What cannot be read hides nothing else."""

    def __init__(
        self, settings: DeliverySettings, sink_id: str | None, now_ms: int, *, claim_offset: int | None = None
    ) -> None:
        self.listed: list[Listed] | None = None
        self._is_of_all = sink_id is None
        super().__init__(settings, sink_id or "", now_ms, claim_offset=claim_offset, is_of_name=True)

    @property
    def is_finished(self) -> bool:
        return self.listed is not None or self.failure is not None

    def _own_key(self, key: bytes | None) -> str | None:
        if self._is_of_all:
            return (key or b"").decode("utf-8", "replace") or None
        return super()._own_key(key)

    def _on_newest(
        self, found: Mapping[str, tuple[int, bytes]], unmarked: Mapping[str, list[tuple[int, bytes]]]
    ) -> None:
        self.listed = [_listed(ledger_key, *found[ledger_key]) for ledger_key in sorted(found)]


def _listed(ledger_key: str, offset: int, value: bytes) -> Listed:
    try:
        return Listed(ledger_key, offset, decode_record(value))
    except RemoteProtocolError as error:
        return Listed(ledger_key, offset, None, str(error))


class TransactionListing(CommitStep):
    """Open transactions of tasks, of one sink or (None) of all sinks that a broker tells us about."""

    def __init__(self, settings: DeliverySettings, sink_id: str | None, now_ms: int) -> None:
        super().__init__(settings)
        self.notes: list[str] = []
        self._sink_id = sink_id
        self._is_listed = False
        self._ids: dict[str, None] = {}
        self._describe: DescribeTransactions | None = None
        body = {"state_filters": list(OPEN_STATES), "producer_id_filters": []}
        self.inquiry.ask(now_ms, LIST, EveryBroker(), LIST_TRANSACTIONS, body)

    @property
    def found(self) -> list[TransactionDescription]:
        """By id. One that ended between the two questions is left out."""
        known = self._describe.found if self._describe is not None else {}
        return [known[one] for one in sorted(known) if known[one].state in OPEN_STATES]

    @property
    def is_finished(self) -> bool:
        if self.failure is not None:
            return True
        return self._is_listed and (self._describe is None or self._describe.is_finished)

    def on_answer(self, now_ms: int, answer: DriverAnswer) -> None:
        if self._describe is None:
            super().on_answer(now_ms, answer)
            return
        self._describe.on_answer(now_ms, answer)
        if self._describe.failure is not None:
            self.fail(self._describe.failure.reason)
        elif not self._describe.is_supported:
            self.fail("the brokers do not speak DescribeTransactions")

    def on_lost(self, now_ms: int, answer: DriverAnswer) -> None:
        """A broker that is away lists nothing; what it coordinates is missing here."""
        self.notes.append(f"not every broker listed its transactions: {answer.error or 'no answer'}")
        self.on_bodies(now_ms, answer)

    def on_bodies(self, now_ms: int, answer: DriverAnswer) -> None:
        super().on_bodies(now_ms, answer)
        if self.failure is not None:
            return
        self.inquiry.drop_all()
        self._is_listed = True
        if self._ids:
            self._describe = DescribeTransactions(self.settings, tuple(sorted(self._ids)), now_ms)
            self.inquiry = self._describe.inquiry

    def on_body(self, now_ms: int, key: RequestKey, body: Mapping[str, Any]) -> None:
        if meaning(LIST_TRANSACTIONS, body["error_code"]) is not Meaning.DONE:
            self.notes.append(described(LIST_TRANSACTIONS.name, body["error_code"]))
            return
        for state in body["transaction_states"]:
            identity = parsed_task_identity(state["transactional_id"])
            if identity is not None and (self._sink_id is None or belongs_to(identity.sink_id, self._sink_id)):
                self._ids[state["transactional_id"]] = None
