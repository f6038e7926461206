"""Network events, which go into an engine's step, and network commands, which come out of it.

Events are facts (a socket connected, bytes came). Commands are what the shell has to carry out, in the order given,
before the next step. Nothing here has behaviour.

Two kinds of ids: `node_id` is a broker's id from metadata (bootstrap servers have ids below -1, in the order of their
listing: -2, -3, ...), `connection_id` identifies one TCP connection and is never reused; an event with an old
connection id is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from kafka_sink.errors import AuthenticationError, TransportError
from kafka_sink.frozen import frozen

# Address family and the socket address as `socket.getaddrinfo` gives them; opaque to the engine.
Address = tuple[int, tuple[Any, ...]]
Buffer = bytes | bytearray | memoryview


# ---- events ----------------------------------------------------------------------------------------------------------


@frozen
class Resolved:
    """All addresses of a node's host name; none and a reason if it did not resolve."""

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
    """The operating system has taken all buffers sent so far on this connection. Only after `Send.tells_written`."""

    connection_id: int


@frozen
class Disconnected:
    """An `AuthenticationError`: one side rejected the other's certificate."""

    connection_id: int
    reason: TransportError | AuthenticationError


NetworkEvent = Resolved | Connected | Received | Written | Disconnected


# ---- commands --------------------------------------------------------------------------------------------------------


@frozen
class Resolve:
    node_id: int
    host: str
    port: int


@frozen
class Connect:
    """`host` is the name that the broker's certificate must match."""

    connection_id: int
    node_id: int
    address: Address
    host: str = ""


@frozen
class Send:
    """`tells_written`: this request gets no response (acks=0), so it is done when it is `Written`."""

    connection_id: int
    # A password during a login, and rows.
    buffers: Sequence[Buffer] = field(repr=False)
    tells_written: bool = False


@frozen
class Disconnect:
    """Close the socket. The engine has forgotten the connection already; no `Disconnected` is expected."""

    connection_id: int


# ---- observations, for logs and metrics ------------------------------------------------------------------------------


@frozen
class Notice:
    """A log message for an operator. `level` is debug, info or warning."""

    level: str
    text: str


@frozen
class RequestObserved:
    node_id: int
    api_key: int
    latency_ms: int
    throttle_ms: int


NetworkCommand = Resolve | Connect | Send | Disconnect | Notice | RequestObserved
