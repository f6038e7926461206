"""Read-only views for an operator: what the ledger holds, which transactions are open, and what they hold back.

Nothing here fences, ends or writes anything, so it is safe while queries run; the result may be out of date by the time
it is shown. A record whose marker is not there yet counts as not written, as everywhere in reading the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka_sink.commit.commit_step import CommitStep, StepChain
from kafka_sink.commit.describe_transactions import DescribeTransactions, TransactionDescription
from kafka_sink.commit.identity import Line, belongs_to, parse_task_identity
from kafka_sink.commit.ledger import Kind, LedgerRecord, decode_key, line_of_claim, line_of_key
from kafka_sink.commit.ledger_codec import decode_claim, origin_of
from kafka_sink.commit.ledger_found import Found, Newest, Unmarked, decode_found
from kafka_sink.commit.ledger_read import LedgerRead
from kafka_sink.commit.log_scan import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    RawBatch,
    offsets_body,
)
from kafka_sink.commit.open_parts import ProducerQuestion
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import KafkaSinkError, RemoteProtocolError
from kafka_sink.errors.table.commits import LEDGER_UNREADABLE, NOT_HAD
from kafka_sink.formats.records.skim import Skimmed
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.ask import AllBrokers, Ask, Leaders, Reply
from kafka_sink.kafka.client.outcome import DriverOutcome, describe_answer, driver_outcome
from kafka_sink.kafka.wire.apis import (
    DESCRIBE_PRODUCERS,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)

LIST = "list transactions"
BEGINS, ENDS, STABLE = "log start offsets", "log ends", "stable offsets"
MARKS = "describe producers"
# Of all sinks: anybody may have written a topic that looks like a ledger.
HELD_BYTES_MAX = 256 * 1024 * 1024
OPEN_STATES = (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)


class NotAnswered(KafkaSinkError):
    """The brokers answered, but without the requested data."""

    default_entry = NOT_HAD


@frozen
class Listed:
    """The newest record of one ledger key. `record` is None if it cannot be read; `problem` then says why. `origin`:
    the cluster of which the record is a copy, or empty."""

    ledger_key: str
    offset: int
    record: LedgerRecord | None
    problem: str = ""
    origin: str = ""

    @property
    def is_open(self) -> bool:
        """Decided and not known to be committed, or not readable."""
        return self.record is None or self.record.kind is Kind.INTENT

    @property
    def sink_id(self) -> str:
        return self.ledger_key.partition("/")[0]


class LedgerListing(LedgerRead):
    """The newest record of each key, of one sink or (None) of all. An unreadable record does not hide the others."""

    awaits_markers = True
    # A sink with too many hides no other one.
    limits_keys = False

    def __init__(self, settings: DeliverySettings, sink_id: str | None, *, claim_offset: int | None = None) -> None:
        super().__init__(settings, sink_id or "", claim_offset=claim_offset, is_of_name=True)
        self.listed: list[Listed] | None = None
        # Those of which the ledger has a record, or a claim.
        self.lines: set[Line] = set()
        self._is_of_all = sink_id is None
        self._held_bytes = 0

    def _is_own(self, ledger_key: str) -> bool:
        if self._is_of_all:
            # No sink id is empty: a key that begins with a slash is not a decision's.
            return bool(ledger_key) and not ledger_key.startswith("/")
        return super()._is_own(ledger_key)

    def _take_claim(self, offset: int, key: bytes, value: bytes) -> None:
        super()._take_claim(offset, key, value)
        with suppress(RemoteProtocolError):
            self.lines.add(line_of_claim(decode_key(key), decode_claim(value).code))

    def _keep(self, ledger_key: str, found: Found) -> None:
        super()._keep(ledger_key, found)
        self.lines.add(line_of_key(ledger_key, self.settings.ledger_topic))

    def _skim(self, raw: RawBatch, is_wanted: Callable[[bytes | None], bool]) -> Iterator[Skimmed]:
        for each in super()._skim(raw, is_wanted):
            yield each
            self._held_bytes += len(each.value or b"")
            if self._is_of_all and self._held_bytes > HELD_BYTES_MAX:
                # Without what newer records have replaced, and aborted ones.
                waiting = (found.value for listed in self._waiting.values() for _, found in listed)
                self._held_bytes = sum(map(len, waiting)) + sum(len(one.value) for one in self._newest.values())
                if self._held_bytes > HELD_BYTES_MAX:
                    text = self._about_ledger(f"its newest records take more than {HELD_BYTES_MAX} bytes")
                    raise RemoteProtocolError(text, LEDGER_UNREADABLE)

    def _on_newest(self, found: Newest, unmarked: Unmarked) -> None:
        self.listed = [_decode_listed(key, found[key], self.settings.cluster_id) for key in sorted(found)]


def _decode_listed(ledger_key: str, found: Found, cluster_id: str) -> Listed:
    try:
        record = decode_found(ledger_key, found, cluster_id)
    except RemoteProtocolError as error:
        return Listed(ledger_key, found.offset, None, str(error), origin_of(found.value, cluster_id))
    origin = record.cluster_id if record.is_of_another_cluster(cluster_id) else ""
    return Listed(ledger_key, found.offset, record, origin=origin)


def list_body(states: Sequence[str] = ()) -> dict[str, Any]:
    """Of ListTransactions. Without states: all that the brokers remember."""
    return {"state_filters": list(states), "producer_id_filters": []}


class OpenTransactions(CommitStep):
    """The ids of tasks under which a transaction is open, as far as the brokers report them: without a word they leave
    out ids on which the Describe permission is missing. `name`: of a sink, or of the sinks of queries under that name;
    None: of all."""

    def __init__(self, settings: DeliverySettings, name: str | None, states: Sequence[str] = OPEN_STATES) -> None:
        super().__init__(settings)
        self.ids: dict[str, None] = {}
        self.is_supported = True
        self._name = name
        self._states = states

    def ask_first(self, now_ms: int) -> None:
        body = list_body(self._states)
        self.asks.add(now_ms, Ask(AllBrokers(), LIST_TRANSACTIONS, body, LIST))

    def on_unsupported(self, now_ms: int, reply: Reply) -> None:
        self.is_supported = False
        super().on_unsupported(now_ms, reply)

    def on_lost(self, now_ms: int, reply: Reply) -> None:
        """An unreachable broker lists nothing; the transactions that it coordinates are missing here."""
        self._notes.append(f"not every broker listed its transactions: {reply.error or 'no answer'}")
        self.on_bodies(now_ms, reply)

    def on_bodies(self, now_ms: int, reply: Reply) -> None:
        super().on_bodies(now_ms, reply)
        self.asks.drop_all()

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        if body["error_code"]:
            self._notes.append(describe_answer(LIST_TRANSACTIONS.name, body["error_code"]))
            return
        for state in body["transaction_states"]:
            identity = parse_task_identity(state["transactional_id"])
            if identity is not None and (self._name is None or belongs_to(identity.sink_id, self._name)):
                self.ids[state["transactional_id"]] = None


class TransactionListing(StepChain):
    """`found`: open transactions of one sink, or (None) of all sinks that the brokers list, sorted by id. One that
    ended between the two requests is left out."""

    def __init__(self, settings: DeliverySettings, sink_id: str | None) -> None:
        listing = OpenTransactions(settings, sink_id)
        super().__init__(settings, listing)
        self._notes = listing.notes
        self.found: list[TransactionDescription] = []

    def after(self, now_ms: int, finished: CommitStep) -> CommitStep | None:
        if finished.failure is not None:
            self.fail(finished.failure)
        elif isinstance(finished, OpenTransactions) and finished.ids:
            return DescribeTransactions(self.settings, sorted(finished.ids)).begin(now_ms)
        elif isinstance(finished, DescribeTransactions):
            if not finished.is_supported:
                self.fail("the brokers do not speak DescribeTransactions")
            self.found = [one for _, one in sorted(finished.found.items()) if one.state in OPEN_STATES]
        return None


class ProducerMarks(CommitStep):
    """The last sequence number of each producer id in each partition: two looks tell which producers write. What no
    leader tells (it is away, Read on the topic is missing, the API is not spoken) is left out, and so is what would be
    too much."""

    def __init__(self, settings: DeliverySettings, found: Sequence[TransactionDescription]) -> None:
        super().__init__(settings)
        self._marks = _Marks({where for one in found for where in one.partitions}, {one.producer_id for one in found})
        self.last = self._marks.last

    def ask_first(self, now_ms: int) -> None:
        if self._marks.missing:
            target, body = self._marks.question()
            self.asks.add(now_ms, Ask(target, DESCRIBE_PRODUCERS, body, MARKS))

    def on_reply(self, now_ms: int, reply: Reply) -> None:
        for body in reply.bodies:
            self.on_body(now_ms, reply.ask, body)
        self.asks.drop_all()
        self._marks.ask_rest()
        self.ask_first(now_ms)

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        self._marks.on_body(body)


class _Marks(ProducerQuestion):
    def __init__(self, partitions: Collection[tuple[str, int]], producer_ids: Collection[int]) -> None:
        super().__init__(partitions)
        self.last: dict[tuple[str, int, int], int] = {}
        self._producer_ids = producer_ids

    def on_told(self, where: tuple[str, int], producers: Iterable[Mapping[str, Any]]) -> None:
        own = (one for one in producers if one["producer_id"] in self._producer_ids)
        self.last.update({(*where, one["producer_id"]): one["last_sequence"] for one in own})


class LogOffsets(CommitStep):
    """What requests to each leader tell of its partitions; `questions`: a timestamp and an isolation level for each
    purpose. A partition without an answer is not in `told`, and `last_trouble` says why."""

    def __init__(
        self,
        settings: DeliverySettings,
        partitions: Sequence[tuple[str, int]],
        questions: Mapping[str, tuple[int, int]],
    ) -> None:
        super().__init__(settings)
        self.told: dict[str, dict[tuple[str, int], int]] = {purpose: {} for purpose in questions}
        self._questions = questions
        self._partitions = tuple(partitions)

    def ask_first(self, now_ms: int) -> None:
        for purpose, (timestamp, isolation) in self._questions.items():
            if self._partitions:
                body = offsets_body(self._partitions, timestamp, isolation)
                target, lowest = Leaders(self._partitions), LIST_OFFSETS.isolated_since
                self.asks.add(now_ms, Ask(target, LIST_OFFSETS, body, purpose, version_min=lowest))

    def on_bodies(self, now_ms: int, reply: Reply) -> None:
        super().on_bodies(now_ms, reply)
        if self.failure is None:
            self.asks.drop(reply.ask)

    # A leader that is away says nothing; the others are shown.
    on_lost = on_bodies

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        found = self.told[ask.purpose]
        for topic in body["topics"]:
            for told in topic["partitions"]:
                if driver_outcome(LIST_OFFSETS, told["error_code"]) is DriverOutcome.DONE:
                    found[topic["name"], told["partition_index"]] = told["offset"]
                else:
                    self.last_trouble = describe_answer(LIST_OFFSETS.name, told["error_code"])


class LogEnds(LogOffsets):
    """High watermarks (`end`) and last stable offsets (`stable`) by partition. What is between them is held back by
    open transactions, of whichever application."""

    def __init__(self, settings: DeliverySettings, partitions: Sequence[tuple[str, int]]) -> None:
        # The stable one first: records written in between must not put it above the end.
        questions = {STABLE: (LATEST, READ_COMMITTED), ENDS: (LATEST, READ_UNCOMMITTED)}
        super().__init__(settings, partitions, questions)
        self.stable, self.end = self.told[STABLE], self.told[ENDS]


class LogExtents(LogOffsets):
    """What readers of committed records find: log start offsets and last stable offsets."""

    def __init__(self, settings: DeliverySettings, partitions: Sequence[tuple[str, int]]) -> None:
        questions = {BEGINS: (EARLIEST, READ_COMMITTED), STABLE: (LATEST, READ_COMMITTED)}
        super().__init__(settings, partitions, questions)

    @property
    def extents(self) -> dict[tuple[str, int], tuple[int, int]]:
        begins, stable = self.told[BEGINS], self.told[STABLE]
        return {where: (begins[where], stable[where]) for where in begins if where in stable}
