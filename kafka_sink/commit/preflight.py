"""C2: checks that all transactions of the batch still hold what their receipts say, that there is time to commit them
(time_left.py), that each partition they wrote to has a leader, and that each topic is still the one that they wrote to.

If a partition has no leader, the check waits for one before the decision: brokers from Kafka 4.3 on write no marker to
such a partition and still call the transaction complete (KAFKA-20734), and its read_committed readers stop for good.

A topic that was deleted took its rows with it, and brokers commit the transaction all the same. If it was created again
it has another id. Either way the batch is refused, so that it runs again. So it is if the ledger was deleted: nobody
would acknowledge the decision; and if its topic does not keep decisions any more, which is looked at now and then and
only if brokers tell; and if the topic of manifests does not accept one as large as the batch's: nobody could close the
decision. Brokers learn of a new topic one after the other, so the check asks again for a while before it believes that
a topic is gone. The same answer names the cluster: another one than planned with is refused (same_cluster.py).

Any client may end a transaction at any moment, also while its task is writing. So the coordinator must name every
partition of the receipt, and the leaders must say that the transaction is open there since the task's first row
(open_parts.py), and up to its last one (lost_rows.py).

A batch is not refused because of one such answer. A driver keeps its connections and what it knows of brokers from
batch to batch. If one of them was frozen meanwhile, its tasks may have written to its successor; it wakes up, and what
waits in its socket is answered as of before. So what refuses a batch is asked for again for about a second, of the
coordinator or leader that is looked up anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kafka_sink.commit.commit_step import CommitStep
from kafka_sink.commit.describe_transactions import DESCRIBE, DescribeTransactions, TransactionDescription
from kafka_sink.commit.ledger import UNKNOWN_TIME
from kafka_sink.commit.ledger_policy import CLEANUP, MESSAGE_BYTES, policy_problem
from kafka_sink.commit.ledger_write import LedgerWrite, ManifestPlace, WriteState
from kafka_sink.commit.log_scan import read_fetch_answer
from kafka_sink.commit.lost_rows import LAST_ROWS, LostRows
from kafka_sink.commit.open_parts import CROWDED, NOT_SPOKEN, OpenParts
from kafka_sink.commit.receipt import PreparedTransaction, TaskReceipt
from kafka_sink.commit.same_cluster import moved_problem
from kafka_sink.commit.session import DeliverySettings, DriverSession
from kafka_sink.commit.time_left import TimeLeft, time_problem
from kafka_sink.kafka.client.ask import AnyBroker, Ask, Coordinators, Reply, ReplyKind
from kafka_sink.kafka.client.cluster import NO_LEADER, NO_TOPIC_ID
from kafka_sink.kafka.client.outcome import DriverOutcome, describe_answer, driver_outcome
from kafka_sink.kafka.wire.apis import (
    DESCRIBE_CONFIGS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    FETCH,
    METADATA,
    ONGOING,
    RESOURCE_TOPIC,
)
from kafka_sink.kafka.wire.codes import UNKNOWN_TOPIC_OR_PARTITION

OPEN_PARTS = "describe producers"
LEADERS = "find partitions without a leader"
TIME = "ask for the brokers' time"
POLICY = "look at the ledger's policy"
ROOM = "look whether the manifest fits into its topic"
# Of Kafka, for brokers that do not tell.
MESSAGE_BYTES_DEFAULT = 1_048_588
NOT_DESCRIBED = "the brokers do not speak DescribeTransactions: only the time left to transactions was checked"
# How often an answer that refuses the batch is asked for again. The waits in between add up to a second: a broker that
# wakes up needs less to learn that it was replaced.
LOOKS_AGAIN = 4
# A younger driver of the sink aborts what an older run has prepared, before the older run notices that it is fenced.
WHO_ENDED_IT = (
    "ended by its time-out or another tool, or aborted by another driver of this sink. If this query runs twice, "
    "with one checkpoint or a copy of it, stop one of the two"
)
WHO_ENDED_IT_IN_EXPORT = (
    "ended by its time-out or another tool, or aborted by another run of this export. If that one has delivered it, "
    "a repetition writes nothing"
)


class PreflightResult(NamedTuple):
    """`problem` is None if the check passed. `since_ms` is when the first transaction began, by the brokers' clock."""

    problem: str | None
    since_ms: int = UNKNOWN_TIME


