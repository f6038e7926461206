"""Ending transactions: C4 and the aborts. Two separate classes, so that they cannot be confused.

`CommitTransactions` sends EndTxn(commit) for every transaction of a decision until each has an outcome. "Committed" is
believed at once; any other answer of a coordinator is checked against the log: the first control record of the
transaction after the witness offset decides. While the log shows it open, the coordinator is looked up and asked again.
If its topic is gone by then, nothing is left that tells: the outcome is unresolved, as with a topic that was created
anew, and an operator chooses.
`AbortTransactions` sends EndTxn(abort) and accepts any sign that the transaction is not open.

While a partition of a transaction has no leader, brokers from Kafka 4.3 on would forget to end it there (KAFKA-20734),
and read_committed readers would stop in that partition. A commit waits for the leader until its deadline. Then it is
sent nevertheless: a decided transaction must not time out. An abort leaves the transaction open; the next sweep finds
it again. It waits for the leader only if the transactional id may be used again before that sweep, since
InitProducerId, too, would end the transaction.

Both send the exact producer id and epoch, and the coordinator compares them: a late or repeated request affects its own
transaction or none. Hence aborting never uses InitProducerId, which would abort whatever transaction is open under the
id when it arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_sink.commit.commit_step import CommitStep
from kafka_sink.commit.describe_transactions import described_partitions
from kafka_sink.commit.ledger import TransactionEntry, TransactionOutcome
from kafka_sink.commit.log_scan import (
    EARLIEST,
    LATEST,
    RawBatch,
    fetch_ask,
    offset_ask,
    raw_batches,
    read_fetch_answer,
    read_offset_answer,
)
from kafka_sink.commit.messages import NAMED_MAX
from kafka_sink.commit.receipt import PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import AuthorizationError
from kafka_sink.errors.table.brokers import TOPIC_UNKNOWN
from kafka_sink.kafka.client.ask import Ask, Coordinator, Leader, Reply
from kafka_sink.kafka.client.outcome import DriverOutcome, describe_answer, driver_outcome
from kafka_sink.kafka.client.transaction_apis import versions_of
from kafka_sink.kafka.wire.apis import DESCRIBE_TRANSACTIONS, END_TXN, FETCH, LIST_OFFSETS
from kafka_sink.kafka.wire.codes import TRANSACTIONAL_ID_AUTHORIZATION_FAILED

WITHOUT_LEADER = (
    "{}, and time was up: the transaction of a decided batch was committed nevertheless. Brokers from Kafka 4.3 on may "
    'forget the partition, and its read_committed readers then stop (see "Readers stop at an offset" in '
    "docs/troubleshooting.md)"
)
COMMIT, MARKER, MARKER_START, ABORT = "commit transaction", "look for marker", "find log start", "abort transaction"
PARTITIONS, MARKER_END = "find partitions of transaction", "find log end"


# A partition that a transaction wrote to, and the last offset there.
Witness = TransactionEntry | WrittenPartition
Partitions = tuple[tuple[str, int], ...]


def end_ask(
    purpose: str,
    transaction: PreparedTransaction,
    *,
    commit: bool,
    number: int = 0,
    led_partitions: Partitions = (),
    are_leaders_known: bool = False,
) -> Ask:
    """Retries must use the same version: the other version's rules give a wrong answer for a committed transaction."""
    body = {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "committed": commit,
    }
    version_min, version_max = versions_of(END_TXN, transaction.transaction_version)
    return Ask(
        Coordinator(transaction.transactional_id),
        END_TXN,
        body,
        purpose,
        number,
        version_min=version_min,
        version_max=version_max,
        led_partitions=led_partitions,
        are_leaders_known=are_leaders_known,
    )


