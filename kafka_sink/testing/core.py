"""What a request works on in the embedded cluster: brokers and topics, groups, transactions, users, and connections
with the answers that wait to be sent. How requests come in is in broker.py."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_sink.errors import ConfigError
from kafka_sink.kafka.wire import frames
from kafka_sink.testing.acl import Acl, Authorizer
from kafka_sink.testing.cluster import Cluster
from kafka_sink.testing.credentials import Credentials
from kafka_sink.testing.faults import Faults
from kafka_sink.testing.groups import Groups
from kafka_sink.testing.housekeeping import Housekeeping
from kafka_sink.testing.markers import Markers
from kafka_sink.testing.schedule import Schedule
from kafka_sink.testing.session import Session
from kafka_sink.testing.settings import Settings
from kafka_sink.testing.topics import BrokerState
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
    """Broker ids are 1..n unless `brokers` lists them; the caller assigns connection ids.

    With `users` (name -> password), or `access_keys` (id -> secret key) for the mechanism AWS_MSK_IAM, every connection
    must authenticate (SASL_PLAINTEXT); with `acls` anything not allowed is denied, except to `super.users` (a
    property). Both may be changed later: `credentials`, `authorizer`.
    """

    def __init__(
        self,
        brokers: int | list[BrokerState] = 1,
        *,
        topics: Mapping[str, int] | None = None,
        users: Mapping[str, str] | None = None,
        access_keys: Mapping[str, str] | None = None,
        acls: Iterable[Acl] | None = None,
        settings: Settings | None = None,
        now_ms: int = 0,
    ) -> None:
        if isinstance(brokers, int):
            brokers = [BrokerState(number, "localhost", 9091 + number) for number in range(1, brokers + 1)]
        if not brokers:
            raise ConfigError("an embedded cluster needs at least one broker")
        self.settings = settings or Settings()
        self.schedule = Schedule()
        self.schedule.run_due(now_ms)
        self.cluster = Cluster(brokers, self.settings, self.schedule)
        self.groups = Groups(self.schedule, self.settings)
        self.coordinator = TransactionCoordinator(self.cluster, Markers(self.cluster, self.groups))
        self.housekeeping = Housekeeping(self.cluster, self.coordinator)
        self.faults = Faults()
        self.has_sasl = users is not None or access_keys is not None
        self.credentials = Credentials(users or {}, self.settings.random_bytes, access_keys)
        super_users = self.settings.names("super.users", ";")
        self.authorizer = Authorizer(acls, super_users) if acls is not None else None
        self.throttle_times_ms: dict[str, int] = {}
        self._connections: dict[int, ClientConnection] = {}
        self._outputs: list[Output] = []
        self._runnable: deque[int] = deque()
        for name, partitions in (topics or {}).items():
            self.cluster.create_topic(name, partitions, min(3, len(brokers)))

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
