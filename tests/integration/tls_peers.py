"""TLS peers: listeners of Python's ssl module with one certificate each, and a client that connects to them."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.client.commands import Connect, Connected, Disconnected, Received, Send
from kafka_sink.kafka.io.clock import Clock
from kafka_sink.kafka.io.network import Network
from kafka_sink.kafka.io.tls import TlsContexts
from kafka_sink.options import ProducerOptions
from kafka_sink.options.parse import parse_producer_options
from tests.support.certificates import Authority, Issued

WAIT_S = 90.0
HOST = "localhost"


class Listener:
    """Accepts connections and echoes what each sends; remembers the bytes that came through TLS."""

    def __init__(self, issued: Issued | None, configure: Callable[[ssl.SSLContext], object] = lambda _: None) -> None:
        self.plain_bytes = b""
        # Set before a connection is made: answers are sent in TLS records of this size.
        self.record_bytes = 0
        self._issued = issued
        self._configure = configure
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._start(self._run)

    def use(self, issued: Issued) -> None:
        self._issued = issued

    def _run(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            accepted.settimeout(WAIT_S)
            self._start(self._attend, accepted)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self._threads[-1].start()

    def _attend(self, accepted: socket.socket) -> None:
        with accepted, suppress(OSError):
            self._serve(accepted)

    def _serve(self, accepted: socket.socket) -> None:
        if self._issued is None:
            accepted.recv(10)
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._issued.chain, self._issued.key)
        self._configure(context)
        with context.wrap_socket(accepted, server_side=True) as secured:
            while data := secured.recv(1 << 16):
                self.plain_bytes += data
                size = self.record_bytes or len(data)
                for start in range(0, len(data), size):
                    secured.sendall(data[start : start + size])

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(WAIT_S)


def options(authority: Authority, **more: object) -> ProducerOptions:
    named = {name.replace("_", "."): value for name, value in more.items()}
    trust = {} if "ssl.truststore.certificates" in named else {"ssl.truststore.location": str(authority.path)}
    base = {"bootstrap.servers": "b:1", "security.protocol": "SSL"}
    return parse_producer_options({**base, **trust, **named})


class Dialogue:
    """One network and the events that it reported."""

    def __init__(self, chosen: ProducerOptions) -> None:
        self.network = Network(Clock(), chosen, TlsContexts(chosen))
        self.events: list[Any] = []

    def __enter__(self) -> Dialogue:
        return self

    def __exit__(self, *_: object) -> None:
        self.network.close()

    def connect(self, port: int, host: str = HOST, connection_id: int = 1) -> Any:
        address = (int(socket.AF_INET), ("127.0.0.1", port))
        self.network.execute(Connect(connection_id, 0, address, host))
        return self.wait_for(connection_id, (Connected, Disconnected))

    def wait_for(self, connection_id: int, kinds: tuple[type, ...]) -> Any:
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            for event in self.events:
                if isinstance(event, kinds) and event.connection_id == connection_id:
                    return event
            self.events += self.network.poll(100)
        raise AssertionError(f"none of {kinds} in {self.events}")

    def echoed(self, buffers: list[bytes], connection_id: int = 1) -> bytes:
        self.network.execute(Send(connection_id, buffers, tells_written=True))
        wanted = sum(map(len, buffers))
        received = b""
        deadline_s = time.monotonic() + WAIT_S
        while len(received) < wanted and time.monotonic() < deadline_s:
            self.events += self.network.poll(100)
            received += b"".join(bytes(each.data) for each in self.events if isinstance(each, Received))
            lost = [each for each in self.events if isinstance(each, Disconnected)]
            assert connection_id not in [each.connection_id for each in lost], lost
            self.events = [each for each in self.events if not isinstance(each, Received)]
        return received


def refusal(chosen: ProducerOptions, port: int, host: str = HOST) -> KafkaSinkError:
    with Dialogue(chosen) as dialogue:
        event = dialogue.connect(port, host)
        assert isinstance(event, Disconnected)
        return event.reason
