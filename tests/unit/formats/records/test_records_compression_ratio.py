"""`batch.size` limits the compressed size of a batch, as estimated from earlier batches."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kafka_sink.formats.records.assembler import RATIO_MARGIN, Assembler, CompressionRatios
from kafka_sink.formats.records.columns import RecordColumns
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.producer.engine.producer_batch import ProducerBatch

BATCH_BYTES, REQUEST_BYTES = 10_000, 50_000
RANDOM = random.Random(7)


def half_random() -> bytes:
    return RANDOM.randbytes(50) + b"v" * 50


def all_random() -> bytes:
    return RANDOM.randbytes(100)


def assembler(codec: str = "lz4", open_bytes_max: int = 10**9) -> Assembler[ProducerBatch]:
    return Assembler(
        new_batch=ProducerBatch,
        batch_bytes_max=BATCH_BYTES,
        request_bytes_max=REQUEST_BYTES,
        batch_records_max=None,
        compression=lambda _: make_compressor(codec),
        open_bytes_max=open_bytes_max,
    )


def filled(
    target: Assembler[ProducerBatch], values: list[bytes], partitions: int = 1, topic: str = "t"
) -> list[ProducerBatch]:
    """Appends a hundred rows in each call; returns the batches that became full."""
    closed = []
    for start in range(0, len(values), 100):
        some = values[start : start + 100]
        columns = RecordColumns.from_rows([None] * len(some), some)
        rows = np.arange(len(some), dtype=np.int32) % partitions
        closed += target.append(topic, columns, rows, now_ms=0, timestamp_ms=0, token=None)
    return closed


def sizes(closed: list[ProducerBatch]) -> list[tuple[int, int]]:
    return [(batch.encoded.records_bytes, len(batch.encoded.payload)) for batch in closed]


def test_batches_grow_until_they_are_full_when_compressed() -> None:
    found = sizes(filled(assembler(), [half_random() for _ in range(10_000)]))
    assert found[0][0] <= BATCH_BYTES
    assert found[0][0] < found[10][0] < found[20][0]
    assert all(0.9 * BATCH_BYTES < after <= BATCH_BYTES for _, after in found[40:])


def test_without_a_codec_nothing_grows() -> None:
    assert all(before <= BATCH_BYTES for before, _ in sizes(filled(assembler("none"), [b"v" * 100] * 5_000)))


def test_no_batch_is_larger_than_a_request_before_it_is_compressed() -> None:
    found = sizes(filled(assembler(), [b"v" * 100] * 20_000))
    assert 0.9 * REQUEST_BYTES < max(before for before, _ in found) <= REQUEST_BYTES


def test_open_batches_share_the_memory() -> None:
    values = [b"v" * 100] * 40_000
    alone = sizes(filled(assembler(open_bytes_max=40_000), values))
    four = sizes(filled(assembler(open_bytes_max=60_000), values, partitions=4))
    forty = sizes(filled(assembler(open_bytes_max=60_000), values, partitions=40))
    assert 0.9 * 40_000 < max(before for before, _ in alone) <= 40_000
    # When the last of the four batches is closed, only three share the memory.
    assert 0.9 * 15_000 < max(before for before, _ in four) <= 20_000
    assert max(before for before, _ in forty) <= BATCH_BYTES


def test_a_batch_that_is_above_its_share_meanwhile_is_closed_and_gets_no_more_rows() -> None:
    target = assembler(open_bytes_max=80_000)
    filled(target, [b"v" * 100] * 20_000)
    target.close_all()
    assert filled(target, [b"v" * 100] * 300) == []
    filled(target, [b"v" * 100] * 10, partitions=10)
    assert [batch.encoded.record_count for batch in filled(target, [b"v" * 100] * 2)] == [301]
    assert [batch.encoded.record_count for batch in target.close_all()] == [1] * 9 + [2]


def test_data_that_shrinks_less_makes_smaller_batches_at_once() -> None:
    target = assembler()
    filled(target, [half_random() for _ in range(10_000)])
    target.close_all()
    found = sizes(filled(target, [all_random() for _ in range(2_000)]))
    assert found[0][0] > BATCH_BYTES
    assert all(after <= BATCH_BYTES for _, after in found[1:])


def test_topics_do_not_know_of_each_other() -> None:
    target = assembler()
    filled(target, [half_random() for _ in range(10_000)])
    assert sizes(filled(target, [half_random() for _ in range(300)], topic="other"))[0][0] <= BATCH_BYTES


def test_small_batches_say_nothing() -> None:
    target = assembler()
    filled(target, [half_random() for _ in range(10_000)])
    target.close_all()
    for _ in range(20):
        filled(target, [all_random()])
        target.close_all()
    assert sizes(filled(target, [half_random() for _ in range(1000)]))[0][0] > 1.5 * BATCH_BYTES


@pytest.mark.parametrize(("after", "share"), [(500, RATIO_MARGIN * 0.5), (2_000, 1.0)])
def test_less_shrinking_is_believed_at_once(after: int, share: float) -> None:
    ratio = CompressionRatios()
    for _ in range(100):
        ratio.on_compressed("t", 1000, 100)
    ratio.on_compressed("t", 1000, after)
    assert int(1000 / ratio.of("t")) == int(1000 / share)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batches_of_a_topic_that_takes_less_are_smaller_and_those_of_others_are_not(codec: str) -> None:
    target = assembler(codec)
    values = [half_random() for _ in range(10_000)]
    filled(target, values)
    usual = max(after for _, after in sizes(filled(target, values)))
    target.limit_batches("t", BATCH_BYTES // 8)
    found = sizes(filled(target, values))[1:]
    # Still as full as the topic allows, by what they have after compression.
    assert 0.8 * BATCH_BYTES // 8 < max(after for _, after in found[20:]) <= BATCH_BYTES // 8
    other = sizes(filled(target, values, topic="other"))
    assert max(after for _, after in other) > BATCH_BYTES // 2
    target.limit_batches("t", None)
    assert max(after for _, after in sizes(filled(target, values))) > 0.9 * usual
