"""The TCP proxy of all tests: it knows enough of Kafka's protocol to harm one chosen request, and can be slow.

    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        fault = proxy.on(END_TXN, Harm.LOSE_ANSWER)
        ... a producer with bootstrap.servers = proxy.bootstrap_servers ...
        assert fault.has_acted

There is one listener for each broker: Metadata and FindCoordinator answers are rewritten on their way to the client, so
every connection of a client goes through the proxy and no traffic between brokers does. Requests are counted per API
over all connections, from the moment at which the fault is placed. Each connection has a thread for each direction.

`bytes_per_s` limits the traffic to the brokers, over all connections; answers are not slowed. Connections have a small
receive buffer, so that the data between client and broker is little more than a frame.

Faults differ in what they do to the rest of the connection: `HOLD_REQUEST` disconnects the client and keeps the
broker's side open, so that the request arrives long after the client gave it up, as from an old socket buffer.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.wire.apis import API_VERSIONS, APIS, FIND_COORDINATOR, METADATA, Api
from kafka_sink.kafka.wire.frames import decode_response, encode_request, encode_response
from tests.support.faults import Fault, Harm, Request
from tests.support.finish_closings import finish_closings

Address = tuple[str, int]

# Long enough that the receiver usually reads one slice at a time.
SLICE_PAUSE_S = 0.0001
_RECEIVE_BUFFER_BYTES = 64 * 1024
_SLOW_PIECE_BYTES = 8192
_POLL_S = 0.05


@dataclass(eq=False)
class _Asked:
    """A request that the broker has not answered yet."""

    request: Request
    fault: Fault | None


class KafkaProxy:
    def __init__(self, upstream: str, *, slice_bytes: int | None = None) -> None:
        """`slice_bytes`: all data is sent in pieces of at most this size, each in a packet of its own."""
        self.slice_bytes = slice_bytes
        # May be changed at any time: None is unlimited, 0 stops all data.
        self.bytes_per_s: int | None = None
        self.counts: Counter[str] = Counter()
        self.slice_count = 0
        self.lock = threading.Lock()
        self._upstream = [_address(text) for text in upstream.split(",")]
        self._listeners: dict[Address, socket.socket] = {}
        self._faults: list[Fault] = []
        self._connections: list[_ProxiedConnection] = []
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()
        # When the line is free again; all connections share one line.
        self._free_at = 0.0

    def __enter__(self) -> KafkaProxy:
        for address in self._upstream:
            self.listener_for(address)
        return self

    def __exit__(self, *_: object) -> None:
        finish_closings()
        with self.lock:
            self._over.set()
            connections, listeners = list(self._connections), list(self._listeners.values())
        for fault in self._faults:
            fault._released.set()
        for connection in connections:
            connection.shut_down()
        for listener in listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for each in listeners:
            each.close()
        for connection in self._connections:  # also those that were accepted meanwhile
            connection.client.close()
            connection.broker.close()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join("{}:{}".format(*self.listener_for(address)) for address in self._upstream)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def on(self, api: Api | None, harm: Harm, *, nth: int = 1, delay_s: float = 0.0, **more: Any) -> Fault:
        """Harms the `nth` request of this API from now on; `more` are other fields of `Fault`."""
        fault = Fault(api, harm, nth, delay_s, **more)
        with self.lock:
            self._faults.append(fault)
        return fault

    # ---- for the connections ----

    def listener_for(self, broker: Address) -> Address:
        """The proxy's address for this broker."""
        with self.lock:
            listener = self._listeners.get(broker)
            if listener is None:
                listener = self._listeners[broker] = socket.socket()
                # Set before it listens: accepted connections inherit it.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
                listener.bind(("127.0.0.1", 0))
                listener.listen()
                self.start(lambda: self._accept(listener, broker))
        host, port = listener.getsockname()
        return host, port

    def take_fault(self, request: Request) -> Fault | None:
        """Counts a request; returns the fault that must hit it."""
        with self.lock:
            api = APIS.get(request.api_key)
            self.counts[api.name if api is not None else str(request.api_key)] += 1
            due = [fault for fault in self._faults if fault.counts(request)]
        return due[0] if due else None

    def start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name="kafka-proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def send_to_broker(self, broker: socket.socket, data: bytes) -> None:
        if self.bytes_per_s is None:
            self.send(broker, data)
            return
        for start in range(0, len(data), _SLOW_PIECE_BYTES):
            piece = data[start : start + _SLOW_PIECE_BYTES]
            self._wait_for_turn(len(piece))
            self.send(broker, piece)

    def _wait_for_turn(self, byte_count: int) -> None:
        while self.bytes_per_s == 0 and not self._over.wait(_POLL_S):
            pass
        with self.lock:
            now = time.monotonic()
            took_s = byte_count / self.bytes_per_s if self.bytes_per_s else 0.0
            self._free_at = max(self._free_at, now) + took_s
        self._over.wait(self._free_at - now)

    def send(self, target: socket.socket, data: bytes) -> None:
        if self.slice_bytes is None:
            target.sendall(data)
            return
        for start in range(0, len(data), self.slice_bytes):
            self.slice_count += 1  # before the slice is sent: a reader of the last slice may look at the count at once
            target.sendall(data[start : start + self.slice_bytes])
            time.sleep(SLICE_PAUSE_S)

    def _accept(self, listener: socket.socket, broker: Address) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                try:
                    upstream = socket.create_connection(broker, 10)
                except OSError:
                    client.close()
                    continue
                upstream.settimeout(None)
                for each in (client, upstream):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = _ProxiedConnection(self, client, upstream, broker)
                with self.lock:
                    self._connections.append(connection)
                    is_late = self._over.is_set()
                if is_late:
                    connection.shut_down()
                self.start(connection.pass_requests)
                self.start(connection.pass_answers)


