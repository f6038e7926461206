"""A client of the embedded core for tests: requests and responses are dicts, and its clock advances while it waits."""

from __future__ import annotations

from typing import Any

from kafka_sink.kafka.wire import apis, frames
from kafka_sink.testing import BrokerCluster
from tests.support.broker_requests import Closed, Requests, batch, record

__all__ = ["Closed", "ClusterClient", "batch", "record"]
WAIT_MS_MAX = 120_000


class ClusterClient(Requests):
    """One connection per broker; `now_ms` is the test's clock."""

    def __init__(self, core: BrokerCluster, connection_base: int = 0) -> None:
        """Clients of one core need different connection bases; `hears_from` copies what another one received."""
        self.core = core
        self.now_ms = core.schedule.now_ms
        self._connection_base = connection_base
        self._correlation_id = connection_base * 1_000_000
        self._ready: dict[int, bytes | None] = {}

    def send(self, broker_id: int, api: apis.Api, version: int, body: dict[str, Any]) -> int:
        self._correlation_id += 1
        data = frames.encode_request(api, version, correlation_id=self._correlation_id, client_id="test", body=body)
        self._take(self.core.on_bytes(broker_id, self._connection_base + broker_id, data, self.now_ms))
        return self._correlation_id

    def _take(self, outputs: list[tuple[int, bytes | None]]) -> None:
        for connection_id, data in outputs:
            if data is None:
                self._ready[-connection_id] = None
            else:
                self._ready[frames.peek_correlation_id(data[4:])] = data[4:]

    def advance(self, milliseconds: int) -> None:
        """Handles every deadline in between at its time."""
        end_ms = self.now_ms + milliseconds
        while (deadline_ms := self.core.next_deadline_ms) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self._take(self.core.tick(self.now_ms))
        self.now_ms = end_ms
        self._take(self.core.tick(self.now_ms))

    def hears_from(self, other: ClusterClient) -> None:
        """The core returns its outputs to the client that called it: takes those that another client has received."""
        self.now_ms = max(self.now_ms, other.now_ms)
        self._ready.update(other._ready)

    def has_answer(self, correlation_id: int) -> bool:
        return correlation_id in self._ready

    def receive(self, broker_id: int, api: apis.Api, version: int, correlation_id: int) -> dict[str, Any]:
        end_ms = self.now_ms + WAIT_MS_MAX
        while correlation_id not in self._ready:
            if self._ready.pop(-(self._connection_base + broker_id), b"") is None:
                raise Closed
            deadline_ms = self.core.next_deadline_ms
            assert deadline_ms is not None and deadline_ms <= end_ms, f"no answer to {api.name} v{version}"
            self.advance(max(deadline_ms - self.now_ms, 0))
        frame = self._ready.pop(correlation_id)
        assert frame is not None
        return frames.decode_response(api, version, frame, correlation_id)

    def ask(self, broker_id: int, api: apis.Api, version: int, body: dict[str, Any]) -> dict[str, Any]:
        return self.receive(broker_id, api, version, self.send(broker_id, api, version, body))
