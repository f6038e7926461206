"""The network between hosts and brokers: each TCP connection is two pipes, with latency, blockage and breakage.

Within one pipe the order is kept; across connections it is not. What a client has written travels on after the client
has closed: requests arrive late, as from old socket buffers. Each `Send` of an engine is one request and each output of
the broker core is one answer, so faults can hit whole messages, halves or glued pairs without decoding them.

Faults are armed on a `Link` (one host, one broker) from outside; this module only carries them out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from kafka_sink.errors import TransportError
from kafka_sink.kafka.client.commands import (
    Connect,
    Connected,
    Disconnect,
    Disconnected,
    NetworkCommand,
    NetworkEvent,
    Received,
    Resolve,
    Resolved,
    Send,
    Written,
)
from kafka_sink.testing import BrokerCluster
from tests.sim.dice import Dice, exponential_ms
from tests.sim.loop import Loop
from tests.sim.trace import Trace

FOREVER = 1 << 60
ARMED_FOR_MS = 5_000
FIN = None
NETWORK_COMMANDS = (Resolve, Connect, Send, Disconnect)


class Endpoint(Protocol):
    """What the network knows of a host."""

    name: str

    def on_network(self, event: NetworkEvent) -> None: ...


@dataclass(slots=True)
class Armed:
    """A fault that waits for its request or answer, on one link or several. With `api_key` None it takes any."""

    kind: str
    pick: Random
    until_ms: int
    api_key: int | None = None
    is_used: bool = False


@dataclass(slots=True)
class Link:
    """Everything between one host and one broker, over all their connections."""

    host: str
    broker_id: int
    blocked_until_ms: int = 0
    refuses_until_ms: int = 0
    slow_until_ms: int = 0
    armed: dict[str, list[Armed]] = field(default_factory=lambda: {"request": [], "answer": []})

    def take(self, direction: str, api_key: int, now_ms: int) -> Armed | None:
        waiting = self.armed[direction]
        waiting[:] = [armed for armed in waiting if armed.until_ms > now_ms and not armed.is_used]
        for armed in waiting:
            if armed.api_key in (None, api_key):
                armed.is_used = True
                return armed
        return None


class Pipe:
    """One direction of a connection: items in order, each not before its time, none while blocked."""

    def __init__(self, loop: Loop, blocked_until_ms: Callable[[], int], deliver: Callable[[object], None]) -> None:
        self._loop = loop
        self._blocked_until_ms = blocked_until_ms
        self._deliver = deliver
        self._queue: deque[tuple[int, object]] = deque()
        self._planned_ms: int | None = None
        self.is_cut = False

    def push(self, item: object, delay_ms: int) -> None:
        if not self.is_cut:
            self._queue.append((self._loop.now_ms + delay_ms, item))
            self.pump()

    def end(self) -> None:
        """What is in transit arrives, but nothing that is pushed later."""
        self.is_cut = True

    def cut(self) -> None:
        """What is in transit is lost, and nothing that is pushed later arrives."""
        self._queue.clear()
        self.is_cut = True

    def pump(self) -> None:
        """Plans the next delivery. It never delivers at once, so events are never nested."""
        if not self._queue:
            return
        due_ms = max(self._queue[0][0], self._blocked_until_ms(), self._loop.now_ms)
        if due_ms < FOREVER and (self._planned_ms is None or due_ms < self._planned_ms):
            self._planned_ms = due_ms
            self._loop.at(due_ms, lambda: self._run(due_ms))

    def _run(self, planned_ms: int) -> None:
        if self._planned_ms != planned_ms:
            return
        self._planned_ms = None
        now_ms = self._loop.now_ms
        while self._queue and max(self._queue[0][0], self._blocked_until_ms()) <= now_ms:
            self._deliver(self._queue.popleft()[1])
        self.pump()


class Connection:
    def __init__(self, network: Network, number: int, host: Endpoint, connection_id: int, node_id: int, link: Link):
        self.number = number
        self.host = host
        self.connection_id = connection_id
        self.node_id = node_id
        self.link = link
        self.is_silent = False
        # Each side knows only that it closed the connection itself, or what it was told by the other.
        self.is_open_here = True
        self.is_open_there = True
        # Requests without an answer, as the host sees them: correlation id -> API key.
        self.unanswered: dict[int, int] = {}
        self.glue: list[bytes] = []
        # Where in the stream of answers each answer ends; together with the number of bytes that the host has received.
        self.ends: deque[tuple[int, int]] = deque()
        self.bytes_routed = self.bytes_answered = 0
        loop = network.loop
        self.to_broker = Pipe(loop, lambda: network.blocked_until_ms(self), lambda item: network.reach(self, item))
        self.to_host = Pipe(loop, lambda: network.blocked_until_ms(self), lambda item: network.answer(self, item))


class Network:
    def __init__(self, loop: Loop, core: BrokerCluster, dice: Dice, trace: Trace, *, latency_ms: float) -> None:
        self.loop = loop
        self.core = core
        self.trace = trace
        self.latency_ms = latency_ms
        self.links: dict[tuple[str, int], Link] = {}
        self.connections: dict[int, Connection] = {}
        self.paused_until_ms: dict[int, int] = {}
        self._dice = dice
        self._by_host: dict[tuple[str, int], Connection] = {}
        self._tick_ms: int | None = None
        self._count = 0
        self.is_healed = False
        self.on_request_fault: Callable[[Connection, bytes, Armed], None] | None = None
        self.on_answer_fault: Callable[[Connection, bytes, Armed], None] | None = None

    # ---- the host's side ----

    def carry_out(self, host: Endpoint, command: NetworkCommand) -> Connection | None:
        """Returns the connection that a `Send` goes to, if it still exists."""
        if isinstance(command, Resolve):
            event = Resolved(command.node_id, ((2, (command.host, command.port)),))
            self.loop.after(self.latency(), lambda: host.on_network(event))
        elif isinstance(command, Connect):
            self._connect(host, command)
        elif isinstance(command, Send):
            connection = self._by_host.get((host.name, command.connection_id))
            if connection is not None:
                self._send(connection, b"".join(command.buffers), tells_written=command.tells_written)
            return connection
        elif isinstance(command, Disconnect):
            connection = self._by_host.pop((host.name, command.connection_id), None)
            if connection is not None:
                self.close_here(connection)
        return None

    def forget_host(self, name: str, *, is_silent: bool) -> None:
        """The process is gone and its system closes its connections; if `is_silent`, its machine is gone as well."""
        for key in [key for key in self._by_host if key[0] == name]:
            connection = self._by_host.pop(key)
            if is_silent:
                connection.is_silent = True
                connection.to_broker.cut()
            self.close_here(connection)

    def _connect(self, host: Endpoint, command: Connect) -> None:
        place = command.address[1]
        broker_id = next(b.node_id for b in self.core.cluster.brokers.values() if (b.host, b.port) == place)
        link = self.link(host.name, broker_id)
        self._count += 1
        connection = Connection(self, self._count, host, command.connection_id, command.node_id, link)
        self._by_host[host.name, command.connection_id] = connection
        delay_ms = 2 * self.latency()
        if self.loop.now_ms < link.slow_until_ms:
            self.trace.count("fault slow connect")
            delay_ms += link.slow_until_ms - self.loop.now_ms
        self.loop.after(delay_ms, lambda: self._on_connected(connection))

    def _on_connected(self, connection: Connection) -> None:
        if not connection.is_open_here:
            return
        link = connection.link
        refuses = self.loop.now_ms < link.refuses_until_ms
        if refuses:
            self.trace.count("fault refuse")
        if refuses or not self.core.cluster.brokers[link.broker_id].is_up:
            self.break_here(connection, "connection refused")
            connection.is_open_there = False
            return
        self.connections[connection.number] = connection
        self.trace.note(self.loop.now_ms, f"{connection.host.name} connected to {link.broker_id}")
        connection.host.on_network(Connected(connection.connection_id))

    def _send(self, connection: Connection, data: bytes, *, tells_written: bool) -> None:
        api_key = int.from_bytes(data[4:6], "big")
        connection.unanswered[int.from_bytes(data[8:12], "big")] = api_key
        if tells_written:
            connection.host.on_network(Written(connection.connection_id))
        armed = connection.link.take("request", api_key, self.loop.now_ms)
        if armed is not None and self.on_request_fault is not None:
            self.on_request_fault(connection, data, armed)
        else:
            connection.to_broker.push(data, self.latency())

    # ---- breakage ----

    def close_here(self, connection: Connection) -> None:
        """The host closes the connection. What it has written still arrives, then the end of the stream."""
        connection.is_open_here = False
        connection.to_host.cut()
        connection.to_broker.push(FIN, self.latency())

    def break_here(self, connection: Connection, reason: str) -> None:
        """The host finds the connection broken."""
        if connection.is_open_here:
            connection.is_open_here = False
            connection.to_host.cut()
            self._by_host.pop((connection.host.name, connection.connection_id), None)
            connection.host.on_network(Disconnected(connection.connection_id, TransportError(reason)))

    def reset(self, connection: Connection) -> None:
        """Both ends lose the connection now; nothing that is in transit arrives."""
        connection.to_broker.cut()
        self._close_there(connection)
        self.break_here(connection, "connection reset by peer")

    def hang_up(self, broker_id: int) -> None:
        """The broker's process is gone: its system closes all connections, even those that were never read."""
        for connection in self.connections.values():
            if connection.link.broker_id == broker_id and connection.is_open_there:
                connection.is_open_there = False
                connection.to_host.push(FIN, self.latency())

    def _close_there(self, connection: Connection) -> None:
        if connection.is_open_there:
            connection.is_open_there = False
            self.core.on_disconnect(connection.number)
        if not connection.is_open_here:
            self.connections.pop(connection.number, None)

    # ---- the broker's side ----

    def reach(self, connection: Connection, item: object) -> None:
        if not connection.is_open_there:
            return
        if item is FIN:
            self._close_there(connection)
            return
        assert isinstance(item, bytes)
        if not connection.is_open_here:
            self.trace.count("request arrived after its client gave up")
        broker_id = connection.link.broker_id
        self.route(self.core.on_bytes(broker_id, connection.number, item, self.loop.now_ms))

    def route(self, outputs: Iterable[tuple[int, bytes | None]]) -> None:
        for number, data in outputs:
            connection = self.connections.get(number)
            if connection is None or not connection.is_open_there:
                continue
            if data is None:
                connection.is_open_there = False
                connection.to_host.push(FIN, self.latency())
                continue
            correlation_id = int.from_bytes(data[4:8], "big")
            connection.bytes_routed += len(data)
            connection.ends.append((connection.bytes_routed, correlation_id))
            armed = connection.link.take("answer", connection.unanswered.get(correlation_id, -1), self.loop.now_ms)
            if armed is not None and self.on_answer_fault is not None and not connection.glue:
                self.on_answer_fault(connection, data, armed)
            else:
                connection.glue.append(data)
                self.unglue(connection)
        self.plan_tick()

    def answer(self, connection: Connection, item: object) -> None:
        if not connection.is_open_here:
            return
        if item is FIN:
            self.break_here(connection, "connection closed by peer")
            return
        assert isinstance(item, bytes)
        connection.bytes_answered += len(item)
        while connection.ends and connection.ends[0][0] <= connection.bytes_answered:
            connection.unanswered.pop(connection.ends.popleft()[1], None)
        connection.host.on_network(Received(connection.connection_id, item))

    def unglue(self, connection: Connection) -> None:
        if connection.glue:
            connection.to_host.push(b"".join(connection.glue), self.latency())
            connection.glue.clear()

    def plan_tick(self) -> None:
        deadline_ms = self.core.next_deadline_ms
        if deadline_ms is None or (self._tick_ms is not None and self._tick_ms <= deadline_ms):
            return
        self._tick_ms = due_ms = max(deadline_ms, self.loop.now_ms)
        self.loop.at(due_ms, lambda: self._tick(due_ms))

    def _tick(self, planned_ms: int) -> None:
        if self._tick_ms == planned_ms:
            self._tick_ms = None
            self.route(self.core.tick(self.loop.now_ms))

    # ---- queries and switches ----

    def latency(self) -> int:
        return exponential_ms(self._dice["latency"], self.latency_ms)

    def link(self, host: str, broker_id: int) -> Link:
        return self.links.setdefault((host, broker_id), Link(host, broker_id))

    def blocked_until_ms(self, connection: Connection) -> int:
        if connection.is_silent:
            return FOREVER
        return max(connection.link.blocked_until_ms, self.paused_until_ms.get(connection.link.broker_id, 0))

    def open_connections(self) -> list[Connection]:
        return [one for one in self.connections.values() if one.is_open_here]

    def heal(self) -> None:
        """Ends all faults. Their consequences remain: silent connections stay silent, like real ones."""
        self.is_healed = True
        self.paused_until_ms.clear()
        for link in self.links.values():
            link.blocked_until_ms = link.refuses_until_ms = link.slow_until_ms = 0
            for waiting in link.armed.values():
                waiting.clear()
        for connection in list(self.connections.values()):
            connection.to_broker.pump()
            connection.to_host.pump()
            self.unglue(connection)
