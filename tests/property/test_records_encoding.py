"""The column encoder against the scalar one, with all column types, chunkings, sizes and calls."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.formats.records import assembler as assembler_module
from kafka_sink.formats.records import columns as columns_module
from kafka_sink.formats.records.assembler import Assembler
from kafka_sink.formats.records.batch import HEADER_BYTES, seal
from kafka_sink.formats.records.bytes_column import BytesColumn
from kafka_sink.formats.records.columns import RecordColumns, columns_by_topic
from kafka_sink.formats.records.compression import CODEC_IDS, NONE, decompress, make_compressor
from kafka_sink.formats.records.scalar import Record, decode_batch, encode_records, split
from kafka_sink.producer.engine.producer_batch import ProducerBatch
from tests.support.view_types import BINARY_VIEWS, STRING_VIEWS

NOW_MS = 1_700_000_000_000
REQUEST_BYTES_MAX = 10**6
contents = st.one_of(st.none(), st.binary(max_size=12), st.binary(min_size=60, max_size=70), st.just(b"x" * 8200))
texts = st.text(max_size=5)
header_lists = st.one_of(st.none(), st.lists(st.tuples(texts, st.one_of(st.none(), st.binary(max_size=5))), max_size=3))
timestamps = st.one_of(st.none(), st.integers(0, 10), st.integers(NOW_MS, NOW_MS + 10**5), st.integers(0, 2**62))
rows_of_one_call = st.lists(
    st.fixed_dictionaries(
        {
            "key": contents,
            "value": contents,
            "headers": header_lists,
            "timestamp": timestamps,
            "partition": st.integers(0, 5),
        }
    ),
    max_size=25,
)
binary_types = st.sampled_from([pa.binary(), pa.large_binary(), *BINARY_VIEWS, pa.dictionary(pa.int32(), pa.binary())])
entry_type = pa.struct([("key", pa.string()), ("value", pa.binary())])
header_types = st.sampled_from(
    [
        pa.list_(entry_type),
        pa.large_list(entry_type),
        pa.map_(pa.string(), pa.binary()),
        pa.list_(pa.struct([("k", pa.large_string()), ("v", pa.large_binary())])),
        *(pa.list_(pa.struct([("value", pa.binary()), ("key", view)])) for view in STRING_VIEWS),
    ]
)


def arrow_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.binary()).dictionary_encode()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        fields = [kind.value_type.field(index).name for index in range(2)]
        names = ("key", "value") if "key" in fields else tuple(fields)
        values = [None if row is None else [dict(zip(names, pair, strict=True)) for pair in row] for row in values]
    return pa.array(values, kind)


@st.composite
def arrow_calls(draw: st.DrawFn) -> tuple[list[dict[str, Any]], pa.RecordBatch | pa.Table]:
    """Rows, and the same rows as Arrow data: random types, perhaps a slice of something larger, perhaps chunked."""
    rows = draw(rows_of_one_call)
    before = draw(rows_of_one_call)[:3]
    after = draw(rows_of_one_call)[:3]
    every = before + rows + after
    kinds = {
        "key": draw(binary_types),
        "value": draw(binary_types),
        "headers": draw(header_types),
        "timestamp": draw(st.sampled_from([pa.int64(), pa.timestamp("ms"), pa.timestamp("ms", "Europe/Berlin")])),
        "partition": draw(st.sampled_from([pa.int32(), pa.int64()])),
    }
    left_out = draw(st.sets(st.sampled_from(["key", "headers", "timestamp"])))
    names = [name for name in kinds if name not in left_out]
    arrays = [arrow_array([row[name] for row in every], kinds[name]) for name in names]
    batch = pa.record_batch(arrays, names=names).slice(len(before), len(rows))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    for row in rows:
        row.update(dict.fromkeys(left_out))
    if not cuts:
        return rows, batch
    bounds = [0, *cuts, len(rows)]
    chunks = [batch.slice(start, stop - start) for start, stop in pairwise(bounds)]
    return rows, pa.Table.from_batches(chunks, batch.schema)


def expected_records(rows: list[dict[str, Any]]) -> list[Record]:
    return [
        Record(
            NOW_MS if row["timestamp"] is None else row["timestamp"],
            row["key"],
            row["value"],
            tuple(row["headers"] or ()),
        )
        for row in rows
    ]


def check_batch(
    closed: ProducerBatch, batch_bytes_max: int, records_max: int | None, codec: str
) -> list[tuple[object, int, Record]]:
    """Checks that the batch equals what the scalar encoder makes of its records. Returns these with call and row."""
    encoded = closed.encoded
    decoded = decode_batch(seal(encoded) + encoded.payload)
    content = decompress(encoded.codec, encoded.payload, bytes_max=encoded.records_bytes)
    assert content == encode_records(decoded.records, encoded.base_timestamp_ms)
    assert len(content) == encoded.records_bytes
    assert encoded.base_timestamp_ms == decoded.records[0].timestamp_ms
    assert encoded.max_timestamp_ms == max(record.timestamp_ms for record in decoded.records)
    assert len(encoded.payload) < encoded.records_bytes or encoded.codec == NONE
    assert len(encoded.payload) <= encoded.records_bytes
    # With a codec the limit applies to the compressed batch, so before compression it may be larger.
    before_bytes_max = batch_bytes_max if codec == "none" else REQUEST_BYTES_MAX
    assert encoded.record_count == 1 or HEADER_BYTES + encoded.records_bytes <= before_bytes_max
    assert records_max is None or encoded.record_count <= records_max
    origins: list[tuple[object, int]] = []
    for share in closed.shares:
        assert share.first_record == len(origins)
        origins += [(share.token, int(row)) for row in share.rows]
    return [(*origin, record) for origin, record in zip(origins, decoded.records, strict=True)]


@given(
    calls=st.lists(arrow_calls(), max_size=3),
    batch_bytes_max=st.sampled_from([0, 1, 90, 200, 1000, 16384, 10**6]),
    records_max=st.sampled_from([None, 1, 5]),
    codec=st.sampled_from(sorted(CODEC_IDS)),
    chunk_bytes=st.sampled_from([50, 500, assembler_module.CHUNK_BYTES]),
    large_value_bytes=st.sampled_from([0, 30, columns_module.LARGE_VALUE_BYTES]),
    closes=st.booleans(),
)
def test_batches_of_columns_equal_those_of_the_scalar_encoder(
    calls: list[tuple[list[dict[str, Any]], pa.Table]],
    batch_bytes_max: int,
    records_max: int | None,
    codec: str,
    chunk_bytes: int,
    large_value_bytes: int,
    closes: bool,
) -> None:
    with patch.object(columns_module, "LARGE_VALUE_BYTES", large_value_bytes):
        check_calls(calls, batch_bytes_max, records_max, codec, chunk_bytes, closes)


def check_calls(
    calls: list[tuple[list[dict[str, Any]], pa.Table]],
    batch_bytes_max: int,
    records_max: int | None,
    codec: str,
    chunk_bytes: int,
    closes: bool,
) -> None:
    assembler = Assembler(
        new_batch=ProducerBatch,
        batch_bytes_max=batch_bytes_max,
        request_bytes_max=REQUEST_BYTES_MAX,
        batch_records_max=records_max,
        compression=lambda _: make_compressor(codec),
        chunk_bytes=chunk_bytes,
    )
    sent: dict[int, list[tuple[object, int, Record]]] = {}
    batches: list[ProducerBatch] = []
    for token, (rows, data) in enumerate(calls):
        columns = RecordColumns.from_arrow(data)
        assert columns.row_count == len(rows)
        partitions = columns.partitions if columns.partitions is not None else np.zeros(0, np.int32)
        batches += assembler.append("topic", columns, partitions, now_ms=token, timestamp_ms=NOW_MS, token=token)
        if closes:
            batches += assembler.close_due(opened_before_ms=token)
            assert assembler.open_bytes == 0
        for number, (row, record) in enumerate(zip(rows, expected_records(rows), strict=True)):
            sent.setdefault(row["partition"], []).append((token, number, record))
    batches += assembler.close_all()
    assert (assembler.open_bytes, assembler.oldest_opened_ms) == (0, None)
    received: dict[int, list[tuple[object, int, Record]]] = {}
    for closed in batches:
        received.setdefault(closed.partition, []).extend(check_batch(closed, batch_bytes_max, records_max, codec))
    assert received == sent


@given(call=arrow_calls())
def test_bytes_max_bounds_what_all_records_take(call: tuple[list[dict[str, Any]], pa.Table]) -> None:
    rows, data = call
    columns = RecordColumns.from_arrow(data)
    records = expected_records(rows)
    base_timestamp_ms = records[0].timestamp_ms if records else 0
    assert len(encode_records(records, base_timestamp_ms)) <= columns.bytes_max


@given(call=arrow_calls(), codec=st.sampled_from(sorted(CODEC_IDS)))
def test_split_keeps_every_record_in_order(call: tuple[list[dict[str, Any]], pa.Table], codec: str) -> None:
    rows, data = call
    columns = RecordColumns.from_arrow(data)
    assembler = Assembler(
        new_batch=ProducerBatch,
        batch_bytes_max=10**6,
        request_bytes_max=10**6,
        batch_records_max=None,
        compression=lambda _: make_compressor(codec),
    )
    assembler.append("t", columns, np.zeros(len(rows), np.int32), now_ms=0, timestamp_ms=NOW_MS, token=None)
    for closed in assembler.close_all():
        parts = split(closed.encoded, make_compressor(codec))
        assert len(parts) > 1 or closed.encoded.record_count == 1
        records: list[Record] = []
        for part in parts:
            assert part.record_count == 1 or part.records_bytes <= closed.encoded.records_bytes // 2
            # A part that does not shrink is sent as it is.
            assert part.codec in (NONE, CODEC_IDS[codec])
            assert len(part.payload) < part.records_bytes or part.codec == NONE
            records += decode_batch(seal(part) + part.payload).records
        assert records == expected_records(rows)


@given(
    names=st.lists(st.text(max_size=3), max_size=20),
    kind=st.sampled_from([pa.string(), pa.large_string(), *STRING_VIEWS, pa.dictionary(pa.int8(), pa.string())]),
)
def test_rows_are_dealt_to_the_topics_they_name(names: list[str], kind: pa.DataType) -> None:
    values = [b"%d" % number for number in range(len(names))]
    array = pa.array(names, pa.string()).dictionary_encode() if pa.types.is_dictionary(kind) else pa.array(names, kind)
    dealt = columns_by_topic(pa.table({"topic": array, "value": values}), topic=None)
    expected: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        expected.setdefault(name, []).append(number)
    assert {topic: columns.row_ids.tolist() for topic, columns in dealt} == expected
    for _, columns in dealt:
        assert columns.value is not None
        rows = [columns.value.row(index) for index in range(columns.row_count)]
        assert rows == [values[row] for row in columns.row_ids.tolist()]


@given(rows=st.lists(contents, max_size=20), data=st.data())
def test_taking_rows_of_a_column_picks_those_rows(rows: list[bytes | None], data: st.DataObject) -> None:
    column = BytesColumn.from_arrow(pa.array(rows, pa.binary()))
    picks = data.draw(st.lists(st.integers(0, len(rows) - 1))) if rows else []
    taken = column.take(np.array(picks, np.int64))
    assert [taken.row(index) for index in range(len(picks))] == [rows[pick] for pick in picks]
