"""What the driver's machine asks for, and what it hears back. Who connects to whom is the caller's business.

A request names its target by office, not by node: the caller finds the coordinator or leader, negotiates versions and
sends. `find_again` says that whatever the caller remembers about that office is probably out of date.

Each request is answered exactly once, by a `DriverAnswer` with the same `key`. The difference that everything hangs on
is between LOST (bytes may have left: the broker may have carried it out, or may yet) and REFUSED or UNSUPPORTED (it
certainly was not carried out and repeating it will not help).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from kafka_sink.errors import KafkaSinkError
from kafka_sink.frozen import frozen
from kafka_sink.wire.apis import Api


class CoordinatorOf(NamedTuple):
    """The coordinator of one transactional id."""

    transactional_id: str


class CoordinatorsOf(NamedTuple):
    """The coordinators of many ids: the caller groups the ids by coordinator and sends each its own share.

    The body holds the ids under `transactional_ids`; each share is the same body with fewer of them.
    """

    transactional_ids: tuple[str, ...]


class LeaderOf(NamedTuple):
    topic: str
    partition: int


class LeadersOf(NamedTuple):
    """The leaders of many partitions: the caller groups them by leader and sends each its own share.

    The body holds the partitions under `topics`, by name and `partition_index`; each share has fewer of them.
    """

    partitions: tuple[tuple[str, int], ...]


class EveryBroker(NamedTuple):
    """All brokers that the cluster knows of. If one cannot be reached the answer is LOST, with the other bodies."""


Target = CoordinatorOf | CoordinatorsOf | LeaderOf | LeadersOf | EveryBroker


class RequestKey(NamedTuple):
    """Names one question of one operation; only one request with a given key is out at a time."""

    purpose: str
    number: int = 0


@frozen
class DriverRequest:
    key: RequestKey
    target: Target
    api: Api
    body: Mapping[str, Any]
    version_min: int
    version_max: int
    timeout_ms: int
    find_again: bool = False


class AnswerStatus(Enum):
    ANSWERED = "answered"
    # Disconnected, timed out, or the target could not be found just now.
    LOST = "lost"
    # The broker does not speak this API, or none of the versions asked for.
    UNSUPPORTED = "unsupported"
    # Credentials or permissions; repeating it does not help.
    REFUSED = "refused"


@frozen
class DriverAnswer:
    """`bodies`: one, or one per broker that answered for CoordinatorsOf, LeadersOf and EveryBroker (LOST if any did
    not)."""

    key: RequestKey
    fate: AnswerStatus
    bodies: tuple[Mapping[str, Any], ...] = ()
    error: KafkaSinkError | None = None
