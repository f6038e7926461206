"""Brokers that answer what a commit asks, in virtual time: as many of them, and of partitions and transactions, as no
machine for tests can run.

The driver's client is the real one; only its sockets and its clock are replaced. Requests and answers are real bytes.
Time passes while the client waits, by these rules, and while it computes, by the CPU time of this process:

- A message takes half a round trip in each direction, plus its bytes at ten gigabits per second.
- A broker works through the requests of one connection in turn, as Kafka's brokers do, and through eight connections at
  once. A request takes `SERVICE_US`, plus something for each row of the answer.
- What is appended (Produce, EndTxn, InitProducerId) is answered when a follower has it: `replication_us` later.

Not modelled: disks, the markers that are written after EndTxn was answered, other load.
"""

from __future__ import annotations

import heapq
import itertools
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from kafka_sink.commit.admin import client as client_module
from kafka_sink.kafka.client.commands import (
    Connect,
    Connected,
    Disconnect,
    NetworkEvent,
    Received,
    Resolve,
    Resolved,
    Send,
)
from kafka_sink.kafka.io.clock import Clock
from kafka_sink.kafka.io.network import SocketCommand
from kafka_sink.kafka.wire import frames
from kafka_sink.kafka.wire.apis import (
    API_VERSIONS,
    APIS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    PRODUCE,
    Api,
)
from kafka_sink.testing.batches import Marker, control_batch
from kafka_sink.testing.topics import internal_partition

LEDGER, TOPIC, PORT = "__pykafka_sink_ledger", "rows", 9092
SERVICE_US, ROW_US, THREADS, BYTES_PER_US = 100, 0.5, 8, 1_250
TRANSACTION_PARTITIONS = 50
APPENDS = (PRODUCE.key, END_TXN.key, INIT_PRODUCER_ID.key)
TIMEOUT_MS = 900_000

Body = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """`spread`: to how many partitions each task writes. `others`: producers of the last day in each partition that are
    not of this batch. Round trips in microseconds."""

    tasks: int
    partitions: int
    brokers: int
    coordinators: int
    spread: int = 4
    round_trip_us: int = 500
    replication_us: int = 800
    others: int = 0


@dataclass(slots=True)
class Transaction:
    producer_id: int
    epoch: int
    partitions: range
    coordinator: int
    is_open: bool = False


class Ledger:
    """One partition, with the offsets and markers of a real log."""

    def __init__(self) -> None:
        self.chunks: list[tuple[int, bytes]] = []
        self.end_offset = 0
        self._open: dict[int, int] = {}

    def append(self, records: bytes) -> int:
        """Of one record, as every batch of a ledger."""
        offset = self.end_offset
        self.chunks.append((offset, struct.pack(">q", offset) + records[8:]))
        self.end_offset += 1
        attributes, producer_id = struct.unpack_from(">h", records, 21)[0], struct.unpack_from(">q", records, 43)[0]
        if attributes & 0x10:
            self._open[producer_id] = offset
        return offset

    def end(self, producer_id: int, epoch: int) -> None:
        if self._open.pop(producer_id, None) is not None:
            marker = control_batch(Marker(producer_id, epoch, True, 0), self.end_offset, 0, 0)
            self.chunks.append((self.end_offset, marker.data))
            self.end_offset += 1

    @property
    def size(self) -> int:
        return sum(len(data) for _, data in self.chunks)

    @property
    def stable_offset(self) -> int:
        return min(self._open.values(), default=self.end_offset)

    def read(self, offset: int, bytes_max: int) -> bytes:
        taken: list[bytes] = []
        size = 0
        for base, data in self.chunks[offset:]:
            if taken and size + len(data) > bytes_max:
                break
            assert base == offset + len(taken)
            taken.append(data)
            size += len(data)
        return b"".join(taken)


class SimulatedClock(Clock):
    def __init__(self) -> None:
        self.now_us = 1_000_000.0

    def monotonic_ms(self) -> int:
        return int(self.now_us) // 1000

    def monotonic_ns(self) -> int:
        return int(self.now_us * 1000)

    def timestamp_ms(self) -> int:
        return self.monotonic_ms()


@dataclass(slots=True)
class SimulatedConnection:
    broker: int
    events: list[NetworkEvent]
    connection_id: int
    # When the last request arrives, when the broker has answered it, and when that answer arrives.
    arrived_us: float = 0.0
    free_us: float = 0.0
    answered_us: float = 0.0


@dataclass(slots=True)
class Traffic:
    """What one operation has sent."""

    requests: Counter[str] = field(default_factory=Counter)
    by_broker: Counter[int] = field(default_factory=Counter)
    in_flight: Counter[int] = field(default_factory=Counter)
    in_flight_max: int = 0
    request_bytes_max: int = 0
    answer_bytes_max: int = 0


