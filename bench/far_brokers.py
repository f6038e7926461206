"""A simulated cluster that is far away: it records every request, and runs in one thread with a virtual clock.

The clients of the sink are the real ones; only their sockets and their clock are replaced. The brokers are the core of
the embedded cluster. A message takes half a round trip in each direction, and time passes only while a client waits. So
the duration of an operation, divided by the length of a round trip, is the number of sequential round trips. It does
not depend on the machine. Back-offs are included, because a user waits for them as well.

    far = FarCluster(3, topics={"rows": 4})
    with far.serve_clients(), far.process("commit"):
        writer.commit(messages)
    print(far.steps)

A producer has no sender thread here: a call that waits for the producer runs the sender.
"""

from __future__ import annotations

import heapq
import itertools
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from kafka_sink.commit.admin import client as client_module
from kafka_sink.errors import TransportError
from kafka_sink.kafka.client.commands import (
    Address,
    Connect,
    Connected,
    Disconnect,
    Disconnected,
    NetworkEvent,
    Received,
    Resolve,
    Resolved,
    Send,
)
from kafka_sink.kafka.io.clock import Clock
from kafka_sink.kafka.io.network import SocketCommand
from kafka_sink.kafka.io.per_process import PerProcess
from kafka_sink.kafka.wire.apis import APIS
from kafka_sink.kafka.wire.frames import decode_request_header
from kafka_sink.producer import core as core_module
from kafka_sink.producer.mailbox import Mailbox
from kafka_sink.producer.sender import Sender
from kafka_sink.spark import driver
from kafka_sink.spark.closings import Closings
from kafka_sink.testing import BrokerCluster
from kafka_sink.testing.broker import Output
from kafka_sink.testing.settings import RELEASES, Settings
from kafka_sink.testing.topics import BrokerState

ROUND_TRIP_MS = 100
PORT = 9092
# A bootstrap address that differs from the advertised ones, like the address of a Kubernetes service.
SERVICE = "kafka"
CONNECT = "connect"
# In place of a process: what nobody waits for.
CLOSING = "closing"
# More than any operation takes: beyond it, the operation does not make progress.
TURNS_MAX = 10_000
NS_PER_MS = 1_000_000

# What a driver's process keeps between operations.
KEPT: tuple[PerProcess[Any], ...] = (driver.CLIENTS, driver.DRIVERS, driver.ANSWERS)
# Larger than the ids of real processes.
_process_ids = itertools.count(10**9)


@dataclass(frozen=True)
class Step:
    """A new connection or a request. `after`: when it was sent, in round trips since the start."""

    process: str
    after: float
    broker_id: int
    what: str


class FarClock(Clock):
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:  # type: ignore[override]  # the real one is a function, for speed
        return self.now_ms * NS_PER_MS

    def timestamp_ms(self) -> int:
        return self.now_ms


