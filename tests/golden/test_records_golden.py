"""Our record batches are compared with those that Apache Kafka's own client wrote (recorded by RecordGolden.java)."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink.formats.records.assembler import Assembler
from kafka_sink.formats.records.batch import seal
from kafka_sink.formats.records.bytes_column import BytesColumn
from kafka_sink.formats.records.columns import RecordColumns
from kafka_sink.formats.records.compression import CODEC_IDS, make_compressor
from kafka_sink.formats.records.murmur2 import murmur2_column, partitions_of_keys
from kafka_sink.formats.records.scalar import Record, decode_batch, encode_batch
from kafka_sink.producer.engine.producer_batch import ProducerBatch
from tests.support.slow_murmur2 import murmur2

GOLDEN = json.loads(gzip.decompress((Path(__file__).parent / "records_4.3.1.json.gz").read_bytes()))
BATCHES = GOLDEN["batches"]
NAMES = [case["name"] for case in BATCHES]
UNCOMPRESSED = [case for case in BATCHES if case["codec"] == "none"]


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def records_of(case: dict[str, Any]) -> list[Record]:
    return [
        Record(
            row["timestamp_ms"],
            unhex(row["key"]),
            unhex(row["value"]),
            tuple((bytes.fromhex(key).decode(), unhex(value)) for key, value in row["headers"]),
        )
        for row in case["records"]
    ]


def stamps_of(case: dict[str, Any]) -> dict[str, Any]:
    return {name: case[name] for name in ("producer_id", "producer_epoch", "base_sequence", "is_transactional")}


@pytest.mark.parametrize("case", UNCOMPRESSED, ids=[case["name"] for case in UNCOMPRESSED])
def test_scalar_encoder_writes_the_bytes_of_the_java_client(case: dict[str, Any]) -> None:
    encoded = encode_batch(records_of(case), make_compressor("none"))
    assert (seal(encoded, **stamps_of(case)) + encoded.payload).hex() == case["batch"]


@pytest.mark.parametrize("case", UNCOMPRESSED, ids=[case["name"] for case in UNCOMPRESSED])
def test_column_encoder_writes_the_bytes_of_the_java_client(case: dict[str, Any]) -> None:
    records = records_of(case)
    columns = RecordColumns.from_rows(
        [record.key for record in records],
        [record.value for record in records],
        [record.headers for record in records],
    )
    columns = replace(columns, timestamps=np.array([record.timestamp_ms for record in records], np.int64))
    assembler = Assembler(
        new_batch=ProducerBatch,
        batch_bytes_max=2**20,
        request_bytes_max=2**20,
        batch_records_max=None,
        compression=lambda _: make_compressor("none"),
    )
    partitions = np.zeros(len(records), np.int32)
    assert assembler.append("t", columns, partitions, now_ms=0, timestamp_ms=0, token=None) == []
    (closed,) = assembler.close_all()
    assert (seal(closed.encoded, **stamps_of(case)) + closed.encoded.payload).hex() == case["batch"]


@pytest.mark.parametrize("case", BATCHES, ids=NAMES)
def test_decoder_reads_what_the_java_client_wrote(case: dict[str, Any]) -> None:
    decoded = decode_batch(bytes.fromhex(case["batch"]))
    assert list(decoded.records) == records_of(case)
    assert decoded.offsets == tuple(range(len(case["records"])))
    assert decoded.codec == CODEC_IDS[case["codec"]]
    for name, value in stamps_of(case).items():
        assert getattr(decoded, name) == value
    assert not decoded.is_control
    assert decoded.max_timestamp_ms == max(record.timestamp_ms for record in decoded.records)


def test_decoder_tells_commit_from_abort_markers() -> None:
    abort = decode_batch(bytes.fromhex(GOLDEN["control"]["abort"]))
    commit = decode_batch(bytes.fromhex(GOLDEN["control"]["commit"]))
    assert (abort.is_control, abort.is_abort_marker, abort.is_commit_marker) == (True, True, False)
    assert (commit.is_control, commit.is_abort_marker, commit.is_commit_marker) == (True, False, True)
    assert (commit.base_offset, commit.producer_id, commit.producer_epoch) == (55, 77, 2)
    assert commit.is_transactional


def test_murmur2_equals_the_java_clients_for_every_length() -> None:
    keys = [bytes.fromhex(vector["key"]) for vector in GOLDEN["murmur2"]]
    assert sorted(len(key) for key in keys) == list(range(141))
    expected = [vector["hash"] for vector in GOLDEN["murmur2"]]
    assert [murmur2(key) for key in keys] == expected
    column = BytesColumn.from_arrow(pa.array(keys))
    assert murmur2_column(column).tolist() == expected
    for count in (7, 1000):
        assert partitions_of_keys(column, count).tolist() == [
            vector[f"partition_of_{count}"] for vector in GOLDEN["murmur2"]
        ]


@pytest.mark.parametrize("partition_count", [int(count) for count in GOLDEN["placement"]])
def test_placement_of_100000_keys_equals_the_java_clients(partition_count: int) -> None:
    keys = [hashlib.sha512(b"%d" % number).digest()[: number % 41] for number in range(100_000)]
    partitions = partitions_of_keys(BytesColumn.from_arrow(pa.array(keys)), partition_count)
    digest = hashlib.sha256(partitions.astype(">i4").tobytes()).hexdigest()
    assert digest == GOLDEN["placement"][str(partition_count)]
