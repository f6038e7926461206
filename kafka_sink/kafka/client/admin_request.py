"""One request to one or several brokers, and the response: input and output of `AdminEngine`.

The destination is given by role, not by broker id: coordinators and leaders move, and are looked up when the request is
sent. `find_again` says that the cached broker is probably out of date.

Each request is answered exactly once. The important distinction is between LOST (bytes may have been sent: the broker
may have carried it out, or may do so later) and the others (certainly not carried out; for REFUSED or UNSUPPORTED a
retry will not help).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from kafka_sink.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ConfigError,
    KafkaSinkError,
    LocalProtocolError,
)
from kafka_sink.kafka.client.connection import UNSUPPORTED_VERSION
from kafka_sink.kafka.client.request import VERSION_MAX
from kafka_sink.kafka.wire.apis import Api


class Coordinator(NamedTuple):
    transactional_id: str


class Coordinators(NamedTuple):
    """Each coordinator gets the body with its own ids only, under `transactional_ids`."""

    transactional_ids: tuple[str, ...]


class Leader(NamedTuple):
    topic: str
    partition: int


class Leaders(NamedTuple):
    """Each leader gets the body with its own partitions only, by topic name under `topics`: as `partitions` with a
    `partition_index` each, or as `partition_indexes`."""

    partitions: tuple[tuple[str, int], ...]


class AllBrokers(NamedTuple):
    """All brokers of fresh metadata: one that has just joined must not be left out."""


class AnyBroker(NamedTuple):
    pass


class OneBroker(NamedTuple):
    node_id: int


class Controller(NamedTuple):
    """With KRaft any broker will do, and Metadata returns a random one; with ZooKeeper it is the controller."""


Target = Coordinator | Coordinators | Leader | Leaders | AllBrokers | AnyBroker | OneBroker | Controller


class RequestKey(NamedTuple):
    """Identifies a request of an operation; only one request with a given key is in flight at a time."""

    purpose: str
    number: int = 0


NO_KEY = RequestKey("")


@dataclass(frozen=True, slots=True, eq=False)
class AdminRequest:
    """`timeout_ms` covers everything: finding the broker, sending, the response. `key` is for the caller.

    It is not sent if one of `led_partitions` has no leader, according to metadata that is new or was just received.
    """

    target: Target
    api: Api
    body: Mapping[str, Any]
    timeout_ms: int
    version_min: int = 0
    version_max: int = VERSION_MAX
    find_again: bool = False
    key: RequestKey = NO_KEY
    led_partitions: tuple[tuple[str, int], ...] = ()


class ResponseKind(Enum):
    ANSWERED = "answered"
    # Disconnected, timed out, or the broker could not be found.
    LOST = "lost"
    # The broker does not support this API, or none of the requested versions.
    UNSUPPORTED = "unsupported"
    # Credentials or permissions; a retry does not help.
    REFUSED = "refused"
    # Not sent: one of the partitions that must have a leader has none.
    LEADERLESS = "leaderless"


@dataclass(frozen=True, slots=True, eq=False)
class AdminResponse:
    """`bodies`: one, or one of each broker that answered (LOST if any did not). `was_sent` False: no byte was sent, so
    it was certainly not carried out."""

    request: AdminRequest
    kind: ResponseKind
    bodies: tuple[Mapping[str, Any], ...] = ()
    error: KafkaSinkError | None = None
    was_sent: bool = True

    @property
    def key(self) -> RequestKey:
        return self.request.key


def match_responses(out: dict[RequestKey, AdminRequest], responses: Iterable[AdminResponse]) -> list[AdminResponse]:
    """Returns the responses to requests in `out` and removes these. A key that is reused before a response belongs to
    the newer request: the caller has given up the older one."""
    found = [response for response in responses if out.get(response.key) is response.request]
    for response in found:
        del out[response.key]
    return found


def response_kind(error: KafkaSinkError, *, was_sent: bool) -> ResponseKind:
    """What a failure means for the caller. Once bytes were sent it is always LOST."""
    if was_sent:
        return ResponseKind.LOST
    if isinstance(error, (AuthenticationError, AuthorizationError, ConfigError)):
        return ResponseKind.REFUSED
    is_unsupported = isinstance(error, BrokerError) and error.code == UNSUPPORTED_VERSION
    # A field that must not be dropped does not exist in the broker's version.
    return ResponseKind.UNSUPPORTED if is_unsupported or isinstance(error, LocalProtocolError) else ResponseKind.LOST


def topics_of(target: Target) -> set[str]:
    if isinstance(target, Leader):
        return {target.topic}
    return {topic for topic, _ in target.partitions} if isinstance(target, Leaders) else set()


def select_partitions(body: Mapping[str, Any], partitions: set[tuple[str, int]]) -> Mapping[str, Any]:
    topics = []
    for topic in body["topics"]:
        name = topic["name"]
        if "partition_indexes" in topic:
            own = {"partition_indexes": [one for one in topic["partition_indexes"] if (name, one) in partitions]}
        else:
            own = {"partitions": [one for one in topic["partitions"] if (name, one["partition_index"]) in partitions]}
        if any(own.values()):
            topics.append({**topic, **own})
    return {**body, "topics": topics}
