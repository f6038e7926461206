"""Ending transactions: C4 and the aborts. Two separate classes, so that they cannot be confused.

`CommitTransactions` sends EndTxn(commit) for every transaction of a decision until each has an outcome. "Committed" is
believed at once; any other answer of a coordinator is checked against the log: the first control record of the
transaction after the witness offset decides. While the log shows it open, the coordinator is looked up and asked again.
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
from typing import Any

from kafka_sink.commit.commit_step import CommitStep
from kafka_sink.commit.ledger import TransactionEntry, TransactionOutcome
from kafka_sink.commit.log_scan import (
    EARLIEST,
    RawBatch,
    ask_fetch,
    ask_offset,
    raw_batches,
    read_fetch_answer,
    read_offset_answer,
)
from kafka_sink.commit.messages import NAMED_MAX
from kafka_sink.commit.outcome import Meaning, describe_answer, meaning
from kafka_sink.commit.preflight import described_partitions
from kafka_sink.commit.receipt import PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.commit.retry_queue import RetryQueue
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.kafka.client.admin_request import AdminResponse, Coordinator, Leader, RequestKey
from kafka_sink.kafka.client.transaction_apis import versions_of
from kafka_sink.kafka.wire.apis import DESCRIBE_TRANSACTIONS, END_TXN, FETCH, LIST_OFFSETS, Api

WITHOUT_LEADER = (
    "{}, and time was up: the transaction of a decided batch was committed nevertheless. Brokers from Kafka 4.3 on may "
    'forget the partition, and its read_committed readers then stop (see "Readers stop at an offset" in '
    "docs/troubleshooting.md)"
)
COMMIT, MARKER, MARKER_START, ABORT = "commit transaction", "look for marker", "find log start", "abort transaction"
PARTITIONS = "find partitions of transaction"


# A partition that a transaction wrote to, and the last offset there.
Witness = TransactionEntry | WrittenPartition
Partitions = tuple[tuple[str, int], ...]


def ask_end(
    queue: RetryQueue,
    now_ms: int,
    key: RequestKey,
    ending: PreparedTransaction,
    *,
    commit: bool,
    led_partitions: tuple[tuple[str, int], ...] = (),
    are_leaders_known: bool = False,
) -> None:
    """Retries must use the same version: the other version's rules give a wrong answer for a committed transaction."""
    body = {
        "transactional_id": ending.transactional_id,
        "producer_id": ending.producer_id,
        "producer_epoch": ending.producer_epoch,
        "committed": commit,
    }
    version_min, version_max = versions_of(END_TXN, ending.transaction_version)
    queue.ask(
        now_ms,
        key,
        Coordinator(ending.transactional_id),
        END_TXN,
        body,
        version_min=version_min,
        version_max=version_max,
        led_partitions=led_partitions,
        are_leaders_known=are_leaders_known,
    )


