"""The decoder's refusals, batch headers bit by bit, and splitting."""

from __future__ import annotations

import struct
import sys
import tracemalloc
from random import Random

import pyarrow as pa
import pytest
from crc32c import crc32c

from kafka_sink.commit.log_scan import raw_batches
from kafka_sink.errors import RemoteProtocolError
from kafka_sink.formats.records.batch import EncodedBatch, seal
from kafka_sink.formats.records.compression import CODEC_IDS, decompressed_parts, make_compressor
from kafka_sink.formats.records.scalar import Record, decode_batch, encode_batch, encode_varint, split
from kafka_sink.formats.records.skim import skim_batch

ROWS = [Record(1000 + number, b"k", b"v" * number, (("h", None),)) for number in range(20)]


def sealed(encoded: EncodedBatch) -> bytes:
    return seal(encoded) + encoded.payload


def with_records(content: bytes, count: int = 1) -> bytes:
    return sealed(EncodedBatch(0, content, count, 0, 0, len(content)))


def test_header_has_every_field_where_the_protocol_puts_it() -> None:
    encoded = EncodedBatch(4, b"payload", 12, 1_000, 2_000, 50)
    header = seal(encoded, producer_id=2**40, producer_epoch=7, base_sequence=9, is_transactional=True)
    fields = struct.unpack(">qiibIhiqqqhii", header)
    checksum = crc32c(header[21:] + b"payload")
    assert fields == (0, 49 + 7, -1, 2, checksum, 0x14, 11, 1_000, 2_000, 2**40, 7, 9, 12)
    assert (len(encoded.payload), len(header)) == (7, 61)


