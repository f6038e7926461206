"""Each harm of the proxy really happens, shown with a broker that only counts and a client that is a bare socket."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from kafka_sink.kafka.wire.apis import END_TXN, FIND_COORDINATOR, METADATA
from kafka_sink.kafka.wire.frames import decode_request_header, decode_response, encode_request, encode_response
from tests.support.kafka_proxy import Harm, KafkaProxy
from tools.waiting import PATIENCE_S, wait_until

END_BODY = {"transactional_id": "id", "producer_id": 7, "producer_epoch": 3, "committed": True}
VERSION = 1
SILENCE_S = 0.3


@dataclass
class CountingBroker:
    """Answers EndTxn and names itself in Metadata and FindCoordinator; records the correlation ids that it has read."""

    listener: socket.socket
    requests: list[int] = field(default_factory=list)
    received_bytes: int = 0
    pieces: int = 0

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listener.getsockname()
        return host, port

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        data = b""
        with connection, contextlib.suppress(OSError):
            while piece := connection.recv(65536):
                self.pieces += 1
                self.received_bytes += len(piece)
                data += piece
                while len(data) >= 4 and len(data) >= 4 + struct.unpack(">i", data[:4])[0]:
                    end = 4 + struct.unpack(">i", data[:4])[0]
                    frame, data = data[4:end], data[end:]
                    connection.sendall(self._answer(frame))

    def _answer(self, frame: bytes) -> bytes:
        api_key, version, correlation_id, _, _ = decode_request_header(frame)
        self.requests.append(correlation_id)
        host, port = self.address
        if api_key == METADATA.key:
            brokers = [{"node_id": 1, "host": host, "port": port}]
            return encode_response(METADATA, version, correlation_id, {"brokers": brokers, "topics": []})
        if api_key == FIND_COORDINATOR.key:
            place = {"error_code": 0, "node_id": 1, "host": host, "port": port}
            return encode_response(FIND_COORDINATOR, version, correlation_id, place)
        return encode_response(END_TXN, version, correlation_id, {"error_code": 0})


class Client:
    def __init__(self, proxy: KafkaProxy) -> None:
        host, _, port = proxy.bootstrap_servers.partition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._socket.settimeout(PATIENCE_S)

    def ask(self, correlation_id: int) -> None:
        data = encode_request(END_TXN, VERSION, correlation_id=correlation_id, client_id="c", body=END_BODY)
        self._socket.sendall(data)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self, timeout_s: float = PATIENCE_S) -> bytes | None:
        """The received bytes: None if nothing arrives in time, empty at the end of the stream."""
        self._socket.settimeout(timeout_s)
        try:
            return self._socket.recv(65536)
        except TimeoutError:
            return None
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def broker() -> Iterator[CountingBroker]:
    broker = CountingBroker(socket.create_server(("127.0.0.1", 0)))
    thread = threading.Thread(target=broker.serve, daemon=True)
    thread.start()
    yield broker
    broker.listener.shutdown(socket.SHUT_RDWR)
    broker.listener.close()
    thread.join(PATIENCE_S)


@pytest.fixture
def proxy(broker: CountingBroker) -> Iterator[KafkaProxy]:
    with KafkaProxy("{}:{}".format(*broker.address)) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: KafkaProxy) -> Iterator[Client]:
    client = Client(proxy)
    yield client
    client.close()


def answer(correlation_id: int) -> bytes:
    return encode_response(END_TXN, VERSION, correlation_id, {"error_code": 0})


def test_what_is_not_harmed_passes_and_is_counted(proxy: KafkaProxy, client: Client) -> None:
    for number in (1, 2):
        client.ask(number)
        assert client.read() == answer(number)
    assert proxy.counts == {"EndTxn": 2}


def test_only_the_chosen_request_is_harmed_even_over_connections(
    broker: CountingBroker, proxy: KafkaProxy, client: Client
) -> None:
    fault = proxy.on(END_TXN, Harm.LOSE_REQUEST, nth=3)
    client.ask(1)
    assert client.read() == answer(1)
    second = Client(proxy)
    second.ask(2)
    assert second.read() == answer(2)
    assert not fault.has_acted
    client.ask(3)
    assert client.read() == b"" and fault.has_acted
    second.ask(4)
    assert second.read() == answer(4)
    assert broker.requests == [1, 2, 4]
    second.close()


def test_a_lost_answer_means_that_the_broker_has_the_request(
    broker: CountingBroker, proxy: KafkaProxy, client: Client
) -> None:
    fault = proxy.on(END_TXN, Harm.LOSE_ANSWER)
    client.ask(1)
    assert client.read() == b""
    assert fault.has_acted and broker.requests == [1]


def test_a_silent_answer_leaves_the_connection_open(broker: CountingBroker, proxy: KafkaProxy, client: Client) -> None:
    fault = proxy.on(END_TXN, Harm.SILENT_ANSWER)
    client.ask(1)
    assert fault.wait_until_acted() and broker.requests == [1]
    client.ask(2)
    assert client.read(SILENCE_S) is None
    assert broker.requests == [1]


def test_silence_swallows_requests_too(broker: CountingBroker, proxy: KafkaProxy, client: Client) -> None:
    fault = proxy.on(END_TXN, Harm.SILENCE)
    client.ask(1)
    client.ask(2)
    assert client.read(SILENCE_S) is None
    assert fault.has_acted and broker.requests == []


def test_half_of_a_request_arrives(broker: CountingBroker, proxy: KafkaProxy, client: Client) -> None:
    request = encode_request(END_TXN, VERSION, correlation_id=1, client_id="c", body=END_BODY)
    fault = proxy.on(END_TXN, Harm.CUT_REQUEST)
    client.send(request)
    assert client.read() == b"" and fault.has_acted
    wait_until(lambda: broker.received_bytes == len(request) // 2, "half of the request arrives")
    assert broker.requests == []


def test_half_of_an_answer_arrives(broker: CountingBroker, proxy: KafkaProxy, client: Client) -> None:
    fault = proxy.on(END_TXN, Harm.CUT_ANSWER)
    client.ask(1)
    assert client.read() == answer(1)[: len(answer(1)) // 2]
    assert client.read() == b""
    assert fault.has_acted and broker.requests == [1]


@pytest.mark.parametrize("harm", [Harm.HOLD_REQUEST, Harm.SILENT_HOLD])
def test_a_held_request_arrives_after_its_client_has_gone(
    harm: Harm, broker: CountingBroker, proxy: KafkaProxy, client: Client
) -> None:
    fault = proxy.on(END_TXN, harm)
    client.ask(1)
    assert client.read(SILENCE_S) == (b"" if harm is Harm.HOLD_REQUEST else None)
    client.close()
    other = Client(proxy)
    other.ask(2)
    assert other.read() == answer(2)
    assert broker.requests == [2]
    assert fault.release()["error_code"] == 0
    assert broker.requests == [2, 1]
    other.close()


def test_a_duplicate_arrives_twice_and_is_answered_once(
    broker: CountingBroker, proxy: KafkaProxy, client: Client
) -> None:
    fault = proxy.on(END_TXN, Harm.DUPLICATE_REQUEST)
    client.ask(1)
    assert client.read() == answer(1)
    assert fault.wait_for_answer()["error_code"] == 0
    assert broker.requests == [1, 1]
    assert client.read(SILENCE_S) is None


def test_a_delayed_request_arrives_late(broker: CountingBroker, proxy: KafkaProxy, client: Client) -> None:
    fault = proxy.on(END_TXN, Harm.DELAY_REQUEST, delay_s=0.4)
    started = time.monotonic()
    client.ask(1)
    assert client.read() == answer(1)
    assert time.monotonic() - started >= 0.4 and fault.has_acted
    assert broker.requests == [1]


def test_slices_arrive_byte_by_byte(broker: CountingBroker) -> None:
    with KafkaProxy("{}:{}".format(*broker.address), slice_bytes=1) as proxy:
        client = Client(proxy)
        client.ask(1)
        received = b""
        while len(received) < len(answer(1)):
            received += client.read() or b""
        client.close()
        assert proxy.slice_count >= len(received) + broker.received_bytes
    assert received == answer(1) and broker.requests == [1]
    assert broker.pieces > 1


def test_brokers_are_seen_at_the_address_of_the_proxy(
    broker: CountingBroker, proxy: KafkaProxy, client: Client
) -> None:
    client.send(encode_request(METADATA, 9, correlation_id=1, client_id="c", body={"topics": []}))
    body = decode_response(METADATA, 9, (client.read() or b"")[4:], 1)
    seen = [f"{place['host']}:{place['port']}" for place in body["brokers"]]
    client.send(encode_request(FIND_COORDINATOR, 2, correlation_id=2, client_id="c", body={"key": "id"}))
    place = decode_response(FIND_COORDINATOR, 2, (client.read() or b"")[4:], 2)
    assert [*seen, f"{place['host']}:{place['port']}"] == [proxy.bootstrap_servers] * 2
    assert proxy.bootstrap_servers != "{}:{}".format(*broker.address)
