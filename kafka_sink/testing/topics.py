"""Topics and partitions: who leads, who is in sync, what is configured. Plain state; the rules are in `cluster.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_sink.testing.compaction import CompactionRules
from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.log import LogRules, PartitionLog
from kafka_sink.testing.settings import TOPIC_DEFAULTS, Settings

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
    rack: str | None = None
    is_up: bool = True


@dataclass(slots=True)
class Partition:
    """`in_sync` is a subset of the replicas that are up; tests may make it smaller than it has to be."""

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
    configs: dict[str, str] = field(default_factory=dict)
    partitions: list[Partition] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def config(self, settings: Settings, name: str) -> str:
        return self.configs.get(name, settings.text(TOPIC_DEFAULTS[name]))

    def log_rules(self, settings: Settings) -> LogRules:
        return LogRules(
            batch_bytes_max=int(self.config(settings, "max.message.bytes")),
            segment_bytes=int(self.config(settings, "segment.bytes")),
            is_append_time=self.config(settings, "message.timestamp.type") == "LogAppendTime",
            is_compacted=self.has_policy(settings, "compact"),
            timestamp_before_max_ms=int(self.config(settings, "message.timestamp.before.max.ms")),
            timestamp_after_max_ms=int(self.config(settings, "message.timestamp.after.max.ms")),
            verification=settings.flag("transaction.partition.verification.enable"),
        )

    def has_policy(self, settings: Settings, policy: str) -> bool:
        return policy in self.config(settings, "cleanup.policy").replace(" ", "").split(",")

    def compaction_rules(self, settings: Settings) -> CompactionRules:
        return CompactionRules(
            cleanable_ratio_min=float(self.config(settings, "min.cleanable.dirty.ratio")),
            lag_min_ms=int(self.config(settings, "min.compaction.lag.ms")),
            delete_retention_ms=int(self.config(settings, "delete.retention.ms")),
            segment_bytes=int(self.config(settings, "segment.bytes")),
            segment_ms=int(self.config(settings, "segment.ms")),
        )


def check_topic_name(name: str) -> None:
    if not name or name in (".", "..") or len(name) > NAME_LENGTH_MAX or _LEGAL_NAME.match(name) is None:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, "the topic name is not legal")


def check_topic_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    known = {}
    for name, value in configs.items():
        if name not in TOPIC_DEFAULTS:
            raise Refused(Code.INVALID_CONFIG, f"unknown topic config name: {name}")
        if value is None:
            raise Refused(Code.INVALID_CONFIG, f"null value not supported for topic configs: {name}")
        known[name] = value
    return known


def java_string_hash(text: str) -> int:
    """String.hashCode of Java, by which ids are spread over the partitions of an internal topic."""
    value = 0
    units = text.encode("utf-16-be")
    for position in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[position : position + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def internal_partition(key: str, count: int) -> int:
    """Kafka's Utils.abs: the smallest integer becomes 0."""
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % count
