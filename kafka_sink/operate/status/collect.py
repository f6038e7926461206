"""Looks at a cluster, in few requests: topics, ledgers one after the other, then one listing of transactions, one
description of those that are open or decided, and the ends of the logs. Only asks.

A ledger topic is recognised by its content: every value that a sink writes there begins with the name of the format.
Looked into are compacted topics with one partition, as the sink creates them. Others have to be named.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafka_sink.commit.admin.client import UNSUPPORTED_VERSION, Client
from kafka_sink.commit.admin.configs import RESOURCE_TOPIC, ConfigResource, configs_body, read_configs
from kafka_sink.commit.admin.topic_reader import PartitionReader
from kafka_sink.commit.command_texts import LEDGER_TOPIC, BrokerArguments
from kafka_sink.commit.commit_step import SingleStep
from kafka_sink.commit.identity import parse_task_identity
from kafka_sink.commit.ledger import Kind, LedgerRecord
from kafka_sink.commit.ledger_codec import VALUE_BEGINS
from kafka_sink.commit.ledger_policy import CLEANUP
from kafka_sink.commit.listing import OPEN_STATES, LedgerListing, LogEnds
from kafka_sink.commit.open_decisions import judge_open
from kafka_sink.commit.open_parts import ProducerQuestion
from kafka_sink.commit.preflight import DescribeTransactions
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import BrokerError, ConfigError, KafkaSinkError
from kafka_sink.errors.table.commits import NO_LEDGER
from kafka_sink.kafka.client.ask import AnyBroker, Repeat
from kafka_sink.kafka.client.cluster import NO_LEADER
from kafka_sink.kafka.client.outcome import describe_answer
from kafka_sink.kafka.wire.apis import DESCRIBE_CONFIGS, DESCRIBE_PRODUCERS, LIST_TRANSACTIONS
from kafka_sink.operate.status.facts import ClusterFacts, HangingProducer, LedgerFacts, Partition
from kafka_sink.operate.status.findings import Finding, Limits, judge

EVERY_TOPIC: Mapping[str, Any] = {"topics": None, "allow_auto_topic_creation": False}
EVERY_STATE: Mapping[str, Any] = {"state_filters": [], "producer_id_filters": []}
CONFIGS_AT_ONCE = 1_000
# A coordinator that is away must not hold up what the ledgers say.
DESCRIBE_LIMIT_MS = 5_000
BETWEEN_LOOKS_S = 1.0
NOT_LISTED = "these brokers do not list transactions (Kafka before 3.0): only ledgers and offsets were looked at"


def delivery_settings(
    client: Client, brokers: BrokerArguments, ledger_topic: str, patience_ms: int
) -> DeliverySettings:
    """Of an operator's command."""
    support = client.transaction_support()
    return DeliverySettings(
        ledger_topic=ledger_topic,
        brokers=brokers,
        cluster_id=client.cluster_id(),
        transaction_version=support.transaction_version,
        fence_raises_max=support.fence_raises_max,
        brokers_verify=support.verifies,
        patience_ms=patience_ms,
        sweep_ms=patience_ms,
        request_timeout_ms=client.options.request_timeout_ms,
    )


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
        # By ledger topic and key: which open decision was seen last, and when for the first time.
        self._first_seen: dict[tuple[str, str], tuple[tuple[str, int] | None, int]] = {}

    def look(self) -> ClusterFacts:
        """Raises `ConfigError` if there is no ledger: nothing is reported as fine then."""
        self._notes, self._limits = [], []
        self.client.reach(self._patience_ms)
        topics = self._list_topics()
        read = [self.read_ledger(topic) for topic in self.find_ledgers(topics)]
        states = self._list_transactions()
        described = self._describe(read, states)
        at_ms = int(time.time() * 1000)
        found = ClusterFacts(
            at_ms,
            self.client.cluster_id(),
            [self._judge_ledger(each, described, at_ms) for each in read],
            [one for _, one in sorted(described.found.items()) if one.state in OPEN_STATES],
            _count_ids(states),
            asked_topics=self.asked_topics,
        )
        found = replace(found, ends=self._list_ends(topics, found.written_topics))
        hanging = self._find_hanging(found)
        return replace(found, hanging=hanging, notes=tuple(self._notes), limits=tuple(self._limits))

    def settings_of(self, ledger_topic: str) -> DeliverySettings:
        return delivery_settings(self.client, self.brokers, ledger_topic, self._patience_ms)

    # ---- ledgers -------------------------------------------------------------------------------------------------

    def find_ledgers(self, topics: Mapping[str, Mapping[str, Any]] | None = None) -> list[str]:
        topics = self._list_topics() if topics is None else topics
        missing = [topic for topic in self.named if topic not in topics]
        if missing:
            raise ConfigError(f"there is no topic {missing[0]} in this cluster: compare --ledger-topic", NO_LEDGER)
        known = [*self.named, *([LEDGER_TOPIC] if LEDGER_TOPIC in topics else [])]
        single = [
            name
            for name, row in sorted(topics.items())
            if len(row["partitions"]) == 1 and not row["is_internal"] and name not in known
        ]
        found = list(dict.fromkeys([*known, *filter(self._recognise_ledger, self._list_compacted(single))]))
        if not found and not self.asked_topics:
            raise ConfigError(
                "no ledger topic was found in this cluster: no sink has decided anything here, or the principal may "
                "not describe and read the ledger. Name it with --ledger-topic",
                NO_LEDGER,
            )
        return found

    def _list_topics(self) -> dict[str, Mapping[str, Any]]:
        rows = self.client.ask_metadata(EVERY_TOPIC)["topics"]
        return {row["name"]: row for row in rows if not row["error_code"]}

    def _list_compacted(self, names: Sequence[str]) -> Iterator[str]:
        for begin in range(0, len(names), CONFIGS_AT_ONCE):
            asked = [
                ConfigResource(RESOURCE_TOPIC, name, (CLEANUP,)) for name in names[begin : begin + CONFIGS_AT_ONCE]
            ]
            body = self.client.ask(AnyBroker(), DESCRIBE_CONFIGS, configs_body(asked), repeat=Repeat.ALWAYS)
            for resource, configs in zip(asked, read_configs(asked, body), strict=True):
                if isinstance(configs, dict) and "compact" in (configs.get(CLEANUP) or ""):
                    yield resource.name

    def _recognise_ledger(self, topic: str) -> bool:
        """A topic that this principal may not read is none that it could tell anything about."""
        reader = PartitionReader(self.client, topic, 0, self._patience_ms)
        try:
            for records, _ in reader.read(*reader.extent()):
                if records:
                    return any((record.value or b"").startswith(VALUE_BEGINS) for _, record in records)
        except BrokerError:
            pass
        except KafkaSinkError as error:
            self._notes.append(f"whether {topic} is a ledger is not known: {error}")
        return False

    def read_ledger(self, topic: str) -> LedgerFacts:
        """The newest decision under each key, not judged."""
        listing = self.client.run_step(LedgerListing(self.settings_of(topic), None))
        if listing.listed is None:
            return LedgerFacts(topic, problem=f"the ledger {topic} was not read: {listing.reason}")
        return LedgerFacts(topic, listing.listed)

    # ---- transactions --------------------------------------------------------------------------------------------

    def _list_transactions(self) -> Mapping[str, str]:
        """The state of every transactional id that a coordinator knows."""
        try:
            bodies = self.client.answers_of_all(LIST_TRANSACTIONS, EVERY_STATE)
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
        return {
            one["transactional_id"]: one["transaction_state"] for body in bodies for one in body["transaction_states"]
        }

    def _describe(self, ledgers: Sequence[LedgerFacts], states: Mapping[str, str]) -> DescribeTransactions:
        """Those that are open, and those that an open decision names."""
        decided = (
            record.transactional_id(entry)
            for ledger in ledgers
            for _, record in _open_here(ledger)
            for entry in record.entries
        )
        ids = dict.fromkeys([*(one for one, state in sorted(states.items()) if state in OPEN_STATES), *decided])
        step = DescribeTransactions(self.settings_of(LEDGER_TOPIC), list(ids))
        if not ids:
            return step
        limit_ms = min(self._patience_ms, DESCRIBE_LIMIT_MS)
        answer = self.client.run(SingleStep(step, self.client.now_ms() + limit_ms))
        if answer.failure is not None:
            self._notes.append(f"not every open transaction was described: {answer.failure}")
        return answer

    def _judge_ledger(self, ledger: LedgerFacts, described: DescribeTransactions, at_ms: int) -> LedgerFacts:
        intents = list(_open_here(ledger))
        judged = judge_open(described, [record for _, record in intents], at_ms)
        return replace(
            ledger,
            judged={key: found for (key, _), found in zip(intents, judged, strict=True)},
            since_ms={
                key: min(record.wall_ms, self._first_seen_ms(ledger.topic, key, record, at_ms))
                for key, record in intents
            },
        )

    def _first_seen_ms(self, topic: str, ledger_key: str, record: LedgerRecord, at_ms: int) -> int:
        """The clock of a decision's driver may be ahead of this one. Of each key only the newest decision is kept."""
        mark, (known, seen_ms) = (record.run, record.wall_ms), self._first_seen.get((topic, ledger_key), (None, at_ms))
        seen_ms = seen_ms if known == mark else at_ms
        self._first_seen[topic, ledger_key] = (mark, seen_ms)
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
        found = self.client.run_step(LogEnds(self.settings_of(LEDGER_TOPIC), partitions))
        trouble = found.failure or found.last_trouble
        if trouble:
            self._notes.append(f"not every stable offset was told: {trouble}")
        return {where: (found.stable[where], found.end[where]) for where in partitions if where in found.end}

    def _find_hanging(self, facts: ClusterFacts) -> Sequence[HangingProducer]:
        """Where readers are held back by none of the transactions that were listed. Between two requests there are
        records of others, so it is looked twice before the leaders are asked who it is."""
        if self._limits or self._notes:
            return ()  # some transactions may not have been listed
        ends = facts.ends
        covered = {where for one in facts.transactions for where in one.partitions}
        held = [where for where, (stable, end) in ends.items() if stable < end and where not in covered]
        again = self.list_ends(held)
        held = [where for where in held if where in again and again[where][0] == ends[where][0] < again[where][1]]
        return self._list_unlisted(held) if held else ()

    def _list_unlisted(self, held: Sequence[Partition]) -> Sequence[HangingProducer]:
        asked = _Holding(held)
        while asked.missing:
            target, body = asked.question()
            try:
                bodies = self.client.ask_all(target, DESCRIBE_PRODUCERS, body, repeat=Repeat.ALWAYS, needs_all=False)
            except KafkaSinkError as error:
                asked.give_up(str(error))
                break
            for body in bodies:
                asked.on_body(body)
            asked.go_on()
        if asked.refusal:
            topic, partition = next(where for where in held if where not in asked.told)
            self._limits.append(f"who holds readers of {topic}-{partition} back is not known: {asked.refusal}")
        return asked.found


