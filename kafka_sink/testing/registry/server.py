"""The embedded schema registry on a real socket: a thread for each connection, one lock around the core.

with EmbeddedRegistry(users={"alice": "secret"}) as registry:
    run_my_job({"schema.registry.url": registry.url, "schema.registry.basic.auth.user.info": "alice:secret"})
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from kafka_sink.testing.forks import OPENING, close_in_children
from kafka_sink.testing.registry.core import RegistryCore, RegistryFault, RegistryHttpAnswer

T = TypeVar("T")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, owner: EmbeddedRegistry, host: str, port: int) -> None:
        self.owner = owner
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.connections: set[socket.socket] = set()
        super().__init__((host, port), _Handler)
        self.socket.setblocking(False)  # so that nobody waits for a client that has gone again

    def get_request(self) -> tuple[socket.socket, Any]:
        with OPENING:
            accepted, address = super().get_request()
            self.connections.add(accepted)
        return accepted, address

    def close_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().close_request(request)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """TLS begins in the connection's own thread, so that a silent client does not block others."""
        if self.owner._tls is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(10)
        with OPENING:
            encrypted = self.owner._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            self.connections.add(encrypted)
        try:
            with encrypted:
                encrypted.do_handshake()
                super().finish_request(encrypted, client_address)
        finally:
            self.connections.discard(encrypted)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client disconnected, or did not use TLS


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, *_arguments: Any) -> None:
        pass

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._send(self.server.owner.do(lambda core: core.answer(self.command, self.path, headers, body)))

    do_GET = do_POST = do_PUT = do_DELETE = _any

    def _send(self, answer: RegistryHttpAnswer) -> None:
        fault = answer.fault
        if fault.delay_s:
            time.sleep(fault.delay_s)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if fault.cut:
            self.wfile.write(answer.body[: len(answer.body) // 2])
        elif fault.drip_s:
            for index in range(len(answer.body)):
                self.wfile.write(answer.body[index : index + 1])
                self.wfile.flush()
                time.sleep(fault.drip_s)
        else:
            self.wfile.write(answer.body)


class EmbeddedRegistry:
    """A schema registry in this process; a context manager. `port` 0 lets the system choose. Its data is in memory and
    survives stop and start. `tls` is the `ssl.SSLContext` of a server."""

    def __init__(
        self,
        *,
        users: Mapping[str, str] | None = None,
        tokens: set[str] | None = None,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.core = RegistryCore(users, tokens)
        self._tls = tls
        self._host = host
        self._port = port
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        close_in_children(self, EmbeddedRegistry._leave_to_parent)

    def __enter__(self) -> EmbeddedRegistry:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def start(self) -> None:
        with OPENING:
            self._server = server = _Server(self, self._host, self._port)
        self._port = server.server_address[1]
        self._thread = threading.Thread(
            target=server.serve_forever, args=(0.05,), name="embedded-registry", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """The port refuses connections until it is started again."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = None

    def _leave_to_parent(self) -> None:
        self._lock = threading.Lock()
        if self._server is not None:
            for one in (self._server.socket, *self._server.connections):
                one.close()
        self._server = None

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self._port}"

    def do(self, action: Callable[[RegistryCore], T]) -> T:
        with self._lock:
            return action(self.core)

    def inject(self, fault: RegistryFault) -> RegistryFault:
        self.do(lambda core: core.faults.append(fault))
        return fault

    def requests(self) -> list[tuple[str, str]]:
        """Method and path of every request so far."""
        return self.do(lambda core: list(core.requests))