class _ProxiedConnection:
    def __init__(self, proxy: KafkaProxy, client: socket.socket, broker: socket.socket, address: Address) -> None:
        self.client = client
        self.broker = broker
        self._proxy = proxy
        self._address = address
        self._asked: deque[_Asked] = deque()
        self._is_silent = False
        # The client is disconnected and the broker's side stays open, for a request that is held.
        self._is_holding = False

    def shut_down(self) -> None:
        for each in (self.client, self.broker):
            _shut_down(each)

    # ---- towards the broker ----

    def pass_requests(self) -> None:
        with contextlib.suppress(OSError):
            while (frame := _read_frame(self.client)) is not None:
                if self._is_silent:
                    continue
                request = Request(frame, self.client)
                fault = self._proxy.take_fault(request)
                asked = _Asked(request, fault)
                if not (self._forward(asked, frame) if fault is None else self._harm_request(asked, fault, frame)):
                    break
        if not self._is_holding:
            self.shut_down()

    def _forward(self, asked: _Asked, frame: bytes) -> bool:
        self._asked.append(asked)
        self._proxy.send_to_broker(self.broker, _framed(frame))
        return True

    def _harm_request(self, asked: _Asked, fault: Fault, frame: bytes) -> bool:
        """Returns whether the connection continues."""
        harm = fault.harm
        if harm in (Harm.LOSE_ANSWER, Harm.CUT_ANSWER, Harm.SILENT_ANSWER):
            return self._forward(asked, frame)  # the rest happens when the answer arrives
        if harm is Harm.DELAY_REQUEST:
            time.sleep(fault.delay_s)
            fault.act()
            return self._forward(asked, frame)
        if harm is Harm.DUPLICATE_REQUEST:
            self._forward(asked, frame)
            fault.answer = self._ask_alone(asked, frame)
            fault.act()
            fault._answered.set()
            return True
        if harm is Harm.SILENCE:
            self._is_silent = True
            fault.act()
            return True
        if harm in (Harm.HOLD_REQUEST, Harm.SILENT_HOLD):
            self._hold(asked, fault, frame)
            return harm is Harm.SILENT_HOLD
        if harm is Harm.REFUSE:
            # The broker gets a harmless request instead, so that answers keep the order of the requests.
            stand_in = encode_request(
                API_VERSIONS, 0, correlation_id=asked.request.correlation_id, client_id=None, body={}
            )
            fault.act()
            return self._forward(asked, stand_in[4:])
        if harm is Harm.CUT_REQUEST:
            whole = _framed(frame)
            self.broker.sendall(whole[: len(whole) // 2])
        fault.act()
        return False

    def _hold(self, asked: _Asked, fault: Fault, frame: bytes) -> None:
        self._is_holding = self._is_silent = True

        def deliver() -> None:
            fault._released.wait()
            with contextlib.suppress(OSError):
                self._forward(asked, frame)

        self._proxy.start(deliver)
        fault.act()
        if fault.harm is Harm.HOLD_REQUEST:
            _shut_down(self.client)

    def _ask_alone(self, asked: _Asked, frame: bytes) -> dict[str, Any] | None:
        with socket.create_connection(self._address, 10) as second:
            second.sendall(_framed(frame))
            answer = _read_frame(second)
        return None if answer is None else _decoded(asked, answer)

    # ---- towards the client ----

    def pass_answers(self) -> None:
        with contextlib.suppress(OSError):
            while (frame := _read_frame(self.broker)) is not None:
                asked = self._asked.popleft()
                if not self._pass_answer(asked, self._rewritten(asked, frame)):
                    break
        self.shut_down()

    def _pass_answer(self, asked: _Asked, frame: bytes) -> bool:
        fault = asked.fault
        if fault is not None and fault.harm in (Harm.HOLD_REQUEST, Harm.SILENT_HOLD):
            fault.answer = _decoded(asked, frame)
            fault._answered.set()
            return False
        if fault is not None and fault.harm is Harm.LOSE_ANSWER:
            fault.act()
            return False
        if fault is not None and fault.harm is Harm.CUT_ANSWER:
            whole = _framed(frame)
            self.client.sendall(whole[: len(whole) // 2])
            fault.act()
            return False
        if fault is not None and fault.harm is Harm.SILENT_ANSWER:
            self._is_silent = True
            fault.act()
        if not self._is_silent:
            self._proxy.send(self.client, _framed(frame))
        return True

    def _rewritten(self, asked: _Asked, frame: bytes) -> bytes:
        """Replaces the brokers' addresses by the proxy's."""
        request, fault = asked.request, asked.fault
        if fault is not None and fault.harm is Harm.REFUSE:
            refusal = fault.refusal(request.body)
            return encode_response(APIS[request.api_key], request.version, request.correlation_id, refusal)[4:]
        if request.api_key not in (METADATA.key, FIND_COORDINATOR.key):
            return frame
        body = _decoded(asked, frame)
        places = body["brokers"] if request.api_key == METADATA.key else [body, *(body.get("coordinators") or ())]
        for place in places:
            if place.get("host") and place.get("port", -1) >= 0:
                place["host"], place["port"] = self._proxy.listener_for((place["host"], place["port"]))
        return encode_response(APIS[request.api_key], request.version, request.correlation_id, body)[4:]


def _decoded(asked: _Asked, frame: bytes) -> dict[str, Any]:
    request = asked.request
    return decode_response(APIS[request.api_key], request.version, frame, request.correlation_id)


def _framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def _read_frame(source: socket.socket) -> bytes | None:
    prefix = _read_exactly(source, 4)
    return None if prefix is None else _read_exactly(source, struct.unpack(">i", prefix)[0])


def _read_exactly(source: socket.socket, size: int) -> bytes | None:
    """None at the end of the stream, also in the middle of a frame."""
    data = bytearray()
    while len(data) < size:
        piece = source.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


def _shut_down(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)
