"""Topics and partitions: leaders, in-sync replicas, configuration. Plain state; the rules are in `cluster.py`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.log import PartitionLog
from kafka_sink.testing.settings import TOPIC_DEFAULTS, TopicConfig, is_valid

NO_LEADER = -1
TRANSACTION_TOPIC = "__transaction_state"
OFFSETS_TOPIC = "__consumer_offsets"
INTERNAL_TOPICS = (TRANSACTION_TOPIC, OFFSETS_TOPIC)
NAME_LENGTH_MAX = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


@dataclass(slots=True)
class BrokerState:
    node_id: int
    host: str
    port: int
    is_up: bool = True


@dataclass(slots=True)
class Partition:
    """`in_sync` is a subset of the replicas that are up; tests may make it smaller."""

    topic: str
    index: int
    replicas: tuple[int, ...]
    in_sync: list[int]
    leader_id: int
    leader_epoch: int = 0
    log: PartitionLog = field(default_factory=PartitionLog)

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.index


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: bytes
    config: TopicConfig
    partitions: list[Partition] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def configs(self) -> dict[str, str]:
        return self.config.own


def check_topic_name(name: str) -> None:
    if not name or name in (".", "..") or len(name) > NAME_LENGTH_MAX or _LEGAL_NAME.match(name) is None:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, "the topic name is not legal")


def check_no_collision(name: str, topics: Iterable[str]) -> None:
    """Names that differ only by . and _ would have the same metrics."""
    alike = name.replace(".", "_")
    existing = next((one for one in topics if one.replace(".", "_") == alike), None)
    if existing is not None:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {existing}")


def check_topic_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    known = {}
    for name, value in configs.items():
        if name not in TOPIC_DEFAULTS:
            raise Refused(Code.INVALID_CONFIG, f"unknown topic config name: {name}")
        if value is None:
            raise Refused(Code.INVALID_CONFIG, f"null value not supported for topic configs: {name}")
        if not is_valid(TOPIC_DEFAULTS[name], value):
            raise Refused(Code.INVALID_CONFIG, f"invalid value {value} for configuration {name}")
        known[name] = value
    return known


@lru_cache(maxsize=4096)
def java_string_hash(text: str) -> int:
    """Java's String.hashCode, which assigns ids to partitions of an internal topic."""
    value = 0
    units = text.encode("utf-16-be")
    for position in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[position : position + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def internal_partition(key: str, count: int) -> int:
    """Kafka's Utils.abs: the minimum integer becomes 0."""
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % count