class SimulatedCluster:
    """`counts_cpu`: time also passes while the client computes; without it each run is the same."""

    def __init__(self, shape: Shape, *, counts_cpu: bool = True) -> None:
        self.shape = shape
        self.clock = SimulatedClock()
        self.counts_cpu = counts_cpu
        # What the client has computed, until when.
        self.cpu_us = 0.0
        self._charged_ns = 0
        self.ledger = Ledger()
        self.transactions: dict[str, Transaction] = {}
        self.drivers: dict[str, tuple[int, int]] = {}
        self.traffic = Traffic()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._threads = {broker: [0.0] * THREADS for broker in self.brokers}
        self._metadata: dict[int, bytes] = {}
        self._writers: dict[int, list[Transaction]] = {}
        self._connections: dict[int, SimulatedConnection] = {}

    @property
    def brokers(self) -> range:
        return range(1, self.shape.brokers + 1)

    def coordinator(self, transactional_id: str) -> int:
        return 1 + internal_partition(transactional_id, TRANSACTION_PARTITIONS) % self.shape.coordinators

    def leader(self, partition: int) -> int:
        return 1 + partition % self.shape.brokers

    def open(self, transactional_id: str, number: int) -> Transaction:
        """A task has written and prepared."""
        found = self.transactions.get(transactional_id)
        if found is None:
            first = number * self.shape.spread % self.shape.partitions
            partitions = range(first, first + self.shape.spread)
            found = Transaction(1_000 + number, 0, partitions, self.coordinator(transactional_id))
            self.transactions[transactional_id] = found
            for partition in found.partitions:
                self._writers.setdefault(partition % self.shape.partitions, []).append(found)
        found.epoch, found.is_open = found.epoch + 1, True
        return found

    @contextmanager
    def serve_clients(self) -> Iterator[None]:
        network = patch.object(client_module, "Network", lambda *_: SimulatedNetwork(self))
        with network, patch.object(client_module, "BootClock", lambda: self.clock):
            yield

    # ---- time and messages ----

    def start_computing(self) -> None:
        """What this process has computed before was not for the client."""
        self._charged_ns = time.process_time_ns()

    def charge_computing(self) -> None:
        if self.counts_cpu:
            computed_us = (time.process_time_ns() - self._charged_ns) / 1000
            self.cpu_us += computed_us
            self.clock.now_us += computed_us

    def after(self, at_us: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_us, next(self._numbers), act))

    def advance(self, until_us: float) -> bool:
        """To the next moment at which something happens, and all that happens then. False: nothing does until then."""
        if not self._due or self._due[0][0] > until_us:
            self.clock.now_us = max(self.clock.now_us, until_us)
            return False
        self.clock.now_us = max(self.clock.now_us, self._due[0][0])
        while self._due and self._due[0][0] <= self.clock.now_us:
            heapq.heappop(self._due)[2]()
        return True

    def on_sent(self, connection: SimulatedConnection, data: bytes) -> None:
        traffic = self.traffic
        traffic.by_broker[connection.broker] += 1
        traffic.in_flight[connection.connection_id] += 1
        traffic.in_flight_max = max(traffic.in_flight_max, traffic.in_flight[connection.connection_id])
        traffic.request_bytes_max = max(traffic.request_bytes_max, len(data))
        arrives_us = self.clock.now_us + self.shape.round_trip_us / 2 + len(data) / BYTES_PER_US
        connection.arrived_us = max(connection.arrived_us, arrives_us)
        self.after(connection.arrived_us, lambda: self._begin(connection, data))

    def _begin(self, connection: SimulatedConnection, data: bytes) -> None:
        frame = data[4:]
        key, version, correlation_id, _, start = frames.decode_request_header(frame)
        api = APIS[key]
        self.traffic.requests[api.name] += 1
        body = api.decode_request(version, frame, start)
        answer, rows = HANDLERS[key](self, connection.broker, version, body)
        encoded = answer if isinstance(answer, bytes) else api.encode_response(version, answer)
        threads = self._threads[connection.broker]
        begins_us = max(self.clock.now_us, connection.free_us, threads[0])
        done_us = begins_us + SERVICE_US + rows * ROW_US
        heapq.heapreplace(threads, done_us)
        connection.free_us = done_us + (self.shape.replication_us if key in APPENDS else 0)
        framed = _frame(api, version, correlation_id, encoded)
        self.traffic.answer_bytes_max = max(self.traffic.answer_bytes_max, len(framed))
        arrives_us = connection.free_us + self.shape.round_trip_us / 2 + len(framed) / BYTES_PER_US
        connection.answered_us = max(connection.answered_us, arrives_us)
        self.after(connection.answered_us, lambda: self._arrive(connection, framed))

    def _arrive(self, connection: SimulatedConnection, framed: bytes) -> None:
        self.traffic.in_flight[connection.connection_id] -= 1
        connection.events.append(Received(connection.connection_id, framed))

    # ---- the answers ----

    def versions(self, _broker: int, _version: int, _body: Body) -> tuple[Body, int]:
        served = [
            {"api_key": key, "min_version": APIS[key].version_min, "max_version": APIS[key].version_max}
            for key in HANDLERS
        ]
        feature = {"name": "transaction.version", "max_version_level": 2, "min_version_level": 2}
        return {"error_code": 0, "api_keys": served, "finalized_features_epoch": 1, "finalized_features": [feature]}, 0

    def metadata(self, _broker: int, version: int, body: Body) -> tuple[Body | bytes, int]:
        asked = body["topics"]
        names = [LEDGER, TOPIC] if asked is None else [one["name"] for one in asked]
        key = hash((version, *names))
        if key not in self._metadata:
            sizes = {LEDGER: 1, TOPIC: self.shape.partitions}
            topics = [
                {
                    "error_code": 0,
                    "name": name,
                    "topic_id": b"\1" * 16,
                    "partitions": [self._partition(one) for one in range(sizes[name])],
                }
                for name in names
            ]
            brokers = [{"node_id": one, "host": f"broker-{one}", "port": PORT} for one in self.brokers]
            answer = {"brokers": brokers, "cluster_id": "simulated", "controller_id": 1, "topics": topics}
            self._metadata[key] = METADATA.encode_response(version, answer)
        return self._metadata[key], self.shape.partitions if TOPIC in names else 1

    def _partition(self, index: int) -> Body:
        nodes = [1 + (index + step) % self.shape.brokers for step in range(min(3, self.shape.brokers))]
        return {
            "error_code": 0,
            "partition_index": index,
            "leader_id": nodes[0],
            "leader_epoch": 1,
            "replica_nodes": nodes,
            "isr_nodes": nodes,
        }

    def find_coordinators(self, _broker: int, _version: int, body: Body) -> tuple[Body, int]:
        found = []
        for key in body["coordinator_keys"]:
            node_id = self.coordinator(key)
            found.append({"key": key, "node_id": node_id, "host": f"broker-{node_id}", "port": PORT, "error_code": 0})
        return {"coordinators": found}, len(found)

    def describe_transactions(self, _broker: int, _version: int, body: Body) -> tuple[Body, int]:
        states = []
        for name in body["transactional_ids"]:
            one = self.transactions[name]
            partitions = [partition % self.shape.partitions for partition in one.partitions]
            state = {"transaction_state": "Ongoing" if one.is_open else "CompleteCommit", "error_code": 0}
            state |= {"transactional_id": name, "producer_id": one.producer_id, "producer_epoch": one.epoch}
            state |= {"transaction_timeout_ms": TIMEOUT_MS, "transaction_start_time_ms": self.clock.monotonic_ms()}
            states.append({**state, "topics": [{"topic": TOPIC, "partitions": partitions}]})
        return {"transaction_states": states}, len(states)

    def describe_producers(self, _broker: int, _version: int, body: Body) -> tuple[Body, int]:
        (topic,) = body["topics"]
        answers, count = [], 0
        for partition in topic["partition_indexes"]:
            rows = [
                {
                    "producer_id": one.producer_id,
                    "producer_epoch": one.epoch,
                    "coordinator_epoch": 0,
                    "current_txn_start_offset": 0 if one.is_open else -1,
                }
                for one in self._writers.get(partition, ())
            ]
            rows += [
                {"producer_id": 10**9 + one, "producer_epoch": 0, "coordinator_epoch": 0}
                for one in range(self.shape.others)
            ]
            answers.append({"partition_index": partition, "error_code": 0, "active_producers": rows})
            count += len(rows)
        return {"topics": [{"name": TOPIC, "partitions": answers}]}, count

    def init_producer_id(self, _broker: int, _version: int, body: Body) -> tuple[Body, int]:
        name = body["transactional_id"]
        producer_id, epoch = self.drivers.get(name, (1 + len(self.drivers), -1))
        self.drivers[name] = producer_id, epoch + 1
        return {"error_code": 0, "producer_id": producer_id, "producer_epoch": epoch + 1}, 0

    def produce(self, _broker: int, _version: int, body: Body) -> tuple[Body, int]:
        (topic,) = body["topic_data"]
        (part,) = topic["partition_data"]
        offset = self.ledger.append(bytes(part["records"]))
        answer = {"index": part["index"], "error_code": 0, "base_offset": offset}
        return {"responses": [{"name": topic["name"], "partition_responses": [answer]}]}, 0

    def end_transaction(self, _broker: int, _version: int, body: Body) -> tuple[Body, int]:
        name, epoch = body["transactional_id"], body["producer_epoch"] + 1
        if name in self.drivers:
            self.drivers[name] = body["producer_id"], epoch
            self.ledger.end(body["producer_id"], epoch)
        else:
            self.transactions[name].is_open, self.transactions[name].epoch = False, epoch
        return {"error_code": 0, "producer_id": body["producer_id"], "producer_epoch": epoch}, 0

    def list_transactions(self, broker: int, _version: int, _body: Body) -> tuple[Body, int]:
        found = [
            {"transactional_id": name, "producer_id": one.producer_id, "transaction_state": "Ongoing"}
            for name, one in self.transactions.items()
            if one.is_open and one.coordinator == broker
        ]
        return {"error_code": 0, "transaction_states": found}, len(found)

    def list_offsets(self, _broker: int, _version: int, body: Body) -> tuple[Body, int]:
        (topic,) = body["topics"]
        (part,) = topic["partitions"]
        latest = self.ledger.stable_offset if body["isolation_level"] else self.ledger.end_offset
        answer = {"partition_index": 0, "error_code": 0, "offset": 0 if part["timestamp"] == -2 else latest}
        return {"topics": [{"name": topic["name"], "partitions": [answer]}]}, 0

    def fetch(self, _broker: int, _version: int, body: Body) -> tuple[Body, int]:
        (topic,) = body["topics"]
        (part,) = topic["partitions"]
        answer = {
            "partition_index": 0, "error_code": 0, "high_watermark": self.ledger.end_offset,
            "last_stable_offset": self.ledger.stable_offset,
            "records": self.ledger.read(part["fetch_offset"], part["partition_max_bytes"]),
        }  # fmt: skip
        return {"responses": [{"topic": topic["topic"], "partitions": [answer]}]}, 0


