"""What the network tells and what it is told: events go into an engine's step, commands come out of it.

Events are facts (a socket connected, bytes came). Commands are nouns: what the shell has to carry out, in the order
given, before the next step. Nothing here has behaviour.

Two kinds of ids: `node_id` is a broker's id from metadata (bootstrap servers have ids below -1, in the order of their
listing: -2, -3, ...), `connection_id` names one TCP connection for ever; an event that carries an old connection id is
stale and is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_sink.errors import AuthenticationError, ConfigError, TransportError
from kafka_sink.frozen import frozen

# Address family and the socket address as `socket.getaddrinfo` gives them; opaque to the engine.
Address = tuple[int, tuple[Any, ...]]
Buffer = bytes | bytearray | memoryview


# ---- events ----------------------------------------------------------------------------------------------------------


@frozen
class Resolved:
    """All addresses of a node's host name; none and a reason when the name did not resolve."""

    node_id: int
    addresses: tuple[Address, ...]
    failure: TransportError | None = None


@frozen
class Connected:
    """Bytes may be sent: with TLS, the broker's certificate has been verified."""

    connection_id: int


@frozen
class Received:
    connection_id: int
    data: Buffer


@frozen
class Written:
    """All buffers sent so far on this connection have been handed to the operating system. Only who asked is told."""

    connection_id: int


@frozen
class Disconnected:
    """An `AuthenticationError`: one side did not accept the other's certificate."""

    connection_id: int
    reason: TransportError | AuthenticationError | ConfigError


NetworkEvent = Resolved | Connected | Received | Written | Disconnected


# ---- commands --------------------------------------------------------------------------------------------------------


@frozen
class Resolve:
    node_id: int
    host: str
    port: int


@frozen
class Connect:
    """`host` is the name that the broker's certificate has to prove."""

    connection_id: int
    node_id: int
    address: Address
    host: str = ""


@frozen
class Send:
    """`tells_written`: nobody answers this request (acks=0), so it is over when it is `Written`."""

    connection_id: int
    buffers: Sequence[Buffer]
    tells_written: bool = False


@frozen
class Disconnect:
    """Close the socket. The engine has forgotten the connection already; no `Disconnected` is expected."""

    connection_id: int


# ---- observations, for logs and metrics ------------------------------------------------------------------------------


@frozen
class Notice:
    """Something an operator may want to read. `level` is debug, info or warning."""

    level: str
    text: str


@frozen
class RequestObserved:
    node_id: int
    api_key: int
    latency_ms: int
    throttle_ms: int


NetworkCommand = Resolve | Connect | Send | Disconnect | Notice | RequestObserved
