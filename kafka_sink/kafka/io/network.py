"""Sockets: carries out the engine's connection commands, reports events, and logs what the engine, which is pure, says.

One selector, non-blocking sockets, no thread of its own: the owner calls `execute` and `poll` from one thread; only
`wake` may be called from others. A slow or dead peer costs a selector entry, never time.

Operating system errors are converted here. `OSError` and `gaierror` become a `TransportError` with host, port and
reason, which is an event and is not raised. What a lost connection means, and whether anything is resent, is decided
elsewhere.

A connection with TLS (`tls_connection.py`) has the same interface as a plain one; here it only needs a second step to
be established. `Connected` is reported after the broker's certificate was verified, so nothing can be sent before.

Resolving a name is the only call that can block (`getaddrinfo` has no non-blocking form). It blocks the sender thread,
as it does in the Java client; an address in place of a name avoids it.
"""

from __future__ import annotations

import errno
import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafka_sink.errors import printable_text
from kafka_sink.kafka.client.commands import (
    Address,
    Connect,
    Connected,
    Disconnect,
    Disconnected,
    NetworkEvent,
    Notice,
    Received,
    Resolve,
    Resolved,
    Send,
    Written,
)
from kafka_sink.kafka.io.clock import Clock
from kafka_sink.kafka.io.plain_connection import PlainConnection, failure_of, look_for_descriptor
from kafka_sink.options import ProducerOptions

if TYPE_CHECKING:
    from kafka_sink.kafka.io.tls import TlsContexts

SocketCommand = Resolve | Connect | Send | Disconnect

