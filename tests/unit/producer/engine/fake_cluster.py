"""A scripted broker side for tests of the engine: it takes commands, decodes the requests and answers as scripted.

It encodes and decodes real bytes but has no state: no log, no transactions. ApiVersions, Metadata and InitProducerId
are answered automatically. For other APIs a test sets `scripts[API.key]` to a function from the request to the body of
the answer (None: no answer yet), or takes the request from `pending` and calls `answer` later.

    cluster = FakeCluster(brokers={0: ("a", 9092)}, topics={"t": {0: 0, 1: 0}})
    cluster.scripts[PRODUCE.key] = lambda request: {...}
    commands = cluster.run(engine, now_ms, [Append(...)])    # steps until the network is quiet
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import AuthenticationError, TransportError
from kafka_sink.kafka.client.commands import (
    Address,
    Connect,
    Connected,
    Disconnect,
    Disconnected,
    NetworkCommand,
    NetworkEvent,
    Received,
    Resolve,
    Resolved,
    Send,
    Written,
)
from kafka_sink.kafka.wire.apis import API_VERSIONS, APIS, INIT_PRODUCER_ID, METADATA, PRODUCE, Api
from kafka_sink.kafka.wire.frames import FrameBuffer, decode_request_header, encode_response
from kafka_sink.producer.engine.commands import Call, Completion, Finished, Observation

# What a step says besides its commands for the network.
Result = NetworkCommand | Observation | Completion | Finished
NETWORK = (Resolve, Connect, Send, Disconnect)
STEPS_MAX = 200


@dataclass(frozen=True)
class Asked:
    """One request as a broker received it. `node_id` is the broker's own id, also on a bootstrap connection."""

    node_id: int
    api: Api
    version: int
    body: dict[str, Any]
    correlation_id: int
    connection_id: int
    client_id: str | None


