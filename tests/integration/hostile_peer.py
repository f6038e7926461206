"""Servers that are not Kafka brokers, or broken ones. Each listens on its own port and treats all clients alike.

A behaviour is a function that gets a connected socket and runs in a thread; the peer closes the socket afterwards. The
peer counts its connections and those that are closed, so that a test can check both sides.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable

from kafka_sink.kafka.wire.apis import API_VERSIONS, APIS
from kafka_sink.kafka.wire.frames import decode_request_header, encode_response

Behaviour = Callable[[socket.socket, threading.Event], None]
_STEP_S = 0.05


class HostilePeer:
    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.connection_count = 0
        self.open_count = 0

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def __enter__(self) -> HostilePeer:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        # Closing a socket does not end an accept() on it; shutting it down does.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name="hostile-peer", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with self._lock:
                    self.connection_count += 1
                    self.open_count += 1
                self._start(lambda connection=connection: self._serve(connection))  # type: ignore[misc]

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self._behaviour(connection, self._over)
        with self._lock:
            self.open_count -= 1


def _until_closed(connection: socket.socket, over: threading.Event) -> None:
    """Reads until the client closes the connection."""
    while not over.is_set():
        if select.select([connection], [], [], _STEP_S)[0] and not connection.recv(65536):
            return


def _after_request(answer: bytes) -> Behaviour:
    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(answer)
        _until_closed(connection, over)

    return behave


# ---- peers that do not speak Kafka -----------------------------------------------------------------------------

close_at_once: Behaviour = lambda connection, over: None  # noqa: E731
silence: Behaviour = _until_closed
http = _after_request(
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
)
# Alert, TLS 1.2, 2 bytes: fatal, unexpected message. A TLS listener sends this to a client that speaks plain text.
tls_alert = _after_request(bytes([0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x0A]))
ssh = _after_request(b"SSH-2.0-OpenSSH_9.6\r\n")
# The first four bytes are a plausible length, so the body is decoded.
random_body = _after_request(struct.pack(">i", 4096) + random.Random(7).randbytes(4096))
huge_length = _after_request(struct.pack(">i", 2**31 - 1) + b"\0" * 64)
negative_length = _after_request(struct.pack(">i", -1) + b"\0" * 64)
empty_frame = _after_request(struct.pack(">i", 0))


def flood(connection: socket.socket, over: threading.Event) -> None:
    """Random bytes as fast as the client reads them."""
    block = random.Random(3).randbytes(65536)
    connection.recv(65536)
    while not over.is_set():
        connection.sendall(block)


def endless_slow_bytes(connection: socket.socket, over: threading.Event) -> None:
    """A frame just below the size limit, one byte at a time, never finished."""
    connection.recv(65536)
    connection.sendall(struct.pack(">i", 500_000))
    while not over.wait(0.01):
        connection.sendall(b"\0")


def drip(opening: bytes, piece: bytes) -> Behaviour:
    """An answer that never ends, although a piece of it arrives all the time."""

    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(opening)
        while not over.wait(0.02):
            connection.sendall(piece)

    return behave


# What a web server may never end: the status, a header, 1xx responses, the size of a chunk, a refusal.
web_drips = {
    "status": drip(b"", b"H"),
    "header": drip(b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    "continue": drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "chunk": drip(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    "refusal": drip(b"HTTP/1.1 503 Wait\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
}


# ---- peers that speak some Kafka -------------------------------------------------------------------------------


def _read_request(connection: socket.socket) -> tuple[int, int, int] | None:
    """API key, version and correlation id; None if the client has closed the connection."""
    head = connection.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return None
    frame = connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
    api_key, version, correlation_id, _, _ = decode_request_header(frame)
    return api_key, version, correlation_id


def _versions_answer(version: int, correlation_id: int) -> bytes:
    rows = [
        {"api_key": api.key, "min_version": api.version_min, "max_version": api.version_max} for api in APIS.values()
    ]
    return encode_response(API_VERSIONS, version, correlation_id, {"error_code": 0, "api_keys": rows})


def wrong_correlation_id(connection: socket.socket, over: threading.Event) -> None:
    request = _read_request(connection)
    if request is not None:
        connection.sendall(_versions_answer(request[1], request[2] + 1))
        _until_closed(connection, over)


def after_versions(answer: Callable[[int], bytes]) -> Behaviour:
    """Acts like a broker until the versions are agreed, then sends `answer(correlation_id)` to every request."""

    def behave(connection: socket.socket, over: threading.Event) -> None:
        while (request := _read_request(connection)) is not None:
            api_key, version, correlation_id = request
            if api_key == API_VERSIONS.key:
                connection.sendall(_versions_answer(version, correlation_id))
            else:
                connection.sendall(answer(correlation_id))
                break
        _until_closed(connection, over)

    return behave


def _frame(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


later_wrong_correlation_id = after_versions(lambda correlation_id: _frame(correlation_id + 17, b"\0" * 100))
later_huge_length = after_versions(lambda correlation_id: struct.pack(">ii", 2**31 - 1, correlation_id))
# A compact array with a count of four billion brokers.
later_huge_count = after_versions(lambda correlation_id: _frame(correlation_id, b"\0" * 5 + b"\xff\xff\xff\xff\x0f"))
later_truncated = after_versions(lambda correlation_id: _frame(correlation_id, b"\0" * 3))
later_silence = after_versions(lambda correlation_id: b"")


def later_close(connection: socket.socket, over: threading.Event) -> None:
    request = _read_request(connection)
    if request is not None:
        connection.sendall(_versions_answer(request[1], request[2]))
        _read_request(connection)


def later_endless_frame(connection: socket.socket, over: threading.Event) -> None:
    """A frame of 90 MiB, below the limit, of which 4 KiB arrive every 10 ms: it may only cost what has arrived."""
    request = _read_request(connection)
    if request is None:
        return
    connection.sendall(_versions_answer(request[1], request[2]))
    request = _read_request(connection)
    if request is not None:
        connection.sendall(struct.pack(">ii", 90 * 1024 * 1024, request[2]))
        while not over.is_set():
            connection.sendall(bytes(4096))
            time.sleep(0.01)
