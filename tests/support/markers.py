"""A transaction marker sent to the leader of a partition (WriteTxnMarkers), as coordinators and Kafka's own tools send
it: the sink itself never does."""

from __future__ import annotations

import socket
import struct

from kafka_sink.kafka.client.producer_identity import ProducerIdentity
from kafka_sink.kafka.wire.schema import compile_fields, parse_fields

WRITE_TXN_MARKERS = 27
# Version 1: from Kafka 2.8 on. Version 2, from 4.2 on, says which rules hold for the transaction.
FIRST, WITH_TRANSACTION_VERSION = 1, 2
_REQUEST = """\
markers: []struct
    producer_id: int64
    producer_epoch: int16
    transaction_result: bool
    topics: []struct
        name: string
        partition_indexes: []int32
    coordinator_epoch: int32
"""
_OF_VERSION_2 = "    transaction_version: int8\n"
_ANSWER = """\
markers: []struct
    producer_id: int64
    topics: []struct
        name: string
        partitions: []struct
            partition_index: int32
            error_code: int16
"""
HEADER_BYTES = 5


def write_marker(
    address: str,
    topic: str,
    index: int,
    producer: ProducerIdentity,
    *,
    coordinator_epoch: int,
    commit: bool = False,
    version: int = FIRST,
) -> int:
    """Returns the error code."""
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transaction_result": commit,
        "topics": [{"name": topic, "partition_indexes": [index]}],
        "coordinator_epoch": coordinator_epoch,
    }
    fields = _REQUEST
    if version >= WITH_TRANSACTION_VERSION:
        fields, marker = fields + _OF_VERSION_2, {**marker, "transaction_version": 2}
    client_id = b"operator"
    out = bytearray(struct.pack(">hhih", WRITE_TXN_MARKERS, version, 1, len(client_id)) + client_id + b"\0")
    compile_fields(parse_fields(fields.splitlines()), version, True).write(out, {"markers": [marker]})
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(struct.pack(">i", len(out)) + out)
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        frame = connection.recv(size, socket.MSG_WAITALL)
    answer, _ = compile_fields(parse_fields(_ANSWER.splitlines()), version, True).read(frame, HEADER_BYTES)
    code: int = answer["markers"][0]["topics"][0]["partitions"][0]["error_code"]
    return code
