"""When batches are closed, what they share, and the state after a refused call."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink.errors import DataError
from kafka_sink.formats.records.assembler import Assembler
from kafka_sink.formats.records.batch import HEADER_BYTES, NO_TIMESTAMP, seal
from kafka_sink.formats.records.columns import RecordColumns
from kafka_sink.formats.records.compression import LZ4, NONE, make_compressor
from kafka_sink.formats.records.scalar import decode_batch
from kafka_sink.producer.engine.producer_batch import ProducerBatch

NOW_MS = 1_700_000_000_000
# A record with a value of 92 bytes: length 2, attributes, two deltas, key -1, value length 2, header count, in all 101.
VALUE = b"v" * 92
RECORD_BYTES = 101


def assembler(
    batch_bytes_max: int = 1000, request_bytes_max: int = 10_000, batch_records_max: int | None = None
) -> Assembler[ProducerBatch]:
    return Assembler(
        new_batch=ProducerBatch,
        batch_bytes_max=batch_bytes_max,
        request_bytes_max=request_bytes_max,
        batch_records_max=batch_records_max,
        compression=lambda _: make_compressor("none"),
    )


def append(
    target: Assembler[ProducerBatch],
    partitions: list[int],
    *,
    topic: str = "t",
    value: bytes = VALUE,
    now_ms: int = 0,
    token: object = None,
    timestamps: list[int | None] | None = None,
) -> list[ProducerBatch]:
    count = len(partitions)
    columns = RecordColumns.from_rows([None] * count, [value] * count)
    if timestamps is not None:
        own = np.array([NO_TIMESTAMP if one is None else one for one in timestamps], np.int64)
        columns = replace(columns, timestamps=own)
    return target.append(
        topic, columns, np.array(partitions, np.int32), now_ms=now_ms, timestamp_ms=NOW_MS, token=token
    )


def counts(batches: list[ProducerBatch]) -> list[tuple[int, int]]:
    return [(batch.partition, batch.encoded.record_count) for batch in batches]


def test_batch_closes_when_the_next_record_does_not_fit() -> None:
    target = assembler()
    assert append(target, [0] * 9) == []
    # And four bytes for the number of each row.
    assert target.open_bytes == 9 * (RECORD_BYTES + 4)
    assert counts(append(target, [0])) == [(0, 9)]
    assert counts(target.close_all()) == [(0, 1)]


def test_batch_that_is_exactly_full_closes_at_once() -> None:
    # The estimate reserves two bytes for the offset delta, one more than it needs here.
    full_bytes = HEADER_BYTES + 5 * (RECORD_BYTES + 1)
    assert counts(append(assembler(batch_bytes_max=full_bytes), [3] * 5)) == [(3, 5)]
    assert counts(append(assembler(batch_bytes_max=full_bytes - 1), [3] * 5)) == [(3, 4)]
    assert counts(append(assembler(batch_bytes_max=full_bytes + 1), [3] * 5)) == []
    assert counts(append(assembler(batch_bytes_max=full_bytes), [3] * 6)) == [(3, 5)]
    target = assembler(batch_records_max=5)
    assert counts(append(target, [3] * 5)) == [(3, 5)]
    assert (target.open_bytes, target.oldest_opened_ms) == (0, None)


def test_record_limit_cuts_a_call_and_counts_over_calls() -> None:
    target = assembler(batch_records_max=4)
    assert counts(append(target, [0] * 3)) == []
    assert counts(append(target, [0] * 6)) == [(0, 4), (0, 4)]
    assert counts(target.close_all()) == [(0, 1)]


def test_large_record_is_alone_in_its_batch_and_keeps_its_place() -> None:
    target = assembler()
    append(target, [0, 0])
    closed = append(target, [0], value=b"x" * 5000) + append(target, [0]) + target.close_all()
    assert counts(closed) == [(0, 2), (0, 1), (0, 1)]
    assert closed[1].encoded.records_bytes > 1000


def test_every_record_is_alone_with_a_batch_size_of_zero() -> None:
    target = assembler(batch_bytes_max=0)
    assert counts(append(target, [0, 1, 0])) == [(0, 1), (0, 1), (1, 1)]
    assert target.oldest_opened_ms is None


def test_no_batch_is_planned_beyond_the_request_limit() -> None:
    target = assembler(batch_bytes_max=10**6, request_bytes_max=1000)
    assert counts(append(target, [0] * 20)) == [(0, 9), (0, 9)]


def test_batches_of_records_of_all_sizes_and_times_are_full_and_not_above_the_limit() -> None:
    generator = random.Random(7)
    values = [bytes(generator.choice((60, 70, 200))) for _ in range(1000)]
    partitions = np.array([generator.randrange(3) for _ in values], np.int32)
    columns = RecordColumns.from_rows([None] * 1000, values)
    columns = replace(columns, timestamps=np.array([generator.randrange(10**12) for _ in values]))
    closed = assembler().append("t", columns, partitions, now_ms=0, timestamp_ms=NOW_MS, token=None)
    sizes = [HEADER_BYTES + batch.encoded.records_bytes for batch in closed]
    # The next record would have had up to 220 bytes, and the estimate is two or three too high for each.
    assert 700 < min(sizes) <= max(sizes) <= 1000


def test_a_batch_that_the_next_record_closes_says_nothing_of_that_one() -> None:
    target = assembler()
    append(target, [0] * 9, token="first")
    (closed,) = append(target, [0], token="second", timestamps=[NOW_MS + 1])
    assert [share.token for share in closed.shares] == ["first"]
    assert closed.encoded.max_timestamp_ms == NOW_MS


def test_partitions_above_16_bits_are_told_apart() -> None:
    assert counts(append(assembler(batch_records_max=2), [2**16, 0, 2**16, 0])) == [(0, 2), (2**16, 2)]


def test_refused_call_leaves_nothing_behind() -> None:
    target = assembler(request_bytes_max=200)
    append(target, [0])
    before = target.open_bytes
    columns = RecordColumns.from_rows([None] * 3, [b"a", b"b", b"c" * 200])
    with pytest.raises(
        DataError, match=r"the record of row 2 takes 286 bytes in a request; max\.request\.size allows 200"
    ):
        target.append("t", columns, np.zeros(3, np.int32), now_ms=0, timestamp_ms=NOW_MS, token=None)
    assert target.open_bytes == before
    assert counts(target.close_all()) == [(0, 1)]


def test_due_batches_close_in_the_order_of_opening() -> None:
    target = assembler()
    append(target, [1], now_ms=10)
    append(target, [0], now_ms=20)
    append(target, [1], now_ms=30)
    append(target, [2], now_ms=30)
    assert target.oldest_opened_ms == 10
    assert target.close_due(opened_before_ms=9) == []
    assert counts(target.close_due(opened_before_ms=20)) == [(1, 2), (0, 1)]
    assert target.oldest_opened_ms == 30
    assert [batch.opened_ms for batch in target.close_all()] == [30]


def test_a_batch_that_was_opened_late_for_older_rows_is_due_with_them() -> None:
    target = assembler()
    append(target, [0], now_ms=20)
    append(target, [1, 2], topic="waited", now_ms=10)
    append(target, [1], now_ms=30)
    assert target.oldest_opened_ms == 10
    assert counts(target.close_due(opened_before_ms=10)) == [(1, 1), (2, 1)]
    assert target.oldest_opened_ms == 20
    assert counts(target.close_all()) == [(0, 1), (1, 1)]


def test_batch_that_follows_a_full_one_is_as_old_as_its_first_record() -> None:
    target = assembler()
    append(target, [0] * 8, now_ms=10)
    append(target, [1], now_ms=15)
    append(target, [0] * 8, now_ms=20)
    assert target.oldest_opened_ms == 15
    assert [(batch.partition, batch.opened_ms) for batch in target.close_all()] == [(1, 15), (0, 20)]


def test_same_partition_of_two_topics_are_two_batches() -> None:
    target = assembler()
    append(target, [0], topic="a")
    append(target, [0, 0], topic="b")
    assert [(batch.topic, batch.encoded.record_count) for batch in target.close_all()] == [("a", 1), ("b", 2)]


def test_shares_say_which_rows_of_which_call_are_in_a_batch() -> None:
    target = assembler()
    append(target, [0, 1, 0], token="first")
    append(target, [1, 0], token="second")
    shares = {
        batch.partition: [(share.token, share.rows.tolist(), share.first_record) for share in batch.shares]
        for batch in target.close_all()
    }
    assert shares == {
        0: [("first", [0, 2], 0), ("second", [1], 2)],
        1: [("first", [1], 0), ("second", [0], 1)],
    }


def test_shares_number_rows_as_the_caller_does() -> None:
    target = assembler()
    columns = RecordColumns.from_rows([None] * 6, [VALUE] * 6).slice(2, 6).take(np.array([3, 1]))
    target.append("t", columns, np.array([0, 0], np.int32), now_ms=0, timestamp_ms=NOW_MS, token=None)
    (batch,) = target.close_all()
    assert batch.shares[0].rows.tolist() == [5, 3]


def test_rows_without_timestamp_get_that_of_the_call_and_the_header_has_first_and_newest() -> None:
    target = assembler()
    append(target, [0] * 3, timestamps=[NOW_MS - 5, None, NOW_MS + 60])
    append(target, [0], timestamps=[NOW_MS + 70])
    append(target, [0], timestamps=[7])
    (batch,) = target.close_all()
    decoded = decode_batch(seal(batch.encoded) + batch.encoded.payload)
    assert [record.timestamp_ms - NOW_MS for record in decoded.records] == [-5, 0, 60, 70, 7 - NOW_MS]
    assert (decoded.base_timestamp_ms, decoded.max_timestamp_ms) == (NOW_MS - 5, NOW_MS + 70)
    assert decoded.offsets == (0, 1, 2, 3, 4)


def test_bytes_under_a_null_are_not_sent() -> None:
    starts = pa.py_buffer(np.array([0, 2, 5, 6], np.int32))
    array = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\x05"), starts, pa.py_buffer(b"aaXXXb")])
    target = assembler()
    columns = RecordColumns.from_arrow(pa.table({"key": array, "value": array}))
    target.append("t", columns, np.zeros(3, np.int32), now_ms=0, timestamp_ms=NOW_MS, token=None)
    (batch,) = target.close_all()
    decoded = decode_batch(seal(batch.encoded) + batch.encoded.payload)
    assert [(record.key, record.value) for record in decoded.records] == [(b"aa", b"aa"), (None, None), (b"b", b"b")]


def test_each_topic_has_its_codec() -> None:
    target = Assembler(
        new_batch=ProducerBatch,
        batch_bytes_max=1000,
        request_bytes_max=1000,
        batch_records_max=None,
        compression=lambda topic: make_compressor("lz4" if topic == "packed" else "none"),
    )
    append(target, [0], topic="packed")
    append(target, [0], topic="plain")
    assert [batch.encoded.codec for batch in target.close_all()] == [LZ4, NONE]


def test_thousands_of_partitions_get_their_rows_in_order() -> None:
    partitions = [(number * 7919) % 3000 + 70_000 for number in range(9000)]
    target = assembler()
    columns = RecordColumns.from_rows([None] * 9000, [b"%d" % number for number in range(9000)])
    target.append("t", columns, np.array(partitions, np.int32), now_ms=0, timestamp_ms=NOW_MS, token=None)
    closed = target.close_all()
    assert len(closed) == 3000
    for batch in closed[::100]:
        decoded = decode_batch(seal(batch.encoded) + batch.encoded.payload)
        expected = [b"%d" % number for number in range(9000) if partitions[number] == batch.partition]
        assert [record.value for record in decoded.records] == expected


def test_open_batches_do_not_keep_the_bytes_of_others_alive() -> None:
    target = assembler(batch_bytes_max=500_000, request_bytes_max=500_000)
    append(target, [0] + [1] * 4000)
    assert [type(section) for batch in target._open.values() for section in batch.sections] == [bytes, bytes]
