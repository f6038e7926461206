"""Admin requests to brokers as one pure function: `step(now_ms, events, requests) -> commands, responses`.

A request names its destination by role: the leader of a partition, the coordinator of a transactional id, every broker.
This finds the brokers, splits the request if there are several, sends the parts over the connections of `NodeSet`, and
merges the responses. All requests are in flight at the same time. Many EndTxn requests use several connections to a
coordinator, because a broker processes the requests of one connection one by one.

    begun -> brokers known -> split -> each part sent -> each part answered or lost -> one response

A request that may have arrived is never resent, and none waits for the cluster to recover: if a broker is down, a
leader unknown, or the time limit has passed, the response is LOST, and the caller decides whether to retry. Only
lookups, which change nothing, are retried here. A request with `led_partitions` is not sent while one of them has no
leader: the response is LEADERLESS.

Brokers found are cached until a connection to the broker fails or a request says `find_again`. Error codes in responses
are not interpreted here.

A caller that knows its next requests can announce them (`look_ahead`). Their leaders and coordinators are then looked
up together, and all brokers are connected, while the first request is in flight. Otherwise each new broker would cost a
remote client several round trips in the middle of a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka_sink.errors import KafkaSinkError, TransportError
from kafka_sink.errors.table.brokers import TOPIC_UNKNOWN
from kafka_sink.kafka.client.admin_request import (
    AdminRequest,
    AdminResponse,
    AllBrokers,
    AnyBroker,
    Controller,
    Coordinator,
    Coordinators,
    Leader,
    Leaders,
    OneBroker,
    ResponseKind,
    response_kind,
    select_partitions,
    topics_of,
)
from kafka_sink.kafka.client.authentication import Authenticator
from kafka_sink.kafka.client.cluster import ClusterView
from kafka_sink.kafka.client.commands import NetworkCommand, NetworkEvent
from kafka_sink.kafka.client.coordinator_lookup import CoordinatorLookup, LookupRequest
from kafka_sink.kafka.client.metadata import Metadata
from kafka_sink.kafka.client.node import broker_of
from kafka_sink.kafka.client.nodes import NodeSet
from kafka_sink.kafka.client.request import Answer, Request
from kafka_sink.kafka.wire.apis import END_TXN, FIND_COORDINATOR
from kafka_sink.options import ProducerOptions

# Per connection: one is processed while the next ones are already there. More are better sent on another connection.
ENDS_IN_FLIGHT = 4


class AdminStep(NamedTuple):
    commands: list[NetworkCommand]
    responses: list[AdminResponse]
    wake_at_ms: int | None


@dataclass(slots=True, eq=False)
class _PendingCall:
    """A request in progress."""

    request: AdminRequest
    begun_ms: int
    # The first refresh of the metadata that was requested after it began.
    first_refresh: int
    # Whether the view from before that is too old to split by.
    needs_news: bool = False
    # Transactional ids whose coordinator is being looked up, and those whose lookup failed.
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
        return self.begun_ms + self.request.timeout_ms

    def fail(self, error: KafkaSinkError, *, was_sent: bool = False, kind: ResponseKind | None = None) -> None:
        self.failures.append((kind or response_kind(error, was_sent=was_sent), error))

    def response(self) -> AdminResponse:
        kind, error = min(self.failures, key=lambda one: _GRAVITY.index(one[0]), default=(ResponseKind.ANSWERED, None))
        return AdminResponse(self.request, kind, tuple(self.bodies), error, self.was_sent)


@dataclass(frozen=True, slots=True, eq=False)
class _BrokerRequest:
    """The request to one broker. `node_id` None: any broker."""

    call: _PendingCall
    node_id: int | None
    body: Mapping[str, Any]


# Which failure of several is reported. LOST takes precedence: a retry may fix it, and then the others are reported.
_GRAVITY = (ResponseKind.LOST, ResponseKind.REFUSED, ResponseKind.UNSUPPORTED, ResponseKind.LEADERLESS)


class AdminEngine:
    def __init__(
        self,
        options: ProducerOptions,
        *,
        jitter: Callable[[], float],
        authenticator: Authenticator | None = None,
        ends_in_flight: int = ENDS_IN_FLIGHT,
    ) -> None:
        self._ends_in_flight = ends_in_flight
        self.nodes = NodeSet(options, jitter=jitter, authenticator=authenticator)
        self.metadata = Metadata(options, self.nodes, jitter=jitter)
        self._lookup = CoordinatorLookup(request_timeout_ms=options.request_timeout_ms)
        self._calls: list[_PendingCall] = []
        # Whether to connect to every broker as soon as the brokers are known.
        self._is_looking_ahead = False

    @property
    def cluster(self) -> ClusterView:
        return self.metadata.view

    def step(
        self, now_ms: int, events: Sequence[NetworkEvent] = (), requests: Sequence[AdminRequest] = ()
    ) -> AdminStep:
        self.nodes.moments.clear()
        for event in events:
            self.nodes.on_input(now_ms, event)
        if self.nodes.due_ms is not None and self.nodes.due_ms <= now_ms:
            self.nodes.on_time(now_ms)
        for answer in self.nodes.take_answers():
            self._on_answer(now_ms, answer)
        for request in requests:
            self._begin(now_ms, request)
        for call in self._calls:
            self._advance(now_ms, call)
        self._look_up(now_ms)
        self.metadata.ask(now_ms)
        self._connect_ahead(now_ms)
        self._give_up(now_ms)
        responses = [call.response() for call in self._calls if call.is_over]
        self._calls = [call for call in self._calls if not call.is_over]
        return AdminStep(self.nodes.take_commands(), responses, self._wake_at_ms(now_ms))

    def forget_requests(self) -> None:
        """The callers have given up. Requests that were sent may still be carried out."""
        self._calls = []
        self._lookup.queued.clear()
        self._is_looking_ahead = False

    def look_ahead(self, now_ms: int, topics: Collection[str], transactional_ids: Collection[str]) -> None:
        """Prepares an operation that sends requests to the leaders of these topics, the coordinators of these ids, and
        every broker. A failed lookup is not an error here: the request that needs the result repeats it."""
        self.metadata.forget_topics(topics)
        for topic in topics:
            self.metadata.want_topic(topic, now_ms)
        self._lookup.forget_others(transactional_ids)
        for transactional_id in transactional_ids:
            if self._lookup.get(transactional_id) is None:
                self._lookup.enqueue(transactional_id)
        self._is_looking_ahead = True

    # ---- new requests ---------------------------------------------------------------------------------------------

    def _begin(self, now_ms: int, request: AdminRequest) -> None:
        call = _PendingCall(request, now_ms, self.metadata.next_number)
        self._calls.append(call)
        target = request.target
        led_topics = _led_topics(request)
        is_known = led_topics <= self.cluster.topics.keys() and self.metadata.is_just_learnt(now_ms)
        for topic in led_topics | topics_of(target):
            self.metadata.want_topic(topic, now_ms)
        if (led_topics or isinstance(target, AllBrokers)) and not is_known:
            call.needs_news = True
            self.metadata.request_news()
        if isinstance(target, (Coordinator, Coordinators)):
            for transactional_id in _ids_of(target):
                if request.find_again:
                    self._lookup.forget(transactional_id)
                if self._lookup.get(transactional_id) is None:
                    self._enqueue_lookup(call, transactional_id)
        elif request.find_again:
            call.needs_news = True
            self.metadata.request_news()

    def _enqueue_lookup(self, call: _PendingCall, transactional_id: str) -> None:
        call.missing.add(transactional_id)
        self._lookup.enqueue(transactional_id)

    # ---- finding the broker ----------------------------------------------------------------------------------------

    def _advance(self, now_ms: int, call: _PendingCall) -> None:
        if not call.is_divided:
            parts = self._divide(call)
            if parts is not None:
                call.is_divided = True
                call.unsent = parts
                call.unanswered_count = len(parts)
        call.unsent = [part for part in call.unsent if not self._send(now_ms, part)]
        call.is_over = call.is_divided and call.unanswered_count == 0

    def _divide(self, call: _PendingCall) -> list[_BrokerRequest] | None:
        """None: not known yet. Parts without a broker become failures of the call."""
        target, body = call.request.target, call.request.body
        if call.request.led_partitions:
            if self._waits_for_news(call):
                return None
            leaderless = [one for one in call.request.led_partitions if self.cluster.is_leaderless(*one)]
            if leaderless:
                text = f"{leaderless[0][0]}-{leaderless[0][1]} has no leader now"
                call.fail(TransportError(text), kind=ResponseKind.LEADERLESS)
                return []
        if isinstance(target, AnyBroker):
            return [_BrokerRequest(call, None, body)]
        if isinstance(target, (Coordinator, Coordinators)):
            return self._divide_by_coordinator(call, _ids_of(target))
        if not self.cluster.brokers or self._waits_for_news(call):
            return None
        if isinstance(target, AllBrokers):
            return [_BrokerRequest(call, node_id, body) for node_id in sorted(self.cluster.brokers)]
        if isinstance(target, Controller):
            is_known = self.cluster.controller_id in self.cluster.brokers
            return [_BrokerRequest(call, self.cluster.controller_id if is_known else None, body)]
        if not isinstance(target, OneBroker):
            return self._divide_by_leader(call, target.partitions if isinstance(target, Leaders) else (target,))
        if target.node_id in self.cluster.brokers:
            return [_BrokerRequest(call, target.node_id, body)]
        if self._is_of_before(call):
            return None
        call.fail(TransportError(f"broker {target.node_id} is not part of the cluster"))
        return []

    def _waits_for_news(self, call: _PendingCall) -> bool:
        return call.needs_news and not self.metadata.has_answered(call.first_refresh)

    def _is_of_before(self, call: _PendingCall) -> bool:
        """That something is missing in data requested before the call is no answer: it is requested again."""
        is_of_before = not self.metadata.has_answered(call.first_refresh)
        if is_of_before:
            self.metadata.request_update()
        return is_of_before

    def _divide_by_leader(
        self, call: _PendingCall, partitions: Iterable[tuple[str, int]]
    ) -> list[_BrokerRequest] | None:
        """A partition without a leader is a failure of the call; the other partitions are still requested."""
        leaders = {partition: self.cluster.leader(*partition) for partition in partitions}
        if None in leaders.values() and self._is_of_before(call):
            return None
        is_single = isinstance(call.request.target, Leader)
        by_node: dict[int, set[tuple[str, int]]] = {}
        for partition, leader in leaders.items():
            if leader is None:
                topic, number = partition
                text = f"{topic}-{number} has no leader now. {self.metadata.topic_trouble(topic)}".rstrip(" .")
                entry = TOPIC_UNKNOWN if self.metadata.is_unknown(topic) else None
                # Of several topics one that may not be described does not refuse the others.
                refusal = self.metadata.topic_error(topic) if is_single else None
                call.fail(refusal or TransportError(text, entry))
            else:
                by_node.setdefault(leader, set()).add(partition)
        body = call.request.body
        if is_single:
            return [_BrokerRequest(call, node, body) for node in by_node]
        return [_BrokerRequest(call, node, select_partitions(body, part)) for node, part in by_node.items()]

    def _divide_by_coordinator(self, call: _PendingCall, ids: Sequence[str]) -> list[_BrokerRequest] | None:
        by_node: dict[int, list[str]] = {}
        is_waiting = bool(call.missing)
        for transactional_id in ids:
            found = self._lookup.get(transactional_id)
            if transactional_id in call.missing or transactional_id in call.failed_ids:
                continue
            if found is None:
                self._enqueue_lookup(call, transactional_id)  # its broker was just lost
                is_waiting = True
            elif found.node_id in self.cluster.brokers:
                by_node.setdefault(found.node_id, []).append(transactional_id)
            elif not self.metadata.has_answered(found.first_refresh):
                self.metadata.request_update()  # it has just joined, or is leaving
                is_waiting = True
            else:
                self._lookup.forget(transactional_id)
                call.failed_ids.add(transactional_id)
                text = (
                    f"node {found.node_id} coordinates transactional id {transactional_id!r} and has left the cluster"
                )
                call.fail(TransportError(text))
        if is_waiting:
            return None
        body = call.request.body
        if isinstance(call.request.target, Coordinator):
            return [_BrokerRequest(call, node_id, body) for node_id in by_node]
        return [_BrokerRequest(call, node_id, {**body, "transactional_ids": part}) for node_id, part in by_node.items()]

    # ---- sending ---------------------------------------------------------------------------------------------------

    def _send(self, now_ms: int, part: _BrokerRequest) -> bool:
        """False: it must wait."""
        call, asked = part.call, part.call.request
        node_id = self.nodes.least_loaded(now_ms) if part.node_id is None else part.node_id
        if node_id is None:
            return False
        if self.nodes.is_ready(node_id, now_ms):
            if asked.api is END_TXN:
                lane = self.nodes.pick_lane(node_id, now_ms, self._ends_in_flight)
                if lane is None:
                    self.nodes.prepare_lane(node_id, now_ms)
                    return False
                node_id = lane
            request = Request(asked.api, part.body, part, asked.timeout_ms, asked.version_min, asked.version_max)
            self.nodes.send(node_id, request, now_ms)
            return True
        self.nodes.prepare(node_id, now_ms)
        if part.node_id is None:
            return False
        failure = self.nodes.failure_of(node_id)
        if node_id not in self.cluster.brokers:
            failure = TransportError(f"node {node_id} has left the cluster")
        elif failure is None or self.nodes.is_throttled(node_id, now_ms):
            return False  # a failure of before it was connected again does not count
        elif self.nodes.blocked_until_ms(node_id, now_ms) is None:
            return False
        self._on_node_lost(node_id)
        call.fail(failure)
        call.unanswered_count -= 1
        return True

    def _look_up(self, now_ms: int) -> None:
        while self._lookup.queued:
            node_id = self.nodes.prepare_any(now_ms)
            if node_id is None:
                return
            request = self._lookup.next_request(self.nodes.version_of(node_id, FIND_COORDINATOR))
            self.nodes.send(node_id, request, now_ms)

    def _connect_ahead(self, now_ms: int) -> None:
        if not self._is_looking_ahead or not self.cluster.brokers:
            return
        self._is_looking_ahead = False
        for node_id in self.cluster.brokers:
            self.nodes.connect(node_id, now_ms)

    # ---- responses -------------------------------------------------------------------------------------------------

    def _on_answer(self, now_ms: int, answer: Answer) -> None:
        purpose = answer.request.purpose
        if isinstance(purpose, _BrokerRequest):
            self._on_part_answered(purpose, answer)
        elif isinstance(purpose, LookupRequest):
            for transactional_id, failure in self._lookup.on_answer(answer, self.metadata.next_number).items():
                self._on_looked_up(transactional_id, failure)
        else:
            self.metadata.on_answer(now_ms, answer)

    def _on_part_answered(self, part: _BrokerRequest, answer: Answer) -> None:
        call = part.call
        if answer.failure is not None and answer.was_sent:
            self._on_node_lost(broker_of(answer.node_id))
        call.was_sent = call.was_sent or answer.was_sent
        call.unanswered_count -= 1
        if answer.body is not None:
            call.bodies.append(answer.body)
        elif answer.failure is not None:
            call.fail(answer.failure, was_sent=answer.was_sent)

    def _on_looked_up(self, transactional_id: str, failure: KafkaSinkError | None) -> None:
        for call in self._calls:
            if transactional_id in call.missing:
                call.missing.discard(transactional_id)
                if failure is not None:
                    call.failed_ids.add(transactional_id)
                    call.fail(failure)

    def _on_node_lost(self, node_id: int) -> None:
        """Other brokers may be leaders and coordinators by now."""
        self._lookup.forget_node(node_id)
        self.metadata.request_news()

    # ---- timeouts --------------------------------------------------------------------------------------------------

    def _give_up(self, now_ms: int) -> None:
        """Gives up requests past their deadline and, while no broker is reachable, those not sent yet."""
        refusal = self.nodes.refusal
        is_alone = not self.nodes.is_any_reachable(now_ms)
        for call in self._calls:
            is_overdue = now_ms >= call.deadline_ms
            is_unsent = bool(call.unsent) or not call.is_divided
            is_hopeless = refusal is not None or (is_alone and is_unsent)
            if call.is_over or not (is_overdue or is_hopeless):
                continue
            name = call.request.api.name
            within = f"within {now_ms - call.begun_ms} ms" if is_overdue else "and no broker can be reached"
            failure = refusal or self._obstacle_of(call, now_ms)
            if call.unanswered_count > len(call.unsent):
                call.was_sent = True
                call.fail(TransportError(f"{name} was sent but not answered {within}"))
            elif refusal is not None:
                call.fail(refusal)
            else:
                text = f"{name} was not sent {within}"
                call.fail(TransportError(text if failure is None else f"{text}: {failure}"))
            call.is_over = True

    def _obstacle_of(self, call: _PendingCall, now_ms: int) -> KafkaSinkError | None:
        """The failure of a broker that it waits for, even if other brokers answer."""
        wanted = [part.node_id for part in call.unsent if part.node_id is not None]
        known = [failure for node_id in wanted if (failure := self.nodes.failure_of(node_id)) is not None]
        if not known and self.nodes.is_any_throttled(now_ms):
            return TransportError("a quota of this client is used up, and the brokers throttle it")
        return known[0] if known else self.metadata.last_failure or self.nodes.last_failure

    def _wake_at_ms(self, now_ms: int) -> int | None:
        moments = [self.nodes.update_deadline(now_ms), self.metadata.next_deadline_ms(now_ms), *self.nodes.moments]
        moments += [call.deadline_ms for call in self._calls]
        return min((moment for moment in moments if moment is not None), default=None)


def _led_topics(request: AdminRequest) -> set[str]:
    return {topic for topic, _ in request.led_partitions}


def _ids_of(target: Coordinator | Coordinators) -> tuple[str, ...]:
    return (target.transactional_id,) if isinstance(target, Coordinator) else target.transactional_ids
