"""Reachability of one broker: its addresses, and when the next connection attempt may be made.

Addresses are tried in turn, each with its own wait before the next; when all have failed the name is resolved again
(KIP-302). It is also resolved again after a connection that had worked, because the broker may have moved; the lost
address is then not tried first (it may be a dead load balancer).

It must not know the protocol, nor decide that a connection is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.client.backoff import Backoff
from kafka_sink.kafka.client.cluster import Endpoint
from kafka_sink.kafka.client.commands import Address
from kafka_sink.kafka.client.connection import Connection, ConnectionState

# Broker ids have 32 bits: the bits above number the further connections to the broker.
LANE_STEP = 2**32


def broker_of(node_id: int) -> int:
    """The broker that a node is a connection to."""
    return node_id if node_id < LANE_STEP else node_id % LANE_STEP


@dataclass(slots=True, eq=False)
class Node:
    node_id: int
    endpoint: Endpoint
    is_bootstrap: bool = False
    connection: Connection | None = None
    # The endpoint that `connection` was made for: metadata may have moved the node since.
    connected_endpoint: Endpoint | None = None
    # Gone from the metadata: no new requests, closed as soon as all responses have arrived.
    is_leaving: bool = False
    # Connect as soon as the name is resolved.
    is_resolving: bool = False
    # Host and port that the shell is resolving; never two at once, and a late result may be for an old name.
    asked_endpoint: Endpoint | None = None
    addresses: Sequence[Address] = ()
    last_address: Address | None = None
    attempt_ms: int = -1
    setup_deadline_ms: int = 0
    setup_failures: int = 0
    failures: int = 0
    # Why it is unusable, from the first failure until a request is answered again.
    failure: KafkaSinkError | None = None
    retry_at_ms: int = 0
    throttled_until_ms: int = 0
    unavailable_since_ms: int | None = None

    @property
    def title(self) -> str:
        name = "bootstrap server" if self.is_bootstrap else f"node {broker_of(self.node_id)}"
        return f"{self.endpoint.host}:{self.endpoint.port} ({name})"

    @property
    def attempt_title(self) -> str:
        """Includes the address if it is not the host itself: one of several may be broken."""
        address = "" if self.last_address is None else str(self.last_address[1][0])
        return self.title if address in ("", self.endpoint.host) else f"{self.title[:-1]}, address {address})"

    @property
    def is_ready(self) -> bool:
        return self.connection is not None and self.connection.state is ConnectionState.READY and not self.is_outdated

    def can_take(self, now_ms: int, in_flight_max: int) -> bool:
        """Whether it can take one more request. Called often, hence one expression."""
        connection = self.connection
        return (
            connection is not None
            and connection.state is ConnectionState.READY
            and len(connection.in_flight) < in_flight_max
            and self.throttled_until_ms <= now_ms
            and not self.is_leaving
            and (self.connected_endpoint is self.endpoint or self.connected_endpoint == self.endpoint)
            and (connection.session_end_ms is None or now_ms < connection.session_end_ms)
        )

    @property
    def is_preparing(self) -> bool:
        return self.is_resolving or (
            self.connection is not None and self.connection.state not in (ConnectionState.READY, ConnectionState.CLOSED)
        )

    @property
    def is_unused(self) -> bool:
        return self.connection is None and not self.is_resolving and not self.is_leaving

    @property
    def is_outdated(self) -> bool:
        return self.is_leaving or (self.connection is not None and self.connected_endpoint != self.endpoint)

    def is_connectable(self, now_ms: int) -> bool:
        """Whether a connection could be started, or the current one reauthenticated."""
        if self.connection is not None:
            return self.connection.is_session_over(now_ms) and now_ms >= self.throttled_until_ms
        return not self.is_resolving and now_ms >= self.retry_at_ms

    @property
    def is_setting_up(self) -> bool:
        """Until TCP, and TLS, is established; the requests before the first one of the owner have a request timeout."""
        return self.is_resolving or (
            self.connection is not None and self.connection.state is ConnectionState.CONNECTING
        )

    def on_attempt(self, now_ms: int, setup_timeout: Backoff) -> None:
        self.attempt_ms = now_ms
        self.setup_deadline_ms = now_ms + setup_timeout.delay_ms(self.setup_failures + 1)
        if self.unavailable_since_ms is None:
            self.unavailable_since_ms = now_ms

    def on_resolved(self, addresses: Sequence[Address]) -> None:
        skip_first = len(addresses) > 1 and addresses[0] == self.last_address
        self.addresses = tuple(addresses[1:] if skip_first else addresses)

    def take_address(self) -> Address:
        self.last_address, self.addresses = self.addresses[0], self.addresses[1:]
        return self.last_address

    def on_failed(self, now_ms: int, reconnect: Backoff, failure: KafkaSinkError) -> None:
        self.failure = failure
        if self.is_setting_up:
            self.setup_failures += 1
        else:
            self.setup_failures = 0
            self.addresses = ()
        self.failures += 1
        self.retry_at_ms = now_ms + reconnect.delay_ms(self.failures)
        if self.unavailable_since_ms is None:
            self.unavailable_since_ms = now_ms
        self.forget_connection()

    def on_closed(self) -> None:
        """Closed on purpose: not a failure, so there is no back-off."""
        self.addresses = ()
        self.unavailable_since_ms = None
        self.forget_connection()

    def take_over(self, connection: Connection, other: Node) -> None:
        """Takes the connection of a node with the same address, with the requests in flight on it."""
        self.connection, self.connected_endpoint = connection, self.endpoint
        self.last_address, self.throttled_until_ms = other.last_address, other.throttled_until_ms
        self.failures = self.setup_failures = self.retry_at_ms = 0
        self.failure = None
        connection.node_id, connection.title = self.node_id, self.attempt_title
        other.on_closed()

    def forget_connection(self) -> None:
        self.connection = self.connected_endpoint = None
        self.is_resolving = False


def first_due_ms(nodes: Iterable[Node], now_ms: int, idle_ms: int) -> int | None:
    """The next deadline: a timeout, the end of a back-off, the end of an idle connection. Computed in nearly every
    sender iteration, hence one loop."""
    due = []
    for node in nodes:
        connection = node.connection
        if connection is None:
            if node.is_resolving:
                due.append(node.setup_deadline_ms)
            continue
        if node.is_resolving or connection.state is ConnectionState.CONNECTING:
            due.append(node.setup_deadline_ms)
        if node.throttled_until_ms > now_ms:
            due.append(node.throttled_until_ms)
        if connection.deadline_ms is not None:
            due.append(connection.deadline_ms)
        elif connection.state is ConnectionState.READY and idle_ms >= 0:
            due.append(connection.active_ms + idle_ms)
    return min(due, default=None)