class _Holding(ProducerQuestion):
    """Who has a transaction open."""

    def __init__(self, held: Sequence[Partition]) -> None:
        super().__init__(held)
        self.found: list[HangingProducer] = []
        self.told: set[Partition] = set()

    def on_told(self, where: Partition, producers: Iterable[Mapping[str, Any]]) -> None:
        self.told.add(where)
        self.found += [
            HangingProducer(*where, one["producer_id"], one["current_txn_start_offset"])
            for one in producers
            if one["current_txn_start_offset"] >= 0
        ]


def examine(
    cluster: ClusterLook, limits: Limits, pause: Callable[[float], None] = time.sleep
) -> tuple[ClusterFacts, list[Finding]]:
    """What may end by itself is a finding if two looks, a second apart, have found it."""
    facts = cluster.look()
    found = judge(facts, limits, cluster.brokers)
    if any(each.is_passing for each in found):
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


def _open_here(ledger: LedgerFacts) -> Iterator[tuple[str, LedgerRecord]]:
    """Open decisions, by ledger key; not those of another cluster, of which the ledger is a copy."""
    for each in ledger.listed:
        if each.record is not None and each.record.kind is Kind.INTENT and not each.origin:
            yield each.ledger_key, each.record


def _count_ids(states: Mapping[str, str]) -> Mapping[str, int]:
    identities = map(parse_task_identity, states)
    return Counter(one.sink_id for one in identities if one is not None)
