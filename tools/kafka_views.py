"""Asks each broker of a cluster separately.

Brokers learn of changes (a new topic, an election, each other) one after the other. A client may ask any of them, so
the next broker may not know yet what another one has said. Here one chosen broker is asked, over a new connection.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.wire.apis import METADATA, Api
from kafka_sink.kafka.wire.frames import decode_response, encode_request

_METADATA_VERSION = 9
_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition as one broker sees it."""

    topic: str
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    @property
    def is_complete(self) -> bool:
        return self.leader >= 0 and set(self.in_sync) == set(self.replicas)


@dataclass(frozen=True, slots=True)
class View:
    """The metadata of one broker. A topic that it does not know has no partitions."""

    brokers: frozenset[int]
    partitions: tuple[Partition, ...]

    @property
    def leaders(self) -> tuple[tuple[str, int, int], ...]:
        return tuple((one.topic, one.index, one.leader) for one in self.partitions)


def ask(address: str, api: Api, version: int, body: Mapping[str, Any]) -> dict[str, Any]:
    """Sends one request. An OSError means that there is no answer."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as connection:
        connection.sendall(encode_request(api, version, correlation_id=1, client_id="view", body=body))
        (size,) = struct.unpack(">i", _read(connection, 4))
        return decode_response(api, version, _read(connection, size), 1)


def view_of(address: str, *topics: str) -> View:
    body = {"topics": [{"name": name} for name in topics], "allow_auto_topic_creation": False}
    answer = ask(address, METADATA, _METADATA_VERSION, body)
    partitions = [
        Partition(
            topic["name"],
            int(one["partition_index"]),
            int(one["leader_id"]),
            int(one["leader_epoch"]),
            tuple(one["replica_nodes"]),
            tuple(sorted(one["isr_nodes"])),
        )
        for topic in answer["topics"]
        for one in sorted(topic["partitions"], key=lambda one: int(one["partition_index"]))
    ]
    return View(frozenset(int(one["node_id"]) for one in answer["brokers"]), tuple(partitions))


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the broker has closed the connection")
        data += piece
    return bytes(data)
