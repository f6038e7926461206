"""Responses assembled from parts: the result, or the error, for each partition or name.

Omitted fields have the protocol's default (`kafka/wire/schema.py`): error code 0, and mostly -1 or empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka_sink.testing import acl
from kafka_sink.testing.call import Call
from kafka_sink.testing.errors import Refused

Answer = dict[str, Any]


def answer_or_error(tell: Callable[..., Answer], *given: Any) -> Answer:
    try:
        return tell(*given)
    except Refused as refusal:
        return {"error_code": refusal.code}


def answer_or_error_text(tell: Callable[..., Answer], *given: Any) -> Answer:
    try:
        return {"error_message": None, **tell(*given)}
    except Refused as refusal:
        return {"error_code": refusal.code, "error_message": str(refusal)}


def by_partition(
    topics: Iterable[Mapping[str, Any]],
    tell: Callable[[str, Any], Answer],
    *,
    topic: str = "name",
    asked: str = "partitions",
    index: str = "partition_index",
    **defaults: Any,
) -> list[Answer]:
    """The result of `tell(topic, asked)` for each partition in a request, in order. `asked` is an index, or has one.

    `topic`, `asked` and `index` are the API's names of these fields.
    """

    def describe(name: str, each: Any) -> Answer:
        place = {index: each if isinstance(each, int) else each[index]}
        return {**place, **defaults, **answer_or_error(tell, name, each)}

    return [{topic: one[topic], "partitions": [describe(one[topic], each) for each in one[asked]]} for one in topics]


def current_leader(call: Call, topic: str, index: int) -> Answer:
    """For a partition with NOT_LEADER_OR_FOLLOWER: the leader, as far as this broker has heard of it."""
    partition = call.core.cluster.partition(topic, index)
    if partition is None:
        return {}
    leader_id, leader_epoch = call.core.cluster.leader_as_seen_by(call.broker_id, partition)
    return {"current_leader": {"leader_id": leader_id, "leader_epoch": leader_epoch}}


def leader_endpoints(call: Call, partitions: Iterable[Answer]) -> list[Answer]:
    """The addresses of the leaders told in these partitions."""
    leader_ids = dict.fromkeys(one["current_leader"]["leader_id"] for one in partitions if "current_leader" in one)
    return call.core.endpoints(one for one in leader_ids if one in call.core.cluster.brokers)


def visible_by_topic(call: Call, partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Topics that the client may describe, with their partitions."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        if call.is_allowed(acl.DESCRIBE, acl.TOPIC, topic):
            by_topic.setdefault(topic, []).append(index)
    return by_topic