def _frame(api: Api, version: int, correlation_id: int, encoded: bytes) -> bytes:
    tags = b"\0" if api.response_header_version(version) == 1 else b""
    return struct.pack(">ii", 4 + len(tags) + len(encoded), correlation_id) + tags + encoded


Handler = Callable[[SimulatedCluster, int, int, Body], tuple[Body | bytes, int]]
HANDLERS: Mapping[int, Handler] = {
    API_VERSIONS.key: SimulatedCluster.versions,
    METADATA.key: SimulatedCluster.metadata,
    FIND_COORDINATOR.key: SimulatedCluster.find_coordinators,
    DESCRIBE_TRANSACTIONS.key: SimulatedCluster.describe_transactions,
    DESCRIBE_PRODUCERS.key: SimulatedCluster.describe_producers,
    INIT_PRODUCER_ID.key: SimulatedCluster.init_producer_id,
    PRODUCE.key: SimulatedCluster.produce,
    END_TXN.key: SimulatedCluster.end_transaction,
    LIST_TRANSACTIONS.key: SimulatedCluster.list_transactions,
    LIST_OFFSETS.key: SimulatedCluster.list_offsets,
    FETCH.key: SimulatedCluster.fetch,
}


class SimulatedNetwork:
    """Replaces `Network`. What the client computes between two polls is charged at the second one."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._events: list[NetworkEvent] = []
        self._connections: dict[int, SimulatedConnection] = {}

    def poll(self, timeout_ms: int | None) -> list[NetworkEvent]:
        cluster = self._cluster
        cluster.charge_computing()
        assert timeout_ms is not None
        until_us = cluster.clock.now_us + timeout_ms * 1000
        while cluster.advance(cluster.clock.now_us):  # what has happened meanwhile
            pass
        while not self._events and cluster.advance(until_us):
            pass
        taken = self._events.copy()
        self._events.clear()
        cluster.start_computing()
        return taken

    def execute(self, command: SocketCommand) -> None:
        cluster = self._cluster
        if isinstance(command, Send):
            cluster.on_sent(self._connections[command.connection_id], b"".join(command.buffers))
        elif isinstance(command, Connect):
            host = str(command.address[1][0])
            broker = int(host.partition("-")[2])
            connected = Connected(command.connection_id)
            self._connections[command.connection_id] = SimulatedConnection(broker, self._events, command.connection_id)
            cluster.after(cluster.clock.now_us + cluster.shape.round_trip_us, lambda: self._events.append(connected))
        elif isinstance(command, Disconnect):
            del self._connections[command.connection_id]
        else:
            assert isinstance(command, Resolve)
            self._events.append(Resolved(command.node_id, ((int(socket.AF_INET), (command.host, command.port)),)))

    def close(self) -> None:
        self._connections.clear()

    close_descriptors = close
