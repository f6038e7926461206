"""What a request works on in the embedded cluster: brokers and topics, groups, transactions, users, and connections
with the answers that wait to be sent. broker.py makes the parts and feeds the requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kafka_sink.kafka.wire import frames
from kafka_sink.testing.acl import Authorizer
from kafka_sink.testing.cluster import Cluster
from kafka_sink.testing.credentials import Credentials
from kafka_sink.testing.groups import Groups
from kafka_sink.testing.schedule import Schedule
from kafka_sink.testing.session import Session
from kafka_sink.testing.settings import Settings
from kafka_sink.testing.transactions import TransactionCoordinator

Output = tuple[int, bytes | None]


@dataclass(slots=True)
class ClientConnection:
    broker_id: int
    session: Session
    received: frames.FrameBuffer = field(default_factory=lambda: frames.FrameBuffer(0))  # `on_bytes` sets the limit
    waiting: deque[bytes] = field(default_factory=deque)
    is_busy: bool = False
    used_ms: int = 0


class BrokerCore:
    settings: Settings
    schedule: Schedule
    cluster: Cluster
    groups: Groups
    coordinator: TransactionCoordinator
    has_sasl: bool
    credentials: Credentials
    authorizer: Authorizer | None
    throttle_times_ms: dict[str, int]

    def __init__(self) -> None:
        self._connections: dict[int, ClientConnection] = {}
        self._outputs: list[Output] = []
        self._runnable: deque[int] = deque()

    def endpoints(self, node_ids: Iterable[int]) -> list[dict[str, Any]]:
        brokers = [self.cluster.brokers[node_id] for node_id in node_ids]
        return [{"node_id": one.node_id, "host": one.host, "port": one.port} for one in brokers]

    def send(self, connection_id: int, data: bytes) -> None:
        """Sends the response to the request in progress; empty if it has none."""
        connection = self._connections.get(connection_id)
        if connection is None:
            return
        if data:
            self._outputs.append((connection_id, data))
        connection.is_busy = False
        self._runnable.append(connection_id)

    def close(self, connection_id: int) -> None:
        if self._connections.pop(connection_id, None) is not None:
            self._outputs.append((connection_id, None))

    def fail_authentication(self, connection_id: int, data: bytes) -> None:
        """Delays each failed password; a last response is sent just before the connection is closed."""

        def close() -> None:
            if data and connection_id in self._connections:
                self._outputs.append((connection_id, data))
            self.close(connection_id)

        self.schedule.after(self.settings.number("connection.failed.authentication.delay.ms"), close)
