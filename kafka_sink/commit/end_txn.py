"""Ending transactions: C4 and the aborts. Two separate classes, so that they cannot be confused.

`CommitTransactions` sends EndTxn(commit) for every transaction of a decision until each has an outcome. "Committed" is
believed at once; any other answer of a coordinator is checked against the log: what readers see of the transaction's
last row in one partition decides (verdict.py). If the row does not tell that, the log behind it is searched for the
transaction's marker (marker_search.py), until the marker is found, the log ends, or time is up. While the log shows it
open, the coordinator is looked up and asked again. If retention has taken the row, or the topic is gone, nothing is
left that tells: the outcome is unresolved, as with a topic that was created anew, and an operator chooses.
`AbortTransactions` sends EndTxn(abort) and accepts any sign that the transaction is not open.

While a partition of a transaction has no leader, brokers from Kafka 4.3 on would forget to end it there (KAFKA-20734),
and read_committed readers would stop in that partition. A commit waits for the leader until its deadline, or until
shortly before the transaction times out, by the brokers' clock. Then it is sent nevertheless: a decided transaction
must not time out. Help, whose deadline is short, leaves it at that deadline to the decision's own driver. An abort
leaves the transaction open; the next sweep finds it again. It waits for the leader only if the transactional id may be
used again before that sweep, since InitProducerId, too, would end the transaction.

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
from kafka_sink.commit.ledger import TransactionOutcome
from kafka_sink.commit.log_scan import (
    EARLIEST,
    LATEST,
    FetchedPartition,
    fetch_ask,
    offset_ask,
    read_fetch_answer,
    read_offset_answer,
)
from kafka_sink.commit.marker_search import MarkerSearch
from kafka_sink.commit.messages import NAMED_MAX, SEARCH_TOO_LONG, UNKNOWN_AND_OPEN, WITHOUT_LEADER
from kafka_sink.commit.receipt import PreparedTransaction, TaskReceipt
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.commit.time_left import QUORUM, BrokersClock, controllers_time
from kafka_sink.commit.verdict import VERDICT, Witness, verdict_ask, verdict_of
from kafka_sink.errors import AuthorizationError
from kafka_sink.errors.table.brokers import TOPIC_UNKNOWN
from kafka_sink.kafka.client.ask import Ask, Controller, Coordinator, Leader, Reply, ReplyKind
from kafka_sink.kafka.client.outcome import DriverOutcome, describe_answer, driver_outcome
from kafka_sink.kafka.client.transaction_apis import versions_of
from kafka_sink.kafka.wire.apis import DESCRIBE_QUORUM, DESCRIBE_TRANSACTIONS, END_TXN, FETCH, LIST_OFFSETS, ONGOING
from kafka_sink.kafka.wire.codes import TRANSACTIONAL_ID_AUTHORIZATION_FAILED

COMMIT, MARKER, MARKER_START, ABORT = "commit transaction", "look for marker", "find log start", "abort transaction"
PARTITIONS, MARKER_END = "find partitions of transaction", "find log end"
CLOCK = "ask for the controller's time"
SEARCHING = (MARKER, MARKER_START, MARKER_END)

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
    # Why its EndTxn waits, or did not wait any longer: the partition without a leader.
    leaderless: str = ""
    given_up: str = ""
    # By the brokers' clock. None: not known, perhaps because nobody was asked yet.
    times_out_ms: int | None = None
    is_described: bool = False
    # Since when brokers have said, without a word to the contrary, that there is no such topic.
    gone_since_ms: int | None = None
    # Its coordinator did not know it, and its log shows it open.
    is_unknown_and_open: bool = False

    @property
    def log(self) -> Leader:
        return Leader(self.witness.topic, self.witness.partition)


class CommitTransactions(CommitStep):
    """`outcomes[i]` belongs to `transactions[i]`; None if it is still unknown at the end.

    `are_leaders_known`: the partitions had leaders just now, so only retries look at them. The partitions are those of
    the receipt if it is at hand, else those that the coordinator names; the ledger names one. `is_ended`: the
    coordinators have answered that they do not know the transactions, so only the log is asked. `is_help`: the decision
    has a driver of its own. `host_ahead_ms`: of this host's wall clock to `now_ms`.
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
        is_help: bool = False,
        host_ahead_ms: int = 0,
    ) -> None:
        super().__init__(settings)
        written = partitions_of(receipts)
        self._decided = [
            DecidedTransaction(number, one, witness, written.get(one))
            for number, (one, witness) in enumerate(zip(transactions, witnesses, strict=True))
        ]
        self._are_leaders_known = are_leaders_known
        self._is_ended = is_ended
        self._searches: dict[Leader, MarkerSearch] = {}
        self._stops_retrying = False
        self._is_help = is_help or settings.is_help
        self._clock = BrokersClock(host_ahead_ms)

    def ask_first(self, now_ms: int) -> None:
        for one in self._decided:
            if self._is_ended:
                self._ask_verdict(now_ms, one)
            elif self._are_leaders_known or one.partitions is not None:
                self._ask_end(now_ms, one, are_leaders_known=self._are_leaders_known)
            else:
                self._ask_partitions(now_ms, one)

    @property
    def is_finished(self) -> bool:
        """What time it is matters only while something waits."""
        return len(self.asks) == (self.asks.find(CLOCK) is not None)

    @property
    def notes(self) -> list[str]:
        committed = (one for one in self._decided if one.outcome is TransactionOutcome.COMMITTED)
        return [*self._notes, *(WITHOUT_LEADER.format(one.given_up) for one in committed if one.given_up)]

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
    def leaves_open(self) -> bool:
        """Whether a transaction was open, and is not known to have ended."""
        return any(one.outcome is None and one.times_out_ms is not None for one in self._decided)

    @property
    def reason(self) -> str:
        if self.obstacle:
            return self.obstacle
        orphans = (one.log for one in self._decided if one.outcome is None and one.is_unknown_and_open)
        return ". ".join([super().reason, *(UNKNOWN_AND_OPEN.format(*log) for log in [*orphans][:1])])

    def stop_retrying(self, now_ms: int) -> None:
        """Time is up: every request is still sent and answered once, but not retried, and no log is searched any more.
        Call it again after answers. What waits for a leader is committed; not by help, whose time is shorter than the
        transaction's."""
        self._stops_retrying = True
        for search in list(self._searches.values()):
            self._give_up(now_ms, search)
        for ask in self.asks.waiting_for_retry():
            self.asks.drop(ask)
            one = self._decided[ask.number]
            if self._is_help:
                continue
            if ask.purpose == COMMIT and one.leaderless:
                self._commit_without_leader(now_ms, one)
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
                if state["transaction_state"] == ONGOING:
                    start_ms = state["transaction_start_time_ms"]
                    one.times_out_ms = start_ms + state["transaction_timeout_ms"]
                    self._clock.on_began(now_ms, start_ms)
        self._go_on_to_end(now_ms, ask)

    def _go_on_to_end(self, now_ms: int, ask: Ask) -> None:
        one = self._decided[ask.number]
        one.is_described = True
        self.asks.drop(ask)
        self._ask_end(now_ms, one, are_leaders_known=False)

    def _ask_end(self, now_ms: int, one: DecidedTransaction, *, are_leaders_known: bool) -> Ask:
        ask = end_ask(
            COMMIT,
            one.transaction,
            commit=True,
            number=one.number,
            led_partitions=(one.log,) if one.partitions is None else one.partitions,
            are_leaders_known=are_leaders_known or (self._stops_retrying and not self._is_help),
        )
        self.asks.add(now_ms, ask)
        return ask

    def on_reply(self, now_ms: int, reply: Reply) -> None:
        if reply.ask.purpose == CLOCK:
            if self.asks.accept(reply):
                self._on_clock(now_ms, reply)
            return
        if self.asks.is_out(reply.ask) and reply.ask.purpose not in SEARCHING:
            one = self._decided[reply.ask.number]
            one.leaderless = ""
            # Of an id that may not be described nobody finds the coordinator.
            one.is_forbidden |= reply.ask.target == Coordinator(one.transaction.transactional_id) and isinstance(
                reply.error, AuthorizationError
            )
        super().on_reply(now_ms, reply)

    def on_lost(self, now_ms: int, reply: Reply) -> None:
        one, is_of_log = self._asker_of(reply.ask), reply.ask.api in (FETCH, LIST_OFFSETS)
        if not is_of_log or reply.error is None or reply.error.entry is not TOPIC_UNKNOWN:
            one.gone_since_ms = None
        elif one.gone_since_ms is None:
            one.gone_since_ms = now_ms
        elif now_ms - one.gone_since_ms >= self.settings.short_log_ms:
            for gone in self._list_concerned(reply.ask):
                gone.outcome = TransactionOutcome.UNRESOLVED
            self._drop(reply.ask)
            return
        super().on_lost(now_ms, reply)

    def on_leaderless(self, now_ms: int, reply: Reply) -> None:
        one = self._decided[reply.ask.number]
        self.last_trouble = one.leaderless = str(reply.error)
        last_call_ms = self._last_call_ms(one)
        if last_call_ms is not None and now_ms >= last_call_ms:
            self._commit_without_leader(now_ms, one)
        elif one.is_described or self._are_leaders_known:
            self.asks.repeat(now_ms, reply.ask)
            if last_call_ms is not None:
                reply.ask.due_ms = min(reply.ask.due_ms, last_call_ms)
            self._look_at_clock(now_ms, one)
        else:
            self.asks.drop(reply.ask)
            self._ask_partitions(now_ms, one)

    def _last_call_ms(self, one: DecidedTransaction) -> int | None:
        return self._clock.last_call_ms(one.times_out_ms, self.settings.margin_ms)

    def _commit_without_leader(self, now_ms: int, one: DecidedTransaction) -> None:
        one.given_up, one.leaderless = one.leaderless, ""
        self._ask_end(now_ms, one, are_leaders_known=True)

    def _look_at_clock(self, now_ms: int, one: DecidedTransaction) -> None:
        if one.times_out_ms is not None and not self._clock.is_known and self.asks.find(CLOCK) is None:
            self.asks.add(now_ms, Ask(Controller(), DESCRIBE_QUORUM, QUORUM, CLOCK))

    def _on_clock(self, now_ms: int, reply: Reply) -> None:
        told_ms = controllers_time(reply.bodies[0]) if reply.kind is ReplyKind.ANSWERED else None
        self._clock.on_told(reply.ask.due_ms, told_ms)
        if reply.kind.is_unanswered:
            self.asks.repeat(now_ms, reply.ask, find_again=True)
        else:
            self.asks.drop(reply.ask)

    def on_refused(self, now_ms: int, ask: Ask, reason: str, *, is_fenced: bool = False) -> None:
        """The decision stands; only further requests are pointless for now."""
        if ask.purpose == PARTITIONS and not self._decided[ask.number].is_forbidden:
            self._go_on_to_end(now_ms, ask)
            return
        for one in self._list_concerned(ask):
            one.obstacle = reason
        self._drop(ask)

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        self._asker_of(ask).gone_since_ms = None
        if ask.purpose == PARTITIONS:
            self._on_described(now_ms, ask, body)
        elif ask.purpose == COMMIT:
            self._on_ended(now_ms, ask, body["error_code"])
        elif ask.purpose == VERDICT:
            self._on_verdict(now_ms, ask, read_fetch_answer(body))
        elif ask.purpose == MARKER:
            self._on_fetched(now_ms, ask, read_fetch_answer(body))
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
            self._ask_verdict(now_ms, self._decided[ask.number])
        elif not self.refuse_or_repeat(now_ms, ask, error_code):
            self._settle(ask, TransactionOutcome.COMMITTED)
        elif error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            self._decided[ask.number].is_forbidden = True

    # ---- the log, if the coordinator does not know it any more ----

    def _ask_verdict(self, now_ms: int, one: DecidedTransaction) -> None:
        if one.witness.last_offset < 0:
            self._search_for(now_ms, one)
        else:
            self.asks.add(now_ms, verdict_ask(one.witness, one.number))

    def _on_verdict(self, now_ms: int, ask: Ask, found: FetchedPartition) -> None:
        is_gone = driver_outcome(FETCH, found.error_code) is DriverOutcome.OUT_OF_RANGE
        if not is_gone and self.refuse_or_repeat(now_ms, ask, found.error_code):
            return
        one = self._decided[ask.number]
        one.outcome = None if is_gone else verdict_of(found, one.transaction, one.witness)
        self.asks.drop(ask)
        if one.outcome is None:
            self._search_for(now_ms, one)

    def _search_for(self, now_ms: int, one: DecidedTransaction) -> None:
        """A search that has begun behind its row goes back to it."""
        if self._stops_retrying:
            return
        start = one.witness.last_offset + 1
        search = self._searches.get(one.log)
        if search is None:
            search = self._searches[one.log] = MarkerSearch(one.log, one.number, now_ms, start)
            self._search_on(now_ms, search)
        elif start < search.offset:
            search.offset = start
            # The answer that is under way is about what is behind.
            self._search_on(now_ms, search)
        search.sought[one.number] = one.transaction, one.witness

    def _search_on(self, now_ms: int, search: MarkerSearch) -> Ask:
        ask = fetch_ask(MARKER, search.log, search.offset, number=search.number)
        self.asks.add(now_ms, ask)
        return ask

    def _drop(self, ask: Ask) -> None:
        """With its search, if it is of one."""
        if ask.purpose in SEARCHING:
            self._end_search(self._search_of(ask))
        else:
            self.asks.drop(ask)

    def _end_search(self, search: MarkerSearch) -> None:
        for purpose in SEARCHING:
            ask = self.asks.find(purpose, search.number)
            if ask is not None:
                self.asks.drop(ask)
        del self._searches[search.log]

    def _list_concerned(self, ask: Ask) -> list[DecidedTransaction]:
        if ask.purpose not in SEARCHING:
            return [self._decided[ask.number]]
        return [self._decided[number] for number in self._search_of(ask).sought]

    def _asker_of(self, ask: Ask) -> DecidedTransaction | MarkerSearch:
        return self._search_of(ask) if ask.purpose in SEARCHING else self._decided[ask.number]

    def _search_of(self, ask: Ask) -> MarkerSearch:
        assert isinstance(ask.target, Leader)
        return self._searches[ask.target]

    def error_text(self, ask: Ask, error_code: int) -> str:
        one, is_of_id = self._decided[ask.number], ask.api in (END_TXN, DESCRIBE_TRANSACTIONS)
        where = one.transaction.transactional_id if is_of_id else f"{one.log.topic}-{one.log.partition}"
        return f"{where}: {describe_answer(ask.api.name, error_code)}"

    def _on_fetched(self, now_ms: int, ask: Ask, found: FetchedPartition) -> None:
        search = self._search_of(ask)
        if driver_outcome(FETCH, found.error_code) is DriverOutcome.OUT_OF_RANGE:
            self.asks.drop(ask)
            self.asks.add(now_ms, offset_ask(MARKER_START, search.log, EARLIEST, number=search.number))
            return
        if self.refuse_or_repeat(now_ms, ask, found.error_code):
            return
        before, search.last_stable_offset = search.offset, found.last_stable_offset
        for number, outcome in search.read(found.records, self.settings.fence_raises_max):
            self._decided[number].outcome = outcome
        if search.offset == before:
            self._on_no_marker(now_ms, ask, search, found.high_watermark)
        else:
            search.empty_since_ms = None
            self._go_on(now_ms, ask, search)

    def _go_on(self, now_ms: int, ask: Ask, search: MarkerSearch) -> None:
        """Unless all is found."""
        if search.sought:
            self.asks.drop(ask)
            self._search_on(now_ms, search)
        else:
            self._drop(ask)

    def _on_no_marker(self, now_ms: int, ask: Ask, search: MarkerSearch, shown_to: int) -> None:
        """What is shown of the log was read. A leader that has just started may show less than there is, but it tells
        the end of its log only when it knows that (KIP-207). With tiered storage an answer may be empty in the middle
        of the log, as long as the other storage takes its time; and some servers never show what is at the end."""
        if search.empty_since_ms is None:
            search.empty_since_ms = now_ms
        is_all_shown = search.end_offset is not None and shown_to >= search.end_offset
        if search.offset < (search.end_offset or 0):
            is_all_shown &= now_ms - search.empty_since_ms >= self.settings.short_log_ms
        for number in list(search.sought):
            one = self._decided[number]
            if not search.has_ended(number):
                # The coordinator that said otherwise was wrong, or the marker is not written yet.
                one.is_unknown_and_open = one.witness.last_offset >= 0
                del search.sought[number]
                self.asks.repeat(now_ms, self._ask_end(now_ms, one, are_leaders_known=True), find_again=True)
            elif is_all_shown:
                del search.sought[number]
                one.outcome = TransactionOutcome.UNRESOLVED
        if not search.sought:
            self._drop(ask)
            return
        self.asks.drop(ask)
        if search.end_offset is None:
            self.asks.add(now_ms, offset_ask(MARKER_END, search.log, LATEST, number=search.number))
        else:
            self.asks.repeat(now_ms, self._search_on(now_ms, search))

    def _on_log_end(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        error_code, offset = read_offset_answer(body)
        if not self.refuse_or_repeat(now_ms, ask, error_code):
            search = self._search_of(ask)
            search.end_offset = offset
            self._go_on(now_ms, ask, search)

    def _on_log_start(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        error_code, offset = read_offset_answer(body)
        if self.refuse_or_repeat(now_ms, ask, error_code):
            return
        search = self._search_of(ask)
        if offset <= search.offset:
            self._on_short_log(now_ms, ask, search)
            return
        # Retention has deleted the beginning of the range. A marker is closely behind its rows: what is left of a log
        # without them may be large, and hardly ever has it.
        search.offset = offset
        for number, (_, witness) in list(search.sought.items()):
            if 0 <= witness.last_offset < offset:
                del search.sought[number]
                self._decided[number].outcome = TransactionOutcome.UNRESOLVED
        self._go_on(now_ms, ask, search)

    def _on_short_log(self, now_ms: int, ask: Ask, search: MarkerSearch) -> None:
        """The log ends below an acknowledged record: the topic was created anew under the same name, or the answer is
        from a broker that was frozen or cut off and does not know yet that it is no longer the leader."""
        if search.short_since_ms is None:
            search.short_since_ms = now_ms
        if now_ms - search.short_since_ms >= self.settings.short_log_ms:
            for one in self._list_concerned(ask):
                one.outcome = TransactionOutcome.UNRESOLVED
            self._drop(ask)
        else:
            self.asks.drop(ask)
            self.asks.repeat(now_ms, self._search_on(now_ms, search), find_again=True)

    def _give_up(self, now_ms: int, search: MarkerSearch) -> None:
        """A log may be so long that no search of it ends in time. After one that had time enough, and still read, an
        operator may choose what becomes of a transaction that has ended: the next search would end like this one."""
        reading = self.asks.find(MARKER, search.number)
        had_time = now_ms - search.began_ms >= self.settings.short_log_ms
        for number in search.sought:
            if had_time and reading is not None and not reading.failures and search.has_ended(number):
                self._decided[number].outcome = TransactionOutcome.UNRESOLVED
        self._end_search(search)
        self.last_trouble = SEARCH_TOO_LONG.format(search.log.topic, search.log.partition, search.offset)


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