# Size of one read; responses to a producer are small.
RECEIVE_BYTES = 64 * 1024
# How often one connection may read or write per iteration.
CALLS_PER_TURN = 8
WAKE_BYTES = 4096
# The operating system counts 24 days; some options allow more. The owner polls again.
WAIT_MS_MAX = 24 * 3_600_000
NS_PER_MS = 1_000_000

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Network:
    def __init__(self, clock: Clock, options: ProducerOptions, tls: TlsContexts | None = None) -> None:
        self._clock = clock
        self._options = options
        self._tls = tls
        self._connections: dict[int, PlainConnection] = {}
        # Connections with decrypted data that was not read in one iteration: the selector does not see it.
        self._unread: set[PlainConnection] = set()
        # Events caused by commands, until the next poll returns them.
        self._events: list[NetworkEvent] = []
        self._received = memoryview(bytearray(RECEIVE_BYTES))
        try:
            self._selector = selectors.DefaultSelector()
            self._wake_receiver, self._wake_sender = socket.socketpair()
        except OSError as error:
            raise failure_of("a client could not be made", error) from None
        for end in (self._wake_receiver, self._wake_sender):
            end.setblocking(False)
        self._selector.register(self._wake_receiver, _READ, None)
        # A byte sent to a descriptor that was closed and reused meanwhile would go to another file. Reentrant, because
        # a producer may be garbage-collected, and wake its sender, in the middle of `wake`.
        self.wake_lock = threading.RLock()
        # Also when closed: nobody is to be woken any more.
        self._is_woken = False
        # Duration of the last poll: waiting, and then reading and writing.
        self.wait_ns = 0
        self.io_ns = 0

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def wake(self) -> None:
        """Ends a `poll` that waits, or makes the next one return at once. Thread-safe."""
        with self.wake_lock:
            if self._is_woken:
                return
            self._wake_sender.send(b"\0")
            # Last: after an interrupt before it the next call sends another byte, instead of relying on this one.
            self._is_woken = True

    def poll(self, timeout_ms: int | None) -> list[NetworkEvent]:
        """Waits for events, at most `timeout_ms` (None: no limit), and returns them.

        A partial write is not an event: it continues to wait. A large request takes several of them, and an engine step
        for each would cost more than writing it.
        """
        if self._events or self._unread:
            timeout_ms = 0
        now_ns = self._clock.monotonic_ns()
        deadline_ns = None if timeout_ms is None else now_ns + min(timeout_ms, WAIT_MS_MAX) * NS_PER_MS
        self.wait_ns = self.io_ns = 0
        is_over = False
        while not is_over:
            ready = self._selector.select(None if deadline_ns is None else max(0, deadline_ns - now_ns) / 1e9)
            selected_ns = self._clock.monotonic_ns()
            self.wait_ns += selected_ns - now_ns
            is_woken = self._take_turns(ready)
            now_ns = self._clock.monotonic_ns()
            self.io_ns += now_ns - selected_ns
            is_late = deadline_ns is not None and now_ns >= deadline_ns
            is_over = is_woken or is_late or not ready or bool(self._events)
        taken, self._events = self._events, []
        return taken

    def execute(self, command: SocketCommand) -> None:
        if isinstance(command, Send):
            self.send(command)
        elif isinstance(command, Connect):
            self._connect(command)
        elif isinstance(command, Disconnect):
            connection = self._connections.get(command.connection_id)
            if connection is not None:
                self._drop(connection)
        else:
            self._events.append(_resolve(command))

    def send(self, command: Send) -> None:
        connection = self._connections.get(command.connection_id)
        if connection is None:
            return  # just lost: its `Disconnected` follows
        is_first = not connection.outgoing
        connection.outgoing.extend(map(memoryview, command.buffers))
        if command.tells_written:
            connection.tells_written = True
            # A former request is reported together with this one: an event counts for all of them.
            self._events = [event for event in self._events if event != Written(command.connection_id)]
        if is_first and not connection.is_connecting and self._write(connection) and connection.outgoing:
            self._selector.modify(connection.socket, _READ | _WRITE, connection)

    def close(self) -> None:
        with self.wake_lock:
            self.close_descriptors()

    def close_descriptors(self) -> None:
        """Like `close`, for a forked child, in which the lock may never be released.

        Nothing is unregistered from the selector: parent and child share it in the kernel, and the parent would get no
        more events of what the child unregisters. Closing the descriptors does not affect the parent's.
        """
        self._is_woken = True  # before there is another lock
        self.wake_lock = threading.RLock()
        self._selector.close()
        self._wake_sender.close()
        self._wake_receiver.close()
        for connection in list(self._connections.values()):
            connection.socket.close()
        self._connections.clear()

    # ---- commands --------------------------------------------------------------------------------------------------

    def _connect(self, command: Connect) -> None:
        family, address = command.address
        peer = format_address(command.address)
        try:
            opened = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._events.append(Disconnected(command.connection_id, failure_of(peer, error)))
            return
        if self._tls is None:
            connection = PlainConnection(command.connection_id, opened, peer)
        else:
            from kafka_sink.kafka.io.tls_connection import TlsConnection  # see secured.py

            connection = TlsConnection(command.connection_id, opened, peer, command.host, self._tls)
        try:
            self._set_options(opened)
            refused = opened.connect_ex(address)
            if refused not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
                raise OSError(refused, os.strerror(refused))
            self._selector.register(opened, _WRITE, connection)
        except (OSError, OverflowError) as error:
            opened.close()
            self._events.append(Disconnected(command.connection_id, failure_of(peer, error)))
            return
        self._connections[command.connection_id] = connection

    def _set_options(self, opened: socket.socket) -> None:
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if opened.family in (socket.AF_INET, socket.AF_INET6):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._options.send_buffer_bytes >= 0:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._options.send_buffer_bytes)
        if self._options.receive_buffer_bytes >= 0:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._options.receive_buffer_bytes)

    # ---- readiness -------------------------------------------------------------------------------------------------

    def _take_turns(self, ready: list[tuple[selectors.SelectorKey, int]]) -> bool:
        """Reads and writes where possible. True: `wake` was called."""
        is_woken = False
        for key, mask in ready:
            if key.data is None:
                with self.wake_lock:
                    self._wake_receiver.recv(WAKE_BYTES)
                    self._is_woken = False
                is_woken = True
            elif mask == _READ and not key.data.is_connecting:
                self._read(key.data)
            else:
                self._on_ready(key.data, mask)
        for connection in list(self._unread):
            self._read(connection)
        return is_woken

    def _on_ready(self, connection: PlainConnection, mask: int) -> None:
        if connection.is_connecting:
            self._establish(connection)
            return
        if mask & _READ and not self._read(connection):
            return
        if mask & _WRITE and self._write(connection) and not connection.outgoing:
            self._selector.modify(connection.socket, _READ, connection)

    def _establish(self, connection: PlainConnection) -> None:
        before = connection.socket
        try:
            wanted = connection.establish()
        except OSError as error:
            self._lose(connection, error)
            return
        if connection.socket is not before:
            # TLS took over the descriptor; it is registered with the former socket object.
            self._selector.unregister(before)
            self._selector.register(connection.socket, wanted or _READ, connection)
        if wanted:
            self._selector.modify(connection.socket, wanted, connection)
            return
        connection.is_connecting = False
        self._selector.modify(connection.socket, _READ | _WRITE if connection.outgoing else _READ, connection)
        self._events.append(Connected(connection.connection_id))

    def _read(self, connection: PlainConnection) -> bool:
        """False: the connection is lost. Data received before is reported first."""
        self._unread.discard(connection)
        for _ in range(CALLS_PER_TURN):
            try:
                count = connection.receive_into(self._received)
            except (BlockingIOError, InterruptedError):
                return True
            except OSError as error:
                self._lose(connection, error)
                return False
            if count == 0:
                self._lose(connection, None)
                return False
            self._events.append(Received(connection.connection_id, bytes(self._received[:count])))
            if count < RECEIVE_BYTES:
                break
        if self._tls is not None and connection.has_unread:
            self._unread.add(connection)
        return True

    def _write(self, connection: PlainConnection) -> bool:
        """False: the connection is lost. Reports `Written` when all is written, if requested."""
        outgoing = connection.outgoing
        for _ in range(CALLS_PER_TURN):
            try:
                count = connection.send()
            except (BlockingIOError, InterruptedError):
                return True
            except OSError as error:
                self._lose(connection, error)
                return False
            while outgoing and count >= len(outgoing[0]):
                count -= len(outgoing.popleft())
            if not outgoing:
                if connection.tells_written:
                    connection.tells_written = False
                    self._events.append(Written(connection.connection_id))
                return True
            if count:
                outgoing[0] = outgoing[0][count:]
        return True

    # ---- endings ---------------------------------------------------------------------------------------------------

    def _lose(self, connection: PlainConnection, error: Exception | None) -> None:
        failure = connection.failure_of(error)  # before its descriptor is free again
        self._drop(connection)
        self._events.append(Disconnected(connection.connection_id, failure))

    def _drop(self, connection: PlainConnection) -> None:
        del self._connections[connection.connection_id]
        self._unread.discard(connection)
        self._selector.unregister(connection.socket)
        connection.socket.close()


def format_address(address: Address) -> str:
    family, parts = address
    if family == socket.AF_INET6:
        return f"[{parts[0]}]:{parts[1]}"
    return f"{parts[0]}:{parts[1]}" if len(parts) > 1 else str(parts[0])


def _resolve(command: Resolve) -> Resolved:
    try:
        found = socket.getaddrinfo(command.host, command.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        peer = f"{command.host}:{command.port}"
        # A resolver that cannot open its files may say that there is no such name.
        return Resolved(command.node_id, (), look_for_descriptor(peer) or failure_of(peer, error))
    addresses = dict.fromkeys((int(family), tuple(address)) for family, _, _, _, address in found)
    return Resolved(command.node_id, tuple(addresses))


def log_notice(log: Callable[..., None], client_id: str, notice: Notice) -> None:
    """A row names its topic, and must not write a line of its own with it."""
    log(_LEVELS[notice.level], "[%s] %s", printable_text(client_id), printable_text(notice.text))
