"""Configuration of the embedded cluster: broker properties with Kafka's names, and the model's own delays.

`properties` are those of Kafka's server.properties that the model implements; every other name is refused, so that no
option is silently without effect. The defaults are those of Kafka 4.3, with few internal partitions, no initial
rebalance delay, a new segment for every batch (`log.roll.ms` 0) and all mechanisms of Apache Kafka enabled.

Kafka does many things with a delay (markers, replication, loading of a coordinator). `delay_ms(what)` returns the
delays, and `chance(what)` the few random choices: constants by default, seeded functions in a simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafka_sink.errors import ConfigError
from kafka_sink.testing.credentials import MECHANISMS, MECHANISMS_ON_DEMAND
from kafka_sink.testing.quirks import NONE, QUIRKS, Quirks

LONG_MAX = (1 << 63) - 1
RELEASES = ("4.3", "3.9")

DEFAULTS: Mapping[str, str] = {
    "auto.create.topics.enable": "true",
    "num.partitions": "1",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "message.max.bytes": "1048588",
    "socket.request.max.bytes": "104857600",
    "fetch.max.bytes": "57671680",
    # Stored and returned only: without an in-sync replica a partition never has a leader here, and nothing ages.
    "unclean.leader.election.enable": "false",
    "log.retention.ms": "604800000",
    "log.segment.bytes": "1073741824",
    "log.retention.bytes": "-1",
    "log.cleanup.policy": "delete",
    "log.message.timestamp.type": "CreateTime",
    "log.message.timestamp.after.max.ms": "3600000",
    "log.message.timestamp.before.max.ms": str(LONG_MAX),
    "log.roll.ms": "0",
    "log.cleaner.backoff.ms": "15000",
    "log.cleaner.delete.retention.ms": "86400000",
    "log.cleaner.min.cleanable.ratio": "0.5",
    "log.cleaner.min.compaction.lag.ms": "0",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "sasl.server.max.receive.size": "524288",
    "connections.max.reauth.ms": "0",
    "connection.failed.authentication.delay.ms": "100",
    "super.users": "",
    "request.timeout.ms": "30000",
    "offset.metadata.max.bytes": "4096",
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
    "transaction.version": "2",
    "transaction.state.log.num.partitions": "5",
    "transaction.max.timeout.ms": "900000",
    "transactional.id.expiration.ms": "604800000",
    "producer.id.expiration.ms": "86400000",
    "producer.id.expiration.check.interval.ms": "600000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "3600000",
    "transaction.partition.verification.enable": "true",
    "add.partitions.to.txn.retry.backoff.ms": "20",
    "add.partitions.to.txn.retry.backoff.max.ms": "100",
}

# Topic configuration -> the broker property that gives its default.
TOPIC_DEFAULTS: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

_CHOICES: Mapping[str, frozenset[str]] = {
    "log.cleanup.policy": frozenset({"compact", "delete"}),
    "log.message.timestamp.type": frozenset({"CreateTime", "LogAppendTime"}),
}

# One millisecond for markers: Kafka writes them after it has answered EndTxn, so CONCURRENT_TRANSACTIONS must appear.
DEFAULT_DELAYS_MS: Mapping[str, int] = {"marker": 1}


def is_valid(name: str, value: str) -> bool:
    """Whether a property can have this value. Its default shows the type: a number, true or false, or a text."""
    default = DEFAULTS[name]
    if name in _CHOICES:
        return _CHOICES[name].issuperset(value.replace(" ", "").split(","))
    if default in ("true", "false"):
        return value.lower() in ("true", "false")
    try:
        if default.lstrip("-").isdecimal():
            int(value)
        elif name == "log.cleaner.min.cleanable.ratio":
            float(value)
    except ValueError:
        return False
    return True


def default_delay_ms(what: str) -> int:
    return DEFAULT_DELAYS_MS.get(what, 0)


def always(_what: str) -> bool:
    return True


def no_randomness(count: int) -> bytes:
    """The core is deterministic unless it is given a random source; the server passes the system's."""
    return bytes(range(count))


@dataclass(frozen=True, slots=True)
class Settings:
    """`release` is the Kafka release whose API versions are supported; 3.9 has no transactions of version 2. `quirks`
    names a service to imitate; an explicit property overrides it.

    Arguments of `delay_ms`: transaction_log, marker, marker_retry, replication, coordinator_load, metadata.

    Argument of `chance`: transaction_log_survives (a record was being written when its coordinator moved).

    `random_bytes(count)` makes the salts of passwords and the nonces of SCRAM.

    `forgets_leaderless`: the coordinator drops the marker of a partition without a leader (KAFKA-20734). None: as the
    release does; 4.3 drops it, 3.9 waits for the leader.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    release: str = RELEASES[0]
    delay_ms: Callable[[str], int] = default_delay_ms
    chance: Callable[[str], bool] = always
    random_bytes: Callable[[int], bytes] = no_randomness
    quirks: str = ""
    forgets_leaderless: bool | None = None

    def __post_init__(self) -> None:
        if self.quirks and self.quirks not in QUIRKS:
            raise ConfigError(f"the embedded broker knows the quirks of {', '.join(QUIRKS)}, not of {self.quirks!r}")
        if self.quirk.release:
            object.__setattr__(self, "release", self.quirk.release)
        for name, value in self.properties.items():
            if name not in DEFAULTS:
                raise ConfigError(f"the embedded broker does not model the property {name!r}")
            if not is_valid(name, str(value)):
                raise ConfigError(f"the embedded broker's property {name!r} cannot be {value!r}")
        for mechanism in self.names("sasl.enabled.mechanisms"):
            if mechanism not in (known := (*MECHANISMS, *MECHANISMS_ON_DEMAND)):
                raise ConfigError(f"the embedded broker knows {', '.join(known)}, not {mechanism!r}")
        if self.release not in RELEASES:
            raise ConfigError(f"the embedded broker knows the releases {', '.join(RELEASES)}, not {self.release!r}")

    @property
    def quirk(self) -> Quirks:
        return QUIRKS.get(self.quirks, NONE)

    @property
    def drops_leaderless_markers(self) -> bool:
        return self.release != "3.9" if self.forgets_leaderless is None else self.forgets_leaderless

    def text(self, name: str) -> str:
        if name == "transaction.version" and self.release == "3.9":
            return "0"
        return str(self.properties.get(name, self.quirk.properties.get(name, DEFAULTS[name])))

    def number(self, name: str) -> int:
        return int(self.text(name))

    def names(self, name: str, separator: str = ",") -> list[str]:
        return [one.strip() for one in self.text(name).split(separator) if one.strip()]

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's own settings, with the brokers' defaults."""

    settings: Settings
    own: dict[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return self.own.get(name, self.settings.text(TOPIC_DEFAULTS[name]))

    def number(self, name: str) -> int:
        return int(self.text(name))

    def has_policy(self, policy: str) -> bool:
        return policy in self.text("cleanup.policy").replace(" ", "").split(",")
