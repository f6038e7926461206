"""The embedded broker on real sockets: threads, sockets and a clock are here, not in the core.

One thread runs a selector over all listeners and connections and feeds the core, which decides everything. Calls from
other threads (faults, leader moves, stopping a broker) take the same lock and wake that thread, because responses may
have become ready.

    with EmbeddedBroker(brokers=3, topics={"events": 6}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

A process that is forked has nothing of it: its sockets and its data directory belong to the parent.

The core's time is the wall-clock time at the start plus the monotonic time since, so setting the clock back has no
effect.
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kafka_sink.testing.acl import Acl
from kafka_sink.testing.broker import BrokerCluster
from kafka_sink.testing.core import Output
from kafka_sink.testing.faults import Fault
from kafka_sink.testing.forks import OPENING, close_in_children
from kafka_sink.testing.log import CommittedRecord
from kafka_sink.testing.settings import RELEASES, Settings
from kafka_sink.testing.storage import Storage
from kafka_sink.testing.topics import BrokerState

T = TypeVar("T")
READ_BYTES = 1 << 18
NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# Data is written to the directory after this time at the latest; there is no stronger guarantee (and no fsync).
SAVE_INTERVAL_S = 0.2


@dataclass(slots=True, eq=False)
class Peer:
    socket: socket.socket
    broker_id: int
    connection_id: int
    unsent: bytearray = field(default_factory=bytearray)
    is_closing: bool = False


class EmbeddedBroker:
    """A Kafka cluster in this process, listening on `host`; a context manager.

    `port` is that of the first broker, the others follow; 0 lets the system choose. `properties` are Kafka's (see
    settings.py, others are refused), `release` selects the supported versions, `quirks` a service to imitate
    (quirks.py). Its clock is `clock_ahead_ms` ahead of the machine's. With `data_dir` a later instance finds topics,
    records, transactions and offsets. With `users` (name -> password), or `access_keys` (id -> secret key) for the
    mechanism AWS_MSK_IAM, clients must authenticate, with `acls` anything not allowed is denied. `tls` is the
    `ssl.SSLContext` of a server: then all listeners use TLS.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        topics: Mapping[str, int] | None = None,
        users: Mapping[str, str] | None = None,
        access_keys: Mapping[str, str] | None = None,
        acls: Iterable[Acl] | None = None,
        tls: ssl.SSLContext | None = None,
        data_dir: str | Path | None = None,
        properties: Mapping[str, str] | None = None,
        release: str = RELEASES[0],
        quirks: str = "",
        host: str = "127.0.0.1",
        port: int = 0,
        clock_ahead_ms: int = 0,
    ) -> None:
        self._host = host
        self._tls = tls
        self._topics = dict(topics or {})
        self._storage = Storage(Path(data_dir)) if data_dir is not None else None
        nodes = [BrokerState(number, host, port + number - 1 if port else 0) for number in range(1, brokers + 1)]
        self._started = time.time() * 1000 - time.monotonic() * 1000 + clock_ahead_ms
        settings = Settings(dict(properties or {}), release, random_bytes=os.urandom, quirks=quirks)
        self.core = BrokerCluster(
            nodes, users=users, access_keys=access_keys, acls=acls, settings=settings, now_ms=self._now_ms()
        )
        self._lock = threading.RLock()
        self._selector = selectors.DefaultSelector()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._listeners: dict[int, socket.socket] = {}
        # Of stopped brokers: bound, so that nobody else gets the port meanwhile, and not listening.
        self._reserved: dict[int, socket.socket] = {}
        self._peers: dict[int, Peer] = {}
        self._connection_count = 0
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        close_in_children(self, EmbeddedBroker._leave_to_parent)

    def _now_ms(self) -> int:
        return int(self._started + time.monotonic() * 1000)

    # ---- start and stop ----

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def start(self) -> None:
        try:
            if self._storage is not None:
                self._storage.load(self.core)
            for name, partitions in self._topics.items():
                if name not in self.core.cluster.topics:
                    self.core.cluster.create_topic(name, partitions, min(3, len(self.core.cluster.brokers)))
            for node_id in self.core.cluster.brokers:
                self._listen(node_id)
        except BaseException:
            self.stop()  # frees the directory, and the ports of the brokers before this one
            raise
        self._wake_receiver.setblocking(False)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="embedded-kafka", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        with self._lock:
            if self._is_stopping:
                return
            self._is_stopping = True
        if self._thread is None:
            self._close_sockets()
            if self._storage is not None:
                self._storage.close()
        else:
            self._wake()
            self._thread.join()

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def bootstrap_servers(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return ",".join(f"{host}:{one.port}" for one in self.core.cluster.brokers.values())

    # ---- control, from any thread ----

    @contextmanager
    def control(self) -> Iterator[BrokerCluster]:
        """The core, with the server thread paused: `with kafka.control() as core: core.cluster.move_leader(...)`."""
        with self._lock:
            self.core.schedule.run_due(self._now_ms())
            yield self.core
        self._wake()

    def do(self, action: Callable[[BrokerCluster], T]) -> T:
        with self.control() as core:
            return action(core)

    def inject(self, fault: Fault) -> Fault:
        return self.do(lambda core: core.faults.add(fault))

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str | None] | None = None) -> None:
        factor = min(3, len(self.core.cluster.alive))
        self.do(lambda core: core.cluster.create_topic(name, partitions, factor, configs))

    def records(self, topic: str) -> list[CommittedRecord]:
        """The records that a reader with isolation.level=read_committed gets now, by partition and offset."""
        with self.control() as core:
            known = core.cluster.topics.get(topic)
            if known is None:
                raise ValueError(f"there is no topic {topic!r}")
            return [record for one in known.partitions for record in one.log.list_committed(one.index)]

    def stop_broker(self, node_id: int, *, is_crash: bool = False) -> None:
        """Closes its connections, and its port refuses new ones; leadership moves to in-sync replicas."""
        with self.control() as core:
            listener = self._listeners.pop(node_id)
            self._selector.unregister(listener)
            address = listener.getsockname()
            # Also in a child that was forked just now, and has not closed what it has inherited.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            with OPENING:
                self._reserved[node_id] = reserved = socket.socket(listener.family)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(address)
            core.stop_broker(node_id, is_crash=is_crash)

    def start_broker(self, node_id: int) -> None:
        with self.control() as core:
            self._reserved.pop(node_id).close()
            self._listen(node_id)
            core.start_broker(node_id)

    # ---- the server thread ----

    def _listen(self, node_id: int) -> None:
        broker = self.core.cluster.brokers[node_id]
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        with OPENING:
            listener = socket.create_server((self._host, broker.port), family=family, backlog=128)
            self._listeners[node_id] = listener
        listener.setblocking(False)
        broker.port = listener.getsockname()[1]
        self._selector.register(listener, selectors.EVENT_READ, node_id)

    def _wake(self) -> None:
        try:
            self._wake_sender.send(b"\0")
        except OSError:
            return  # the thread has ended and need not be woken

    def _run(self) -> None:
        saved_at = time.monotonic()
        wait_s_max = 1.0 if self._storage is None else SAVE_INTERVAL_S
        try:
            while not self._is_stopping:
                with self._lock:
                    deadline_ms = self.core.next_deadline_ms
                wait_s = wait_s_max if deadline_ms is None else max(deadline_ms - self._now_ms(), 0) / 1000
                events = self._selector.select(min(wait_s, wait_s_max))
                with self._lock:
                    self._carry_out(self.core.tick(self._now_ms()))
                    for key, mask in events:
                        self._on_event(key, mask)
                    if self._storage is not None and time.monotonic() - saved_at > SAVE_INTERVAL_S:
                        self._storage.save(self.core)
                        saved_at = time.monotonic()
        finally:
            with self._lock:
                self._close_sockets()
                if self._storage is not None:
                    self._storage.save(self.core)
                    self._storage.close()

    def _on_event(self, key: selectors.SelectorKey, mask: int) -> None:
        if isinstance(key.data, int):
            self._accept(key.data)
        elif isinstance(key.data, Peer):
            if mask & selectors.EVENT_WRITE:
                self._flush(key.data)
            self._read(key.data)  # always: TLS may have waited until it could write
        else:
            self._wake_receiver.recv(4096)

    def _accept(self, node_id: int) -> None:
        listener = self._listeners.get(node_id)
        if listener is None:
            return
        with OPENING:
            try:
                accepted, _ = listener.accept()
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is not None:
                    accepted = self._tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
            except OSError:
                return  # closed by the client before it was accepted, or before TLS began
            self._connection_count += 1
            peer = Peer(accepted, node_id, self._connection_count)
            self._peers[peer.connection_id] = peer
        self._selector.register(accepted, selectors.EVENT_READ, peer)

    def _read(self, peer: Peer) -> None:
        """With TLS the first reads shake hands."""
        if peer.connection_id not in self._peers:
            return
        try:
            data = peer.socket.recv(READ_BYTES)
            # TLS returns one record at a time, and the selector does not see decrypted data.
            while isinstance(peer.socket, ssl.SSLSocket) and peer.socket.pending():
                data += peer.socket.recv(READ_BYTES)
        except NOT_YET as blocked:
            if isinstance(blocked, ssl.SSLWantWriteError):
                self._selector.modify(peer.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)
            return
        except OSError:
            data = b""
        if data:
            self._carry_out(self.core.on_bytes(peer.broker_id, peer.connection_id, data, self._now_ms()))
        else:
            self._lose(peer)

    def _carry_out(self, outputs: list[Output]) -> None:
        for connection_id, data in outputs:
            peer = self._peers.get(connection_id)
            if peer is None:
                continue
            if data is None:
                peer.is_closing = True
            else:
                peer.unsent += data
            self._flush(peer)

    def _flush(self, peer: Peer) -> None:
        if peer.connection_id not in self._peers:
            return
        try:
            while peer.unsent:
                sent = peer.socket.send(peer.unsent)
                del peer.unsent[:sent]
        except NOT_YET:
            self._selector.modify(peer.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)
            return
        except OSError:
            self._lose(peer)
            return
        if peer.is_closing:
            self._drop(peer)
        else:
            self._selector.modify(peer.socket, selectors.EVENT_READ, peer)

    def _lose(self, peer: Peer) -> None:
        """The client has disconnected."""
        self.core.on_disconnect(peer.connection_id)
        self._drop(peer)

    def _drop(self, peer: Peer) -> None:
        del self._peers[peer.connection_id]
        self._selector.unregister(peer.socket)
        peer.socket.close()

    def _close_sockets(self) -> None:
        self._selector.close()
        for peer in self._peers.values():
            peer.socket.close()
        self._peers.clear()
        for listener in (*self._listeners.values(), *self._reserved.values()):
            listener.close()
        self._wake_receiver.close()
        self._wake_sender.close()

    def _leave_to_parent(self) -> None:
        self._lock = threading.RLock()
        self._is_stopping = True  # there is nothing to stop
        self._close_sockets()
        if self._storage is not None:
            self._storage.leave_to_parent()