def test_sealing_again_changes_the_header_alone() -> None:
    encoded = encode_batch(ROWS, make_compressor("lz4"))
    payload = encoded.payload
    first = decode_batch(seal(encoded, producer_id=5, producer_epoch=0, base_sequence=3) + payload)
    again = decode_batch(seal(encoded, producer_id=5, producer_epoch=1, base_sequence=0) + payload)
    assert encoded.payload is payload
    assert first.records == again.records
    assert (first.producer_epoch, first.base_sequence) == (0, 3)
    assert (again.producer_epoch, again.base_sequence) == (1, 0)


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (b"", "shorter than its header"),
        (sealed(encode_batch(ROWS, make_compressor("none")))[:-1], "names a length of"),
        (sealed(encode_batch(ROWS, make_compressor("none"))) + b"\x00", "names a length of"),
        (sealed(encode_batch(ROWS, make_compressor("none")))[:-1] + b"\xff", "wrong checksum"),
        (b"\x00" * 16 + b"\x01" + b"\x00" * 60, "has magic 1"),
        (with_records(b""), "names 1 records in 0 bytes"),
        (with_records(b"\x00" * 70, count=-1), "names -1 records"),
        (with_records(b"\x80" * 70), "longer than 32 bits allow"),
        (with_records(b"\xff\xff\xff\xff\x7f" + b"\x00" * 9), "larger than 32 bits"),
        (with_records(b"\x40" + b"\x00" * 10), "names 32 bytes where 10 are left"),
        (with_records(b"\x03" + b"\x00" * 10), "names -2 bytes"),
        (with_records(b"\x0c\x00\x00\x00\x03\x01\x00\x00"), "names -2 bytes"),
        (with_records(b"\x0c\x00\x00\x00\x01\x01\x04"), "names 2 headers in 0 bytes"),
        (with_records(b"\x10\x00\x00\x00\x01\x01\x02\x02\xff"), "record ends within a varint"),
        (with_records(b"\x0e\x00\x00\x00\x01\x01\x00\x00"), "followed by 1 bytes that belong to nothing"),
        (with_records(b"\x0c\x00\x00\x00\x01\x01\x00\x00"), "batch is followed by 1 bytes"),
        (with_records(b"\x02\x00" + b"\x00" * 6), "record ends within a varint"),
    ],
)
def test_broken_batch_is_refused_with_its_reason(batch: bytes, text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        decode_batch(batch)


def test_record_set_is_read_batch_by_batch_without_the_part_cut_off() -> None:
    one = sealed(encode_batch(ROWS, make_compressor("gzip")))
    found = list(raw_batches(one + one + one[:-1]))
    assert [len(decode_batch(batch.content).records) for batch in found] == [20, 20]
    assert list(raw_batches(b"")) == list(raw_batches(one[:30])) == []
    with pytest.raises(RemoteProtocolError, match="names a length of 0"):
        list(raw_batches(b"\x00" * 16 + b"\x02" + b"\x00" * 60))


def test_markers_are_told_only_in_control_batches() -> None:
    decoded = decode_batch(sealed(encode_batch([Record(0, b"\x00\x00\x00\x01", None)], make_compressor("none"))))
    assert not decoded.is_commit_marker and not decoded.is_abort_marker


def test_varints_have_the_bytes_of_the_protocol() -> None:
    expected = {0: "00", -1: "01", 1: "02", 63: "7e", -64: "7f", 64: "8001", -65: "8101", 2**31 - 1: "feffffff0f"}
    assert {value: encode_varint(value).hex() for value in expected} == expected
    assert encode_varint(-(2**63)).hex() == "ff" * 9 + "01"


def test_split_cuts_in_half_and_restarts_offsets() -> None:
    codec = make_compressor("zstd")
    encoded = encode_batch(ROWS, codec)
    parts = split(encoded, codec)
    assert all(part.records_bytes <= encoded.records_bytes // 2 for part in parts)
    decoded = [decode_batch(sealed(part)) for part in parts]
    assert [record for batch in decoded for record in batch.records] == ROWS
    assert all(batch.offsets == tuple(range(len(batch.records))) for batch in decoded)
    assert all(batch.base_timestamp_ms == batch.records[0].timestamp_ms for batch in decoded)
    assert {part.codec for part in parts} == {encoded.codec}


def test_the_parts_of_a_split_are_halves_by_their_own_base_of_timestamps() -> None:
    codec, now_ms = make_compressor("none"), 1_700_000_000_000
    # By the base of the whole batch the second part would be 26 bytes. By its own, which is 0, it would be 31.
    rows = [Record(each, None, b"") for each in (now_ms, now_ms, 0, now_ms, now_ms, 0)]
    rows[1] = Record(now_ms, None, b"xx")
    encoded = encode_batch(rows, codec)
    parts = split(encoded, codec)
    assert max(part.records_bytes for part in parts) <= encoded.records_bytes // 2 == 27
    assert [record for part in parts for record in decode_batch(sealed(part)).records] == rows


def test_names_of_headers_that_are_not_utf8_keep_their_bytes() -> None:
    content = b"\x14\x00\x00\x00\x01\x01\x02\x04\xff\xfe\x01"
    (record,) = decode_batch(with_records(content)).records
    assert encode_batch([record], make_compressor("none")).payload == content
    twice = EncodedBatch(0, content + content.replace(b"\x00\x00\x00", b"\x00\x00\x02"), 2, 0, 0, 2 * len(content))
    assert [part.payload for part in split(twice, make_compressor("none"))] == [content, content]


def test_splitting_again_and_again_ends_with_single_records() -> None:
    codec = make_compressor("none")
    pending = [encode_batch(ROWS, codec)]
    rounds = 0
    while any(batch.record_count > 1 for batch in pending):
        pending = [part for batch in pending for part in split(batch, codec)]
        rounds += 1
    assert (len(pending), rounds < 10) == (20, True)
    assert split(pending[0], codec) == [pending[0]]


def test_split_with_the_producers_own_codec_keeps_its_level() -> None:
    codec = make_compressor("gzip", 1)
    encoded = encode_batch([Record(1000 + number, b"k", b"some text, " * 20) for number in range(20)], codec)
    for part in split(encoded, codec):
        assert part.payload == codec.compress(make_compressor("none").compress(gunzip(part)))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_records_that_a_codec_would_enlarge_are_sent_as_they_are_and_so_are_parts_of_a_batch(codec: str) -> None:
    random = Random(3)
    rows = [Record(0, None, b"a" * 4000), *(Record(0, None, random.randbytes(500)) for _ in range(4))]
    whole = encode_batch(rows, make_compressor(codec))
    first, second = split(whole, make_compressor(codec))
    assert (whole.codec, first.codec) == (CODEC_IDS[codec],) * 2
    assert (second.codec, len(second.payload)) == (0, second.records_bytes)
    assert decode_batch(sealed(second)).records == tuple(rows[1:])


def gunzip(part: EncodedBatch) -> bytes:
    import gzip

    return gzip.decompress(part.payload)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_is_not_wanted_of_a_batch_is_passed_over_and_never_held(codec: str) -> None:
    rows = [Record(0, b"a", b"0" * 2**25), Record(0, b"b", b"wanted"), *[Record(0, None, None)] * 10_001]
    rows += [Record(0, b"b", b"1" * 2**25, (("name", b"2" * 2**20),)), Record(0, b"b" * 65_537, b"too long a key")]
    batch = sealed(encode_batch(rows, make_compressor(codec)))
    tracemalloc.start()
    try:
        found = list(skim_batch(batch, lambda key: (key or b"").startswith(b"b"), value_bytes_max=10))
        assert tracemalloc.get_traced_memory()[1] < 3 * 2**20 + len(batch)
    finally:
        tracemalloc.stop()
    assert found == [(1, b"b", b"wanted"), (10_003, b"b", b"1" * 10)]


def test_a_batch_is_not_skimmed_beyond_a_limit() -> None:
    batch = sealed(encode_batch([Record(0, b"a", b"0" * 2**20)], make_compressor("zstd")))
    with pytest.raises(RemoteProtocolError, match="holds more than the allowed 1048576 bytes"):
        list(skim_batch(batch, lambda _: False, value_bytes_max=10, records_bytes_max=2**20))


def test_more_records_than_memory_should_hold_are_refused_before_they_are_decoded() -> None:
    batch = bytearray(sealed(encode_batch([Record(0, None, None)], make_compressor("none"))))
    batch[57:61] = (1_000_001).to_bytes(4, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    with pytest.raises(RemoteProtocolError, match="names 1000001 records, and at most 1000000 are read"):
        decode_batch(bytes(batch))
    with pytest.raises(RemoteProtocolError, match="record ends within a varint"):
        list(skim_batch(bytes(batch), lambda _: True, value_bytes_max=0))


def test_of_a_snappy_block_no_more_memory_is_taken_than_its_bytes_can_become() -> None:
    block = b"\xff\xff\xff\xff\x03" + bytes(95)  # claims a GiB
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="snappy data is broken"):
            list(decompressed_parts(CODEC_IDS["snappy"], block, bytes_max=sys.maxsize))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    zeros, compressor = bytes(2**20), make_compressor("snappy")
    raw = pa.Codec("snappy").compress(zeros, asbytes=True)
    for data in (raw, compressor.compress(zeros)):
        assert b"".join(decompressed_parts(CODEC_IDS["snappy"], data, bytes_max=sys.maxsize)) == zeros
