"""Looks at a cluster, in few requests: topics, ledgers one after the other, then one listing of transactions, one
description of those that are open or decided, and the ends of the logs. Only asks.

A ledger topic is recognised by its content: every value that a sink writes there begins with the name of the format.
Looked into are compacted topics with one partition, as the sink creates them. Others have to be named.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from kafka_sink.commit.admin.broker_clock import BrokersTime, brokers_time, controller_difference
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.cluster_settings import settings_of_operator
from kafka_sink.commit.admin.configs import MAX_TIMEOUT, ConfigResource, configs_body, number_of, read_configs
from kafka_sink.commit.admin.topic_reader import PartitionReader
from kafka_sink.commit.admin.topics import TRANSACTION_LOG
from kafka_sink.commit.command_texts import BrokerArguments
from kafka_sink.commit.commit_step import SingleStep
from kafka_sink.commit.describe_transactions import DescribeTransactions, TransactionDescription
from kafka_sink.commit.each_line import lines_of
from kafka_sink.commit.identity import Line, parse_task_identity
from kafka_sink.commit.ledger import Kind, LedgerRecord
from kafka_sink.commit.ledger_codec import VALUE_BEGINS
from kafka_sink.commit.ledger_policy import CLEANUP
from kafka_sink.commit.listing import OPEN_STATES, LedgerListing, Listed, LogEnds, list_body
from kafka_sink.commit.log_scan import RawBatch
from kafka_sink.commit.open_decisions import ask_rows, judge_open
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import AuthenticationError, BrokerError, ConfigError, KafkaSinkError, RemoteProtocolError
from kafka_sink.errors.table.commits import NO_LEDGER
from kafka_sink.formats.records.skim import skim_batch
from kafka_sink.kafka.client.ask import AnyBroker, Repeat
from kafka_sink.kafka.client.cluster import NO_LEADER, NO_TOPIC_ID
from kafka_sink.kafka.client.outcome import describe_answer
from kafka_sink.kafka.wire.apis import DESCRIBE_CONFIGS, LIST_TRANSACTIONS, RESOURCE_TOPIC
from kafka_sink.kafka.wire.codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION
from kafka_sink.operate.status.facts import ClusterFacts, LedgerFacts, OpenProducer, Partition
from kafka_sink.operate.status.findings import Finding, Limits, judge, span
from kafka_sink.operate.status.hanging import ask_leaders, is_aborted, is_alive
from kafka_sink.options.sink_options import DEFAULT_LEDGER

EVERY_TOPIC: Mapping[str, Any] = {"topics": None, "allow_auto_topic_creation": False}
CONFIGS_AT_ONCE = 1_000
# A coordinator that is away must not hold up what the ledgers say.
DESCRIBE_LIMIT_MS = 5_000
BETWEEN_LOOKS_S = 1.0
# How much is read of a topic, of which nothing is known, to see whether it is a ledger. Those of a sink have one record
# in each batch; copies and the progress of replays have other ones, perhaps first.
RECOGNISED_BATCHES, RECOGNISED_RECORDS_MAX, RECOGNISED_BYTES_MAX = 100, 1_000, 1024 * 1024
# Of all batches together, as they are in the log: a cluster may have thousands of such topics.
LOOKED_AT_BYTES = 64 * 1024
# When a topic that goes on behind that is looked into again. What is written there changes nothing; compaction may.
AGAIN_MS = 600_000
NOT_LISTED = "these brokers do not list transactions (Kafka before 3.0): only ledgers and offsets were looked at"


class FoundLedgers(NamedTuple):
    """`notes`: of which topics it is not known whether they are ledgers, and why."""

    topics: list[str]
    notes: list[str]


class OtherTopic(NamedTuple):
    """A topic that was no ledger when its log had this extent. `again_ms`: it was not looked at to its end, and is
    taken for what it was until then."""

    extent: tuple[int, int]
    again_ms: int | None


class OtherTopics:
    """By name and topic id. Brokers before 2.8 have no ids: there the next one of that name may be another topic."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, bytes], OtherTopic] = {}

    def keep(self, topics: Mapping[str, Mapping[str, Any]]) -> None:
        self._seen = {(name, its): seen for (name, its), seen in self._seen.items() if its == id_of(topics.get(name))}

    def note(self, topic: str, topic_id: bytes, seen: OtherTopic) -> None:
        if topic_id != NO_TOPIC_ID:
            self._seen[topic, topic_id] = seen

    def find(self, topic: str, topic_id: bytes) -> OtherTopic | None:
        return self._seen.get((topic, topic_id))


