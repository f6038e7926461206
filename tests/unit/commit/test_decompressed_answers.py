"""A few kilobytes of an answer may become gigabytes: they are decoded batch by batch."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.commit.admin.topic_reader import PartitionReader
from kafka_sink.commit.command_texts import BrokerArguments
from kafka_sink.commit.ledger_codec import VALUE_BEGINS
from kafka_sink.commit.log_scan import DECODED_BYTES_MAX, committed_records
from kafka_sink.errors import RemoteProtocolError
from kafka_sink.formats.records.batch import EncodedBatch, seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, decode_batch, encode_batch, encode_varint
from kafka_sink.operate.status.collect import RECOGNISED_BATCHES, ClusterLook
from kafka_sink.options.sink_options import DEFAULT_LEDGER

MIB = 2**20
OTHER = "orders-ledger"


def batch_of(*records: Record, codec: str = "zstd") -> bytes:
    encoded = encode_batch(list(records), make_compressor(codec))
    return seal(encoded, producer_id=5, producer_epoch=0, base_sequence=0) + encoded.payload


def log_of(batches: Sequence[bytes]) -> bytes:
    """With one offset for each batch."""
    return b"".join(offset.to_bytes(8, "big") + batch[8:] for offset, batch in enumerate(batches))


BOMB = batch_of(Record(0, b"k", b"0" * (32 * MIB)))


class OneLog:
    """Answers about a partition with everything that is there from the asked offset on."""

    options = SimpleNamespace(request_timeout_ms=1_000, max_block_ms=1_000)

    def __init__(self, batches: Sequence[bytes]) -> None:
        self.batches = batches
        self.fetched: list[int] = []

    def now_ms(self) -> int:
        return 0

    def ask_metadata(self, _body: object) -> Mapping[str, Any]:
        more = {"error_code": 0, "is_internal": False, "partitions": [{"partition_index": 0, "leader_id": 1}]}
        return {"topics": [{"name": name, **more} for name in (DEFAULT_LEDGER, OTHER)]}

    def ask(self, _target: object, api: Any, body: Mapping[str, Any], **more: Any) -> Mapping[str, Any]:
        if api.name == "DescribeConfigs":
            value = {"name": "cleanup.policy", "value": "compact"}
            asked = {"resource_type": 2, "resource_name": body["resources"][0]["resource_name"]}
            return {"results": [{**asked, "error_code": 0, "configs": [value]}]}
        if api.name == "ListOffsets":
            offset = len(self.batches) if body["topics"][0]["partitions"][0]["timestamp"] == -1 else 0
            return {"topics": [{"partitions": [{"error_code": 0, "offset": offset}]}]}
        offset = body["topics"][0]["partitions"][0]["fetch_offset"]
        self.fetched.append(offset)
        records = log_of(self.batches)[sum(map(len, self.batches[:offset])) :]
        partition = {"error_code": 0, "last_stable_offset": 0, "high_watermark": 0, "records": records}
        answer = {"error_code": 0, "responses": [{"partitions": [{**partition, "aborted_transactions": None}]}]}
        assert more["lacks"]([answer]) is None
        return answer


def memory_of(work: Any) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_answer_that_decompresses_far_is_read_in_parts_and_nothing_is_left_out() -> None:
    log = OneLog([BOMB] * 7)
    parts = [[offset for offset, _ in records] for records, _ in PartitionReader(log, "t", 0, 1_000).read(0, 7)]  # type: ignore[arg-type]
    assert [offset for part in parts for offset in part] == list(range(7))
    assert max(map(len, parts)) * 32 * MIB <= DECODED_BYTES_MAX + 32 * MIB
    assert log.fetched == [0, 2, 4, 6]


def test_only_the_newest_records_are_held_while_they_are_looked_for() -> None:
    reader = PartitionReader(OneLog([BOMB] * 10), "t", 0, 1_000)  # type: ignore[arg-type]
    found: list[int] = []
    used = memory_of(lambda: found.extend(offset for offset, _ in reader.newest(1, 10)))
    assert found == [9] and used < 200 * MIB


@pytest.mark.parametrize("limit", [0, 1, 300, 10_000])
def test_parts_of_an_answer_join_without_a_gap(limit: int) -> None:
    records = log_of([batch_of(Record(0, b"%d" % number, b"v" * 100, (("h", b"x"),))) for number in range(20)])
    found, offset = list[int](), 0
    while offset < 20:
        part, offset = committed_records(
            records, [{"producer_id": 6, "first_offset": 0}], offset, decoded_bytes_max=limit
        )
        found += [int(record.key or b"") for _, record in part]
    assert found == list(range(20))


def test_headers_without_a_byte_are_counted_too() -> None:
    record = b"\0\0\0\x01\x01" + encode_varint(2_000_001) + b"\0\x01" * 2_000_001
    content = encode_varint(len(record)) + record
    zstd = make_compressor("zstd")
    encoded = EncodedBatch(zstd.codec_id, zstd.compress(content), 1, 0, 0, len(content))
    batch = seal(encoded) + encoded.payload
    assert len(batch) < 10_000
    with pytest.raises(RemoteProtocolError, match="names 2000001 headers, and at most 2000000 more are read"):
        decode_batch(batch)


def look_for_ledgers(batches: Sequence[bytes]) -> list[str]:
    look = ClusterLook(OneLog(batches), BrokerArguments(), (), 1_000)  # type: ignore[arg-type]
    topics, notes = look.look_for_ledgers()
    assert notes == []
    return topics


def test_a_topic_of_bombs_is_no_ledger_and_takes_no_memory_to_find_out() -> None:
    found: list[str] = []
    assert memory_of(lambda: found.extend(look_for_ledgers([BOMB] * 300))) < 10 * MIB
    assert found == [DEFAULT_LEDGER]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_ledger_is_recognised_whatever_is_written_before_its_first_decision(codec: str) -> None:
    decision = batch_of(Record(0, b"orders", VALUE_BEGINS + b"1 json\n" + b"{" * (3 * MIB)), codec=codec)
    many = batch_of(*[Record(0, b"k", b"v")] * 1_001)
    assert look_for_ledgers([BOMB, many, batch_of(Record(0, b"replay", b"{}")), decision]) == [DEFAULT_LEDGER, OTHER]
    assert look_for_ledgers([many] * RECOGNISED_BATCHES + [decision]) == [DEFAULT_LEDGER]