class FakeCluster:
    def __init__(
        self,
        brokers: Mapping[int, tuple[str, int]],
        topics: Mapping[str, Mapping[int, int]] | None = None,
        *,
        api_versions: Mapping[int, tuple[int, int] | None] | None = None,
        features: Mapping[str, int] | None = None,
    ) -> None:
        self.brokers = dict(brokers)
        self.topics = {topic: dict(leaders) for topic, leaders in (topics or {}).items()}
        # (topic, partition) -> leader epoch, topic -> error code; topic ids follow the order of creation.
        self.leader_epochs: dict[tuple[str, int], int] = {}
        self.topic_errors: dict[str, int] = {}
        self.topic_ids = {topic: (index + 1).to_bytes(16, "big") for index, topic in enumerate(self.topics)}
        self.api_versions: dict[int, tuple[int, int]] = {key: api.versions for key, api in APIS.items()}
        for key, versions in (api_versions or {}).items():
            if versions is None:
                self.api_versions.pop(key)
            else:
                self.api_versions[key] = versions
        self.features = dict(features or {})
        self.scripts: dict[int, Callable[[Asked], dict[str, Any] | None]] = {
            API_VERSIONS.key: self.versions_body,
            METADATA.key: self.metadata_body,
            INIT_PRODUCER_ID.key: lambda asked: {"error_code": 0, "producer_id": 1000, "producer_epoch": 0},
        }
        # Brokers whose port refuses, whose port does not react at all, and brokers that accept but never answer.
        self.refusing: set[int] = set()
        self.deaf: set[int] = set()
        self.silent: set[int] = set()
        # host -> addresses from the resolver; the default is the one address of the broker
        self.addresses: dict[str, tuple[Address, ...]] = {}
        # False: the resolver delays its answers.
        self.is_naming = True
        self._named: list[NetworkEvent] = []
        self.requests: list[Asked] = []
        self.pending: list[Asked] = []
        self.commands: list[NetworkCommand] = []
        self.connections: dict[int, int] = {}
        self._frames: dict[int, FrameBuffer] = {}
        # Unanswered requests per connection: a broker answers in the order of the requests.
        self._owed: dict[int, list[Asked]] = {}
        self._made: dict[int, bytes] = {}
        self._events: list[NetworkEvent] = []

    # ---- calls of the I/O layer ------------------------------------------------------------------------------------

    def deliver(self, commands: Sequence[NetworkCommand], now_ms: int) -> list[NetworkEvent]:
        """Carries out the network commands; returns the events of the network, including the queued answers."""
        del now_ms  # a network without latency
        for command in commands:
            if isinstance(command, NETWORK):
                self.commands.append(command)
            if isinstance(command, Resolve):
                default: tuple[Address, ...] = ((2, (command.host, command.port)),)
                self._named.append(Resolved(command.node_id, self.addresses.get(command.host, default)))
            elif isinstance(command, Connect):
                self._connect(command)
            elif isinstance(command, Send):
                self._receive(command)
            elif isinstance(command, Disconnect):
                self.connections.pop(command.connection_id, None)
        if self.is_naming:
            self._events += self._named
            self._named.clear()
        taken, self._events = self._events, []
        return taken

    def run(self, engine: Any, now_ms: int, calls: Sequence[Call] = ()) -> list[Result]:
        """Steps until the network is quiet; returns all results, and the commands that are not for the network."""
        others: list[Result] = []
        waiting = self.deliver((), now_ms)
        for _ in range(STEPS_MAX):
            step = engine.step(now_ms, waiting, calls)
            calls = ()
            others += [command for command in step.commands if not isinstance(command, NETWORK)]
            others += [*step.observations, *step.completions, *step.finished]
            waiting = self.deliver(step.commands, now_ms)
            if not waiting and (step.wake_at_ms is None or step.wake_at_ms > now_ms):
                return others
        raise AssertionError(f"still busy after {STEPS_MAX} steps at {now_ms} ms")

    # ---- calls of tests --------------------------------------------------------------------------------------------

    def requests_of(self, api: Api) -> list[Asked]:
        return [request for request in self.requests if request.api is api]

    def pending_of(self, api: Api) -> list[Asked]:
        return [request for request in self.pending if request.api is api]

    def answer(self, request: Asked, body: Mapping[str, Any]) -> None:
        """Queues the answer. The next `deliver` or `run` returns it, once all earlier requests are answered as well."""
        self.pending.remove(request)
        version = request.version
        if request.api is API_VERSIONS and body["error_code"] == 35:
            version = 0  # KIP-511
        self._made[id(request)] = encode_response(request.api, version, request.correlation_id, body)
        owed = self._owed[request.connection_id]
        while owed and id(owed[0]) in self._made:
            self._events.append(Received(request.connection_id, self._made.pop(id(owed.pop(0)))))

    def inject(self, node_id: int, data: bytes) -> None:
        """Delivers these bytes on every connection of the broker."""
        self._events += [Received(connection_id, data) for connection_id in self.connections_of(node_id)]

    def disconnect(self, node_id: int, reason: str = "connection reset by peer") -> None:
        for connection_id in self.connections_of(node_id):
            self.lose(connection_id, reason)

    def lose(
        self, connection_id: int, reason: str | TransportError | AuthenticationError = "connection reset by peer"
    ) -> None:
        del self.connections[connection_id]
        error = TransportError(reason) if isinstance(reason, str) else reason
        self._events.append(Disconnected(connection_id, error))
        self.pending = [request for request in self.pending if request.connection_id != connection_id]

    def connections_of(self, node_id: int) -> list[int]:
        return [connection_id for connection_id, owner in self.connections.items() if owner == node_id]

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        self.topics[topic][partition] = node_id
        self.leader_epochs[topic, partition] = self.leader_epochs.get((topic, partition), 0) + 1

    # ---- automatic answers -----------------------------------------------------------------------------------------

    def versions_body(self, request: Asked) -> dict[str, Any]:
        rows = [{"api_key": key, "min_version": low, "max_version": high}
                for key, (low, high) in self.api_versions.items()]  # fmt: skip
        body: dict[str, Any] = {"error_code": 0, "api_keys": rows}
        if request.version > self.api_versions[API_VERSIONS.key][1]:
            return {**body, "error_code": 35}
        if self.features and request.version >= 3:
            levels = self.features.items()
            body["finalized_features_epoch"] = 1
            body["finalized_features"] = [
                {"name": n, "max_version_level": v, "min_version_level": v} for n, v in levels
            ]
        return body

    def metadata_body(self, request: Asked) -> dict[str, Any]:
        names = [topic["name"] for topic in request.body["topics"]]
        brokers = [{"node_id": n, "host": host, "port": port} for n, (host, port) in self.brokers.items()]
        topics = [self._topic_row(name) for name in names]
        return {"brokers": brokers, "cluster_id": "fake", "controller_id": min(self.brokers), "topics": topics}

    def _topic_row(self, name: str) -> dict[str, Any]:
        error_code = self.topic_errors.get(name, 0 if name in self.topics else 3)
        if error_code:
            return {"name": name, "error_code": error_code, "partitions": []}
        partitions = [
            {
                "error_code": 0 if leader in self.brokers else 5,
                "partition_index": partition,
                "leader_id": leader,
                "leader_epoch": self.leader_epochs.get((name, partition), 0),
                "replica_nodes": [leader],
                "isr_nodes": [leader],
            }
            for partition, leader in self.topics[name].items()
        ]
        topic_id = self.topic_ids.setdefault(name, (len(self.topic_ids) + 1).to_bytes(16, "big"))
        return {"name": name, "error_code": 0, "topic_id": topic_id, "partitions": partitions}

    # ---- helpers ---------------------------------------------------------------------------------------------------

    def _connect(self, command: Connect) -> None:
        _, address = command.address
        node_id = next((n for n, place in self.brokers.items() if place == tuple(address[:2])), None)
        if node_id is None or node_id in self.refusing:
            reason = TransportError("connection refused")
            self._events.append(Disconnected(command.connection_id, reason))
            return
        if node_id in self.deaf:
            return
        self.connections[command.connection_id] = node_id
        self._frames[command.connection_id] = FrameBuffer(2**30)
        self._owed[command.connection_id] = []
        self._events.append(Connected(command.connection_id))

    def _receive(self, command: Send) -> None:
        node_id = self.connections.get(command.connection_id)
        if node_id is None:
            return  # the connection was closed while the bytes were in transit
        if command.tells_written:
            self._events.append(Written(command.connection_id))
        frames = self._frames[command.connection_id]
        for data in command.buffers:
            frames.feed(data)
        while (frame := frames.next_frame()) is not None:
            api_key, version, correlation_id, client_id, offset = decode_request_header(frame)
            body = APIS[api_key].decode_request(version, frame[offset:])
            request = Asked(node_id, APIS[api_key], version, body, correlation_id, command.connection_id, client_id)
            self.requests.append(request)
            if api_key == PRODUCE.key and body["acks"] == 0:
                continue
            self.pending.append(request)
            self._owed[command.connection_id].append(request)
            script = self.scripts.get(api_key)
            answer = script(request) if script is not None and node_id not in self.silent else None
            if answer is not None:
                self.answer(request, answer)
