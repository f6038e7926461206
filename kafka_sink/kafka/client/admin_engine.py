"""What carries asks to the brokers, as one pure function: `step(now_ms, events, asks) -> commands, replies`.

An `Ask` names its destination by role: the leader of a partition, the coordinator of a transactional id, every broker.
This finds the brokers (`route`), divides the ask if there are several, sends the parts over the connections of
`NodeSet`, and ends the try with one reply. All asks are in flight at the same time. Many EndTxn requests use several
connections to a coordinator, because a broker processes the requests of one connection one by one.

    begun -> brokers known -> divided -> each part sent -> each part answered or lost -> one reply

Nothing is sent twice here, and no ask waits for the cluster to recover: if a broker is down, a leader unknown, or the
time limit has passed, the reply says if anything was sent, and the owner decides about another try. Only lookups, which
change nothing, are retried.

Brokers found are cached until a connection to the broker fails or an ask says `find_again`. Error codes in answers are
not interpreted here.

An owner that knows its next asks can announce them (`look_ahead`). Their leaders and coordinators are then looked up
together, and all brokers are connected, while the first ask is under way. Otherwise each new broker would cost a remote
client several round trips in the middle of a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from kafka_sink.errors import KafkaSinkError, TransportError
from kafka_sink.kafka.client.ask import (
    AllBrokers,
    Ask,
    AskPart,
    Coordinator,
    Coordinators,
    Failure,
    Reply,
    ReplyKind,
    failure_kind,
)
from kafka_sink.kafka.client.authentication import Authenticator
from kafka_sink.kafka.client.cluster import ClusterView
from kafka_sink.kafka.client.commands import NetworkCommand, NetworkEvent
from kafka_sink.kafka.client.coordinator_lookup import CoordinatorLookup, LookupRequest
from kafka_sink.kafka.client.metadata import Metadata
from kafka_sink.kafka.client.node import broker_of
from kafka_sink.kafka.client.nodes import NodeSet
from kafka_sink.kafka.client.request import Answer, Request
from kafka_sink.kafka.client.route import ids_of, route, topics_of
from kafka_sink.kafka.wire.apis import END_TXN, FIND_COORDINATOR
from kafka_sink.options import ProducerOptions

# Per connection: one is processed while the next ones are already there. More are better sent on another connection.
ENDS_IN_FLIGHT = 4


class AdminStep(NamedTuple):
    commands: list[NetworkCommand]
    replies: list[Reply]
    wake_at_ms: int | None


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
        self.nodes = NodeSet(options, jitter=jitter, authenticator=authenticator, outlives_refusal=True)
        self.metadata = Metadata(options, self.nodes, jitter=jitter)
        self._lookup = CoordinatorLookup(request_timeout_ms=options.request_timeout_ms)
        self._asks: list[Ask] = []
        # Whether to connect to every broker as soon as the brokers are known.
        self._is_looking_ahead = False

    @property
    def cluster(self) -> ClusterView:
        return self.metadata.view

    def step(self, now_ms: int, events: Sequence[NetworkEvent] = (), asks: Sequence[Ask] = ()) -> AdminStep:
        self.nodes.moments.clear()
        for event in events:
            self.nodes.on_input(now_ms, event)
        if self.nodes.due_ms is not None and self.nodes.due_ms <= now_ms:
            self.nodes.on_time(now_ms)
        for answer in self.nodes.take_answers():
            self._on_answer(now_ms, answer)
        for ask in asks:
            self._begin(now_ms, ask)
        for ask in self._asks:
            self._advance(now_ms, ask)
        self._look_up(now_ms)
        self.metadata.ask(now_ms)
        self._connect_ahead(now_ms)
        self._give_up(now_ms)
        over = [ask for ask in self._asks if ask.is_over]
        if over:
            self._asks = [ask for ask in self._asks if not ask.is_over]
        return AdminStep(self.nodes.take_commands(), [ask.reply() for ask in over], self._wake_at_ms(now_ms))

    @property
    def is_asking(self) -> bool:
        return bool(self._asks)

    def forget_asks(self) -> None:
        """Their owners have given up. What was sent may still be carried out."""
        self._asks = []
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

    # ---- new asks --------------------------------------------------------------------------------------------------

    def _begin(self, now_ms: int, ask: Ask) -> None:
        ask.begin(now_ms, self.metadata.next_number)
        self._asks.append(ask)
        target = ask.target
        led_topics = {topic for topic, _ in ask.led_now}
        is_known = led_topics <= self.cluster.topics.keys() and self.metadata.is_just_asked(now_ms)
        for topic in led_topics | topics_of(target):
            self.metadata.want_topic(topic, now_ms)
        if (led_topics or isinstance(target, AllBrokers)) and not is_known:
            ask.needs_news = True
            self.metadata.request_news()
        if isinstance(target, (Coordinator, Coordinators)):
            for transactional_id in ids_of(target):
                if ask.find_again:
                    self._lookup.forget(transactional_id)
                if self._lookup.get(transactional_id) is None:
                    self._enqueue_lookup(ask, transactional_id)
        elif ask.find_again:
            ask.needs_news = True
            self.metadata.request_news()

    def _enqueue_lookup(self, ask: Ask, transactional_id: str) -> None:
        ask.missing.add(transactional_id)
        self._lookup.enqueue(transactional_id)

    # ---- sending ---------------------------------------------------------------------------------------------------

    def _advance(self, now_ms: int, ask: Ask) -> None:
        if ask.parts is None:
            self._divide(ask)
        for part in ask.unsent:
            self._send(now_ms, part)

    def _divide(self, ask: Ask) -> None:
        found = route(ask, self.metadata, self._lookup)
        for transactional_id in found.unknown_ids:
            self._enqueue_lookup(ask, transactional_id)
        for transactional_id in found.left_ids:
            self._lookup.forget(transactional_id)
            ask.failed_ids.add(transactional_id)
        if found.needs_update:
            self.metadata.request_update()
        ask.obstacles += found.gone
        if not found.waits:
            ask.parts = [AskPart(ask, node_id, body) for node_id, body in found.parts]

    def _send(self, now_ms: int, part: AskPart) -> None:
        """Or it fails; or it waits."""
        ask = part.ask
        node_id = self.nodes.least_loaded(now_ms) if part.node_id is None else part.node_id
        if node_id is None:
            return
        if self.nodes.is_ready(node_id, now_ms):
            lane = self.nodes.pick_lane(node_id, now_ms, self._ends_in_flight) if ask.api is END_TXN else node_id
            if lane is None:
                self.nodes.prepare_lane(node_id, now_ms)
                return
            request = Request(ask.api, part.body, part, ask.timeout_ms, ask.version_min, ask.version_max)
            part.is_sent = True
            self.nodes.send(lane, request, now_ms)
            return
        self.nodes.prepare(node_id, now_ms)
        failure = None if part.node_id is None else self._obstacle_at(node_id, now_ms)
        if failure is not None:
            self._on_node_lost(node_id)
            part.failure = Failure(failure_kind(failure, was_sent=False), failure)

    def _obstacle_at(self, node_id: int, now_ms: int) -> KafkaSinkError | None:
        """Why this broker takes no request soon."""
        if node_id not in self.cluster.brokers:
            return TransportError(f"node {node_id} has left the cluster")
        failure = self.nodes.failure_of(node_id)
        if failure is None or self.nodes.is_throttled(node_id, now_ms):
            return None  # a failure of before it was connected again does not count
        return failure if self.nodes.blocked_until_ms(node_id, now_ms) is not None else None

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
        if isinstance(purpose, AskPart):
            self._on_part_answered(purpose, answer)
        elif isinstance(purpose, LookupRequest):
            for transactional_id, failure in self._lookup.on_answer(answer, self.metadata.next_number).items():
                self._on_looked_up(transactional_id, failure)
        else:
            self.metadata.on_answer(now_ms, answer)

    def _on_part_answered(self, part: AskPart, answer: Answer) -> None:
        if answer.failure is not None and answer.was_sent:
            self._on_node_lost(broker_of(answer.node_id))
        part.is_sent, part.answer = answer.was_sent, answer.body
        if answer.failure is not None:
            part.failure = Failure(failure_kind(answer.failure, was_sent=answer.was_sent), answer.failure)

    def _on_looked_up(self, transactional_id: str, failure: KafkaSinkError | None) -> None:
        for ask in self._asks:
            if transactional_id in ask.missing:
                ask.missing.discard(transactional_id)
                if failure is not None:
                    ask.failed_ids.add(transactional_id)
                    ask.fail(failure)

    def _on_node_lost(self, node_id: int) -> None:
        """Other brokers may be leaders and coordinators by now."""
        self._lookup.forget_node(node_id)
        self.metadata.request_news()

    # ---- timeouts --------------------------------------------------------------------------------------------------

    def _give_up(self, now_ms: int) -> None:
        """Gives up asks past their deadline and, while no broker is reachable, those not sent yet."""
        refusal = self.nodes.refusal
        is_alone = not self.nodes.is_any_reachable(now_ms)
        for ask in self._asks:
            is_overdue = now_ms >= ask.deadline_ms
            is_hopeless = refusal is not None or (is_alone and (ask.parts is None or bool(ask.unsent)))
            if not (is_overdue or is_hopeless) or ask.is_over:
                continue
            ask.is_given_up = True
            within = f"within {now_ms - ask.begun_ms} ms" if is_overdue else "and no broker can be reached"
            failure = refusal or self._obstacle_of(ask, now_ms)
            if ask.awaits_answer:
                ask.fail(TransportError(f"{ask.api.name} was sent but not answered {within}"), ReplyKind.LOST)
            elif refusal is not None:
                ask.is_hopeless = True
                ask.fail(refusal)
            else:
                text = f"{ask.api.name} was not sent {within}"
                ask.fail(TransportError(text if failure is None else f"{text}: {failure}"))

    def _obstacle_of(self, ask: Ask, now_ms: int) -> KafkaSinkError | None:
        """The failure of a broker that it waits for, even if other brokers answer."""
        wanted = [part.node_id for part in ask.unsent if part.node_id is not None]
        known = [failure for node_id in wanted if (failure := self.nodes.failure_of(node_id)) is not None]
        if not known and self.nodes.is_any_throttled(now_ms):
            return TransportError("a quota of this client is used up, and the brokers throttle it")
        return known[0] if known else self.metadata.last_failure or self.nodes.last_failure

    def _wake_at_ms(self, now_ms: int) -> int | None:
        moments = [self.nodes.update_deadline(now_ms), self.metadata.next_deadline_ms(now_ms), *self.nodes.moments]
        moments += [ask.deadline_ms for ask in self._asks]
        return min((moment for moment in moments if moment is not None), default=None)