def id_of(row: Mapping[str, Any] | None) -> bytes:
    found: bytes = (row or {}).get("topic_id", NO_TOPIC_ID)
    return found


class ListedId(NamedTuple):
    producer_id: int
    state: str


class ClusterLook:
    """`named`: ledger topics that must be there. `asked_topics`: looked at as well, even if no sink writes to them, or
    there is no ledger at all."""

    def __init__(
        self, client: Client, brokers: BrokerArguments, named: Sequence[str], patience_ms: int,
        asked_topics: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.client = client
        self.brokers = brokers
        self.named = tuple(dict.fromkeys(named))
        self.asked_topics = tuple(asked_topics)
        self._patience_ms = patience_ms
        self._notes: list[str] = []
        self._limits: list[str] = []
        self._others = OtherTopics()
        # By ledger topic and key, of records whose drivers' clocks were ahead: which was seen last, and when first.
        self._first_seen: dict[tuple[str, str], tuple[tuple[str, int] | None, int]] = {}
        # The stable offsets at which readers wait, and the transactions that were there when it was seen first.
        self._waiting: dict[Partition, tuple[int, frozenset[tuple[str, int]]]] = {}
        # Of the newest look that asked for them, with the time of the first one.
        self._holders_seen: dict[OpenProducer, int] = {}

    def look(self) -> ClusterFacts:
        """Raises `ConfigError` if there is no ledger: nothing is reported as fine then."""
        self._notes, self._limits = [], []
        self.client.reach(self._patience_ms)
        topics = self._list_topics()
        self._others.keep(topics)
        ledgers, unknown = self.look_for_ledgers(topics)
        self._notes += unknown
        read = [self.read_ledger(topic) for topic in ledgers]
        listed = self._list_transactions(topics)
        described = self._describe([*_open_ids(listed), *_decided_ids(read)])
        clock = self._ask_time(described)
        at_ms = clock.at_ms
        transactions = [one for _, one in sorted(described.found.items()) if one.state in OPEN_STATES]
        found = ClusterFacts(
            at_ms,
            self.client.cluster_id(),
            [self._judge_ledger(each, described, at_ms) for each in read],
            transactions,
            _count_ids(listed),
            asked_topics=self.asked_topics,
            is_clock_told=clock.is_told,
            drivers=_drivers_of(transactions, listed),
        )
        found = replace(found, ends=self._list_ends(topics, found.written_topics))
        found = self._look_for_hanging(found, listed)
        return replace(found, notes=(*self._notes, *clock.notes), limits=(*self._limits, *clock.limits))

    def _ask_time(self, described: DescribeTransactions) -> BrokersTime:
        told_ms = controller_difference(self.client, min(self._patience_ms, DESCRIBE_LIMIT_MS))
        began_ms = [one.start_ms for one in described.found.values() if one.state in OPEN_STATES]
        return brokers_time(told_ms, began_ms, int(time.time() * 1000))

    def settings_of(self, ledger_topic: str) -> DeliverySettings:
        return settings_of_operator(self.client, ledger_topic, self.brokers, self._patience_ms)

    # ---- ledgers -------------------------------------------------------------------------------------------------

    def look_for_ledgers(self, topics: Mapping[str, Mapping[str, Any]] | None = None) -> FoundLedgers:
        topics = self._list_topics() if topics is None else topics
        missing = [topic for topic in self.named if topic not in topics]
        if missing:
            raise ConfigError(f"there is no topic {missing[0]} in this cluster: compare --ledger-topic", NO_LEDGER)
        known = [*self.named, *([DEFAULT_LEDGER] if DEFAULT_LEDGER in topics else [])]
        single = [
            name
            for name, row in sorted(topics.items())
            if len(row["partitions"]) == 1 and not row["is_internal"] and name not in known
        ]
        notes: list[str] = []
        ids = {name: id_of(topics[name]) for name in self._list_compacted(single, notes)}
        recognised = [name for name, topic_id in ids.items() if self._recognise_ledger(name, topic_id, notes)]
        found = list(dict.fromkeys([*known, *recognised]))
        if not found and not self.asked_topics:
            raise ConfigError(
                "no ledger topic was found in this cluster: no sink has decided anything here, or the principal may "
                "not describe and read the ledger. Name it with --ledger-topic"
                + "".join(f"; {note}" for note in notes),
                NO_LEDGER,
            )
        return FoundLedgers(found, notes)

    def _list_topics(self) -> dict[str, Mapping[str, Any]]:
        rows = self.client.ask_metadata(EVERY_TOPIC)["topics"]
        return {row["name"]: row for row in rows if not row["error_code"]}

    def _list_compacted(self, names: Sequence[str], notes: list[str]) -> Iterator[str]:
        for begin in range(0, len(names), CONFIGS_AT_ONCE):
            asked = [
                ConfigResource(RESOURCE_TOPIC, name, (CLEANUP,)) for name in names[begin : begin + CONFIGS_AT_ONCE]
            ]
            body = self.client.ask(AnyBroker(), DESCRIBE_CONFIGS, configs_body(asked), repeat=Repeat.ALWAYS)
            for resource, configs in zip(asked, read_configs(asked, body), strict=True):
                if isinstance(configs, dict) and "compact" in (configs.get(CLEANUP) or ""):
                    yield resource.name
                elif isinstance(configs, BrokerError) and configs.code != UNKNOWN_TOPIC_OR_PARTITION:
                    notes.append(_unknown_text(resource.name, configs))

    def _recognise_ledger(self, topic: str, topic_id: bytes, notes: list[str]) -> bool:
        """A topic that this principal may not read is none that it could tell anything about."""
        try:
            return self._looks_like_a_ledger(topic, topic_id)
        except AuthenticationError:
            raise  # one topic after the other would be tried
        except KafkaSinkError as error:
            if not (isinstance(error, BrokerError) and error.code == TOPIC_AUTHORIZATION_FAILED):
                notes.append(_unknown_text(topic, error))
        return False

    def _looks_like_a_ledger(self, topic: str, topic_id: bytes) -> bool:
        known, at_ms = self._others.find(topic, topic_id), self.client.now_ms()
        if known is not None and known.again_ms is not None and at_ms < known.again_ms:
            return False
        reader = PartitionReader(self.client, topic, 0, self._patience_ms)
        extent = reader.extent()
        if known == OtherTopic(extent, None):
            return False
        count = size = 0
        for batch in islice(reader.first_batches(*extent, LOOKED_AT_BYTES), RECOGNISED_BATCHES):
            if _has_decisions(batch):
                return True
            count, size = count + 1, size + len(batch.content)
        goes_on = count == RECOGNISED_BATCHES or size >= LOOKED_AT_BYTES
        self._others.note(topic, topic_id, OtherTopic(extent, at_ms + AGAIN_MS if goes_on else None))
        return False

    def read_ledger(self, topic: str) -> LedgerFacts:
        """The newest decision under each key, not judged."""
        listing = self.client.run_step(LedgerListing(self.settings_of(topic), None))
        if listing.listed is None:
            return LedgerFacts(topic, problem=f"the ledger {topic} was not read: {listing.reason}")
        return LedgerFacts(topic, listing.listed, lines=listing.lines)

    # ---- transactions --------------------------------------------------------------------------------------------

    def _list_transactions(self, topics: Mapping[str, Mapping[str, Any]]) -> Mapping[str, ListedId]:
        """Every transactional id that a coordinator knows, as far as this principal may describe it."""
        try:
            bodies = self.client.answers_of_all(LIST_TRANSACTIONS, list_body())
        except BrokerError as error:
            if error.code != UNSUPPORTED_VERSION:
                raise
            self._limits.append(NOT_LISTED)
            return {}
        silent = len(self.client.look_at_cluster().brokers) - len(bodies)
        if silent > 0:
            self._notes.append(f"{silent} brokers have not listed their transactions")
        self._notes += [
            describe_answer(LIST_TRANSACTIONS.name, body["error_code"]) for body in bodies if body["error_code"]
        ]
        coordinators = topics.get(TRANSACTION_LOG, {"partitions": ()})["partitions"]
        away = sum(one["leader_id"] == NO_LEADER for one in coordinators)
        if away:
            self._notes.append(
                f"{away} partitions of {TRANSACTION_LOG} have no leader: their transactions are not listed"
            )
        found: dict[str, ListedId] = {}
        for one in (row for body in bodies for row in body["transaction_states"]):
            name, state = one["transactional_id"], one["transaction_state"]
            if name not in found or state in OPEN_STATES:  # a coordinator that was replaced may not know it yet
                found[name] = ListedId(one["producer_id"], state)
        return found

    def _describe(self, transactional_ids: Iterable[str]) -> DescribeTransactions:
        ids = dict.fromkeys(transactional_ids)
        step = DescribeTransactions(self.settings_of(DEFAULT_LEDGER), list(ids), passes_over_refused=True)
        if not ids:
            return step
        limit_ms = min(self._patience_ms, DESCRIBE_LIMIT_MS)
        answer = self.client.run(SingleStep(step, self.client.now_ms() + limit_ms))
        if answer.failure is not None:
            self._notes.append(f"not every open transaction was described: {answer.failure}")
        return answer

    def _judge_ledger(self, ledger: LedgerFacts, described: DescribeTransactions, at_ms: int) -> LedgerFacts:
        intents = list(_open_here(ledger))
        records = [record for _, record in intents]
        rows = ask_rows(self.settings_of(ledger.topic), described, records)
        limit_ms = min(self._patience_ms, DESCRIBE_LIMIT_MS)
        seen = self.client.run(SingleStep(rows, self.client.now_ms() + limit_ms)).outcomes
        judged = judge_open(described, records, at_ms, seen)
        return replace(
            ledger,
            judged={key: found for (key, _), found in zip(intents, judged, strict=True)},
            since_ms={
                each.ledger_key: min(each.record.wall_ms, self._first_seen_ms(ledger.topic, each, each.record, at_ms))
                for each in ledger.listed
                if each.record is not None and self._is_of_the_future(ledger.topic, each, each.record, at_ms)
            },
        )

    def _is_of_the_future(self, topic: str, each: Listed, record: LedgerRecord, at_ms: int) -> bool:
        """Now, or when it was seen first."""
        return record.wall_ms > at_ms or (topic, each.ledger_key) in self._first_seen

    def _first_seen_ms(self, topic: str, each: Listed, record: LedgerRecord, at_ms: int) -> int:
        """The clock of a decision's driver may be ahead of this one. Of each key only the newest decision is kept."""
        where, mark = (topic, each.ledger_key), (record.run, record.wall_ms)
        known, seen_ms = self._first_seen.get(where, (None, at_ms))
        seen_ms = seen_ms if known == mark else at_ms
        self._first_seen[where] = (mark, seen_ms)
        return seen_ms

    # ---- what readers see ----------------------------------------------------------------------------------------

    def _list_ends(
        self, topics: Mapping[str, Mapping[str, Any]], written: Iterable[str]
    ) -> Mapping[Partition, tuple[int, int]]:
        """Stable offsets and ends. A topic that was deleted since has none."""
        partitions: list[Partition] = []
        for name in sorted(written):
            for each in topics[name]["partitions"] if name in topics else ():
                if each["leader_id"] == NO_LEADER:
                    self._notes.append(f"{name}-{each['partition_index']} has no leader now")
                else:
                    partitions.append((name, each["partition_index"]))
        return self.list_ends(partitions)

    def list_ends(self, partitions: Sequence[Partition]) -> Mapping[Partition, tuple[int, int]]:
        if not partitions:
            return {}
        found = self.client.run_step(LogEnds(self.settings_of(DEFAULT_LEDGER), partitions))
        trouble = found.failure or found.last_trouble
        if trouble:
            self._notes.append(f"not every stable offset was told: {trouble}")
        return {where: (found.stable[where], found.end[where]) for where in partitions if where in found.end}

    def _look_for_hanging(self, facts: ClusterFacts, listed: Mapping[str, ListedId]) -> ClusterFacts:
        """Between two requests there are records of others, so it is looked twice before the leaders are asked who it
        is."""
        if self._limits or self._notes:
            return facts  # some transactions may not have been listed
        ends, held = facts.ends, self._list_held(facts)
        again = self.list_ends(held)
        held = [where for where in held if where in again and again[where][0] == ends[where][0] < again[where][1]]
        if not held:
            self._holders_seen = {}
            return facts
        asked = ask_leaders(self.client, held)
        if asked.refusal:
            topic, partition = next(where for where in held if where not in asked.told)
            self._limits.append(f"who holds readers of {topic}-{partition} back is not known: {asked.refusal}")
        self._holders_seen = {one: self._holders_seen.get(one, facts.at_ms) for one in asked.found}
        return self._tell_apart(
            [replace(one, since_ms=at_ms) for one, at_ms in self._holders_seen.items()], facts, listed
        )

    def _list_held(self, facts: ClusterFacts) -> list[Partition]:
        """Where readers wait for none of the transactions that were listed: there is none, or an earlier look has seen
        readers at the same offset, and those that were there then are over. What began later does not hold them."""
        here: dict[Partition, set[tuple[str, int]]] = {}
        for one in facts.transactions:
            for where in one.partitions:
                here.setdefault(where, set()).add((one.transactional_id, one.start_ms))
        waiting: dict[Partition, tuple[int, frozenset[tuple[str, int]]]] = {}
        for where, (stable, end) in facts.ends.items():
            if stable < end:
                now = stable, frozenset(here.get(where, ()))
                before = self._waiting.get(where, now)
                waiting[where] = before if before[0] == stable else now
        self._waiting = waiting
        return [where for where, (_, first) in waiting.items() if first.isdisjoint(here.get(where, ()))]

    def _tell_apart(
        self, holders: Sequence[OpenProducer], facts: ClusterFacts, listed: Mapping[str, ListedId]
    ) -> ClusterFacts:
        """Coordinators are asked after the leaders: hanging.py says why."""
        names = {one.producer_id: name for name, one in listed.items()}
        described = self._describe([names[one.producer_id] for one in holders if one.producer_id in names])
        if self._notes:
            return facts
        told = {one.producer_id: one for one in described.found.values()}
        version = self.settings_of(DEFAULT_LEDGER).transaction_version
        known = [(one, told[one.producer_id]) for one in holders if one.producer_id in told]
        hanging = [
            replace(one, told=what, is_aborted=is_aborted(one, what, version))
            for one, what in known
            if not is_alive(one, what)
        ]
        unlisted = [one for one in holders if one.producer_id not in told]
        max_ms = facts.transaction_max_ms
        if unlisted:
            max_ms = number_of(self.client.broker_configs([MAX_TIMEOUT]), MAX_TIMEOUT) or max_ms
        self._limits += _unlisted_limit([one for one in unlisted if one.since_ms < facts.at_ms], max_ms)
        return replace(facts, hanging=hanging, unlisted=unlisted, transaction_max_ms=max_ms)


def _has_decisions(batch: RawBatch) -> bool:
    """Anybody may have written it. Of a decision that is far larger the value begins below the limit, too."""
    with suppress(RemoteProtocolError):
        found = skim_batch(
            batch.content, lambda _: True, value_bytes_max=len(VALUE_BEGINS),
            records_bytes_max=max(RECOGNISED_BYTES_MAX, len(batch.content)), records_max=RECOGNISED_RECORDS_MAX,
        )  # fmt: skip
        return any(each.value == VALUE_BEGINS for each in found)
    return False


def _unknown_text(topic: str, error: KafkaSinkError) -> str:
    return f"whether {topic} is a ledger is not known: {error}"


def _unlisted_limit(unlisted: Sequence[OpenProducer], max_ms: int) -> Iterator[str]:
    if unlisted:
        first, more = unlisted[0], len({(one.topic, one.partition) for one in unlisted}) - 1
        others = f" and {more} partitions more" if more else ""
        yield (
            f"readers of {first.topic}-{first.partition}{others} wait for producer id {first.producer_id}, which no "
            "coordinator lists to this principal: is Describe on its transactional id missing? If it stays open for "
            f"longer than brokers allow ({span(max_ms)}), --serve and watch tell"
        )


def examine(
    cluster: ClusterLook, limits: Limits, pause: Callable[[float], None] = time.sleep
) -> tuple[ClusterFacts, list[Finding]]:
    """What may end by itself is told if two looks, a second apart, have found it."""
    facts = cluster.look()
    found = judge(facts, limits, cluster.brokers)
    if any(each.is_passing for each in found) or any(one.since_ms == facts.at_ms for one in facts.unlisted):
        seen = {each.mark for each in found}
        pause(BETWEEN_LOOKS_S)
        facts = cluster.look()
        found = [each for each in judge(facts, limits, cluster.brokers) if each.mark in seen or not each.is_passing]
    return facts, found


class Repeated:
    """Looks again and again. What may end by itself is a finding from the second look on that finds it."""

    def __init__(self, cluster: ClusterLook, limits: Limits) -> None:
        self._cluster = cluster
        self._limits = limits
        self._seen: frozenset[tuple[object, ...]] = frozenset()

    def look(self) -> tuple[ClusterFacts, list[Finding]]:
        facts = self._cluster.look()
        every = judge(facts, self._limits, self._cluster.brokers)
        found = [each for each in every if each.mark in self._seen or not each.is_passing]
        self._seen = frozenset(each.mark for each in every)
        return facts, found


def _open_ids(listed: Mapping[str, ListedId]) -> Iterator[str]:
    return (name for name, one in sorted(listed.items()) if one.state in OPEN_STATES)


def _drivers_of(transactions: Iterable[TransactionDescription], listed: Mapping[str, ListedId]) -> frozenset[str]:
    """Earlier releases had one driver for all lines of a sink."""
    own = {each.driver_id for line in lines_of(transactions) for each in (line, Line(line.sink_id))}
    return frozenset(own & listed.keys())


def _decided_ids(ledgers: Sequence[LedgerFacts]) -> Iterator[str]:
    for ledger in ledgers:
        for _, record in _open_here(ledger):
            yield from map(record.transactional_id, record.entries)


def _open_here(ledger: LedgerFacts) -> Iterator[tuple[str, LedgerRecord]]:
    """Open decisions, by ledger key; not those of another cluster, of which the ledger is a copy."""
    for each in ledger.listed:
        if each.record is not None and each.record.kind is Kind.INTENT and not each.origin:
            yield each.ledger_key, each.record


def _count_ids(listed: Iterable[str]) -> Mapping[str, int]:
    identities = map(parse_task_identity, listed)
    return Counter(one.sink_id for one in identities if one is not None)
