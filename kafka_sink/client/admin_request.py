"""One request to one or several brokers, and the response: what is given to `AdminEngine` and comes back from it.

Whom a question is for is said by office, not by number: coordinators and leaders move, and where they are is found on
the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from kafka_sink.client.connection import UNSUPPORTED_VERSION
from kafka_sink.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ConfigError,
    KafkaSinkError,
    LocalProtocolError,
)
from kafka_sink.wire.apis import Api

VERSION_MAX = 32_767


class Coordinator(NamedTuple):
    transactional_id: str


class Coordinators(NamedTuple):
    """Each gets the body with its own ids only, under `transactional_ids`."""

    transactional_ids: tuple[str, ...]


class Leader(NamedTuple):
    topic: str
    partition: int


class Leaders(NamedTuple):
    """Each gets the body with its own partitions only, by topic name and `partition_index` under `topics`."""

    partitions: tuple[tuple[str, int], ...]


class AllBrokers(NamedTuple):
    """All that the cluster knows of when asked anew: one that joined a moment ago must not be left out."""


class AnyBroker(NamedTuple):
    pass


class OneBroker(NamedTuple):
    node_id: int


class Controller(NamedTuple):
    """With KRaft any broker does, and Metadata names one at random; with ZooKeeper it must be this one."""


Target = Coordinator | Coordinators | Leader | Leaders | AllBrokers | AnyBroker | OneBroker | Controller


@dataclass(frozen=True, slots=True, eq=False)
class AdminRequest:
    """`timeout_ms` is for everything: finding the office, sending, the answer."""

    target: Target
    api: Api
    body: Mapping[str, Any]
    timeout_ms: int
    version_min: int = 0
    version_max: int = VERSION_MAX
    find_again: bool = False


class ResponseKind(Enum):
    ANSWERED = "answered"
    LOST = "lost"
    UNSUPPORTED = "unsupported"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, eq=False)
class AdminResponse:
    """Exactly one per question. `was_sent` False: no byte of it left, so that it was certainly not carried out."""

    question: AdminRequest
    ending: ResponseKind
    bodies: tuple[Mapping[str, Any], ...]
    error: KafkaSinkError | None
    was_sent: bool


def response_kind(error: KafkaSinkError, *, was_sent: bool) -> ResponseKind:
    """What a failure means for whoever asked. Once bytes have left there is but one answer."""
    if was_sent:
        return ResponseKind.LOST
    if isinstance(error, (AuthenticationError, AuthorizationError, ConfigError)):
        return ResponseKind.REFUSED
    is_unsupported = isinstance(error, BrokerError) and error.code == UNSUPPORTED_VERSION
    # A field that matters has no place in the version that the broker speaks.
    return ResponseKind.UNSUPPORTED if is_unsupported or isinstance(error, LocalProtocolError) else ResponseKind.LOST


def topics_of(target: Target) -> set[str]:
    if isinstance(target, Leader):
        return {target.topic}
    return {topic for topic, _ in target.partitions} if isinstance(target, Leaders) else set()


def body_about(body: Mapping[str, Any], partitions: set[tuple[str, int]]) -> Mapping[str, Any]:
    topics = []
    for topic in body["topics"]:
        own = [asked for asked in topic["partitions"] if (topic["name"], asked["partition_index"]) in partitions]
        if own:
            topics.append({**topic, "partitions": own})
    return {**body, "topics": topics}
