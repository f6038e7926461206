"""What somebody else writes to a ledger stops nobody but the sink under whose key it is the newest."""

from __future__ import annotations

from functools import cache

import pytest

from kafka_sink.commit import listing
from kafka_sink.commit.commit_step import SingleStep
from kafka_sink.commit.listing import LedgerListing
from kafka_sink.commit.session import Conclusion
from kafka_sink.commit.set_aside import Aside
from kafka_sink.errors import CommitAborted
from kafka_sink.errors.table.commits import LEDGER_DAMAGED, LEDGER_UNREADABLE
from kafka_sink.formats.records.batch import HEADER_BYTES, EncodedBatch, seal
from kafka_sink.formats.records.checksum import crc32c
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, encode_batch, encode_record
from tests.support.tiny_broker import LEDGER
from tests.unit.commit.driver_bench import SINK, THIRD, Bench
from tests.unit.commit.test_plain_records import listed
from tests.unit.commit.test_set_aside import SECOND, put, set_aside

LARGE = b"0" * 10 * 2**20
LEDGER_VALUE = 20_000


@cache
def huge() -> EncodedBatch:
    """A megabyte may become far more."""
    return encode_batch([Record(0, b"huge", b"0" * (2**27 + 1))], make_compressor("zstd"))


def put_batch(bench: Bench, batch: EncodedBatch, *, is_transactional: bool) -> int:
    """Its records all have one offset: each batch in this log takes one."""
    bench.settle()
    log = bench.broker.logs.setdefault((LEDGER, 0), [])
    producer_id = 77 if is_transactional else -1
    sealed = bytearray(seal(batch, producer_id, min(0, producer_id), -1, is_transactional) + batch.payload)
    sealed[23:27] = bytes(4)
    sealed[17:21] = crc32c(bytes(sealed[21:])).to_bytes(4, "big")
    log.append((producer_id, min(0, producer_id), bytes(sealed), None))
    if is_transactional:
        log.append((77, 0, None, True))
    return len(log) - 1 - is_transactional


def tiny(key: bytes) -> EncodedBatch:
    zstd = make_compressor("zstd")
    content = encode_record(Record(0, key, None), base_timestamp_ms=0, offset_delta=0) * 10_001
    return EncodedBatch(zstd.codec_id, zstd.compress(content), 10_001, 0, 0, len(content))


@pytest.mark.parametrize("is_transactional", [False, True])
def test_foreign_records_of_any_size_and_number_stop_no_commit_and_no_command(
    bench: Bench, is_transactional: bool
) -> None:
    bench.commit(bench.receipts())
    large = encode_batch([Record(0, b"other", LARGE)], make_compressor("zstd"))
    for batch in (large, huge(), tiny(b"more"), tiny(b"")):
        put_batch(bench, batch, is_transactional=is_transactional)
    done = bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND))
    assert done.conclusion is Conclusion.DELIVERED
    assert [(each.ledger_key, each.problem) for each in listed(bench)] == [(SINK, "")]
    of_all = {each.ledger_key: each.problem for each in listed(bench, None)}
    assert of_all.pop(SINK) == "" and all(of_all.values())


def test_a_decision_that_is_too_large_stops_its_own_sink_until_it_is_set_aside(bench: Bench) -> None:
    bench.commit(bench.receipts())
    offset = put(bench, SINK, LARGE)
    refused = bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND))
    assert isinstance(refused.error, CommitAborted) and refused.error.entry is LEDGER_UNREADABLE
    assert "at most 8388608 are read" in str(refused.error) and f"offset {offset}" in str(refused.error)
    assert set_aside(bench, SINK, offset).outcome is Aside.DONE


def test_a_damaged_batch_is_named_with_its_place_and_no_command_that_would_stop_at_it_too(bench: Bench) -> None:
    bench.commit(bench.receipts())
    decided = len(bench.broker.logs[LEDGER, 0])
    broken = encode_batch([Record(0, b"other", b"value")], make_compressor("none"))
    header = seal(broken)
    bench.settle()
    log = bench.broker.logs[LEDGER, 0]
    place = len(log)
    log.append((-1, -1, header + broken.payload[:-2] + b"!!", None))
    assert len(header) == HEADER_BYTES
    refused = bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND))
    assert isinstance(refused.error, CommitAborted) and refused.error.entry is LEDGER_DAMAGED
    assert refused.error.name == "PKS-6032"
    assert f"ledger {LEDGER}-0: the batch at offset {place} is damaged" in str(refused.error)
    assert "wrong checksum. Each broker has checked what it was sent" in str(refused.error)
    assert "pykafka-sink" not in str(refused.error)
    assert set_aside(bench, SINK, decided - 1).outcome is Aside.FAILED
    log[place] = (-1, -1, header + broken.payload, None)  # as another replica has it
    assert bench.commit(bench.receipts(1, run=THIRD), bench.session(THIRD)).conclusion is Conclusion.DELIVERED


def test_a_listing_of_a_topic_that_anybody_wrote_holds_no_more_than_its_limit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "HELD_BYTES_MAX", 4 * LEDGER_VALUE)
    bench.commit(bench.receipts())
    for _ in range(10):
        put(bench, "replaced", b"0" * LEDGER_VALUE)
    for number in range(3):
        put(bench, f"large-{number}", b"0" * (LEDGER_VALUE - 1_000))
    assert len(listed(bench, None)) == 5
    put(bench, "large-3", b"0" * LEDGER_VALUE)
    bench.settle()
    step = SingleStep(LedgerListing(bench.settings, None), bench.now_ms + 10_000)
    assert "its newest records take more than" in str(bench.drive(step).failure)
    assert [each.problem for each in listed(bench)] == [""]
