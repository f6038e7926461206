"""An `AdminEngine` in front of a `FakeCluster`: three brokers, coordinators by name, a clock that the test moves.

    driver = AdminDriver()
    question = driver.ask(Coordinator("tx-1"), END_TXN, {...})
    driver.reply_to(question).kind        # KeyError: not answered yet

The coordinator of an id is `coordinators[id]`; with `lookup_codes[id]` the lookup fails with that code. The test
answers END_TXN and the other requests through `cluster.scripts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_sink.kafka.client.admin_engine import AdminEngine
from kafka_sink.kafka.client.ask import Ask, Reply, Target
from kafka_sink.kafka.client.authentication import Authenticator
from kafka_sink.kafka.wire.apis import FIND_COORDINATOR, Api
from kafka_sink.options import ProducerOptions
from tests.unit.producer.engine.fake_cluster import NETWORK, Asked, FakeCluster

START_MS = 1_000_000
TIMEOUT_MS = 10_000
STEPS_MAX = 200


class AdminDriver:
    def __init__(
        self,
        *,
        brokers: int = 3,
        topics: Mapping[str, Mapping[int, int]] | None = None,
        api_versions: Mapping[int, tuple[int, int] | None] | None = None,
        authenticator: Authenticator | None = None,
        **options: Any,
    ) -> None:
        places = {node_id: (f"host{node_id}", 9092) for node_id in range(brokers)}
        self.cluster = FakeCluster(places, topics or {"t": {0: 0, 1: 1}}, api_versions=api_versions)
        self.cluster.scripts[FIND_COORDINATOR.key] = self._find_coordinator
        self.coordinators: dict[str, int] = {}
        self.lookup_codes: dict[str, int] = {}
        options.setdefault("bootstrap_servers", tuple(places.values()))
        options.setdefault("max_in_flight_requests_per_connection", 100)
        self.asking = AdminEngine(ProducerOptions(**options), jitter=lambda: 0.0, authenticator=authenticator)
        self.now_ms = START_MS
        self.replies: dict[Ask, Reply] = {}
        self.wake_at_ms: int | None = None

    def ask(self, target: Target, api: Api, body: Mapping[str, Any] | None = None, **fields: Any) -> Ask:
        fields.setdefault("timeout_ms", TIMEOUT_MS)
        question = Ask(target, api, body or {})
        for name, value in fields.items():
            setattr(question, name, value)
        self.run(question)
        return question

    def reply_to(self, question: Ask) -> Reply:
        return self.replies[question]

    def run(self, *questions: Ask) -> None:
        """Steps until the network is quiet at the current time."""
        events = self.cluster.deliver((), self.now_ms)
        for _ in range(STEPS_MAX):
            step = self.asking.step(self.now_ms, events, questions)
            questions = ()
            for reply in step.replies:
                assert reply.ask not in self.replies, "answered twice"
                self.replies[reply.ask] = reply
            self.wake_at_ms = step.wake_at_ms
            events = self.cluster.deliver([one for one in step.commands if isinstance(one, NETWORK)], self.now_ms)
            if not events and (step.wake_at_ms is None or step.wake_at_ms > self.now_ms):
                return
        raise AssertionError(f"still busy after {STEPS_MAX} steps at {self.now_ms} ms")

    def sleep(self, duration_ms: int) -> None:
        """Lets time pass and steps whenever the engine asked to be called, like the I/O layer."""
        until_ms = self.now_ms + duration_ms
        while self.wake_at_ms is not None and self.wake_at_ms <= until_ms:
            self.now_ms = max(self.now_ms, self.wake_at_ms)
            self.run()
        self.now_ms = until_ms
        self.run()

    def count(self, api: Api) -> int:
        return len(self.cluster.requests_of(api))

    def asked(self, api: Api) -> list[tuple[int, dict[str, Any]]]:
        return [(request.node_id, request.body) for request in self.cluster.requests_of(api)]

    def _find_coordinator(self, request: Asked) -> dict[str, Any]:
        if request.version < 4:
            return {"error_message": None, **self._place(request.body["key"])}
        rows = [{"key": key, "error_message": None, **self._place(key)} for key in request.body["coordinator_keys"]]
        return {"coordinators": rows}

    def _place(self, key: str) -> dict[str, Any]:
        error_code = self.lookup_codes.get(key, 0)
        node_id = -1 if error_code else self.coordinators.get(key, 0)
        host, port = ("", -1) if error_code else self.cluster.brokers.get(node_id, ("elsewhere", 1))
        return {"error_code": error_code, "node_id": node_id, "host": host, "port": port}
