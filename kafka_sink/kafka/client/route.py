"""Where an ask goes now: target in, brokers out. It decides and does not act: nothing is looked up, connected or sent.

    known    the parts, one per broker, and what is gone: a leader, a coordinator, a broker of which nobody knows
    waits    something has to be learned first: which coordinators to look up, whether newer metadata is needed

That something is missing in what was learned before the ask is no answer: it has to be learned again. Whether a broker
of the route can take a request now is a question to `NodeSet`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_sink.errors import TransportError
from kafka_sink.errors.table.brokers import TOPIC_UNKNOWN
from kafka_sink.kafka.client.ask import (
    AllBrokers,
    AnyBroker,
    Ask,
    Controller,
    Coordinator,
    Coordinators,
    Failure,
    Leader,
    Leaders,
    OneBroker,
    ReplyKind,
    Target,
    failure_kind,
)
from kafka_sink.kafka.client.coordinator_lookup import CoordinatorLookup
from kafka_sink.kafka.client.metadata import Metadata


@dataclass(slots=True)
class Route:
    """`left_ids`: the coordinator that was found for them is not part of the cluster; each is in `gone` as well."""

    parts: list[tuple[int | None, Mapping[str, Any]]] = field(default_factory=list)
    gone: list[Failure] = field(default_factory=list)
    waits: bool = False
    unknown_ids: list[str] = field(default_factory=list)
    left_ids: list[str] = field(default_factory=list)
    needs_update: bool = False


def route(ask: Ask, metadata: Metadata, lookup: CoordinatorLookup) -> Route:
    target, body, cluster = ask.target, ask.body, metadata.view
    waits_for_news = ask.needs_news and not metadata.has_answered(ask.first_refresh)
    if ask.led_now:
        if waits_for_news:
            return Route(waits=True)
        leaderless = next((one for one in ask.led_now if cluster.is_leaderless(*one)), None)
        if leaderless is not None:
            error = TransportError(f"{leaderless[0]}-{leaderless[1]} has no leader now")
            return Route(gone=[Failure(ReplyKind.LEADERLESS, error)])
    if isinstance(target, AnyBroker):
        return Route([(None, body)])
    if isinstance(target, (Coordinator, Coordinators)):
        return _to_coordinators(ask, ids_of(target), metadata, lookup)
    if not cluster.brokers or waits_for_news:
        return Route(waits=True)
    if isinstance(target, AllBrokers):
        return Route([(node_id, body) for node_id in sorted(cluster.brokers)])
    if isinstance(target, Controller):
        return Route([(cluster.controller_id if cluster.controller_id in cluster.brokers else None, body)])
    if not isinstance(target, OneBroker):
        return _to_leaders(ask, target.partitions if isinstance(target, Leaders) else (target,), metadata)
    if target.node_id in cluster.brokers:
        return Route([(target.node_id, body)])
    if not metadata.has_answered(ask.first_refresh):
        return Route(waits=True, needs_update=True)
    return Route(gone=[_not_sent(f"broker {target.node_id} is not part of the cluster")])


def _to_leaders(ask: Ask, partitions: Iterable[tuple[str, int]], metadata: Metadata) -> Route:
    """A partition without a leader is gone; the others are still asked for."""
    leaders = {partition: metadata.view.leader(*partition) for partition in partitions}
    if None in leaders.values() and not metadata.has_answered(ask.first_refresh):
        return Route(waits=True, needs_update=True)
    found, is_single = Route(), isinstance(ask.target, Leader)
    for partition, leader in leaders.items():
        if leader is None:
            found.gone.append(_leader_failure(*partition, metadata, is_single=is_single))
    led = {partition: leader for partition, leader in leaders.items() if leader is not None}
    divided = dict.fromkeys(led.values(), ask.body) if is_single else divide_body(ask.body, led)
    found.parts = list(divided.items())
    return found


def _leader_failure(topic: str, partition: int, metadata: Metadata, *, is_single: bool) -> Failure:
    # Of several topics one that may not be described does not refuse the others.
    refusal = metadata.topic_error(topic) if is_single else None
    if refusal is not None:
        return Failure(failure_kind(refusal, was_sent=False), refusal)
    text = f"{topic}-{partition} has no leader now. {metadata.topic_trouble(topic)}".rstrip(" .")
    entry = TOPIC_UNKNOWN if metadata.is_unknown(topic, partition) else None
    return Failure(ReplyKind.NOT_SENT, TransportError(text, entry))


def _to_coordinators(ask: Ask, ids: Sequence[str], metadata: Metadata, lookup: CoordinatorLookup) -> Route:
    found = Route(waits=bool(ask.missing))
    by_node: dict[int, list[str]] = {}
    for transactional_id in ids:
        known = lookup.get(transactional_id)
        if transactional_id in ask.missing or transactional_id in ask.failed_ids:
            continue
        if known is None:
            found.unknown_ids.append(transactional_id)  # its broker was just lost
            found.waits = True
        elif known.node_id in metadata.view.brokers:
            by_node.setdefault(known.node_id, []).append(transactional_id)
        elif not metadata.has_answered(known.first_refresh):
            found.waits = found.needs_update = True  # it has just joined, or is leaving
        else:
            found.left_ids.append(transactional_id)
            text = f"node {known.node_id} coordinates transactional id {transactional_id!r} and has left the cluster"
            found.gone.append(_not_sent(text))
    is_single = isinstance(ask.target, Coordinator)
    if not found.waits:
        found.parts = [
            (node_id, ask.body if is_single else {**ask.body, "transactional_ids": own})
            for node_id, own in by_node.items()
        ]
    return found


def _not_sent(text: str) -> Failure:
    return Failure(ReplyKind.NOT_SENT, TransportError(text))


def ids_of(target: Coordinator | Coordinators) -> tuple[str, ...]:
    return (target.transactional_id,) if isinstance(target, Coordinator) else target.transactional_ids


def topics_of(target: Target) -> set[str]:
    if isinstance(target, Leader):
        return {target.topic}
    return {topic for topic, _ in target.partitions} if isinstance(target, Leaders) else set()


def divide_body(body: Mapping[str, Any], leaders: Mapping[tuple[str, int], int]) -> dict[int, Mapping[str, Any]]:
    """To each leader its own partitions. Each is looked at once: there may be thousands, and a hundred leaders."""
    topics: dict[int, list[Mapping[str, Any]]] = {leader: [] for leader in leaders.values()}
    for topic in body["topics"]:
        name, field = topic["name"], "partition_indexes" if "partition_indexes" in topic else "partitions"
        own: dict[int, list[Any]] = {}
        for one in topic[field]:
            leader = leaders.get((name, one if field == "partition_indexes" else one["partition_index"]))
            if leader is not None:
                own.setdefault(leader, []).append(one)
        for leader, asked in own.items():
            topics[leader].append({**topic, field: asked})
    return {leader: {**body, "topics": asked} for leader, asked in topics.items()}
