"""Steps a NodeSet (and a Metadata tracker) as the engine does, without the rest of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_sink.kafka.client.authentication import Authenticator
from kafka_sink.kafka.client.cluster import Endpoint
from kafka_sink.kafka.client.commands import Connect, NetworkEvent, Notice, Resolve
from kafka_sink.kafka.client.metadata import Metadata, MetadataRequest
from kafka_sink.kafka.client.nodes import NodeSet
from kafka_sink.kafka.client.request import Answer, Request
from kafka_sink.kafka.wire.apis import FIND_COORDINATOR, PRODUCE
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.engine.commands import Call, Step
from tests.unit.producer.engine.fake_cluster import FakeCluster, Result

NO_JITTER = 0.5


def request(**changes: Any) -> Request:
    """A request whose content does not matter to the test."""
    values = {"api": FIND_COORDINATOR, "body": {"coordinator_keys": ["x"], "key_type": 1}, "version_min": 4}
    return Request(**{**values, "purpose": "test", "timeout_ms": 30_000, **changes})


def produce_body(request: object, throttle_time_ms: int = 0) -> dict[str, Any]:
    return {"responses": [], "throttle_time_ms": throttle_time_ms}


def produce(**changes: Any) -> Request:
    body = {"acks": 1, "timeout_ms": 1000, "topic_data": []}
    return request(**{"api": PRODUCE, "body": body, **changes})


class Driver:
    """By default one broker "a" with id 0 is known from metadata, and jitter has its middle value."""

    def __init__(
        self,
        cluster: FakeCluster | None = None,
        *,
        has_metadata: bool = False,
        jitter: float = NO_JITTER,
        knows_brokers: bool = True,
        authenticator: Authenticator | None = None,
        **options: Any,
    ) -> None:
        self.cluster = cluster or FakeCluster({0: ("a", 9092)}, {"t": {0: 0}})
        options.setdefault("bootstrap_servers", (next(iter(self.cluster.brokers.values())),))
        self.options = ProducerOptions(**options)
        self.jitter = jitter
        self.nodes = NodeSet(self.options, jitter=lambda: self.jitter, authenticator=authenticator)
        self.metadata = Metadata(self.options, self.nodes, jitter=lambda: self.jitter) if has_metadata else None
        self.sent: list[Request] = []
        self.answers: list[Answer] = []
        self.notices: list[Notice] = []
        self.now_ms = 1_000_000
        if knows_brokers and not has_metadata:
            self.nodes.set_brokers(
                self.now_ms, {node_id: Endpoint(*place) for node_id, place in self.cluster.brokers.items()}
            )

    def step(self, now_ms: int, events: Sequence[NetworkEvent], calls: Sequence[Call] = ()) -> Step:
        assert not calls
        self.now_ms = now_ms
        for event in events:
            self.nodes.on_input(now_ms, event)
        self.nodes.on_time(now_ms)
        for answer in self.nodes.take_answers():
            if isinstance(answer.request.purpose, MetadataRequest) and self.metadata is not None:
                self.metadata.on_answer(now_ms, answer)
            else:
                self.answers.append(answer)
        if self.metadata is not None:
            self.metadata.ask(now_ms)
        return Step(self.nodes.take_commands(), wake_at_ms=self.nodes.update_deadline(now_ms))

    # ---- shorthands ----

    def run(self, now_ms: int | None = None) -> list[Result]:
        commands = self.cluster.run(self, self.now_ms if now_ms is None else now_ms)
        self.notices += [command for command in commands if isinstance(command, Notice)]
        return commands

    def sleep(self, time_ms: int) -> list[Result]:
        return self.run(self.now_ms + time_ms)

    def await_ready(self, node_id: int = 0) -> None:
        self.connect(node_id)
        assert self.nodes.is_ready(node_id, self.now_ms)

    def connect(self, node_id: int = 0) -> list[Result]:
        self.nodes.connect(node_id, self.now_ms)
        return self.run()

    def lose(self, node_id: int = 0) -> list[Result]:
        self.cluster.disconnect(node_id)
        return self.run()

    def send(self, asked: Request | None = None, node_id: int = 0) -> Request:
        asked = asked or request()
        self.sent.append(asked)
        self.nodes.send(node_id, asked, self.now_ms)
        self.run()
        return asked

    def take_answers(self) -> list[Answer]:
        taken, self.answers = self.answers, []
        return taken

    def connects(self) -> list[Connect]:
        return [command for command in self.cluster.commands if isinstance(command, Connect)]

    def resolves(self) -> list[Resolve]:
        return [command for command in self.cluster.commands if isinstance(command, Resolve)]

    def delay_ms(self, node_id: int = 0) -> int:
        until_ms = self.nodes.blocked_until_ms(node_id, self.now_ms)
        return 0 if until_ms is None else until_ms - self.now_ms


def notices(commands: Sequence[Result]) -> list[str]:
    return [command.text for command in commands if isinstance(command, Notice)]
