"""Varints and murmur2 of arrays against their scalar twins; decoders with arbitrary bytes."""

from __future__ import annotations

from dataclasses import replace

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_sink.commit.log_scan import raw_batches
from kafka_sink.errors import RemoteProtocolError
from kafka_sink.formats.records import skim
from kafka_sink.formats.records.batch import CHECKED, HEADER_BYTES, PREFIX, EncodedBatch, seal
from kafka_sink.formats.records.bytes_column import BytesColumn
from kafka_sink.formats.records.columns import RecordColumns
from kafka_sink.formats.records.compression import CODEC_IDS, decompress, make_compressor
from kafka_sink.formats.records.murmur2 import murmur2_column
from kafka_sink.formats.records.pieces import length_elements
from kafka_sink.formats.records.routing import PartitionView, Router
from kafka_sink.formats.records.scalar import Record, decode_batch, encode_batch, encode_varint
from kafka_sink.formats.records.skim import Skimmed, skim_batch
from kafka_sink.formats.records.varint import (
    constant_field,
    encode_varints,
    length_varint_sizes,
    pack,
    varint_size,
)
from tests.support.slow_murmur2 import murmur2

BYTES_MAX = 5000
numbers = st.integers(0, 63).flatmap(lambda bits: st.integers(-(2**bits), 2**bits - 1))
lengths = st.integers(0, 31).flatmap(lambda bits: st.integers(-1, 2**bits - 1))
codecs = st.sampled_from(sorted(CODEC_IDS))


@given(st.lists(numbers))
@example([-(2**63), 2**63 - 1, 0, -1, 63, 64, -64, -65])
def test_varints_of_an_array_equal_the_scalar_ones(values: list[int]) -> None:
    array = np.array(values, np.int64)
    expected = [encode_varint(value) for value in values]
    flat, starts = pack(encode_varints(array), len(values))
    assert flat.tobytes() == b"".join(expected)
    assert np.diff(starts).tolist() == [len(varint) for varint in expected]
    assert [varint_size(value) for value in values] == [len(varint) for varint in expected]


@given(st.lists(numbers, min_size=1), st.lists(st.one_of(numbers, st.binary(max_size=8)), max_size=6))
def test_fields_stand_side_by_side_whatever_their_lengths(values: list[int], more: list[int | bytes]) -> None:
    array = np.array(values, np.int64)
    fields = encode_varints(array)
    tail = b""
    for item in more:
        fields += [constant_field(item)] if isinstance(item, bytes) else encode_varints(item)
        tail += item if isinstance(item, bytes) else encode_varint(item)
    flat, _ = pack([*fields, *encode_varints(array)], len(values))
    assert flat.tobytes() == b"".join(encode_varint(value) + tail + encode_varint(value) for value in values)


@given(st.lists(lengths))
def test_length_elements_are_the_varints_of_the_lengths(values: list[int]) -> None:
    array = np.array(values, np.int64)
    found = length_elements(array)
    taken = found.array.take(pa.array(found.indices, pa.int64()))
    assert taken.to_pylist() == [encode_varint(value) for value in values]
    assert length_varint_sizes(array).tolist() == [len(encode_varint(value)) for value in values]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=80))), st.integers(0, 3))
@example([b"x" * 7] * 40, 0)
@example([b"y" * 36] * 40, 1)
@example([b"k%d" % number for number in range(50)] + [b"long" * 5000, b"odd" * 4321], 0)
def test_murmur2_of_a_column_equals_the_scalar_hash(keys: list[bytes | None], skipped: int) -> None:
    array = pa.array(keys, pa.binary()).slice(skipped)
    column = BytesColumn.from_arrow(array)
    assert murmur2_column(column).tolist() == [murmur2(key or b"") for key in keys[skipped:]]


@given(st.lists(st.binary(min_size=1, max_size=80), min_size=1), st.integers(1, 2000))
def test_consistent_random_places_keys_as_librdkafka_does(keys: list[bytes], partition_count: int) -> None:
    router = Router(sticky_bytes=1000, random_number=lambda: 0.0, partitioner="consistent_random")
    columns = RecordColumns.from_rows(keys, keys)
    expected = [confluent_kafka.consistent(key, partition_count) for key in keys]
    assert router.route("t", columns, PartitionView(partition_count, ())).tolist() == expected


@given(codecs, st.binary(max_size=3000), st.integers(0, 3000))
def test_decompress_gives_back_the_content_or_refuses_more_than_the_limit(
    codec: str, content: bytes, bytes_max: int
) -> None:
    packed = make_compressor(codec).compress(content * 3)
    if 3 * len(content) <= bytes_max:
        assert decompress(CODEC_IDS[codec], packed, bytes_max=bytes_max) == content * 3
    else:
        with pytest.raises(RemoteProtocolError):
            decompress(CODEC_IDS[codec], packed, bytes_max=bytes_max)


