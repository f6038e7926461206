"""One TCP connection to a broker: requests in, buffers out; bytes in, responses out, each exactly once and in order.

Theory of operation. A connection object is made when the shell is told to connect. Once connected it requests the
broker's versions (ApiVersions); nothing else may be sent before the response. With SASL the two agree on a mechanism
(SaslHandshake) and exchange tokens (SaslAuthenticate) until authentication is complete; no other request is sent
before. Then requests are pipelined: a broker answers in request order, so the next frame belongs to the oldest
unanswered request. A different correlation id means that the stream is out of sync, and the connection must be closed.

A session may end before the connection does (KIP-368). Once most of its lifetime is over the connection accepts no new
request; its next use begins with reauthentication, sent after the requests that are still in flight. Their responses
come first. An unused connection is not reauthenticated.

It must not know other connections, back-off, or what a request is for. It never raises for what the broker sends: it
sets `failure`, and the owner closes the connection and fails the requests in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from kafka_sink.errors import (
    AuthenticationError,
    BrokerError,
    ConfigError,
    KafkaSinkError,
    LocalProtocolError,
    RemoteProtocolError,
    TransportError,
)
from kafka_sink.errors.table.brokers import BROKER_TOO_OLD, MECHANISM_NOT_OFFERED, NOT_KAFKA
from kafka_sink.kafka.client.authentication import check_handshake, session_end_ms, step_exchange
from kafka_sink.kafka.client.commands import Buffer, NetworkCommand, RequestObserved, Send
from kafka_sink.kafka.client.request import VERSION_MAX, Answer, Request
from kafka_sink.kafka.wire.apis import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, Api
from kafka_sink.kafka.wire.codes import UNSUPPORTED_VERSION
from kafka_sink.kafka.wire.frames import FrameBuffer
from kafka_sink.options import ProducerOptions
from kafka_sink.security.mechanisms import Exchange
from kafka_sink.version import CLIENT_SOFTWARE_NAME, VERSION

# Before the versions are known only an ApiVersions response can arrive: 512 KiB hold 40,000 rows. A TLS alert or an
# HTTP response read as a length is far above. A hostile frame makes up to 96 bytes of Python objects of each byte.
NEGOTIATION_FRAME_BYTES_MAX = 512 * 1024
# The Java broker's own limit for a frame (socket.request.max.bytes) is 100 MiB, and librdkafka's for a response is 100
# MB. The largest response a producer sees is Metadata: 100 MiB hold about two million partitions.
FRAME_BYTES_MAX = 100 * 1024 * 1024

# How setting up a session fails: refused, no credentials, or temporarily.
_FAILURES = (AuthenticationError, ConfigError, TransportError)
CORRELATION_ID_MAX = 2**31 - 1
# A broker closes the connection without a word if a request is above its limit. Only who has raised max.request.size
# sends as much as this.
LARGE_REQUEST_BYTES = 8 * 1024 * 1024

# A broker computes the time from its quota windows (11 of one second by default). A minute allows for longer windows; a
# larger value is from a broken peer and would block a node for up to 24 days. A shorter wait does no harm: the broker
# does not read from a throttled connection anyway.
THROTTLE_MS_MAX = 60_000


class ConnectionState(Enum):
    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    HANDSHAKING = "agreeing on a mechanism"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    CLOSED = "closed"


class ConnectionEvent(Enum):
    CONNECTED = "connected"
    VERSIONS_REFUSED = "versions refused"
    VERSIONS_AGREED = "versions agreed"
    AUTHENTICATION_BEGUN = "authentication begun"
    MECHANISM_AGREED = "mechanism agreed"
    TOKEN_WANTED = "token wanted"
    AUTHENTICATED = "authenticated"
    LOST = "lost"


TRANSITIONS: Mapping[tuple[ConnectionState, ConnectionEvent], ConnectionState] = {
    (ConnectionState.CONNECTING, ConnectionEvent.CONNECTED): ConnectionState.NEGOTIATING,
    (ConnectionState.NEGOTIATING, ConnectionEvent.VERSIONS_REFUSED): ConnectionState.NEGOTIATING,
    (ConnectionState.NEGOTIATING, ConnectionEvent.VERSIONS_AGREED): ConnectionState.READY,
    (ConnectionState.NEGOTIATING, ConnectionEvent.AUTHENTICATION_BEGUN): ConnectionState.HANDSHAKING,
    (ConnectionState.HANDSHAKING, ConnectionEvent.MECHANISM_AGREED): ConnectionState.AUTHENTICATING,
    (ConnectionState.AUTHENTICATING, ConnectionEvent.TOKEN_WANTED): ConnectionState.AUTHENTICATING,
    (ConnectionState.AUTHENTICATING, ConnectionEvent.AUTHENTICATED): ConnectionState.READY,
    (ConnectionState.READY, ConnectionEvent.AUTHENTICATION_BEGUN): ConnectionState.HANDSHAKING,
    **{
        (state, ConnectionEvent.LOST): ConnectionState.CLOSED
        for state in ConnectionState
        if state is not ConnectionState.CLOSED
    },
}


class Connection:
    def __init__(
        self,
        connection_id: int,
        node_id: int,
        title: str,
        options: ProducerOptions,
        *,
        now_ms: int,
        new_exchange: Callable[[], Exchange] | None,
        jitter: Callable[[], float],
        commands: list[NetworkCommand],
    ) -> None:
        """`commands`: the shared list to which it appends its commands."""
        self.connection_id = connection_id
        self.node_id = node_id
        self.title = title
        self.state = ConnectionState.CONNECTING
        self.failure: KafkaSinkError | None = None
        self.throttled_until_ms = 0
        self.active_ms = now_ms
        self.finalized_features: Mapping[str, int] = {}
        self.finalized_features_epoch = -1
        # How often it became ready: once, plus once per reauthentication.
        self.sessions = 0
        # Whether any request of the owner was ever answered.
        self.has_served = False
        self._new_exchange = new_exchange
        self._jitter = jitter
        self._exchange: Exchange | None = None
        self.session_end_ms: int | None = None
        self._options = options
        self._frames = FrameBuffer(NEGOTIATION_FRAME_BYTES_MAX)
        # In the order sent, which is that of the responses.
        self.in_flight: deque[Request] = deque()
        # When the first of them times out.
        self.deadline_ms: int | None = None
        self.commands = commands
        self._next_correlation_id = 0
        # Size and correlation id of the last large request.
        self._large = (0, -1)
        # The versions that the broker offers, by API.
        self.ranges: dict[int, tuple[int, int]] = {}
        # Cache of negotiated versions, by API and the versions that the request allows.
        self._versions: dict[tuple[int, int, int], int] = {}

    def __repr__(self) -> str:
        return f"<Connection {self.connection_id} to {self.title} {self.state.value} in flight {len(self.in_flight)}>"

    @property
    def in_flight_count(self) -> int:
        """The owner's requests, without those of the connection itself."""
        if self.state is ConnectionState.READY:
            return len(self.in_flight)
        return sum(request.purpose is not self for request in self.in_flight)

    @property
    def large_bytes_in_flight(self) -> int:
        """The size of a large request without an answer; 0: there is none."""
        size, correlation_id = self._large
        return size if any(request.correlation_id == correlation_id for request in self.in_flight) else 0

    @property
    def in_flight_text(self) -> str:
        text, size = f"{self.in_flight_count} requests in flight", self.large_bytes_in_flight
        if not size:
            return text
        limit = "socket.request.max.bytes (104857600 by default)"
        return f"{text}, one of {size} bytes (on one above {limit} brokers close the connection)"

    def timeout_text(self, now_ms: int) -> str:
        request = min(self.in_flight, key=lambda request: request.deadline_ms)
        asked = f"{request.api.name} v{request.version}"
        return f"{self.title} did not answer {asked} within {now_ms - request.sent_ms} ms; the connection is closed"

    @property
    def uses_sasl(self) -> bool:
        return self._new_exchange is not None

    def is_session_over(self, now_ms: int) -> bool:
        """True: before the next request the session must be renewed."""
        return self.state is ConnectionState.READY and self.session_end_ms is not None and now_ms >= self.session_end_ms

    def is_idle(self, now_ms: int, idle_ms: int) -> bool:
        """Ready, and unused for this long; negative: never."""
        return self.state is ConnectionState.READY and 0 <= idle_ms <= now_ms - self.active_ms

    # ---- events ----------------------------------------------------------------------------------------------------

    def on_connected(self, now_ms: int) -> None:
        self._transition(ConnectionEvent.CONNECTED)
        self._ask_versions(API_VERSIONS.version_max, now_ms)

    def on_received(self, now_ms: int, data: Buffer) -> list[Answer]:
        """Responses in the complete frames. Those before a broken frame count; then `failure` is set."""
        answers: list[Answer] = []
        self.active_ms = now_ms
        try:
            self._frames.feed(data)
            while self.failure is None and self._frames.size and (frame := self._frames.next_frame()) is not None:
                answer = self._on_frame(now_ms, frame)
                if answer is not None:
                    answers.append(answer)
        except RemoteProtocolError as error:
            self.failure = RemoteProtocolError(f"{self.title} broke the protocol: {error}")
        return answers

    def on_written(self) -> list[Answer]:
        """Requests without a response (acks=0) are done when the operating system has taken them."""
        done = [request for request in self.in_flight if not request.expects_answer]
        self.in_flight = deque(request for request in self.in_flight if request.expects_answer)
        self.deadline_ms = min([request.deadline_ms for request in self.in_flight], default=None)
        return [Answer(request, self.node_id) for request in done]

    def on_lost(self, failure: KafkaSinkError) -> list[Answer]:
        """Fails all requests in flight, in order. Each may have reached the broker."""
        self._transition(ConnectionEvent.LOST)
        lost, self.in_flight = self.in_flight, deque()
        self.deadline_ms = None
        return [Answer(request, self.node_id, failure=failure) for request in lost if request.purpose is not self]

    # ---- requests --------------------------------------------------------------------------------------------------

    def version_for(self, api: Api, version_min: int = 0, version_max: int = VERSION_MAX) -> int | None:
        """The highest version that broker, package and request allow."""
        if api.key not in self.ranges:
            return None
        broker_min, broker_max = self.ranges[api.key]
        version = min(broker_max, api.version_max, version_max)
        return version if version >= max(broker_min, api.version_min, version_min) else None

    def send(self, request: Request, now_ms: int) -> Answer | None:
        """None if it was sent; an immediate answer if this broker does not support it."""
        if self.state is not ConnectionState.READY:
            raise LocalProtocolError(f"{request.api.name} sent to {self.title}, which is {self.state.value}")
        wanted = (request.api.key, request.version_min, request.version_max)
        version = self._versions.get(wanted)
        if version is None:
            version = self.version_for(request.api, request.version_min, request.version_max)
        try:
            if version is None:
                raise self._unsupported_error(request)
            self._versions[wanted] = version
            self._send(request, version, now_ms)
        except (BrokerError, LocalProtocolError) as error:
            # LocalProtocolError: a field that must not be dropped does not exist in this broker's version.
            return Answer(request, self.node_id, failure=error, was_sent=False)
        return None

    def _send(self, request: Request, version: int, now_ms: int) -> None:
        correlation_id = self._next_correlation_id
        buffers = request.encode(version, correlation_id, self._options.client_id)
        self._next_correlation_id = 0 if correlation_id == CORRELATION_ID_MAX else correlation_id + 1
        request.correlation_id, request.version = correlation_id, version
        request.sent_ms, request.deadline_ms = now_ms, now_ms + request.timeout_ms
        size = sum(map(len, buffers))
        if size > LARGE_REQUEST_BYTES:
            self._large = (size, correlation_id)
        self.in_flight.append(request)
        if self.deadline_ms is None or request.deadline_ms < self.deadline_ms:
            self.deadline_ms = request.deadline_ms
        self.commands.append(Send(self.connection_id, buffers, not request.expects_answer))
        self.active_ms = now_ms

    def _unsupported_error(self, request: Request) -> BrokerError:
        api = request.api
        wanted = f"{max(api.version_min, request.version_min)} to {min(api.version_max, request.version_max)}"
        offered = self.ranges.get(api.key)
        offer = f"offers versions {offered[0]} to {offered[1]} of it" if offered else "does not offer it"
        text = f"{api.name} needs one of the versions {wanted}, but {self.title} {offer}"
        if api.key == METADATA.key and offered is None:
            text += ": it speaks Kafka, but is no broker. Is this the port of a KRaft controller, and not of a broker?"
        return BrokerError(text, BROKER_TOO_OLD, code=UNSUPPORTED_VERSION, api=api.name)

    # ---- frames ----------------------------------------------------------------------------------------------------

    def _on_frame(self, now_ms: int, frame: bytes) -> Answer | None:
        # Requests without a response are skipped: the frame belongs to the oldest that expects one.
        in_flight = self.in_flight
        if in_flight and in_flight[0].expects_answer:
            request = in_flight[0]
        else:
            found = next((request for request in in_flight if request.expects_answer), None)
            if found is None:
                raise RemoteProtocolError(f"an answer of {len(frame)} bytes to no request")
            request = found
        body, throttle_ms = request.decode(frame)
        in_flight.remove(request)
        self._observe(request, throttle_ms, now_ms)
        self.deadline_ms = None
        for waiting in in_flight:
            if self.deadline_ms is None or waiting.deadline_ms < self.deadline_ms:
                self.deadline_ms = waiting.deadline_ms
        if request.purpose is self:
            self._on_own_answer(now_ms, request, body)
            return None
        self.has_served = True
        return Answer(request, self.node_id, body)

    def _observe(self, request: Request, throttle_ms: int, now_ms: int) -> None:
        throttle_ms = max(0, throttle_ms)
        api_key = request.api.key
        if throttle_ms and request.version >= request.api.throttled_since:
            mute_ms = min(throttle_ms, THROTTLE_MS_MAX)
            self.throttled_until_ms = max(self.throttled_until_ms, now_ms + mute_ms)
            # A throttling broker reads nothing, so the wait is not a timeout.
            for waiting in self.in_flight:
                waiting.deadline_ms += mute_ms
        self.commands.append(RequestObserved(self.node_id, api_key, now_ms - request.sent_ms, throttle_ms))

    # ---- negotiation -----------------------------------------------------------------------------------------------

    def _ask(self, api: Api, body: Mapping[str, Any], version: int, now_ms: int) -> None:
        """A request of this connection itself."""
        self._send(Request(api, body, self, self._options.request_timeout_ms), version, now_ms)

    def _on_own_answer(self, now_ms: int, request: Request, body: Mapping[str, Any]) -> None:
        try:
            if self.state is ConnectionState.NEGOTIATING:
                self._on_versions(now_ms, request.version, body)
            elif self.state is ConnectionState.HANDSHAKING:
                self._on_handshake(now_ms, body)
            else:
                self._on_token(now_ms, body)
        except _FAILURES as error:
            self.failure = error

    def _ask_versions(self, version: int, now_ms: int) -> None:
        body = {"client_software_name": CLIENT_SOFTWARE_NAME, "client_software_version": VERSION}
        self._ask(API_VERSIONS, body, version, now_ms)

    def _on_versions(self, now_ms: int, version: int, body: Mapping[str, Any]) -> None:
        ranges = {row["api_key"]: (row["min_version"], row["max_version"]) for row in body["api_keys"]}
        if body["error_code"] == UNSUPPORTED_VERSION and version > 0:
            self._transition(ConnectionEvent.VERSIONS_REFUSED)
            # Brokers since 2.4 return their version. It must be lower than the last one, so this terminates.
            offered = ranges.get(API_VERSIONS.key, (0, 0))[1]
            self._ask_versions(max(0, min(offered, version - 1)), now_ms)
            return
        if body["error_code"]:
            said = f"{self.title} refused ApiVersions with error code {body['error_code']}"
            raise TransportError(f"{said}: no Kafka broker, or too old?", NOT_KAFKA)
        self.ranges = ranges
        self._versions.clear()
        self.finalized_features_epoch = body.get("finalized_features_epoch", -1)
        features = body.get("finalized_features") or ()
        self.finalized_features = {feature["name"]: feature["max_version_level"] for feature in features}
        if self._new_exchange is None:
            self._become_ready(ConnectionEvent.VERSIONS_AGREED)
        else:
            self._begin_authentication(now_ms)

    def renew_session(self, now_ms: int) -> None:
        """Reauthenticates; requests in flight are answered before (KIP-368)."""
        try:
            self._begin_authentication(now_ms)
        except _FAILURES as error:
            self.failure = error

    def _begin_authentication(self, now_ms: int) -> None:
        self._transition(ConnectionEvent.AUTHENTICATION_BEGUN)
        assert self._new_exchange is not None
        self._exchange = self._new_exchange()
        # Version 0 continues with frames without headers; brokers before 1.0 support nothing else.
        version = self.version_for(SASL_HANDSHAKE, version_min=1)
        if version is None or self.version_for(SASL_AUTHENTICATE) is None:
            raise TransportError(
                f"{self.title} offers no SaslHandshake v1: no SASL, or a broker before 1.0", MECHANISM_NOT_OFFERED
            )
        self._ask(SASL_HANDSHAKE, {"mechanism": self._exchange.mechanism}, version, now_ms)

    def _on_handshake(self, now_ms: int, body: Mapping[str, Any]) -> None:
        assert self._exchange is not None
        check_handshake(self._exchange, self.title, body, is_renewal=self.sessions > 0)
        self._transition(ConnectionEvent.MECHANISM_AGREED)
        self._send_token(self._exchange.first(), now_ms)

    def _on_token(self, now_ms: int, body: Mapping[str, Any]) -> None:
        assert self._exchange is not None
        token = step_exchange(self._exchange, self.title, body)
        if token is not None:
            self._transition(ConnectionEvent.TOKEN_WANTED)
            self._send_token(token, now_ms)
            return
        self._exchange = None
        self.session_end_ms = session_end_ms(now_ms, body.get("session_lifetime_ms", 0), self._jitter())
        self._become_ready(ConnectionEvent.AUTHENTICATED)

    def _send_token(self, token: bytes, now_ms: int) -> None:
        version = self.version_for(SASL_AUTHENTICATE)
        assert version is not None
        self._ask(SASL_AUTHENTICATE, {"auth_bytes": token}, version, now_ms)

    def _become_ready(self, event: ConnectionEvent) -> None:
        # No request was sent since: further bytes belong to no request.
        if self._frames.size:
            raise RemoteProtocolError(f"{self._frames.size} bytes that nobody asked for, before the first request")
        self._transition(event)
        self.sessions += 1
        self._frames.frame_bytes_max = FRAME_BYTES_MAX

    def _transition(self, event: ConnectionEvent) -> None:
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise LocalProtocolError(f"{event.value!r} while {self.state.value} on the connection to {self.title}")
        self.state = following
