"""A TCP proxy in front of one broker that passes on at most so many bytes per second towards it.

Answers are not slowed. The broker must advertise the proxy's address, so the proxy listens before the broker starts
and learns its address afterwards. Each connection has a small buffer and a thread for each direction: what the client
has sent and the proxy has not passed on stays in the kernel's few buffers, as with a slow line.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType

_PIECE_BYTES = 8192
_POLL_S = 0.05


class SlowProxy:
    """`bytes_per_s` may be changed at any time: None is unlimited, 0 lets nothing through.

    `upstream` tells the broker's address; an empty one means that it is not known yet.
    """

    def __init__(self, upstream: Callable[[], str], bytes_per_s: int | None = None) -> None:
        self.bytes_per_s = bytes_per_s
        self._upstream = upstream
        self.passed_bytes = 0
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Set before listening, so that accepted connections have it as their window.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self._over = threading.Event()
        self._lock = threading.Lock()
        # When the line is free again: one line for all connections.
        self._free_at = 0.0
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def __enter__(self) -> SlowProxy:
        self._start(self._accept)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        with self._lock:
            sockets = [self._listener, *self._sockets]
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for each in sockets:
            each.close()

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, name="slow-proxy", daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._over.is_set():
                client, _ = self._listener.accept()
                while not (address := self._upstream()) and not self._over.wait(_POLL_S):
                    pass
                host, _, port = address.partition(":")
                try:
                    broker = socket.create_connection((host, int(port)), 10)
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._sockets += [client, broker]
                self._start(self._pass_on, client, broker, True)
                self._start(self._pass_on, broker, client, False)

    def _pass_on(self, source: socket.socket, target: socket.socket, is_slow: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE_BYTES):
                if is_slow and not self._wait_for_turn(len(data)):
                    break
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _wait_for_turn(self, byte_count: int) -> bool:
        while self.bytes_per_s == 0:
            if self._over.wait(_POLL_S):
                return False
        with self._lock:
            self.passed_bytes += byte_count
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + (byte_count / self.bytes_per_s if self.bytes_per_s else 0.0)
            wait_s = self._free_at - now
        return not self._over.wait(wait_s) if wait_s > 0 else not self._over.is_set()
