"""One request to one or several brokers, and the response: what is given to `AdminEngine` and comes back from it.

Whom a request is for is said by role, not by number: coordinators and leaders move, and where they are is found on the
way. `find_again` says that what is remembered of that is probably out of date.

Each request is answered exactly once. The difference that everything hangs on is between LOST (bytes may have left: the
broker may have carried it out, or may yet) and REFUSED or UNSUPPORTED (it certainly was not carried out, and repeating
it will not help).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


class RequestKey(NamedTuple):
    """Names one request of one operation; only one request with a given key is out at a time."""

    purpose: str
    number: int = 0


NO_KEY = RequestKey("")


@dataclass(frozen=True, slots=True, eq=False)
class AdminRequest:
    """`timeout_ms` is for everything: finding the broker, sending, the answer. `key` is for whoever asks."""

    target: Target
    api: Api
    body: Mapping[str, Any]
    timeout_ms: int
    version_min: int = 0
    version_max: int = VERSION_MAX
    find_again: bool = False
    key: RequestKey = NO_KEY


class ResponseKind(Enum):
    ANSWERED = "answered"
    # Disconnected, timed out, or the broker could not be found just now.
    LOST = "lost"
    # The broker does not speak this API, or none of the versions asked for.
    UNSUPPORTED = "unsupported"
    # Credentials or permissions; repeating it does not help.
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, eq=False)
class AdminResponse:
    """`bodies`: one, or one of each broker that answered (LOST if any did not). `was_sent` False: no byte of it left,
    so that it was certainly not carried out."""

    request: AdminRequest
    kind: ResponseKind
    bodies: tuple[Mapping[str, Any], ...] = ()
    error: KafkaSinkError | None = None
    was_sent: bool = True

    @property
    def key(self) -> RequestKey:
        return self.request.key


def match_responses(out: dict[RequestKey, AdminRequest], responses: Iterable[AdminResponse]) -> list[AdminResponse]:
    """Those to requests that are still `out`, which they are then no longer. A key that is used again before it was
    answered belongs to the newer request: whoever asked has given the older one up."""
    found = [response for response in responses if out.get(response.key) is response.request]
    for response in found:
        del out[response.key]
    return found


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


def select_partitions(body: Mapping[str, Any], partitions: set[tuple[str, int]]) -> Mapping[str, Any]:
    topics = []
    for topic in body["topics"]:
        own = [asked for asked in topic["partitions"] if (topic["name"], asked["partition_index"]) in partitions]
        if own:
            topics.append({**topic, "partitions": own})
    return {**body, "topics": topics}
