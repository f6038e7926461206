"""Requests that tests of brokers make, and record batches in which any header field can be set to a wrong value.

`Requests` needs two methods of a transport, `ask` and `advance`. The embedded core (unit tests) and a socket to Apache
Kafka (conformance) are two transports for the same requests.
"""

from __future__ import annotations

import struct
from typing import Any

from crc32c import crc32c

from kafka_sink.formats.records.scalar import encode_varint
from kafka_sink.kafka.wire import apis


def record(index: int, value: bytes | None, key: bytes | None = None, timestamp_delta: int = 0) -> bytes:
    def nullable(data: bytes | None) -> bytes:
        return b"\x01" if data is None else encode_varint(len(data)) + data

    body = b"\0" + encode_varint(timestamp_delta) + encode_varint(index) + nullable(key) + nullable(value) + b"\0"
    return encode_varint(len(body)) + body


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
    """One record batch; any field of its header can be set to a wrong value."""
    keys = keys or (None,) * len(values)
    if section is None:
        section = b"".join(record(index, value, keys[index]) for index, value in enumerate(values))
    tail = (
        struct.pack(
            ">hiqqqhii",
            attributes | (0x10 if transactional else 0),
            len(values) - 1 if last_offset_delta is None else last_offset_delta,
            timestamp_ms,
            timestamp_ms,
            producer_id,
            epoch,
            sequence,
            len(values) if count is None else count,
        )
        + section
    )
    checksum = crc32c(tail) if crc is None else crc
    return struct.pack(">qiibI", base_offset, len(tail) + 9, -1, magic, checksum) + tail


class Closed(Exception):
    """The broker closed the connection instead of answering."""


class Requests:
    def ask(self, broker_id: int, api: apis.Api, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """Returns the response, or raises Closed."""
        raise NotImplementedError

    def advance(self, milliseconds: int) -> None:
        """Lets time pass."""
        raise NotImplementedError

    def produce(
        self,
        records: bytes | None,
        *,
        topic: str = "t",
        partition: int = 0,
        broker_id: int = 1,
        acks: int = -1,
        version: int = 11,
        transactional_id: str | None = None,
        timeout_ms: int = 1000,
    ) -> tuple[int, int]:
        body = {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout_ms": timeout_ms,
            "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
        }
        answer = self.ask(broker_id, apis.PRODUCE, version, body)
        one = answer["responses"][0]["partition_responses"][0]
        return one["error_code"], one["base_offset"]

    def init(
        self,
        transactional_id: str | None,
        *,
        timeout_ms: int = 60_000,
        producer_id: int = -1,
        epoch: int = -1,
        version: int = 5,
        broker_id: int = 1,
    ) -> tuple[int, int, int]:
        body = {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": timeout_ms,
            "producer_id": producer_id,
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
        """Finds the coordinator and gets a producer id; repeats InitProducerId until it succeeds."""
        broker_id = self.find(transactional_id)
        while True:
            code, producer_id, epoch = self.init(transactional_id, broker_id=broker_id, **options)
            if code == 0:
                return producer_id, epoch
            assert code in (14, 16, 51), code
            self.advance(1)

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        *partitions: int,
        topic: str = "t",
        broker_id: int = 1,
        version: int = 3,
    ) -> int:
        body = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": list(partitions)}],
        }
        answer = self.ask(broker_id, apis.ADD_PARTITIONS_TO_TXN, version, body)
        return int(answer["results_by_topic_v3_and_below"][0]["results_by_partition"][0]["partition_error_code"])

    def end(
        self, transactional_id: str, producer_id: int, epoch: int, commit: bool, *, version: int, broker_id: int = 1
    ) -> tuple[int, int, int]:
        body = {
            "transactional_id": transactional_id,
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "committed": commit,
        }
        answer = self.ask(broker_id, apis.END_TXN, version, body)
        return answer["error_code"], answer["producer_id"], answer["producer_epoch"]

    def fetch(
        self,
        offset: int = 0,
        *,
        topic: str = "t",
        partition: int = 0,
        committed: bool = False,
        broker_id: int = 1,
        version: int = 11,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
    ) -> dict[str, Any]:
        body = {
            "max_wait_ms": max_wait_ms,
            "min_bytes": min_bytes,
            "max_bytes": 1 << 20,
            "isolation_level": int(committed),
            "topics": [
                {
                    "topic": topic,
                    "partitions": [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}],
                }
            ],
        }
        answer = self.ask(broker_id, apis.FETCH, version, body)
        one: dict[str, Any] = answer["responses"][0]["partitions"][0]
        return one
