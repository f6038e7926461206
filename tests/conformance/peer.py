"""The two brokers that get the same requests: the embedded core in this process, and Apache Kafka over a socket.

Irrelevant differences are removed here: producer ids become #0, #1, ... in the order in which they appear, topics get a
new name per script, and both sides poll while they wait for the coordinator's markers.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from kafka_sink.kafka.wire import apis, frames
from kafka_sink.testing import BrokerCluster, Settings
from tests.support.broker_requests import Closed, Requests
from tests.support.cluster_client import ClusterClient

# Timers short enough to wait for, and long enough that nothing expires in the middle of a script on a machine that
# pauses for seconds; both sides are started with the same.
PROPERTIES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    "transactional.id.expiration.ms": "9000",
    "producer.id.expiration.ms": "8000",
    "producer.id.expiration.check.interval.ms": "200",
    "transaction.max.timeout.ms": "900000",
    "auto.create.topics.enable": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
ANSWER_TIMEOUT_S = 90
SETTLE_S = 60
_names = itertools.count()
Answering = Callable[[], dict[str, Any]]


class Peer(Requests):
    """`topic` is a new topic with two partitions, `name(x)` a name of this script alone."""

    def __init__(self) -> None:
        self._suffix = f"{int(time.time() * 1000)}-{next(_names)}"
        self._producer_ids: dict[int, str] = {-1: "none"}
        self.topic = self.name("t")

    def name(self, prefix: str) -> str:
        return f"{prefix}-{self._suffix}"

    def known(self, producer_id: int) -> str:
        """Producer ids are compared by identity, not by number."""
        return self._producer_ids.setdefault(producer_id, f"#{len(self._producer_ids) - 1}")

    def now(self) -> int:
        """Record timestamps must be near the broker's clock."""
        raise NotImplementedError

    def create_topic(self, name: str, partitions: int = 2, configs: dict[str, str] | None = None) -> int:
        body = {
            "topics": [
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
                }
            ],
            "timeout_ms": 10_000,
        }
        code = int(self.ask(1, apis.CREATE_TOPICS, 7, body)["topics"][0]["error_code"])
        # The broker leads a new partition a moment after the controller has created it.
        for partition in range(partitions if code == 0 else 0):
            while self.metadata(name)["error_code"] or self.fetch(topic=name, partition=partition)["error_code"]:
                self.advance(20)
        return code

    def delete_topic(self, name: str) -> None:
        body = {"topics": [{"name": name, "topic_id": bytes(16)}], "timeout_ms": 10_000}
        assert self.ask(1, apis.DELETE_TOPICS, 6, body)["responses"][0]["error_code"] == 0
        while self.metadata(name)["error_code"] == 0:
            self.advance(20)

    def metadata(self, name: str) -> dict[str, Any]:
        body = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        one: dict[str, Any] = self.ask(1, apis.METADATA, 12, body)["topics"][0]
        return one

    def state_of(self, transactional_id: str) -> str:
        answer = self.ask(1, apis.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [transactional_id]})
        state = answer["transaction_states"][0]
        return str(state["transaction_state"]) if state["error_code"] == 0 else f"error {state['error_code']}"

    def ask_many(self, api: apis.Api, version: int, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The same as the requests one by one; a transport may send them together."""
        return [self.ask(1, api, version, body) for body in bodies]

    def ask_later(self, broker_id: int, api: apis.Api, version: int, body: dict[str, Any]) -> Answering:
        """Sends the request on a connection of its own; what is returned waits for the answer."""
        raise NotImplementedError

    def settle(self, transactional_id: str) -> str:
        """Waits until the markers are written; returns the state that was reached."""
        for _ in range(SETTLE_S * 100):
            state = self.state_of(transactional_id)
            if not state.startswith("Prepare"):
                return state
            self.advance(10)
        raise AssertionError(f"{transactional_id} stays in {state}")


class EmbeddedPeer(Peer):
    def __init__(self, release: str, transaction_version: str) -> None:
        super().__init__()
        settings = Settings({**PROPERTIES, "transaction.version": transaction_version}, release)
        self._client = ClusterClient(BrokerCluster(1, settings=settings, now_ms=1_700_000_000_000))
        self._connection_bases = itertools.count(100, 100)

    def now(self) -> int:
        return self._client.now_ms

    def ask(self, broker_id: int, api: apis.Api, version: int, body: dict[str, Any]) -> dict[str, Any]:
        return self._client.ask(broker_id, api, version, body)

    def ask_later(self, broker_id: int, api: apis.Api, version: int, body: dict[str, Any]) -> Answering:
        client = ClusterClient(self._client.core, next(self._connection_bases))
        number = client.send(broker_id, api, version, body)
        self._client.hears_from(client)  # it may have caused answers to others

        def receive() -> dict[str, Any]:
            client.hears_from(self._client)
            return client.receive(broker_id, api, version, number)

        return receive

    def advance(self, milliseconds: int) -> None:
        self._client.advance(milliseconds)


class KafkaPeer(Peer):
    """A blocking connection, which is opened again after the broker has closed it."""

    def __init__(self, address: str) -> None:
        super().__init__()
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        self._others: list[KafkaPeer] = []

    def warm_up(self) -> None:
        """A new broker answers for a while that it is loading, until the internal topics have leaders."""
        self.begin(self.name("warm-up"))
        group = self.name("warm-up")
        self.find(group, 0)
        while self.init(None)[0]:
            self.advance(50)
        body = {"groups": [{"group_id": group, "topics": None}], "require_stable": False}
        while self.ask(1, apis.OFFSET_FETCH, 8, body)["groups"][0]["error_code"]:
            self.advance(50)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for other in self._others:
            other.close()

    def now(self) -> int:
        return int(time.time() * 1000)

    def advance(self, milliseconds: int) -> None:
        time.sleep(milliseconds / 1000)

    def ask(self, broker_id: int, api: apis.Api, version: int, body: dict[str, Any]) -> dict[str, Any]:
        return self.ask_many(api, version, [body])[0]

    def ask_later(self, broker_id: int, api: apis.Api, version: int, body: dict[str, Any]) -> Answering:
        other = KafkaPeer(f"{self._address[0]}:{self._address[1]}")
        self._others.append(other)
        number = other._send(api, version, [body])
        return lambda: other._receive(api, version, [number])[0]

    def ask_many(self, api: apis.Api, version: int, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        first = self._send(api, version, bodies)
        return self._receive(api, version, range(first, first + len(bodies)))

    def _send(self, api: apis.Api, version: int, bodies: list[dict[str, Any]]) -> int:
        """Returns the number of the first request; the others follow it."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, ANSWER_TIMEOUT_S)
        first = self._correlation_id + 1
        self._correlation_id += len(bodies)
        requests = [
            frames.encode_request(api, version, correlation_id=first + number, client_id="test", body=body)
            for number, body in enumerate(bodies)
        ]
        self._socket.sendall(b"".join(requests))
        return first

    def _receive(self, api: apis.Api, version: int, numbers: Sequence[int]) -> list[dict[str, Any]]:
        assert self._socket is not None
        buffer = frames.FrameBuffer(1 << 27)
        answers: list[dict[str, Any]] = []
        while len(answers) < len(numbers):
            frame = buffer.next_frame()
            if frame is not None:
                answers.append(frames.decode_response(api, version, frame, numbers[len(answers)]))
                continue
            received = self._socket.recv(1 << 20)
            if not received:
                self.close()
                raise Closed
            buffer.feed(received)
        return answers
