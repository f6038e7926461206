"""Connections on which every byte counts: the same frames to the embedded core and to Apache Kafka, with their ends.

The scripts about authentication need more than requests and answers: bare tokens, the moment at which a broker closes
the connection, time that passes. `LoggedIn` is a peer for all other scripts, with a logged-in user.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import time
from typing import Any

from kafka_sink.kafka.wire import apis, frames
from kafka_sink.testing import BrokerCluster
from tests.conformance.peer import Peer
from tests.support.broker_requests import Closed

ANSWER_TIMEOUT_S = 20


class Wire:
    """One connection at a time. `exchange` sends a frame and returns the answer's, or None if it was closed."""

    def open(self) -> None:
        raise NotImplementedError

    def exchange(self, frame: bytes) -> bytes | None:
        raise NotImplementedError

    def advance(self, milliseconds: int) -> None:
        raise NotImplementedError

    def now(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class EmbeddedWire(Wire):
    """Several wires may share a core and its clock."""

    opened = 0

    def __init__(self, core: BrokerCluster) -> None:
        self._core = core
        self._connection_id = 0
        self._received = b""
        self._is_closed = False

    def open(self) -> None:
        EmbeddedWire.opened += 1
        self._connection_id = EmbeddedWire.opened
        self._received = b""
        self._is_closed = False

    def _take(self, outputs: list[tuple[int, bytes | None]]) -> None:
        for connection_id, data in outputs:
            if connection_id == self._connection_id:
                self._is_closed = self._is_closed or data is None
                self._received += data or b""

    def exchange(self, frame: bytes) -> bytes | None:
        if self._is_closed:
            return None
        data = len(frame).to_bytes(4, "big") + frame
        self._take(self._core.on_bytes(1, self._connection_id, data, self.now()))
        end_ms = self.now() + ANSWER_TIMEOUT_S * 1000
        while not self._received:
            if self._is_closed:
                return None
            deadline_ms = self._core.next_deadline_ms
            assert deadline_ms is not None and deadline_ms <= end_ms, "no answer"
            self._take(self._core.tick(max(deadline_ms, self.now())))
        size = int.from_bytes(self._received[:4], "big") + 4
        answer, self._received = self._received[4:size], self._received[size:]
        return answer

    def advance(self, milliseconds: int) -> None:
        end_ms = self.now() + milliseconds
        while (deadline_ms := self._core.next_deadline_ms) is not None and deadline_ms <= end_ms:
            self._take(self._core.tick(max(deadline_ms, self.now())))
        self._take(self._core.tick(end_ms))

    def now(self) -> int:
        return self._core.schedule.now_ms

    def close(self) -> None:
        self._core.on_disconnect(self._connection_id)


class KafkaWire(Wire):
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._socket: socket.socket | None = None

    def open(self) -> None:
        self.close()
        self._socket = socket.create_connection(self._address, ANSWER_TIMEOUT_S)

    def exchange(self, frame: bytes) -> bytes | None:
        assert self._socket is not None
        try:
            self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
            head = self._read(4)
            return None if head is None else self._read(int.from_bytes(head, "big"))
        except (BrokenPipeError, ConnectionResetError):
            return None

    def _read(self, count: int) -> bytes | None:
        assert self._socket is not None
        data = b""
        while len(data) < count:
            received = self._socket.recv(count - len(data))
            if not received:
                return None
            data += received
        return data

    def advance(self, milliseconds: int) -> None:
        time.sleep(milliseconds / 1000)

    def now(self) -> int:
        return int(time.time() * 1000)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Asking:
    """Sends requests and receives answers over a wire."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._correlation_id = 0
        wire.open()

    def ask(self, api: apis.Api, version: int, body: dict[str, Any]) -> dict[str, Any]:
        self._correlation_id += 1
        data = frames.encode_request(api, version, correlation_id=self._correlation_id, client_id="test", body=body)
        answer = self.wire.exchange(data[4:])
        if answer is None:
            raise Closed
        return frames.decode_response(api, version, answer, self._correlation_id)

    def handshake(self, mechanism: str, version: int = 1) -> tuple[int, list[str]]:
        answer = self.ask(apis.SASL_HANDSHAKE, version, {"mechanism": mechanism})
        return answer["error_code"], sorted(answer["mechanisms"])

    def token(self, token: bytes, version: int = 2) -> dict[str, Any]:
        return self.ask(apis.SASL_AUTHENTICATE, version, {"auth_bytes": token})


class ScramClient:
    """The client's side of RFC 5802, for tests; `final` and `is_from_server` follow `first`."""

    def __init__(self, mechanism: str, user: str, password: str, authorization_id: str = "") -> None:
        self._hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self._password = password.encode()
        self._gs2 = f"n,{'a=' + authorization_id if authorization_id else ''},"
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r=rOprNGfwEbeRWgbNEkqO"
        self._server_signature = b""
        self.first = (self._gs2 + self._bare).encode()

    def final(self, server_first: bytes) -> bytes:
        parts = dict(part.split("=", 1) for part in server_first.decode().split(","))
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, base64.b64decode(parts["s"]), int(parts["i"]))
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        unproven = f"c={base64.b64encode(self._gs2.encode()).decode()},r={parts['r']}"
        signed = f"{self._bare},{server_first.decode()},{unproven}".encode()
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), signed, self._hash)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def is_from_server(self, server_final: bytes) -> bool:
        return server_final == b"v=" + base64.b64encode(self._server_signature)


class LoggedIn(Peer):
    """A peer whose connection is authenticated with PLAIN, and opened again after the broker has closed it."""

    def __init__(self, wire: Wire, user: str, password: str) -> None:
        super().__init__()
        self._wire = wire
        self._token = f"\0{user}\0{password}".encode()
        self._asking: Asking | None = None

    def now(self) -> int:
        return self._wire.now()

    def advance(self, milliseconds: int) -> None:
        self._wire.advance(milliseconds)

    def close(self) -> None:
        self._wire.close()

    def ask(self, broker_id: int, api: apis.Api, version: int, body: dict[str, Any]) -> dict[str, Any]:
        if self._asking is None:
            self._asking = Asking(self._wire)
            assert self._asking.handshake("PLAIN")[0] == 0
            assert self._asking.token(self._token)["error_code"] == 0
        try:
            return self._asking.ask(api, version, body)
        except Closed:
            self._asking = None
            raise
