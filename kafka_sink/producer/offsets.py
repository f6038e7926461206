"""Consumed offsets for a transaction: from the user's arguments to the command for the engine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from operator import index
from typing import Any, NamedTuple

from kafka_sink.engine.commands import SendOffsets
from kafka_sink.errors import DataError
from kafka_sink.frozen import frozen


class OffsetAndMetadata(NamedTuple):
    """The next offset to be read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@frozen
class ConsumerGroup:
    """A member as known to the group coordinator, which rejects offsets of a member that was replaced.

    With only the group id there is no such check.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def read_offsets(offsets: Mapping[tuple[str, int], int | OffsetAndMetadata], group: str | ConsumerGroup) -> SendOffsets:
    """The operation id is set later."""
    member = ConsumerGroup(group) if isinstance(group, str) else group
    if not isinstance(member, ConsumerGroup) or not member.group_id:
        raise DataError("the consumer group must be a group id or a ConsumerGroup", column="group")
    if member.generation_id >= 0 and not member.member_id:
        text = f"consumer group {member.group_id}: generation {member.generation_id} without a member id"
        raise DataError(text, column="group")
    return SendOffsets(
        0,
        member.group_id,
        {_topic_partition(partition): _offset(partition, offset) for partition, offset in offsets.items()},
        member.generation_id,
        member.member_id,
        member.group_instance_id,
    )


def _topic_partition(given: Any) -> tuple[str, int]:
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        with suppress(TypeError):
            return given[0], index(given[1])
    raise DataError("offsets are given by (topic, partition)", column="offsets")


def _offset(partition: Any, given: int | OffsetAndMetadata) -> tuple[int, int, str]:
    try:
        known = OffsetAndMetadata(*given) if isinstance(given, tuple) else OffsetAndMetadata(given)
        offset, leader_epoch = index(known.offset), index(known.leader_epoch)
    except TypeError:
        raise DataError(f"offset of {partition}: {given!r} is no number", column="offsets") from None
    if offset < 0:
        raise DataError(f"offset {offset} of {partition} is negative", column="offsets")
    return offset, leader_epoch, known.metadata