@given(st.integers(0, 7), st.binary(max_size=200))
def test_garbage_is_refused_with_a_protocol_error_alone(codec_id: int, data: bytes) -> None:
    try:
        assert len(decompress(codec_id, data, bytes_max=BYTES_MAX)) <= BYTES_MAX
    except RemoteProtocolError as error:
        assert str(error)


@given(codecs, st.binary(min_size=1, max_size=300), st.data())
def test_damaged_data_is_refused_with_a_protocol_error_alone(codec: str, content: bytes, data: st.DataObject) -> None:
    packed = bytearray(make_compressor(codec).compress(content * 2))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(decompress(CODEC_IDS[codec], bytes(packed), bytes_max=BYTES_MAX)) <= BYTES_MAX
    except RemoteProtocolError as error:
        assert str(error)


records = st.builds(
    Record,
    st.integers(0, 2**62),
    st.one_of(st.none(), st.binary(max_size=20)),
    st.one_of(st.none(), st.binary(max_size=20)),
    st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=2).map(tuple),
)


@given(
    st.lists(records, min_size=1, max_size=10),
    codecs,
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.booleans(),
)
def test_a_sealed_batch_decodes_to_what_went_in(
    rows: list[Record], codec: str, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
) -> None:
    encoded = encode_batch(rows, make_compressor(codec))
    header = seal(
        encoded,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    assert len(header) == HEADER_BYTES
    decoded = decode_batch(header + encoded.payload)
    assert list(decoded.records) == rows
    stamps = (decoded.producer_id, decoded.producer_epoch, decoded.base_sequence, decoded.is_transactional)
    assert stamps == (producer_id, producer_epoch, base_sequence, is_transactional)


@given(st.lists(records, min_size=1, max_size=4), codecs, st.sets(st.none() | st.binary()), st.integers(0, 20))
def test_of_a_skimmed_batch_the_wanted_keys_and_the_beginnings_of_their_values_are_left(
    rows: list[Record], codec: str, more: set[bytes | None], value_bytes_max: int
) -> None:
    wanted = {rows[0].key, *more}
    encoded = encode_batch(rows, make_compressor(codec))
    found = skim_batch(seal(encoded) + encoded.payload, wanted.__contains__, value_bytes_max=value_bytes_max)
    assert list(found) == [
        Skimmed(offset, row.key, row.value if row.value is None else row.value[:value_bytes_max])
        for offset, row in enumerate(rows)
        if row.key in wanted
    ]


@given(st.lists(records, min_size=1, max_size=4), st.data())
def test_a_record_set_cut_anywhere_gives_its_whole_batches(rows: list[Record], data: st.DataObject) -> None:
    encoded = encode_batch(rows, make_compressor("none"))
    batch = seal(encoded) + encoded.payload
    cut = data.draw(st.integers(0, len(batch)))
    assert len(list(raw_batches(batch + batch[:cut]))) == 1 + (cut == len(batch))


@given(st.binary(max_size=120), st.integers(0, 2**16 - 1), st.integers(-(2**31), 2**31 - 1), codecs)
def test_a_batch_of_garbage_with_a_right_checksum_is_refused_with_a_protocol_error_alone(
    payload: bytes, attributes: int, count: int, codec: str
) -> None:
    """A checksum detects damage, but not a malicious sender: the parser must handle any content itself."""
    sealed = seal(EncodedBatch(CODEC_IDS[codec], payload, 1, 0, 0, len(payload)))
    checked = bytearray(sealed[PREFIX.size :])
    checked[-4:] = count.to_bytes(4, "big", signed=True)
    checked[:2] = (attributes & ~7 | CODEC_IDS[codec]).to_bytes(2, "big")
    assert len(checked) == CHECKED.size
    batch = sealed[:17] + crc32c(bytes(checked) + payload).to_bytes(4, "big") + checked + payload
    try:
        assert len(decode_batch(batch, records_bytes_max=BYTES_MAX).records) == count
    except RemoteProtocolError as error:
        assert str(error)
    try:
        found = skim_batch(batch, lambda _: True, value_bytes_max=10, records_bytes_max=BYTES_MAX)
        assert len(list(found)) <= max(count, 0)
    except RemoteProtocolError as error:
        assert str(error)


@given(records, codecs, st.binary(max_size=12), st.integers(0, 80), st.booleans(), st.sampled_from([0, 3, 2**20]))
def test_a_batch_of_one_is_skimmed_in_place_as_it_is_part_by_part(
    row: Record, codec: str, noise: bytes, position: int, is_wanted: bool, value_bytes_max: int
) -> None:
    """Whatever is in it: bytes of the payload are replaced, and the checksum is made right."""
    encoded = encode_batch([row], make_compressor(codec))
    payload = encoded.payload[:position] + noise + encoded.payload[position + len(noise) :]
    batch = seal(replace(encoded, payload=payload)) + payload

    def skimmed() -> list[Skimmed] | str:
        try:
            return list(skim_batch(batch, lambda _: is_wanted, value_bytes_max=value_bytes_max))
        except RemoteProtocolError as error:
            return str(error)

    at_once = skimmed()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(skim, "_find_only", lambda _: None)
        assert skimmed() == at_once