class FarCluster:
    def __init__(
        self, brokers: int = 1, *, topics: Mapping[str, int], release: str = RELEASES[0], entry: str = SERVICE
    ) -> None:
        """`entry`: the host of the bootstrap address. Brokers advertise broker-1, broker-2, ..."""
        # Brokers refuse records from the future.
        self.clock = FarClock(time.time_ns() // NS_PER_MS)
        self._started_ms = self.clock.now_ms
        self._addresses = {f"broker-{number}": number for number in range(1, brokers + 1)}
        nodes = [BrokerState(number, host, PORT) for host, number in self._addresses.items()]
        settings = Settings({}, release, random_bytes=random.Random(0).randbytes)
        self.core = BrokerCluster(nodes, topics=topics, settings=settings, now_ms=self.clock.now_ms)
        self.bootstrap_servers = f"{entry}:{PORT}"
        self.steps: list[Step] = []
        self._process = ""
        self._process_ids: dict[str, int] = {}
        self._kept: dict[int, list[Any]] = {}
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        # Separate, so that one more request does not change which coordinators the runs have.
        self._uuids = itertools.count(1)
        # The network and its connection id, by the number of the connection in the cluster.
        self._owners: dict[int, tuple[FarNetwork, int]] = {}
        self._senders: dict[int, Sender] = {}
        self._closings: list[Callable[[], None]] = []

    @property
    def round_trips(self) -> float:
        """Since the start."""
        return (self.clock.now_ms - self._started_ms) / ROUND_TRIP_MS

    # ---- the processes of an application ---------------------------------------------------------------------------

    @contextmanager
    def serve_clients(self) -> Iterator[None]:
        """Clients that are created inside this context use the simulated cluster."""
        with ExitStack() as stack:
            for module, clock in ((client_module, "BootClock"), (core_module, "Clock")):
                stack.enter_context(patch.object(module, "Network", lambda *_, **__: FarNetwork(self)))
                stack.enter_context(patch.object(module, clock, lambda: self.clock))
            stack.enter_context(patch.object(core_module, "Sender", self._make_sender))
            # A thread would share the clock. `close_decisions` does its work.
            stack.enter_context(patch.object(Closings, "begin", lambda _, __, close: self._closings.append(close)))
            stack.enter_context(patch.object(Mailbox, "wait_for", lambda *asked: self._wait_for(*asked)))
            # Random values decide which broker is asked first, how long a back-off is, and which coordinator an id has.
            # Fixed values make each run the same.
            stack.enter_context(patch.object(random, "random", lambda: 0.0))
            stack.enter_context(patch.object(random, "Random", lambda: random))
            stack.enter_context(patch.object(uuid, "uuid4", lambda: uuid.UUID(int=next(self._uuids), version=4)))
            yield

    def start_application(self) -> None:
        """The next calls run in new processes."""
        self._process_ids.clear()

    @contextmanager
    def process(self, name: str) -> Iterator[None]:
        """Spark plans, writes and commits in separate processes, which share no connections and no metadata."""
        process_id = self._process_ids.setdefault(name, next(_process_ids))
        values = self._kept.setdefault(process_id, [each.make() for each in KEPT])
        with ExitStack() as stack:
            stack.enter_context(patch.object(os, "getpid", lambda: process_id))
            for kept, value in zip(KEPT, values, strict=True):
                stack.enter_context(patch.object(kept, "value", value))
            self._process = name
            yield

    def close_decisions(self) -> None:
        """What the current process does after its commit has returned."""
        self._process = CLOSING
        while self._closings:
            self._closings.pop()()

    def _make_sender(self, *parts: Any) -> Sender:
        sender, mailbox = Sender(*parts), parts[3]
        # Calls that wait for the producer run it.
        sender.thread.run = lambda: None  # type: ignore[method-assign]
        sender.thread.join = lambda _=None: sender.run()  # type: ignore[method-assign]
        self._senders[id(mailbox)] = sender
        return sender

    def _wait_for(self, mailbox: Mailbox, is_over: Callable[[], bool], deadline_ms: int | None, what: str) -> bool:
        for _ in range(TURNS_MAX):
            if is_over():
                return True
            if deadline_ms is not None and self.clock.now_ms >= deadline_ms:
                return False
            self._senders[id(mailbox)].turn()
        raise RuntimeError(f"{what} does not end")

    # ---- time ------------------------------------------------------------------------------------------------------

    def advance(self, until_ms: int | None) -> bool:
        """Moves the clock to the next event. False: there is none until `until_ms`."""
        moments = [self._due[0][0]] if self._due else []
        if self.core.next_deadline_ms is not None:
            moments.append(self.core.next_deadline_ms)
        if until_ms is not None and min(moments, default=until_ms + 1) > until_ms:
            self.clock.now_ms = max(self.clock.now_ms, until_ms)
            return False
        if not moments:
            raise RuntimeError("a client waits, but no message is in flight")
        self.clock.now_ms = max(self.clock.now_ms, min(moments))
        self._deliver(self.core.tick(self.clock.now_ms))
        while self._due and self._due[0][0] <= self.clock.now_ms:
            heapq.heappop(self._due)[2]()
        return True

    def _after(self, wait_ms: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.clock.now_ms + wait_ms, next(self._numbers), act))

    # ---- the network -----------------------------------------------------------------------------------------------

    def connect(self, network: FarNetwork, connection_id: int, address: Address) -> tuple[int, int]:
        """Returns the broker id and the number of the connection."""
        broker_id = self._addresses.get(str(address[1][0]), 1)
        number = next(self._numbers)
        self._owners[number] = (network, connection_id)
        self._note(broker_id, CONNECT)
        self._after(ROUND_TRIP_MS, lambda: network.events.append(Connected(connection_id)))
        return broker_id, number

    def send(self, broker_id: int, number: int, request: bytes) -> None:
        key = decode_request_header(request[4:])[0]
        self._note(broker_id, APIS[key].name)
        self._after(ROUND_TRIP_MS // 2, lambda: self._arrive(broker_id, number, request))

    def disconnect(self, number: int) -> None:
        self._owners.pop(number, None)
        self.core.on_disconnect(number)

    def _arrive(self, broker_id: int, number: int, request: bytes) -> None:
        if number in self._owners:
            self._deliver(self.core.on_bytes(broker_id, number, request, self.clock.now_ms))

    def _deliver(self, outputs: list[Output]) -> None:
        for number, answer in outputs:
            if number in self._owners:
                network, connection_id = self._owners[number]
                event: NetworkEvent = (
                    Received(connection_id, answer)
                    if answer is not None
                    else Disconnected(connection_id, TransportError("closed by the broker"))
                )
                self._after(ROUND_TRIP_MS // 2, lambda network=network, event=event: network.events.append(event))  # type: ignore[misc]

    def _note(self, broker_id: int, what: str) -> None:
        self.steps.append(Step(self._process, self.round_trips, broker_id, what))


class FarNetwork:
    """Replaces `Network`."""

    def __init__(self, cluster: FarCluster) -> None:
        self._cluster = cluster
        self.events: list[NetworkEvent] = []
        self.wake_lock = threading.RLock()
        self._is_woken = False
        # Broker and number by connection id.
        self._connections: dict[int, tuple[int, int]] = {}
        self.wait_ns = self.io_ns = 0

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def wake(self) -> None:
        self._is_woken = True

    def poll(self, timeout_ms: int | None) -> list[NetworkEvent]:
        until_ms = None if timeout_ms is None else self._cluster.clock.now_ms + timeout_ms
        while not (self.events or self._is_woken) and self._cluster.advance(until_ms):
            pass
        self._is_woken = False
        taken, self.events = self.events, []
        return [event for event in taken if isinstance(event, Resolved) or event.connection_id in self._connections]

    def execute(self, command: SocketCommand) -> None:
        if isinstance(command, Send):
            self.send(command)
        elif isinstance(command, Connect):
            connected = self._cluster.connect(self, command.connection_id, command.address)
            self._connections[command.connection_id] = connected
        elif isinstance(command, Disconnect):
            self._drop(command.connection_id)
        else:
            assert isinstance(command, Resolve)
            address = (int(socket.AF_INET), (command.host, command.port))
            self.events.append(Resolved(command.node_id, (address,)))

    def send(self, command: Send) -> None:
        self._cluster.send(*self._connections[command.connection_id], b"".join(command.buffers))

    def close(self) -> None:
        for connection_id in list(self._connections):
            self._drop(connection_id)

    def close_descriptors(self) -> None:
        self.close()

    def _drop(self, connection_id: int) -> None:
        self._cluster.disconnect(self._connections.pop(connection_id)[1])
