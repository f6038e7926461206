"""Consumed offsets for a transaction: from the user's arguments to the command for the engine.

What does not fit into the fields of a request is refused here: in the engine it would end the producer.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from operator import index
from typing import Any, NamedTuple

from kafka_sink.errors import DataError
from kafka_sink.options.producer_options import INT_MAX, LONG_MAX
from kafka_sink.producer.engine.commands import ConsumerGroup
from kafka_sink.producer.serialize import check_string


class OffsetAndMetadata(NamedTuple):
    """The next offset to be read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def read_offsets(
    offsets: Mapping[tuple[str, int], int | OffsetAndMetadata], group: str | ConsumerGroup
) -> tuple[ConsumerGroup, dict[tuple[str, int], tuple[int, int, str]]]:
    if not isinstance(offsets, Mapping):
        raise DataError("offsets are given by (topic, partition)", column="offsets")
    member = ConsumerGroup(group) if isinstance(group, str) else group
    _check_member(member)
    return member, {_topic_partition(partition): _offset(partition, offset) for partition, offset in offsets.items()}


def _check_member(member: Any) -> None:
    if not isinstance(member, ConsumerGroup) or not member.group_id:
        raise DataError("the consumer group must be a group id or a ConsumerGroup", column="group")
    check_string("the id of the consumer group", member.group_id, "group")
    group = f"consumer group {member.group_id}"
    check_string(f"{group}: the member id", member.member_id, "group")
    if member.group_instance_id is not None:
        check_string(f"{group}: the instance id", member.group_instance_id, "group")
    generation = _whole(f"{group}: generation", member.generation_id, -1, INT_MAX, "group")
    if generation >= 0 and not member.member_id:
        raise DataError(f"{group}: generation {generation} without a member id", column="group")


def _topic_partition(given: Any) -> tuple[str, int]:
    if not isinstance(given, tuple) or len(given) != 2:
        raise DataError("offsets are given by (topic, partition)", column="offsets")
    topic, partition = given
    check_string("the topic of an offset", topic, "offsets")
    return topic, _whole("the partition of an offset", partition, 0, INT_MAX, "offsets")


def _offset(partition: Any, given: int | OffsetAndMetadata) -> tuple[int, int, str]:
    try:
        known = OffsetAndMetadata(*given) if isinstance(given, tuple) else OffsetAndMetadata(given)
    except TypeError:
        raise DataError(f"offset of {partition}: {given!r} is no number", column="offsets") from None
    offset = _whole(f"offset of {partition}:", known.offset, 0, LONG_MAX, "offsets")
    leader_epoch = _whole(f"offset of {partition}: leader epoch", known.leader_epoch, -1, INT_MAX, "offsets")
    if known.metadata is not None:
        check_string(f"the metadata of the offset of {partition}", known.metadata, "offsets")
    return offset, leader_epoch, known.metadata


def _whole(what: str, given: Any, lowest: int, highest: int, column: str) -> int:
    with suppress(TypeError):
        if lowest <= index(given) <= highest:
            return index(given)
    raise DataError(f"{what} {given!r} is no number in {lowest}..{highest}", column=column)