class CommitTransactions(CommitStep):
    """`outcomes[i]` belongs to `endings[i]`; None if it is still unknown at the end.

    `are_leaders_known`: the partitions had leaders just now, so only retries look at them. The partitions are those of
    the receipt if it is at hand, else those that the coordinator names; the ledger names one. `is_ended`: the
    coordinators have answered that they do not know the transactions, so only the log is searched.
    """

    def __init__(
        self,
        settings: DeliverySettings,
        endings: Sequence[PreparedTransaction],
        witnesses: Sequence[Witness],
        now_ms: int,
        receipts: Sequence[TaskReceipt] = (),
        *,
        are_leaders_known: bool = False,
        is_ended: bool = False,
    ) -> None:
        super().__init__(settings)
        self.outcomes: list[TransactionOutcome | None] = [None] * len(endings)
        self.notes: list[str] = []
        # Why some were given up without an outcome.
        self.obstacles: dict[int, str] = {}
        self._endings = endings
        self._witnesses = witnesses
        self._written = partitions_of(receipts)
        self._search_offsets: dict[int, int] = {}
        # Since when the log end has been below the witness offset.
        self._short_since_ms: dict[int, int] = {}
        self._stops_retrying = False
        # Why EndTxn of a transaction waits: the partition without a leader.
        self._leaderless: dict[int, str] = {}
        for index, ending in enumerate(endings):
            if is_ended:
                self._begin_search(now_ms, index)
            elif are_leaders_known or ending in self._written:
                self._ask_end(now_ms, index, are_leaders_known=are_leaders_known)
            else:
                self._ask_partitions(now_ms, index)

    @property
    def reason(self) -> str:
        if self.obstacles:
            return next(iter(self.obstacles.values()))
        return super().reason

    def stop_retrying(self, now_ms: int) -> None:
        """Time is up: every request is still sent and answered once, but not retried. Call it again after answers."""
        self._stops_retrying = True
        for key in self.queue.waiting_for_retry():
            self.queue.drop(key)
            if key.purpose == COMMIT and key.number in self._leaderless:
                self.notes.append(WITHOUT_LEADER.format(self._leaderless.pop(key.number)))
                self._ask_end(now_ms, key.number, are_leaders_known=True)
            elif key.purpose == PARTITIONS:
                self._ask_end(now_ms, key.number, are_leaders_known=True)

    def _ask_partitions(self, now_ms: int, index: int) -> None:
        ending = self._endings[index]
        body = {"transactional_ids": [ending.transactional_id]}
        target = Coordinator(ending.transactional_id)
        self.queue.ask(now_ms, RequestKey(PARTITIONS, index), target, DESCRIBE_TRANSACTIONS, body)

    def _on_described(self, now_ms: int, key: RequestKey, body: Mapping[str, Any]) -> None:
        ending = self._endings[key.number]
        for state in body["transaction_states"]:
            error_code = state["error_code"]
            if self.is_repeated(now_ms, key, DESCRIBE_TRANSACTIONS, error_code):
                return
            is_its_own = (state["producer_id"], state["producer_epoch"]) == (ending.producer_id, ending.producer_epoch)
            if error_code == 0 and is_its_own:
                self._written[ending] = described_partitions(state)
        self._go_on_to_end(now_ms, key)

    def _go_on_to_end(self, now_ms: int, key: RequestKey) -> None:
        self.queue.drop(key)
        self._ask_end(now_ms, key.number, are_leaders_known=False)

    def _ask_end(self, now_ms: int, index: int, *, are_leaders_known: bool) -> None:
        ending, witness = self._endings[index], self._witnesses[index]
        ask_end(
            self.queue,
            now_ms,
            RequestKey(COMMIT, index),
            ending,
            commit=True,
            led_partitions=self._written.get(ending, ((witness.topic, witness.partition),)),
            are_leaders_known=are_leaders_known or self._stops_retrying,
        )

    def on_answer(self, now_ms: int, answer: AdminResponse) -> None:
        self._leaderless.pop(answer.key.number, None)
        super().on_answer(now_ms, answer)

    def on_leaderless(self, now_ms: int, answer: AdminResponse) -> None:
        self.last_trouble = self._leaderless[answer.key.number] = str(answer.error)
        self.queue.repeat(now_ms, answer.key)

    def on_refused(self, now_ms: int, key: RequestKey, reason: str, *, is_fenced: bool = False) -> None:
        """The decision stands; only further requests are pointless for now."""
        if key.purpose == PARTITIONS:
            self._go_on_to_end(now_ms, key)
            return
        self.obstacles[key.number] = reason
        self.queue.drop(key)

    def on_body(self, now_ms: int, key: RequestKey, body: Mapping[str, Any]) -> None:
        if key.purpose == PARTITIONS:
            self._on_described(now_ms, key, body)
        elif key.purpose == COMMIT:
            self._on_ended(now_ms, key, body["error_code"])
        elif key.purpose == MARKER:
            self._on_fetched(now_ms, key, body)
        else:
            self._on_log_start(now_ms, key, body)

    def _settle(self, key: RequestKey, outcome: TransactionOutcome) -> None:
        self.outcomes[key.number] = outcome
        self.queue.drop(key)

    def _on_ended(self, now_ms: int, key: RequestKey, error_code: int) -> None:
        if meaning(END_TXN, error_code) is Meaning.SUPERSEDED:
            self.last_trouble = self.error_text(key, END_TXN, error_code)
            self.queue.drop(key)
            self._begin_search(now_ms, key.number)
        elif self.is_done(now_ms, key, END_TXN, error_code):
            self._settle(key, TransactionOutcome.COMMITTED)

    # ---- the log, if the coordinator has forgotten ----

    def _begin_search(self, now_ms: int, index: int) -> None:
        self._search_offsets[index] = self._witnesses[index].last_offset + 1
        self._search_on(now_ms, index)

    def _search_on(self, now_ms: int, index: int) -> None:
        ask_fetch(self.queue, now_ms, RequestKey(MARKER, index), self._log(index), self._search_offsets[index])

    def _log(self, index: int) -> Leader:
        return Leader(self._witnesses[index].topic, self._witnesses[index].partition)

    def error_text(self, key: RequestKey, api: Api, error_code: int) -> str:
        is_of_id = api in (END_TXN, DESCRIBE_TRANSACTIONS)
        log = self._log(key.number)
        where = self._endings[key.number].transactional_id if is_of_id else f"{log.topic}-{log.partition}"
        return f"{where}: {describe_answer(api.name, error_code)}"

    def _on_fetched(self, now_ms: int, key: RequestKey, body: Mapping[str, Any]) -> None:
        answer = read_fetch_answer(body)
        index = key.number
        if meaning(FETCH, answer.error_code) is Meaning.OUT_OF_RANGE:
            self.queue.drop(key)
            ask_offset(self.queue, now_ms, RequestKey(MARKER_START, index), self._log(index), EARLIEST)
            return
        if not self.is_done(now_ms, key, FETCH, answer.error_code):
            return
        before = self._search_offsets[index]
        outcome = self._find_marker(index, answer.records)
        if outcome is not None:
            self._settle(key, outcome)
        elif self._search_offsets[index] > before:
            self.queue.drop(key)
            self._search_on(now_ms, index)
        elif answer.last_stable_offset > self._witnesses[index].last_offset >= 0:
            # It is no longer open, and no marker is left that tells the outcome. With an unknown offset (-1) the last
            # stable offset says nothing about it.
            self._settle(key, TransactionOutcome.UNRESOLVED)
        else:
            self._ask_again(now_ms, index)

    def _ask_again(self, now_ms: int, index: int) -> None:
        """The log shows it open: the coordinator that said otherwise was wrong, or the marker is not written yet."""
        self.queue.drop(RequestKey(MARKER, index))
        self._ask_end(now_ms, index, are_leaders_known=True)
        self.queue.repeat(now_ms, RequestKey(COMMIT, index), find_again=True)

    def _find_marker(self, index: int, records: bytes) -> TransactionOutcome | None:
        for raw in raw_batches(records):
            if raw.next_offset <= self._search_offsets[index]:
                continue
            self._search_offsets[index] = raw.next_offset
            if not raw.is_control or not _can_end(raw, self._endings[index]):
                continue
            marker = raw.decode()
            if marker.is_commit_marker:
                return TransactionOutcome.COMMITTED
            if marker.is_abort_marker:
                return TransactionOutcome.LOST
        return None

    def _on_log_start(self, now_ms: int, key: RequestKey, body: Mapping[str, Any]) -> None:
        error_code, offset = read_offset_answer(body)
        if not self.is_done(now_ms, key, LIST_OFFSETS, error_code):
            return
        index = key.number
        if offset > self._search_offsets[index]:
            # Retention deleted the beginning of the range; the marker may be in what remains.
            self._search_offsets[index] = offset
            self.queue.drop(key)
            self._search_on(now_ms, index)
        else:
            self._on_short_log(now_ms, key)

    def _on_short_log(self, now_ms: int, key: RequestKey) -> None:
        """The log ends below an acknowledged record: the topic was created anew under the same name, or the answer is
        from a broker that was frozen or cut off and does not know yet that it is no longer the leader."""
        since_ms = self._short_since_ms.setdefault(key.number, now_ms)
        if now_ms - since_ms >= self.settings.short_log_ms:
            self._settle(key, TransactionOutcome.UNRESOLVED)
        else:
            self.queue.drop(key)
            self._search_on(now_ms, key.number)
            self.queue.repeat(now_ms, RequestKey(MARKER, key.number), find_again=True)