class Preflight(DescribeTransactions):
    """Describes the transactions of a batch and where they are open, and waits until each partition that they wrote to
    has a leader. `waited_ms`: since the commit began, which is the moment of `age_max_ms`. `append_intent`: with the
    moment when the first transaction began; None if that is not possible."""

    def __init__(
        self,
        settings: DeliverySettings,
        session: DriverSession,
        receipts: Sequence[TaskReceipt],
        age_max_ms: int | None = None,
        manifest: ManifestPlace | None = None,
        *,
        waited_ms: int = 0,
        append_intent: Callable[[int, int], LedgerWrite | None] = lambda _now_ms, _since_ms: None,
    ) -> None:
        self._manifest = manifest
        self._waited_ms = waited_ms
        self._append_intent = append_intent
        self._intent: LedgerWrite | None = None
        # The next answer finds the driver's transaction, or another driver has ended it.
        self._is_appended = False
        self._checked = [(each.transaction, each) for each in receipts if each.transaction is not None]
        self._transactional_ids = [transaction.transactional_id for transaction, _ in self._checked]
        super().__init__(settings, self._transactional_ids)
        self._time_left = TimeLeft([receipt for _, receipt in self._checked], settings.margin_ms, age_max_ms)
        self._session = session
        self._partitions = {(each.topic, each.partition) for receipt in receipts for each in receipt.written}
        self._part_count = sum(len(receipt.written) for receipt in receipts)
        self.open_parts = self._new_open_parts()
        self._lost_rows = LostRows()
        # By purpose: how many looks are left, and what refuses the batch unless the next one finds otherwise.
        self._looks_left = dict.fromkeys((DESCRIBE, OPEN_PARTS), LOOKS_AGAIN)
        self._suspicions: dict[str, str] = {}
        self._topic_ids = {(topic, one) for receipt in receipts for topic, one in receipt.topic_ids.items()}
        self._leaderless = ""

    def ask_first(self, now_ms: int) -> None:
        super().ask_first(now_ms)
        if self._session.asks_leaders(now_ms):
            self._ask_leaders(now_ms, 0)
        else:
            self.open_parts.give_up(CROWDED)
        ledger_topic = self.settings.ledger_topic
        topics = [*sorted({topic for topic, _ in self._partitions}), ledger_topic]
        topics += [] if self._manifest is None else [self._manifest.topic]
        body: dict[str, Any] = {"topics": [{"name": topic} for topic in topics], "allow_auto_topic_creation": False}
        self.asks.add(now_ms, Ask(AnyBroker(), METADATA, body, LEADERS))
        if self._session.looks_at_ledger(self.settings, now_ms):
            self._ask_config(now_ms, ledger_topic, CLEANUP, POLICY)
        if self._manifest is not None and self._manifest.size:
            self._ask_config(now_ms, self._manifest.topic, MESSAGE_BYTES, ROOM)

    def _ask_config(self, now_ms: int, topic: str, key: str, purpose: str) -> None:
        asked = {"resource_type": RESOURCE_TOPIC, "resource_name": topic, "configuration_keys": [key]}
        body = {"resources": [asked], "include_synonyms": False}
        self.asks.add(now_ms, Ask(AnyBroker(), DESCRIBE_CONFIGS, body, purpose))

    def on_reply(self, now_ms: int, reply: Reply) -> None:
        if reply.ask.purpose == ROOM and not reply.kind.is_unanswered:
            if self.asks.accept(reply):
                self.asks.drop(reply.ask)
                self._on_room(_read_told(reply.bodies[0]) if reply.kind is ReplyKind.ANSWERED else {})
        elif reply.ask.purpose != POLICY:
            super().on_reply(now_ms, reply)
        elif self.asks.accept(reply):
            # Without a permission, or an answer, the next batch asks again.
            self.asks.drop(reply.ask)
            if reply.kind is ReplyKind.ANSWERED:
                self._on_policy(now_ms, reply.bodies[0])

    def _on_policy(self, now_ms: int, body: Mapping[str, Any]) -> None:
        told = _read_told(body)
        problem = policy_problem(self.settings.ledger_topic, told.get(CLEANUP))
        if problem is not None:
            self.fail(problem)
        elif CLEANUP in told:
            self._session.ledger_seen_ms = now_ms

    def _on_room(self, configs: Mapping[str, str | None]) -> None:
        """Once the batch is decided, its decision could not be closed before the topic accepts the manifest."""
        assert self._manifest is not None
        topic, _, size = self._manifest
        told = configs.get(MESSAGE_BYTES) or ""
        limit = int(told) if told.isdecimal() else MESSAGE_BYTES_DEFAULT
        if size <= limit:
            return
        text = f"its manifest would take {size} bytes, one part for each partition, and topic {topic} accepts "
        if told:
            self.fail(f"{text}{limit}: raise {MESSAGE_BYTES} of that topic, or write to fewer partitions")
        else:
            hidden = f"brokers do not tell: grant DescribeConfigs on topic {topic} if its {MESSAGE_BYTES} is larger"
            self.fail(f"{text}{limit} by default. What it accepts {hidden}, or write to fewer partitions")

    def _new_open_parts(self) -> OpenParts:
        return OpenParts(
            self._partitions,
            {transaction.producer_id for transaction, _ in self._checked},
            self._part_count,
            is_known=self._session.has_few_producers,
        )

    def _ask_leaders(self, now_ms: int, number: int, *, find_again: bool = False) -> None:
        if not self.open_parts.missing:
            return
        target, body = self.open_parts.question()
        self.asks.add(now_ms, Ask(target, DESCRIBE_PRODUCERS, body, OPEN_PARTS, number, find_again=find_again))

    @property
    def notes(self) -> list[str]:
        """What could not be checked."""
        if not self.is_supported:
            return [NOT_DESCRIBED]
        return [note for note in (self.open_parts.note, self._lost_rows.note) if note]

    @property
    def lateness(self) -> str:
        suspicion = self._lost_rows.suspicion or next(iter(self._suspicions.values()), "")
        if suspicion:
            return suspicion
        if not self._leaderless:
            margin_ms = self.settings.margin_ms
            return time_problem(self.limit_ms + margin_ms, margin_ms) or super().lateness
        return f"{self._leaderless}, and too little time is left before its transactions time out"

    def on_lost(self, now_ms: int, reply: Reply) -> None:
        if reply.ask.purpose in (LEADERS, TIME, ROOM, LAST_ROWS):
            CommitStep.on_lost(self, now_ms, reply)
        else:
            super().on_lost(now_ms, reply)

    def on_bodies(self, now_ms: int, reply: Reply) -> None:
        if reply.ask.purpose == LEADERS:
            self._on_metadata(now_ms, reply.ask, reply.bodies[0])
        elif reply.ask.purpose == OPEN_PARTS:
            self._on_open_parts(now_ms, reply)
        elif reply.ask.purpose == TIME:
            self._on_time(now_ms, reply)
        elif reply.ask.purpose == LAST_ROWS:
            self._on_last_rows(now_ms, reply.ask, reply.bodies[0])
        else:
            super().on_bodies(now_ms, reply)
            if not self._missing:
                self._on_described(now_ms)

    def _ask_for_rest(self, now_ms: int, ask: Ask, *, find_again: bool = True) -> None:
        if not self._missing:
            self._doubt_coordinators()
        super()._ask_for_rest(now_ms, ask, find_again=find_again)

    def _doubt_coordinators(self) -> None:
        """Asks again about the transactions for which their coordinators' answers refuse the batch."""
        refused = [(one, problem) for one, receipt in self._checked if (problem := self._told_problem(one, receipt))]
        if self._begin_look(DESCRIBE, [problem for _, problem in refused]):
            for one, _ in refused:
                self._missing[one.transactional_id] = None
                self.found.pop(one.transactional_id, None)

    def _doubt_leaders(self) -> None:
        """The same of partitions and their leaders."""
        closed = [(receipt, problem) for _, receipt in self._checked if (problem := self._closed_problem(receipt))]
        if self._begin_look(OPEN_PARTS, [problem for _, problem in closed]):
            self.open_parts.ask_again({(one.topic, one.partition) for receipt, _ in closed for one in receipt.written})

    def _begin_look(self, purpose: str, problems: Sequence[str]) -> bool:
        """False: nothing refuses the batch, or it was asked for often enough."""
        self._suspicions.pop(purpose, None)
        if not problems or not self._looks_left[purpose]:
            return False
        self._looks_left[purpose] -= 1
        self.last_trouble = self._suspicions[purpose] = problems[0]
        return True

    def _on_described(self, now_ms: int) -> None:
        described = self._list_open()
        if len(described) == len(self._checked) and self._time_left.is_in_doubt(described):
            self._intent = self._append_intent(now_ms, min(state.start_ms for state, _ in described))
            if self._intent is not None:
                driver_id = self._session.transactional_id
                body = {"transactional_ids": [driver_id]}
                self.asks.add(now_ms, Ask(Coordinators((driver_id,)), DESCRIBE_TRANSACTIONS, body, TIME))
        self._note_limit()

    def _list_open(self) -> list[tuple[TransactionDescription, TaskReceipt]]:
        """Those that are open and the receipt's."""
        return [
            (state, receipt)
            for transaction, receipt in self._checked
            for state in (self.found.get(transaction.transactional_id),)
            if state is not None and state.state == ONGOING and state.identity == transaction.identity
        ]

    def _on_time(self, now_ms: int, reply: Reply) -> None:
        """An open transaction under this epoch can only be that of the intent."""
        assert self._intent is not None
        state = reply.bodies[0]["transaction_states"][0]
        if self.repeat_if_meant(now_ms, reply.ask, state["error_code"]):
            return
        is_open = state["transaction_state"] == ONGOING
        if is_open and (state["producer_id"], state["producer_epoch"]) == self._intent.identity:
            self._time_left.on_brokers_time(state["transaction_start_time_ms"] - self._waited_ms)
        elif not self._is_appended:
            self._is_appended = self._intent.state is not WriteState.APPENDING
            self.last_trouble = self._intent.last_trouble or self.last_trouble
            self.asks.repeat(now_ms, reply.ask)
            return
        self.asks.drop(reply.ask)
        self._note_limit()

    def _note_limit(self) -> None:
        """Before the check is finished: what is still waited for must not take longer than there is time."""
        described = self._list_open()
        if described:
            left_ms = self._time_left.described_ms(described, is_asked=self._is_time_asked)
            self.limit_ms = left_ms - self.settings.margin_ms

    def on_unsupported(self, now_ms: int, reply: Reply) -> None:
        self._suspicions.pop(reply.ask.purpose, None)
        if reply.ask.purpose == OPEN_PARTS:
            self.asks.drop(reply.ask)
            self.open_parts.give_up(NOT_SPOKEN)
        elif reply.ask.purpose == TIME:
            self.asks.drop(reply.ask)
        elif reply.ask.purpose == LAST_ROWS:
            self.asks.drop(reply.ask)
            self._lost_rows.on_doubt(reply.ask.number, "nobody can look for their last record")
        else:
            super().on_unsupported(now_ms, reply)
            self.limit_ms = self._time_left.undescribed_ms - self.settings.margin_ms

    def _on_open_parts(self, now_ms: int, reply: Reply) -> None:
        """Some leaders may not have answered, or may not be leaders any more."""
        for body in reply.bodies:
            self.last_trouble = self.open_parts.on_body(body) or self.last_trouble
        # That a partition has no leader says more than that its leader did not answer.
        self.last_trouble = self._leaderless or self.last_trouble
        if not self.open_parts.missing:
            self._doubt_leaders()
        if self.open_parts.missing:
            self.asks.narrow(reply.ask, *self.open_parts.question())
            self.asks.repeat(now_ms, reply.ask, find_again=True)
            return
        self.asks.drop(reply.ask)
        self.open_parts.ask_rest()
        if self.open_parts.missing:
            self._ask_leaders(now_ms, reply.ask.number)
        else:
            self._session.has_few_producers = not self.open_parts.is_crowded
            self._session.crowded_ms = now_ms if self.open_parts.is_crowded else None
            if not self._lost_rows.outdated:
                self._look_for_last_rows(now_ms)

    def _look_for_last_rows(self, now_ms: int) -> None:
        """Where a leader tells of fewer records than were acknowledged."""
        short = (one for _, receipt in self._checked for one in self.open_parts.short_parts(receipt))
        for ask in self._lost_rows.asks(short):
            self.asks.add(now_ms, ask)

    def _on_last_rows(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        fetched = read_fetch_answer(body)
        found = driver_outcome(FETCH, fetched.error_code)
        if self.repeat_if_meant(now_ms, ask, fetched.error_code):
            return
        if found not in (DriverOutcome.DONE, DriverOutcome.OUT_OF_RANGE):
            self._lost_rows.on_doubt(ask.number, describe_answer(FETCH.name, fetched.error_code))
        elif not self._lost_rows.on_fetched(now_ms, ask.number, fetched):
            self.last_trouble = "acknowledged rows are not in the log of their leader"
            self.asks.repeat(now_ms, ask, find_again=True)
            return
        self.asks.drop(ask)
        if self._lost_rows.outdated and all(each.purpose != LAST_ROWS for each in self.asks):
            self.open_parts.ask_again(self._lost_rows.outdated)
            self._ask_leaders(now_ms, ask.number, find_again=True)

    def _on_metadata(self, now_ms: int, ask: Ask, metadata: Mapping[str, Any]) -> None:
        moved = moved_problem(self.settings, metadata)
        if moved is not None:
            self.fail(moved)
            return
        gone = self._find_gone(metadata)
        self.note_topic(now_ms, is_gone=gone is not None)
        if gone is not None:
            self._wait_for_topic(now_ms, ask, gone)
            return
        leaderless = sorted(self._partitions.intersection(_leaderless_partitions(metadata)))
        if leaderless:
            topic, partition = leaderless[0]
            more = f" (and {len(leaderless) - 1} more partitions)" if len(leaderless) > 1 else ""
            self.last_trouble = self._leaderless = f"{topic}-{partition}{more} has no leader"
            self.asks.repeat(now_ms, ask)
            return
        self.asks.drop(ask)
        if self._leaderless:
            # The descriptions from before the wait may be out of date; so would be one that is still under way.
            self._leaderless = ""
            self.asks.drop_all()
            self.found.clear()
            self._missing = dict.fromkeys(self._transactional_ids)
            self._describe(now_ms, 1)
            self.open_parts, self._lost_rows = self._new_open_parts(), LostRows()
            self._looks_left = dict.fromkeys(self._looks_left, LOOKS_AGAIN)
            self._suspicions.clear()
            self._ask_leaders(now_ms, 1)

    def check(self) -> PreflightResult:
        """What the descriptions say, when it is finished."""
        if not self.is_supported:
            time_left = time_problem(self._time_left.undescribed_ms, self.settings.margin_ms)
            return PreflightResult(self._lost_rows.problem or time_left)
        described: list[tuple[TransactionDescription, TaskReceipt]] = []
        for transaction, receipt in self._checked:
            state = self.found.get(transaction.transactional_id)
            problem = self._told_problem(transaction, receipt) or self._closed_problem(receipt)
            if state is None or problem is not None:
                return PreflightResult(problem)
            described.append((state, receipt))
        problem = self._lost_rows.problem or self._time_left.problem(described, is_asked=self._is_time_asked)
        return PreflightResult(problem, min(state.start_ms for state, _ in described))

    @property
    def _is_time_asked(self) -> bool:
        return self.asks.find(TIME) is not None

    def _told_problem(self, transaction: PreparedTransaction, receipt: TaskReceipt) -> str | None:
        """By what its coordinator tells."""
        state = self.found.get(transaction.transactional_id)
        problem = _problem(transaction, state, _who_ended_it(receipt))
        if problem is not None or state is None:
            return problem
        unlisted = _unlisted_partition(receipt, state)
        if unlisted is None:
            return None
        name, held = f"transaction {transaction.transactional_id}", f"does not hold {unlisted} any more"
        return f"{name} {held}, which its task has written to: it was {_who_ended_it(receipt)}"

    def _closed_problem(self, receipt: TaskReceipt) -> str | None:
        """Is what the task wrote still in the open transaction? One that was aborted may have begun again under the
        same id and epoch, without the rows from before."""
        transaction = receipt.transaction
        assert transaction is not None
        closed = self.open_parts.closed_part(transaction, receipt.written)
        who_ended_it = _who_ended_it(receipt)
        return closed and f"transaction {transaction.transactional_id} {closed}: that part was {who_ended_it}"

    def _wait_for_topic(self, now_ms: int, ask: Ask, gone: str) -> None:
        self.last_trouble = gone
        if self.is_gone_for_good(now_ms):
            self.fail(gone)
        else:
            self.asks.repeat(now_ms, ask)

    def _find_gone(self, metadata: Mapping[str, Any]) -> str | None:
        for topic in metadata["topics"]:
            name, now = topic["name"], topic.get("topic_id", NO_TOPIC_ID)
            if topic["error_code"] == UNKNOWN_TOPIC_OR_PARTITION:
                if name == self.settings.ledger_topic:
                    return f"the ledger topic {name} was deleted"
                if self._manifest is not None and name == self._manifest.topic:
                    return f"manifest.topic={name} was deleted: create it again, or leave the option out"
                return f"topic {name} was deleted after tasks had written to it: create it again before the restart"
            if now != NO_TOPIC_ID and any(each == name and one != now for each, one in self._topic_ids):
                return f"topic {name} was deleted and created again after tasks had written to it"
            if self._manifest is not None and name == self._manifest.topic and not topic["error_code"]:
                number = self._manifest.partition
                if all(each["partition_index"] != number for each in topic["partitions"]):
                    return f"manifest.topic={name} has no partition {number} any more: the next run takes another one"
        return None


def _read_told(body: Mapping[str, Any]) -> dict[str, str | None]:
    return {row["name"]: row["value"] for result in body["results"] for row in result["configs"] or ()}


def _leaderless_partitions(metadata: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for topic in metadata["topics"]:
        for partition in topic["partitions"]:
            if partition["leader_id"] == NO_LEADER:
                yield topic["name"], partition["partition_index"]


def _who_ended_it(receipt: TaskReceipt) -> str:
    return WHO_ENDED_IT_IN_EXPORT if receipt.key.is_label else WHO_ENDED_IT


def _problem(transaction: PreparedTransaction, state: TransactionDescription | None, who_ended_it: str) -> str | None:
    name = f"transaction {transaction.transactional_id}"
    if state is None:
        return f"{name} is not known to its coordinator"
    if state.state != ONGOING:
        return f"{name} is {state.state} instead of {ONGOING}: it was {who_ended_it}"
    if state.identity != transaction.identity:
        theirs, ours = tuple(state.identity), tuple(transaction.identity)
        return f"{name} is producer id and epoch {theirs} instead of {ours}: somebody else uses the id"
    return None


def _unlisted_partition(receipt: TaskReceipt, state: TransactionDescription) -> str | None:
    listed = set(state.partitions)
    return next((f"{one.topic}-{one.partition}" for one in receipt.written if one[:2] not in listed), None)
