"""Single questions to brokers in one pure function: `step(now_ms, events, questions) -> commands, replies`.

A question names whom it is for by office: the leader of a partition, the coordinator of a transactional id, every
broker. Here the office is found, the question divided where several brokers hold it, sent over the connections that
`NodeSet` keeps, and the parts of the answer put together. All questions are on their way at the same time.

    begun -> office known -> divided into shares -> each share sent -> each share answered or lost -> one reply

Nothing that may have arrived is sent twice, and nothing waits for better times: a broker that is down, a leader that
nobody knows, a time limit that has passed make the reply LOST, and whoever asked decides whether to ask again. Only
lookups of offices, which change nothing, are repeated here.

What was found is remembered until a connection to that broker fails or a question says `find_again`. Error codes in
the answers mean nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka_sink.client.admin_request import (
    AdminRequest,
    AdminResponse,
    AllBrokers,
    AnyBroker,
    Controller,
    Coordinator,
    Coordinators,
    Leaders,
    OneBroker,
    ResponseKind,
    body_about,
    response_kind,
    topics_of,
)
from kafka_sink.client.authentication import Authenticator
from kafka_sink.client.cluster import ClusterView
from kafka_sink.client.commands import NetworkCommand, NetworkEvent
from kafka_sink.client.coordinator_lookup import CoordinatorLookup, LookupRequest
from kafka_sink.client.metadata import Metadata
from kafka_sink.client.nodes import NodeSet
from kafka_sink.client.request import Answer, Request
from kafka_sink.errors import KafkaSinkError, TransportError
from kafka_sink.options import ProducerOptions
from kafka_sink.wire.apis import FIND_COORDINATOR


class AdminStep(NamedTuple):
    commands: list[NetworkCommand]
    replies: list[AdminResponse]
    wake_at_ms: int | None


@dataclass(slots=True, eq=False)
class _PendingCall:
    """A question on its way."""

    question: AdminRequest
    begun_ms: int
    # What was known when it began. Another view is a newer one.
    begun_view: ClusterView
    # Is what was known then too old to be divided by?
    needs_news: bool = False
    # Transactional ids whose coordinator is being looked for, and those for which that failed.
    missing: set[str] = field(default_factory=set)
    failed_ids: set[str] = field(default_factory=set)
    unsent: list[_BrokerRequest] = field(default_factory=list)
    unanswered_count: int = 0
    is_divided: bool = False
    is_over: bool = False
    was_sent: bool = False
    bodies: list[Mapping[str, Any]] = field(default_factory=list)
    failures: list[tuple[ResponseKind, KafkaSinkError]] = field(default_factory=list)

    @property
    def deadline_ms(self) -> int:
        return self.begun_ms + self.question.timeout_ms

    @property
    def is_waiting_to_leave(self) -> bool:
        return not self.is_over and (not self.is_divided or bool(self.unsent))

    def fail(self, error: KafkaSinkError, *, was_sent: bool = False) -> None:
        self.failures.append((response_kind(error, was_sent=was_sent), error))

    def reply(self) -> AdminResponse:
        ending, error = min(self.failures, key=lambda pair: _GRAVITY[pair[0]], default=(ResponseKind.ANSWERED, None))
        return AdminResponse(self.question, ending, tuple(self.bodies), error, self.was_sent)


@dataclass(frozen=True, slots=True, eq=False)
class _BrokerRequest:
    """What one broker is asked. `node_id` None: whoever is free."""

    errand: _PendingCall
    node_id: int | None
    body: Mapping[str, Any]


# LOST before the others: it is the one that asking again may mend, and then the others show.
_GRAVITY = {ResponseKind.LOST: 0, ResponseKind.REFUSED: 1, ResponseKind.UNSUPPORTED: 2}


class AdminEngine:
    def __init__(
        self, options: ProducerOptions, *, jitter: Callable[[], float], authenticator: Authenticator | None = None
    ) -> None:
        self.nodes = NodeSet(options, jitter=jitter, authenticator=authenticator)
        self.metadata = Metadata(options, self.nodes, jitter=jitter)
        self._lookup = CoordinatorLookup(request_timeout_ms=options.request_timeout_ms)
        self._errands: list[_PendingCall] = []
        self._moments: list[int] = []

    @property
    def cluster(self) -> ClusterView:
        return self.metadata.view

    def step(
        self, now_ms: int, events: Sequence[NetworkEvent] = (), questions: Sequence[AdminRequest] = ()
    ) -> AdminStep:
        self._moments.clear()
        for event in events:
            self.nodes.on_input(now_ms, event)
        if self.nodes.due_ms is not None and self.nodes.due_ms <= now_ms:
            self.nodes.on_time(now_ms)
        for answer in self.nodes.take_answers():
            self._on_answer(now_ms, answer)
        for question in questions:
            self._begin(now_ms, question)
        for errand in self._errands:
            self._advance(now_ms, errand)
        self._look_up(now_ms)
        self._ask_metadata(now_ms)
        self._give_up(now_ms)
        replies = [errand.reply() for errand in self._errands if errand.is_over]
        self._errands = [errand for errand in self._errands if not errand.is_over]
        return AdminStep(self.nodes.take_commands(), replies, self._wake_at_ms(now_ms))

    def forget_questions(self) -> None:
        """Nobody waits for the replies any more. What has been sent may be carried out all the same."""
        for errand in self._errands:
            errand.is_over = True
        self._errands = []
        self._lookup.want_nothing()

    # ---- a question begins -----------------------------------------------------------------------------------------

    def _begin(self, now_ms: int, question: AdminRequest) -> None:
        errand = _PendingCall(question, now_ms, self.cluster)
        self._errands.append(errand)
        target = question.target
        if isinstance(target, (Coordinator, Coordinators)):
            for transactional_id in _ids_of(target):
                if question.find_again:
                    self._lookup.forget(transactional_id)
                if self._lookup.found(transactional_id) is None:
                    self._miss(errand, transactional_id)
            return
        for topic in topics_of(target):
            self.metadata.want_topic(topic, now_ms)
        if question.find_again:
            errand.needs_news = True
            self.metadata.request_update()
        elif isinstance(target, AllBrokers) and not self.metadata.is_just_learnt(now_ms):
            errand.needs_news = True
            self.metadata.refresh()

    def _miss(self, errand: _PendingCall, transactional_id: str) -> None:
        errand.missing.add(transactional_id)
        self._lookup.want(transactional_id)

    # ---- finding the office ----------------------------------------------------------------------------------------

    def _advance(self, now_ms: int, errand: _PendingCall) -> None:
        if not errand.is_divided:
            shares = self._divide(errand)
            if shares is not None:
                errand.is_divided = True
                errand.unsent = shares
                errand.unanswered_count = len(shares)
        errand.unsent = [share for share in errand.unsent if not self._send(now_ms, share)]
        errand.is_over = errand.is_over or (errand.is_divided and errand.unanswered_count == 0)

    def _divide(self, errand: _PendingCall) -> list[_BrokerRequest] | None:
        """None: not known yet. Parts for which nobody can be found become failures of the errand."""
        target, body = errand.question.target, errand.question.body
        if isinstance(target, AnyBroker):
            return [_BrokerRequest(errand, None, body)]
        if isinstance(target, (Coordinator, Coordinators)):
            return self._divide_by_coordinator(errand, _ids_of(target))
        if not self.cluster.brokers or (errand.needs_news and self.cluster is errand.begun_view):
            return None
        if isinstance(target, AllBrokers):
            return [_BrokerRequest(errand, node_id, body) for node_id in sorted(self.cluster.brokers)]
        if isinstance(target, Controller):
            is_known = self.cluster.controller_id in self.cluster.brokers
            return [_BrokerRequest(errand, self.cluster.controller_id if is_known else None, body)]
        if isinstance(target, OneBroker):
            if target.node_id in self.cluster.brokers:
                return [_BrokerRequest(errand, target.node_id, body)]
            return self._none_yet(errand, f"broker {target.node_id} is not part of the cluster")
        if isinstance(target, Leaders):
            return self._divide_by_leader(errand, target)
        leader = self.cluster.leader(*target)
        if leader is not None:
            return [_BrokerRequest(errand, leader, body)]
        error = self.metadata.topic_error(target.topic)
        if error is not None and self.cluster is not errand.begun_view:
            errand.fail(error)
            return []
        trouble = self.metadata.topic_trouble(target.topic)
        return self._none_yet(errand, f"{target.topic}-{target.partition} has no leader now. {trouble}".rstrip(" ."))

    def _none_yet(self, errand: _PendingCall, text: str) -> list[_BrokerRequest] | None:
        """What was known already does not answer it: that may be old. What came since is the answer."""
        if self.cluster is errand.begun_view:
            self.metadata.request_update()
            return None
        errand.fail(TransportError(text))
        return []

    def _divide_by_leader(self, errand: _PendingCall, target: Leaders) -> list[_BrokerRequest] | None:
        """A partition without a leader is a failure of the errand; the others are asked all the same."""
        leaders = {partition: self.cluster.leader(*partition) for partition in target.partitions}
        if None in leaders.values() and self.cluster is errand.begun_view:
            self.metadata.request_update()
            return None
        by_node: dict[int, set[tuple[str, int]]] = {}
        for partition, leader in leaders.items():
            if leader is None:
                errand.fail(TransportError(f"{partition[0]}-{partition[1]} has no leader now"))
            else:
                by_node.setdefault(leader, set()).add(partition)
        return [_BrokerRequest(errand, node, body_about(errand.question.body, part)) for node, part in by_node.items()]

    def _divide_by_coordinator(self, errand: _PendingCall, ids: Sequence[str]) -> list[_BrokerRequest] | None:
        by_node: dict[int, list[str]] = {}
        is_waiting = bool(errand.missing)
        for transactional_id in ids:
            found = self._lookup.found(transactional_id)
            if transactional_id in errand.missing or transactional_id in errand.failed_ids:
                continue
            if found is None:
                self._miss(errand, transactional_id)  # its broker was lost a moment ago
                is_waiting = True
            elif found.node_id in self.cluster.brokers:
                by_node.setdefault(found.node_id, []).append(transactional_id)
            elif self.cluster is found.view:
                self.metadata.request_update()  # it joined a moment ago, or is leaving
                is_waiting = True
            else:
                self._lookup.forget(transactional_id)
                errand.failed_ids.add(transactional_id)
                text = (
                    f"node {found.node_id} coordinates transactional id {transactional_id!r} and has left the cluster"
                )
                errand.fail(TransportError(text))
        if is_waiting:
            return None
        body = errand.question.body
        if isinstance(errand.question.target, Coordinator):
            return [_BrokerRequest(errand, node_id, body) for node_id in by_node]
        return [
            _BrokerRequest(errand, node_id, {**body, "transactional_ids": part}) for node_id, part in by_node.items()
        ]

    # ---- sending ---------------------------------------------------------------------------------------------------

    def _send(self, now_ms: int, share: _BrokerRequest) -> bool:
        """False: it has to wait."""
        errand, question = share.errand, share.errand.question
        node_id = self.nodes.least_loaded(now_ms) if share.node_id is None else share.node_id
        if node_id is None:
            return False
        if self._can_use(node_id, now_ms):
            request = Request(
                question.api, share.body, share, question.timeout_ms, question.version_min, question.version_max
            )
            self.nodes.send(node_id, request, now_ms)
            return True
        if share.node_id is None:
            return False
        failure = self.nodes.failure_of(node_id)
        if node_id not in self.cluster.brokers:
            failure = TransportError(f"node {node_id} has left the cluster")
        elif failure is None or self.nodes.blocked_until_ms(node_id, now_ms) is None:
            return False
        self._on_node_lost(node_id)
        errand.fail(failure)
        errand.unanswered_count -= 1
        return True

    def _look_up(self, now_ms: int) -> None:
        while self._lookup.is_wanting:
            node_id = self.nodes.least_loaded(now_ms)
            if node_id is None or not self._can_use(node_id, now_ms):
                return
            request = self._lookup.next_request(self.nodes.version_of(node_id, FIND_COORDINATOR))
            assert request is not None
            self.nodes.send(node_id, request, now_ms)

    def _ask_metadata(self, now_ms: int) -> None:
        if not self.metadata.wants_request(now_ms):
            return
        node_id = self.nodes.least_loaded(now_ms)
        if node_id is None or not self._can_use(node_id, now_ms):
            return
        request = self.metadata.next_request(now_ms)
        if request is not None:
            self.nodes.send(node_id, request, now_ms)

    def _can_use(self, node_id: int, now_ms: int) -> bool:
        """Is the node ready for a request? If not, the connection is begun, or the end of its back-off noted."""
        if self.nodes.is_ready(node_id, now_ms):
            return True
        self.nodes.connect(node_id, now_ms)
        blocked_until_ms = self.nodes.blocked_until_ms(node_id, now_ms)
        if blocked_until_ms is not None:
            self._moments.append(blocked_until_ms)
        return False

    # ---- answers ---------------------------------------------------------------------------------------------------

    def _on_answer(self, now_ms: int, answer: Answer) -> None:
        purpose = answer.request.purpose
        if isinstance(purpose, _BrokerRequest):
            self._on_share_answered(purpose, answer)
        elif isinstance(purpose, LookupRequest):
            for transactional_id, failure in self._lookup.on_answer(answer, self.cluster).items():
                self._on_looked_up(transactional_id, failure)
        else:
            self.metadata.on_answer(now_ms, answer)

    def _on_share_answered(self, share: _BrokerRequest, answer: Answer) -> None:
        errand = share.errand
        if answer.failure is not None and answer.was_sent:
            self._on_node_lost(answer.node_id)
        if errand.is_over:
            return
        errand.was_sent = errand.was_sent or answer.was_sent
        errand.unanswered_count -= 1
        if answer.body is not None:
            errand.bodies.append(answer.body)
        elif answer.failure is not None:
            errand.fail(answer.failure, was_sent=answer.was_sent)

    def _on_looked_up(self, transactional_id: str, failure: KafkaSinkError | None) -> None:
        for errand in self._errands:
            if transactional_id in errand.missing:
                errand.missing.discard(transactional_id)
                if failure is not None:
                    errand.failed_ids.add(transactional_id)
                    errand.fail(failure)

    def _on_node_lost(self, node_id: int) -> None:
        """Others may hold its offices by now."""
        self._lookup.forget_node(node_id)
        self.metadata.request_update()

    # ---- time ------------------------------------------------------------------------------------------------------

    def _give_up(self, now_ms: int) -> None:
        """What is over its time, and, while nobody at all can be reached, what has not left."""
        refusal = self.nodes.refusal
        is_alone = not self.nodes.is_any_reachable(now_ms)
        for errand in self._errands:
            is_overdue = now_ms >= errand.deadline_ms
            is_hopeless = refusal is not None or (is_alone and errand.is_waiting_to_leave)
            if errand.is_over or not (is_overdue or is_hopeless):
                continue
            name = errand.question.api.name
            within = f"within {now_ms - errand.begun_ms} ms" if is_overdue else "and no broker can be reached"
            failure = refusal or self.metadata.last_failure or self.nodes.last_failure
            if errand.unanswered_count > len(errand.unsent):
                errand.was_sent = True
                errand.fail(TransportError(f"{name} was sent but not answered {within}"))
            elif refusal is not None:
                errand.fail(refusal)
            else:
                text = f"{name} was not sent {within}"
                errand.fail(TransportError(text if failure is None else f"{text}: {failure}"))
            errand.is_over = True

    def _wake_at_ms(self, now_ms: int) -> int | None:
        moments = [self.nodes.next_deadline_ms(now_ms), self.metadata.next_deadline_ms(now_ms), *self._moments]
        moments += [errand.deadline_ms for errand in self._errands]
        return min((moment for moment in moments if moment is not None), default=None)


def _ids_of(target: Coordinator | Coordinators) -> tuple[str, ...]:
    return (target.transactional_id,) if isinstance(target, Coordinator) else target.transactional_ids