def _can_end(raw: RawBatch, ending: PreparedTransaction) -> bool:
    """Is this marker the end of this transaction, and not that of a later one under the same id?

    Its epoch is that of the transaction or, after a time-out or a fence and always in transaction version 2, the next
    one. A later transaction begins with a new epoch: in version 2 its marker is at least two above. In version 1 it may
    be one above, but then it comes after the marker that is searched for.
    """
    return raw.producer_id == ending.producer_id and 0 <= raw.producer_epoch - ending.producer_epoch <= 1


class AbortTransactions(CommitStep):
    """Best effort: a transaction that could not be aborted is listed in `left_open` and ends by its time-out.
    `written`: the partitions of each transaction. `waits_for_leaders`: a transaction with a partition without a leader
    is not left open at once; `leaderless` has those that still wait, and the partition."""

    def __init__(
        self,
        settings: DeliverySettings,
        written: Mapping[PreparedTransaction, Partitions],
        now_ms: int,
        *,
        waits_for_leaders: bool = False,
    ) -> None:
        super().__init__(settings)
        self._waits_for_leaders = waits_for_leaders
        self.leaderless: dict[str, str] = {}
        self.aborted: list[str] = []
        self.left_open: dict[str, str] = {}
        self._endings = list(written)
        for index, ending in enumerate(self._endings):
            key = RequestKey(ABORT, index)
            ask_end(self.queue, now_ms, key, ending, commit=False, led_partitions=written[ending])

    @property
    def notes(self) -> list[str]:
        left = sorted(self.left_open.items())[:NAMED_MAX]
        return [f"transaction {name} could not be aborted and ends by its time-out: {reason}" for name, reason in left]

    def on_leaderless(self, now_ms: int, answer: AdminResponse) -> None:
        if not self._waits_for_leaders:
            super().on_leaderless(now_ms, answer)
            return
        self.last_trouble = self.leaderless[self._endings[answer.key.number].transactional_id] = str(answer.error)
        self.queue.repeat(now_ms, answer.key)

    def on_refused(self, now_ms: int, key: RequestKey, reason: str, *, is_fenced: bool = False) -> None:
        self.left_open[self._endings[key.number].transactional_id] = reason
        self._drop(key)

    def _drop(self, key: RequestKey) -> None:
        self.leaderless.pop(self._endings[key.number].transactional_id, None)
        self.queue.drop(key)

    def on_body(self, now_ms: int, key: RequestKey, body: Mapping[str, Any]) -> None:
        error_code = body["error_code"]
        # A transaction that is no longer open need not be aborted, for whichever reason.
        if meaning(END_TXN, error_code) is Meaning.SUPERSEDED or self.is_done(now_ms, key, END_TXN, error_code):
            if error_code == 0:
                self.aborted.append(self._endings[key.number].transactional_id)
            self._drop(key)


def partitions_of(receipts: Iterable[TaskReceipt]) -> dict[PreparedTransaction, Partitions]:
    return {
        receipt.transaction: tuple((each.topic, each.partition) for each in receipt.written)
        for receipt in receipts
        if receipt.transaction is not None
    }