@dataclass(slots=True)
class DecidedTransaction:
    """One transaction of a decision while it is committed. Its asks have its `number`."""

    number: int
    transaction: PreparedTransaction
    witness: Witness
    # Where it has written; None: not known yet. The ledger names one partition.
    partitions: Partitions | None = None
    outcome: TransactionOutcome | None = None
    # Why it was given up without an outcome, and whether that is because its id is not this login's.
    obstacle: str = ""
    is_forbidden: bool = False
    # Why its EndTxn waits: the partition without a leader.
    leaderless: str = ""
    # How far the log was searched for its marker, and since when the log has ended below the witness.
    search_offset: int = 0
    short_since_ms: int | None = None
    # Up to where a log without its marker is believed; None: that was not asked yet.
    end_offset: int | None = None
    # Since when brokers have said, without a word to the contrary, that there is no such topic.
    gone_since_ms: int | None = None

    @property
    def log(self) -> Leader:
        return Leader(self.witness.topic, self.witness.partition)

    def search(self, records: bytes, fence_raises_max: int) -> TransactionOutcome | None:
        """Goes on with these records; the outcome, if a marker in them tells it."""
        for raw in raw_batches(records):
            if raw.next_offset <= self.search_offset:
                continue
            self.search_offset = raw.next_offset
            if not raw.is_control or raw.producer_id != self.transaction.producer_id:
                continue
            marker = raw.decode_marker()
            if marker.is_commit_marker and _can_end(raw, self.transaction, 1):
                return TransactionOutcome.COMMITTED
            if marker.is_abort_marker and _can_end(raw, self.transaction, fence_raises_max):
                return TransactionOutcome.LOST
        return None


