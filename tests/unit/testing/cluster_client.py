"""A client of the embedded core for tests: asks with dicts, hears dicts, and lets the core's time pass while it waits."""

from __future__ import annotations

import struct
from typing import Any

from crc32c import crc32c

from kafka_sink.testing import BrokerCluster
from kafka_sink.testing.batches import varint_bytes
from kafka_sink.wire import apis, frames

WAIT_MS_MAX = 120_000


def record(index: int, value: bytes | None, key: bytes | None = None, timestamp_delta: int = 0) -> bytes:
    def nullable(data: bytes | None) -> bytes:
        return b"\x01" if data is None else varint_bytes(len(data)) + data

    body = b"\0" + varint_bytes(timestamp_delta) + varint_bytes(index) + nullable(key) + nullable(value) + b"\0"
    return varint_bytes(len(body)) + body


def batch(
    *values: bytes,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    timestamp_ms: int = 1000,
    section: bytes | None = None,
    attributes: int = 0,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    count: int | None = None,
    magic: int = 2,
    crc: int | None = None,
    keys: tuple[bytes | None, ...] = (),
) -> bytes:
    """One batch; every field of its header can be given wrongly."""
    keys = keys or (None,) * len(values)
    if section is None:
        section = b"".join(record(index, value, keys[index]) for index, value in enumerate(values))
    tail = struct.pack(
        ">hiqqqhii", attributes | (0x10 if transactional else 0),
        len(values) - 1 if last_offset_delta is None else last_offset_delta, timestamp_ms, timestamp_ms,
        producer_id, epoch, sequence, len(values) if count is None else count,
    ) + section
    checksum = crc32c(tail) if crc is None else crc
    return struct.pack(">qiibI", base_offset, len(tail) + 9, -1, magic, checksum) + tail


class Closed(Exception):
    """The broker closed the connection instead of answering."""


class ClusterClient:
    """One connection per broker; `now_ms` is the test's clock."""

    def __init__(self, core: BrokerCluster, connection_base: int = 0) -> None:
        self.core = core
        self.now_ms = core.schedule.now_ms
        self._connection_base = connection_base
        self._correlation_id = 0
        self._ready: dict[int, bytes | None] = {}

    def send(self, broker_id: int, api: apis.Api, version: int, body: dict[str, Any]) -> int:
        self._correlation_id += 1
        data = frames.encode_request(
            api, version, correlation_id=self._correlation_id, client_id="test", body=body
        )
        self._take(self.core.on_bytes(broker_id, self._connection_base + broker_id, data, self.now_ms))
        return self._correlation_id

    def _take(self, outputs: list[tuple[int, bytes | None]]) -> None:
        for connection_id, data in outputs:
            if data is None:
                self._ready[-connection_id] = None
            else:
                self._ready[frames.peek_correlation_id(data[4:])] = data[4:]

    def advance(self, milliseconds: int) -> None:
        """Every deadline on the way is kept at its time."""
        end_ms = self.now_ms + milliseconds
        while (deadline_ms := self.core.next_deadline_ms) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self._take(self.core.tick(self.now_ms))
        self.now_ms = end_ms
        self._take(self.core.tick(self.now_ms))

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

    # ---- what tests ask most ----

    def produce(
        self, records: bytes | None, *, topic: str = "t", partition: int = 0, broker_id: int = 1, acks: int = -1,
        version: int = 11, transactional_id: str | None = None, timeout_ms: int = 1000,
    ) -> tuple[int, int]:
        body = {
            "transactional_id": transactional_id, "acks": acks, "timeout_ms": timeout_ms,
            "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
        }
        answer = self.ask(broker_id, apis.PRODUCE, version, body)
        one = answer["responses"][0]["partition_responses"][0]
        return one["error_code"], one["base_offset"]

    def init(
        self, transactional_id: str | None, *, timeout_ms: int = 60_000, producer_id: int = -1, epoch: int = -1,
        version: int = 5, broker_id: int = 1,
    ) -> tuple[int, int, int]:
        body = {
            "transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms, "producer_id": producer_id,
            "producer_epoch": epoch,
        }
        answer = self.ask(broker_id, apis.INIT_PRODUCER_ID, version, body)
        return answer["error_code"], answer["producer_id"], answer["producer_epoch"]

    def find(self, key: str, key_type: int = 1) -> int:
        while True:
            answer = self.ask(1, apis.FIND_COORDINATOR, 4, {"key_type": key_type, "coordinator_keys": [key]})
            if answer["coordinators"][0]["error_code"] == 0:
                return int(answer["coordinators"][0]["node_id"])
            self.advance(1)

    def begin(self, transactional_id: str, **options: Any) -> tuple[int, int]:
        """Finds the coordinator and gets a producer id, as often as it takes."""
        broker_id = self.find(transactional_id)
        while True:
            code, producer_id, epoch = self.init(transactional_id, broker_id=broker_id, **options)
            if code == 0:
                return producer_id, epoch
            assert code == 51
            self.advance(1)

    def add(
        self, transactional_id: str, producer_id: int, epoch: int, *partitions: int, topic: str = "t",
        broker_id: int = 1, version: int = 3,
    ) -> int:
        body = {
            "v3_and_below_transactional_id": transactional_id, "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": list(partitions)}],
        }
        answer = self.ask(broker_id, apis.ADD_PARTITIONS_TO_TXN, version, body)
        return int(answer["results_by_topic_v3_and_below"][0]["results_by_partition"][0]["partition_error_code"])

    def end(
        self, transactional_id: str, producer_id: int, epoch: int, commit: bool, *, version: int, broker_id: int = 1
    ) -> tuple[int, int, int]:
        body = {
            "transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": epoch,
            "committed": commit,
        }
        answer = self.ask(broker_id, apis.END_TXN, version, body)
        return answer["error_code"], answer["producer_id"], answer["producer_epoch"]

    def fetch(
        self, offset: int = 0, *, topic: str = "t", partition: int = 0, committed: bool = False, broker_id: int = 1,
        version: int = 11, max_wait_ms: int = 0, min_bytes: int = 1,
    ) -> dict[str, Any]:
        body = {
            "max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": 1 << 20, "isolation_level": int(committed),
            "topics": [{"topic": topic, "partitions": [
                {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            ]}],
        }
        answer = self.ask(broker_id, apis.FETCH, version, body)
        one: dict[str, Any] = answer["responses"][0]["partitions"][0]
        return one
