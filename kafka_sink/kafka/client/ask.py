"""Something that a commit, planning or a command wants to know or done: one object from the question to the answer.

Its owner makes an `Ask` and keeps it while it is repeated. The engine divides it into one `AskPart` per broker, and
ends each try with one `Reply`. The owner decides if there is another try: the same object, with one more failure.

The destination is given by role, not by broker id: coordinators and leaders move, and are looked up when it is sent.
`find_again` says that the cached broker is probably out of date.

What a failure means is the kind of the reply. The important distinction is between LOST (the broker may have carried it
out, or may do so later) and the others, which were certainly not carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.request import VERSION_MAX
from kafka_sink.kafka.wire.apis import Api
from kafka_sink.kafka.wire.codes import UNSUPPORTED_VERSION


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


class Repeat(Enum):
    """When a request without an answer may be sent again."""

    NEVER = "never"
    UNSENT = "while no byte of it was sent"
    # It changes nothing, or brokers recognise the identical request, as EndTxn by producer id and epoch.
    ALWAYS = "always"


class ReplyKind(Enum):
    ANSWERED = "answered"
    # Disconnected or timed out before any byte was sent, or the broker could not be found.
    NOT_SENT = "not sent"
    # Sent, and not answered.
    LOST = "lost"
    # Credentials or permissions; a retry does not help.
    REFUSED = "refused"
    # Nor does it here: the broker does not support this API, or none of the requested versions.
    UNSUPPORTED = "unsupported"
    # Not sent: one of the partitions that must have a leader has none.
    LEADERLESS = "leaderless"

    @property
    def is_unanswered(self) -> bool:
        """The next try may be answered, and only the owner knows if there may be one (`Ask.may_repeat`)."""
        return self in (ReplyKind.NOT_SENT, ReplyKind.LOST)


@dataclass(slots=True, eq=False)
class Ask:
    """`purpose` and `number` are for the owner, who has one ask of each at a time. `timeout_ms` is for one try: finding
    the broker, sending, the answer.

    It is not sent if one of `led_partitions` has no leader, according to metadata that is new or was just received.
    With `are_leaders_known`, only further tries look at them.
    """

    target: Target
    api: Api
    body: Mapping[str, Any]
    purpose: str = ""
    number: int = 0
    timeout_ms: int = 0
    version_min: int = 0
    version_max: int = VERSION_MAX
    led_partitions: tuple[tuple[str, int], ...] = ()
    are_leaders_known: bool = False
    repeat: Repeat = Repeat.ALWAYS
    # Of its owner: tries that failed, when the next one is due, whether one is under way.
    failures: int = 0
    due_ms: int = 0
    is_out: bool = False
    find_again: bool = False
    # Of the engine, about the current try. `first_refresh`: of the metadata, the first one requested after it began.
    begun_ms: int = 0
    first_refresh: int = 0
    # Whether the view from before that is too old to divide by.
    needs_news: bool = False
    # Transactional ids whose coordinator is being looked up, and those whose lookup failed.
    missing: set[str] = field(default_factory=set)
    failed_ids: set[str] = field(default_factory=set)
    # None: not divided yet. A part of an earlier try is not among them, so its late answer counts for nothing.
    parts: list[AskPart] | None = None
    # Of no part: no broker was found for some part, or time was up.
    obstacles: list[Failure] = field(default_factory=list)
    is_given_up: bool = False
    # Credentials or certificates were refused: this client tries no broker any more.
    is_hopeless: bool = False

    # ---- for its owner ----

    @property
    def led_now(self) -> tuple[tuple[str, int], ...]:
        return () if self.are_leaders_known and not self.failures else self.led_partitions

    def may_repeat(self, kind: ReplyKind) -> bool:
        if kind is ReplyKind.NOT_SENT:
            return self.repeat is not Repeat.NEVER
        return kind is ReplyKind.LOST and self.repeat is Repeat.ALWAYS

    def again(self, due_ms: int, *, find_again: bool) -> None:
        """One more try. What is sent is the same, unless the owner narrows it to what is still unknown."""
        self.failures += 1
        self.due_ms = due_ms
        self.find_again = find_again

    # ---- for the engine ----

    def begin(self, now_ms: int, first_refresh: int) -> None:
        self.begun_ms, self.first_refresh = now_ms, first_refresh
        self.needs_news = self.is_given_up = self.is_hopeless = False
        self.missing, self.failed_ids, self.parts, self.obstacles = set(), set(), None, []

    @property
    def deadline_ms(self) -> int:
        return self.begun_ms + self.timeout_ms

    @property
    def is_over(self) -> bool:
        return self.is_given_up or (self.parts is not None and all(part.is_over for part in self.parts))

    @property
    def unsent(self) -> list[AskPart]:
        return [part for part in self.parts or () if not part.is_sent and not part.is_over]

    @property
    def awaits_answer(self) -> bool:
        return any(part.is_sent and not part.is_over for part in self.parts or ())

    def fail(self, error: KafkaSinkError, kind: ReplyKind | None = None) -> None:
        self.obstacles.append(Failure(kind or failure_kind(error, was_sent=False), error))

    def reply(self) -> Reply:
        parts = self.parts or ()
        bodies = tuple(part.answer for part in parts if part.answer is not None)
        failures = [*self.obstacles, *(part.failure for part in parts if part.failure is not None)]
        if not failures:
            return Reply(self, ReplyKind.ANSWERED, bodies)
        kind, error = min(failures, key=lambda one: _GRAVITY.index(one.kind))
        if kind is ReplyKind.NOT_SENT and any(part.is_sent for part in parts):
            kind = ReplyKind.LOST  # some brokers have their part
        return Reply(self, kind, bodies, error)


@dataclass(slots=True, eq=False)
class AskPart:
    """What one broker is asked in one try. `node_id` None: any broker."""

    ask: Ask
    node_id: int | None
    body: Mapping[str, Any]
    is_sent: bool = False
    answer: Mapping[str, Any] | None = None
    failure: Failure | None = None

    @property
    def is_over(self) -> bool:
        return self.answer is not None or self.failure is not None


class Failure(NamedTuple):
    kind: ReplyKind
    error: KafkaSinkError


@frozen
class Reply:
    """The end of one try. `bodies`: one, or one of each broker that answered (LOST if any did not)."""

    ask: Ask
    kind: ReplyKind
    bodies: tuple[Mapping[str, Any], ...] = ()
    error: KafkaSinkError | None = None


# Which failure of several is reported. The first two take precedence: a retry may fix it, and then the others are
# reported.
_GRAVITY = (
    ReplyKind.LOST,
    ReplyKind.NOT_SENT,
    ReplyKind.REFUSED,
    ReplyKind.UNSUPPORTED,
    ReplyKind.LEADERLESS,
)


def failure_kind(error: KafkaSinkError, *, was_sent: bool) -> ReplyKind:
    """What a failure means for the owner. Once bytes were sent it is always LOST."""
    if was_sent:
        return ReplyKind.LOST
    if isinstance(error, (AuthenticationError, AuthorizationError, ConfigError)):
        return ReplyKind.REFUSED
    is_unsupported = isinstance(error, BrokerError) and error.code == UNSUPPORTED_VERSION
    # A field that must not be dropped does not exist in the broker's version.
    return ReplyKind.UNSUPPORTED if is_unsupported or isinstance(error, LocalProtocolError) else ReplyKind.NOT_SENT