class CommitTransactions(CommitStep):
    """`outcomes[i]` belongs to `transactions[i]`; None if it is still unknown at the end.

    `are_leaders_known`: the partitions had leaders just now, so only retries look at them. The partitions are those of
    the receipt if it is at hand, else those that the coordinator names; the ledger names one. `is_ended`: the
    coordinators have answered that they do not know the transactions, so only the log is searched.
    """

    def __init__(
        self,
        settings: DeliverySettings,
        transactions: Sequence[PreparedTransaction],
        witnesses: Sequence[Witness],
        receipts: Sequence[TaskReceipt] = (),
        *,
        are_leaders_known: bool = False,
        is_ended: bool = False,
    ) -> None:
        super().__init__(settings)
        written = partitions_of(receipts)
        self._decided = [
            DecidedTransaction(number, one, witness, written.get(one))
            for number, (one, witness) in enumerate(zip(transactions, witnesses, strict=True))
        ]
        self._are_leaders_known = are_leaders_known
        self._is_ended = is_ended
        self._stops_retrying = False

    def ask_first(self, now_ms: int) -> None:
        for one in self._decided:
            if self._is_ended:
                self._begin_search(now_ms, one)
            elif self._are_leaders_known or one.partitions is not None:
                self._ask_end(now_ms, one, are_leaders_known=self._are_leaders_known)
            else:
                self._ask_partitions(now_ms, one)

    @property
    def outcomes(self) -> list[TransactionOutcome | None]:
        return [one.outcome for one in self._decided]

    @property
    def obstacle(self) -> str:
        """Why one of them was given up, or an empty text."""
        return next((one.obstacle for one in self._decided if one.obstacle), "")

    @property
    def is_forbidden(self) -> bool:
        """Whether an id is not this login's to end."""
        return any(one.is_forbidden for one in self._decided)

    @property
    def reason(self) -> str:
        return self.obstacle or super().reason

    def stop_retrying(self, now_ms: int) -> None:
        """Time is up: every request is still sent and answered once, but not retried. Call it again after answers."""
        self._stops_retrying = True
        for ask in self.asks.waiting_for_retry():
            self.asks.drop(ask)
            one = self._decided[ask.number]
            if ask.purpose == COMMIT and one.leaderless:
                self._notes.append(WITHOUT_LEADER.format(one.leaderless))
                one.leaderless = ""
                self._ask_end(now_ms, one, are_leaders_known=True)
            elif ask.purpose == PARTITIONS:
                self._ask_end(now_ms, one, are_leaders_known=True)

    def _ask_partitions(self, now_ms: int, one: DecidedTransaction) -> None:
        """Each on its own. One question to all coordinators has no answer until the slowest has answered, and one that
        hangs would hold back every other commit while the transactions of the decision are timing out."""
        name = one.transaction.transactional_id
        body = {"transactional_ids": [name]}
        self.asks.add(now_ms, Ask(Coordinator(name), DESCRIBE_TRANSACTIONS, body, PARTITIONS, one.number))

    def _on_described(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        one = self._decided[ask.number]
        for state in body["transaction_states"]:
            if self.repeat_if_meant(now_ms, ask, state["error_code"]):
                return
            if state["error_code"] == 0 and (state["producer_id"], state["producer_epoch"]) == one.transaction.identity:
                one.partitions = described_partitions(state)
        self._go_on_to_end(now_ms, ask)

    def _go_on_to_end(self, now_ms: int, ask: Ask) -> None:
        self.asks.drop(ask)
        self._ask_end(now_ms, self._decided[ask.number], are_leaders_known=False)

    def _ask_end(self, now_ms: int, one: DecidedTransaction, *, are_leaders_known: bool) -> Ask:
        ask = end_ask(
            COMMIT,
            one.transaction,
            commit=True,
            number=one.number,
            led_partitions=(one.log,) if one.partitions is None else one.partitions,
            are_leaders_known=are_leaders_known or self._stops_retrying,
        )
        self.asks.add(now_ms, ask)
        return ask

    def on_reply(self, now_ms: int, reply: Reply) -> None:
        if self.asks.is_out(reply.ask):
            one = self._decided[reply.ask.number]
            one.leaderless = ""
            # Of an id that may not be described nobody finds the coordinator.
            one.is_forbidden |= reply.ask.target == Coordinator(one.transaction.transactional_id) and isinstance(
                reply.error, AuthorizationError
            )
        super().on_reply(now_ms, reply)

    def on_lost(self, now_ms: int, reply: Reply) -> None:
        one, is_of_log = self._decided[reply.ask.number], reply.ask.api in (FETCH, LIST_OFFSETS)
        if not is_of_log or reply.error is None or reply.error.entry is not TOPIC_UNKNOWN:
            one.gone_since_ms = None
        elif one.gone_since_ms is None:
            one.gone_since_ms = now_ms
        elif now_ms - one.gone_since_ms >= self.settings.short_log_ms:
            self._settle(reply.ask, TransactionOutcome.UNRESOLVED)
            return
        super().on_lost(now_ms, reply)

    def on_leaderless(self, now_ms: int, reply: Reply) -> None:
        self.last_trouble = self._decided[reply.ask.number].leaderless = str(reply.error)
        self.asks.repeat(now_ms, reply.ask)

    def on_refused(self, now_ms: int, ask: Ask, reason: str, *, is_fenced: bool = False) -> None:
        """The decision stands; only further requests are pointless for now."""
        if ask.purpose == PARTITIONS and not self._decided[ask.number].is_forbidden:
            self._go_on_to_end(now_ms, ask)
            return
        self._decided[ask.number].obstacle = reason
        self.asks.drop(ask)

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        self._decided[ask.number].gone_since_ms = None
        if ask.purpose == PARTITIONS:
            self._on_described(now_ms, ask, body)
        elif ask.purpose == COMMIT:
            self._on_ended(now_ms, ask, body["error_code"])
        elif ask.purpose == MARKER:
            self._on_fetched(now_ms, ask, body)
        elif ask.purpose == MARKER_END:
            self._on_log_end(now_ms, ask, body)
        else:
            self._on_log_start(now_ms, ask, body)

    def _settle(self, ask: Ask, outcome: TransactionOutcome) -> None:
        self._decided[ask.number].outcome = outcome
        self.asks.drop(ask)

    def _on_ended(self, now_ms: int, ask: Ask, error_code: int) -> None:
        if driver_outcome(END_TXN, error_code) is DriverOutcome.SUPERSEDED:
            self.last_trouble = self.error_text(ask, error_code)
            self.asks.drop(ask)
            self._begin_search(now_ms, self._decided[ask.number])
        elif not self.refuse_or_repeat(now_ms, ask, error_code):
            self._settle(ask, TransactionOutcome.COMMITTED)
        elif error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            self._decided[ask.number].is_forbidden = True

    # ---- the log, if the coordinator has forgotten ----

    def _begin_search(self, now_ms: int, one: DecidedTransaction) -> None:
        one.search_offset = one.witness.last_offset + 1
        self._search_on(now_ms, one)

    def _search_on(self, now_ms: int, one: DecidedTransaction) -> Ask:
        ask = fetch_ask(MARKER, one.log, one.search_offset, number=one.number)
        self.asks.add(now_ms, ask)
        return ask

    def error_text(self, ask: Ask, error_code: int) -> str:
        one, is_of_id = self._decided[ask.number], ask.api in (END_TXN, DESCRIBE_TRANSACTIONS)
        where = one.transaction.transactional_id if is_of_id else f"{one.log.topic}-{one.log.partition}"
        return f"{where}: {describe_answer(ask.api.name, error_code)}"

    def _on_fetched(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        answer, one = read_fetch_answer(body), self._decided[ask.number]
        if driver_outcome(FETCH, answer.error_code) is DriverOutcome.OUT_OF_RANGE:
            self.asks.drop(ask)
            self.asks.add(now_ms, offset_ask(MARKER_START, one.log, EARLIEST, number=one.number))
            return
        if self.refuse_or_repeat(now_ms, ask, answer.error_code):
            return
        before = one.search_offset
        outcome = one.search(answer.records, self.settings.fence_raises_max)
        if outcome is not None:
            self._settle(ask, outcome)
        elif one.search_offset > before:
            self.asks.drop(ask)
            self._search_on(now_ms, one)
        elif answer.last_stable_offset > one.witness.last_offset >= 0:
            # With an unknown offset (-1) the last stable offset says nothing about it.
            self._on_no_marker(now_ms, ask, one, answer.high_watermark)
        else:
            # The log shows it open: the coordinator that said otherwise was wrong, or the marker is not written yet.
            self.asks.drop(ask)
            self.asks.repeat(now_ms, self._ask_end(now_ms, one, are_leaders_known=True), find_again=True)

    def _on_no_marker(self, now_ms: int, ask: Ask, one: DecidedTransaction, shown_to: int) -> None:
        """It is no longer open, and what is shown of the log has no marker that tells the outcome. A leader that has
        just started may show less than there is, but it tells the end of its log only when it knows that (KIP-207)."""
        if one.end_offset is not None and shown_to >= one.end_offset:
            self._settle(ask, TransactionOutcome.UNRESOLVED)
            return
        self.asks.drop(ask)
        if one.end_offset is None:
            self.asks.add(now_ms, offset_ask(MARKER_END, one.log, LATEST, number=one.number))
        else:
            self.asks.repeat(now_ms, self._search_on(now_ms, one))

    def _on_log_end(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        error_code, offset = read_offset_answer(body)
        if not self.refuse_or_repeat(now_ms, ask, error_code):
            one = self._decided[ask.number]
            one.end_offset = offset
            self.asks.drop(ask)
            self._search_on(now_ms, one)

    def _on_log_start(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        error_code, offset = read_offset_answer(body)
        if self.refuse_or_repeat(now_ms, ask, error_code):
            return
        one = self._decided[ask.number]
        if offset > one.search_offset:
            # Retention deleted the beginning of the range; the marker may be in what remains.
            one.search_offset = offset
            self.asks.drop(ask)
            self._search_on(now_ms, one)
        else:
            self._on_short_log(now_ms, ask, one)

    def _on_short_log(self, now_ms: int, ask: Ask, one: DecidedTransaction) -> None:
        """The log ends below an acknowledged record: the topic was created anew under the same name, or the answer is
        from a broker that was frozen or cut off and does not know yet that it is no longer the leader."""
        if one.short_since_ms is None:
            one.short_since_ms = now_ms
        if now_ms - one.short_since_ms >= self.settings.short_log_ms:
            self._settle(ask, TransactionOutcome.UNRESOLVED)
        else:
            self.asks.drop(ask)
            self.asks.repeat(now_ms, self._search_on(now_ms, one), find_again=True)


def _can_end(raw: RawBatch, transaction: PreparedTransaction, raises_max: int) -> bool:
    """Is this marker of the same producer the end of this transaction, and not that of a later one under the same id?

    Its epoch is that of the transaction or, after a time-out or a fence and always in transaction version 2, the next
    one. A later transaction begins with a new epoch: in version 2 its marker is at least two above. In version 1 it may
    be one above, but then it comes after the marker that is searched for. So it does where a time-out or a fence may
    raise the epoch twice (`raises_max`): there no marker is lost.
    """
    return 0 <= raw.producer_epoch - transaction.producer_epoch <= raises_max


class AbortTransactions(CommitStep):
    """Best effort: a transaction that could not be aborted is listed in `left_open` and ends by its time-out.
    `written`: the partitions of each transaction. `waits_for_leaders`: a transaction with a partition without a leader
    is not left open at once; `leaderless` has those that still wait, and the partition."""

    def __init__(
        self,
        settings: DeliverySettings,
        written: Mapping[PreparedTransaction, Partitions],
        *,
        waits_for_leaders: bool = False,
    ) -> None:
        super().__init__(settings)
        self._waits_for_leaders = waits_for_leaders
        self.leaderless: dict[str, str] = {}
        self.aborted: list[str] = []
        self.left_open: dict[str, str] = {}
        self._written = written

    def ask_first(self, now_ms: int) -> None:
        for number, (transaction, partitions) in enumerate(self._written.items()):
            self.asks.add(now_ms, end_ask(ABORT, transaction, commit=False, number=number, led_partitions=partitions))

    @property
    def notes(self) -> list[str]:
        left = sorted(self.left_open.items())[:NAMED_MAX]
        return [f"transaction {name} could not be aborted and ends by its time-out: {reason}" for name, reason in left]

    def on_leaderless(self, now_ms: int, reply: Reply) -> None:
        if not self._waits_for_leaders:
            super().on_leaderless(now_ms, reply)
            return
        self.last_trouble = self.leaderless[_id_of(reply.ask)] = str(reply.error)
        self.asks.repeat(now_ms, reply.ask)

    def on_refused(self, now_ms: int, ask: Ask, reason: str, *, is_fenced: bool = False) -> None:
        self.left_open[_id_of(ask)] = reason
        self._drop(ask)

    def _drop(self, ask: Ask) -> None:
        self.leaderless.pop(_id_of(ask), None)
        self.asks.drop(ask)

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        error_code = body["error_code"]
        # A transaction that is no longer open need not be aborted, for whichever reason.
        if driver_outcome(END_TXN, error_code) is DriverOutcome.SUPERSEDED:
            self._drop(ask)
        elif not self.refuse_or_repeat(now_ms, ask, error_code):
            self.aborted.append(_id_of(ask))
            self._drop(ask)


def _id_of(ask: Ask) -> str:
    name: str = ask.body["transactional_id"]
    return name


def partitions_of(receipts: Iterable[TaskReceipt]) -> dict[PreparedTransaction, Partitions]:
    return {
        receipt.transaction: tuple((each.topic, each.partition) for each in receipt.written)
        for receipt in receipts
        if receipt.transaction is not None
    }
