"""Reading a ledger leaves out what is of others: the same is found as if every batch and every marker were decoded.

Random ledgers hold what a shared one may hold: several sinks, streams under two names, labels, batch writes without
one, claims, stops, replays, foreign records, transactions that were committed, aborted, left open or lost their marker,
compressed batches, batches of several records, and (seldom) damaged ones. Answers end anywhere.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.commit.identity import Line, code_of_label
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry, claim_key, encode_key, ledger_key, stop_key
from kafka_sink.commit.ledger_codec import encode_claim, encode_record, encode_stop
from kafka_sink.commit.ledger_read import LedgerRead
from kafka_sink.commit.listing import LedgerListing
from kafka_sink.commit.log_scan import RawBatch
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.replay_progress import ReplayListing, ReplayProgress, encode_progress
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import RemoteProtocolError
from kafka_sink.formats.records import batch as layout
from kafka_sink.formats.records import skim
from kafka_sink.formats.records.batch import seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, encode_batch, encode_records
from kafka_sink.kafka.client.ask import Ask, Reply, ReplyKind
from tests.support.tiny_broker import LEDGER

SUFFIX = "-0123456789abcdef"
SINK, OLDER, OTHER_NAME = "orders" + SUFFIX, "orders", "invoices" + SUFFIX
SINKS = (SINK, OLDER, OTHER_NAME, "orders-fedcba9876543210", "orders2" + SUFFIX, "payments", "batch-00000000000000aa")
LABELS = ("", "", "", "2026-11", "2026-12", "2026-11/2-of-3-by-region")
RUNS = tuple(str(number) * 16 for number in range(1, 5))
CODECS = ("none", "none", "none", "none", "gzip", "zstd", "lz4", "snappy")
SETTINGS = DeliverySettings(ledger_topic=LEDGER, transaction_version=2)
ENTRY = TransactionEntry(0, 1, 5, 0, 2, "orders", 0, 7, 9)
STEPS_MAX = 2_000

Log = list[tuple[int, bytes]]


# ---- a random ledger ----


def draw_ledger(draw: random.Random) -> Log:
    log: Log = []
    epochs = dict.fromkeys(range(1, 6), 0)
    for _ in range(draw.randint(1, 40)):
        if draw.random() < 0.25:
            _append(log, _plain_batch(draw), draw)
        else:
            _append_transaction(log, epochs, draw)
    if draw.random() < 0.03:
        at = draw.randrange(len(log))
        offset, batch = log[at]
        log[at] = (offset, batch[:-1] + bytes([batch[-1] ^ 1]))
    return log


def _append_transaction(log: Log, epochs: dict[int, int], draw: random.Random) -> None:
    producer = draw.choice(list(epochs))
    for _ in range(draw.choice([1, 1, 1, 2])):
        records = [_transactional_record(draw) for _ in range(draw.choice([1, 1, 1, 1, 3]))]
        _append(log, _batch(records, draw, producer, epochs[producer]), draw)
    end = draw.choice(["commit", "commit", "commit", "abort", "lost", "of another kind"])
    epochs[producer] += draw.choice([0, 1, 1])
    if end != "lost":
        kind = {"commit": 1, "abort": 0}.get(end, 7)
        # A marker of somebody else may come in between.
        _append(log, _marker(draw.choice([producer, producer, producer, 99]), epochs[producer], kind), draw)
    epochs[producer] += draw.choice([0, 0, 1])


def _append(log: Log, batch: bytes, draw: random.Random) -> None:
    """Compaction leaves gaps."""
    offset = log[-1][0] + _span(log[-1][1]) if log else 0
    offset += draw.choice([0, 0, 0, 3])
    log.append((offset, offset.to_bytes(8, "big") + batch[8:]))


def _span(batch: bytes) -> int:
    delta: int = layout.CHECKED.unpack_from(batch, layout.PREFIX.size)[1]
    return delta + 1


def _batch(records: list[Record], draw: random.Random, producer: int = -1, epoch: int = -1) -> bytes:
    encoded = encode_batch(records, make_compressor(draw.choice(CODECS)))
    return seal(encoded, producer, epoch, 0 if producer >= 0 else -1, is_transactional=producer >= 0) + encoded.payload


def _marker(producer: int, epoch: int, kind: int) -> bytes:
    payload = encode_records([Record(0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))], 0)
    attributes = layout.TRANSACTIONAL_BIT | layout.CONTROL_BIT
    checked = layout.CHECKED.pack(attributes, 0, 0, 0, producer, epoch, -1, 1)
    size = layout.HEADER_BYTES + len(payload) - layout.LENGTH_STARTS_AT
    return layout.PREFIX.pack(0, size, -1, 2, crc32c(payload, crc32c(checked))) + checked + payload


def _transactional_record(draw: random.Random) -> Record:
    sink_id, number = draw.choice(SINKS), draw.randrange(5)
    label = draw.choice(LABELS)
    key = (
        BatchKey("", label)
        if label or sink_id.startswith("batch-")
        else BatchKey(draw.choice(["query", "query", ""]), number)
    )
    kind = draw.choice([Kind.INTENT, Kind.INTENT, Kind.DONE, Kind.REPLAY])
    known = LedgerRecord(Kind.INTENT, sink_id, key, draw.choice(RUNS), entries=(ENTRY,), row_count=9)
    record = known if kind is Kind.INTENT else known.as_closed(kind, 7, is_accepted=draw.random() < 0.1)
    content: bytes | None = draw.choice([encode_record(record), encode_record(record), None, b"of a later release"])
    name = encode_key(ledger_key(sink_id, key))
    if draw.random() < 0.1:
        progress = ReplayProgress("again", "dead", "", "orders", {}, {0: number})
        name, content = progress.ledger_key.encode(), encode_progress(progress)
    return Record(draw.choice([0, 2**40]), draw.choice([name, name, name, name, name, None, b"", b"\xff/"]), content)


def _plain_batch(draw: random.Random) -> bytes:
    line = Line(
        draw.choice(SINKS), draw.choice(["", code_of_label("2026-11", LEDGER), code_of_label("2026-12", LEDGER)])
    )
    run = draw.choice([*RUNS, ""])
    listed = [
        Record(0, claim_key(line).encode(), encode_claim(line, run, 7)),
        Record(0, claim_key(Line(line.sink_id)).encode(), encode_claim(line, run, 7)),
        Record(0, stop_key(line.sink_id, run).encode(), encode_stop(line.sink_id, run, 7)),
        Record(0, stop_key(line.sink_id, run).encode(), None),
        Record(0, draw.choice([None, b"", b"k" * 9_000, line.sink_id.encode()]), draw.choice([None, b"v" * 9_000])),
        _transactional_record(draw),
    ]
    return _batch(draw.choices(listed, k=draw.choice([1, 1, 1, 2])), draw)


# ---- reading it ----


def _end(log: Log) -> int:
    return log[-1][0] + _span(log[-1][1])


def kinds_of_read(log: Log) -> dict[str, Callable[[], LedgerRead]]:
    end = _end(log)
    label = code_of_label("2026-11", LEDGER)
    stream = {"named_sink_id": OLDER, "query_suffix": SUFFIX}
    return {
        "commit": lambda: LedgerRead(SETTINGS, SINK, code="", claim_offset=end - 1, **stream),
        "commit of a label": lambda: LedgerRead(SETTINGS, OLDER, code=label, claim_offset=end - 1),
        "planning": lambda: LedgerRead(SETTINGS, OLDER, code="", is_of_name=True),
        "planning without a name": lambda: LedgerRead(SETTINGS, "", code="", is_of_name=True),
        "recovery of a name": lambda: LedgerRead(SETTINGS, OLDER, is_of_name=True),
        "a look for a driver": lambda: LedgerRead(SETTINGS, SINK),
        "a list of one": lambda: LedgerListing(SETTINGS, OLDER),
        "a list of all": lambda: LedgerListing(SETTINGS, None),
        "replays": lambda: ReplayListing(SETTINGS),
    }


def outcome_of(made: Callable[[], LedgerRead], log: Log, seed: int) -> tuple[Any, ...]:
    """All that a read tells, and all that it requests."""
    read, draw, now_ms, asked = made(), random.Random(seed), 0, []
    try:
        read.begin(now_ms)
        for _ in range(STEPS_MAX):
            if read.is_finished:
                break
            now_ms += 100
            for ask in read.asks.take_due(now_ms):
                asked.append((ask.purpose, str(ask.body)))
                read.on_reply(now_ms, Reply(ask, ReplyKind.ANSWERED, (_answer(ask, log, draw),)))
    except RemoteProtocolError as error:
        return type(error), str(error), asked
    told = getattr(read, "listed", None), getattr(read, "found", None), getattr(read, "unreadable", None)
    return read.is_finished, read.failure, read.state, read.unmarked_offset, told, asked


def _answer(ask: Ask, log: Log, draw: random.Random) -> dict[str, Any]:
    if ask.api.name == "ListOffsets":
        offset = log[0][0] if ask.body["topics"][0]["partitions"][0]["timestamp"] == -2 else _end(log)
        return {"topics": [{"name": LEDGER, "partitions": [{"partition_index": 0, "error_code": 0, "offset": offset}]}]}
    first: int = ask.body["topics"][0]["partitions"][0]["fetch_offset"]
    left = [batch for offset, batch in log if offset + _span(batch) > first]
    whole = len(left[0]) if left else 0
    content = b"".join(left)
    cut = draw.choice([len(content), draw.randint(whole, max(whole, len(content)))])
    row = {"partition_index": 0, "error_code": 0, "high_watermark": _end(log), "records": content[:cut]}
    stable = draw.choice([_end(log), draw.randint(0, _end(log))])
    partitions = [{**row, "last_stable_offset": stable}]
    return {"error_code": 0, "responses": [{"topic": LEDGER, "partitions": partitions}]}


@contextmanager
def nothing_left_out() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(skim, "_find_only", lambda _: None)
        patch.setattr(LedgerRead, "_is_of_others", lambda *_: False)
        yield


def differing_reads(seed: int) -> list[str]:
    log = draw_ledger(random.Random(seed))
    with nothing_left_out():
        whole = {name: outcome_of(made, log, seed) for name, made in kinds_of_read(log).items()}
    return [name for name, made in kinds_of_read(log).items() if outcome_of(made, log, seed) != whole[name]]


# ---- the tests ----


@given(st.integers(0, 2**32))
def test_each_kind_of_read_finds_the_same_as_one_that_leaves_nothing_out(seed: int) -> None:
    assert differing_reads(seed) == []


def test_the_random_ledgers_hold_what_is_read() -> None:
    told: dict[str, set[str]] = {}
    for seed in range(300):
        log = draw_ledger(random.Random(seed))
        for name, made in kinds_of_read(log).items():
            told.setdefault(name, set()).update(_found_in(outcome_of(made, log, seed)))
    assert {"claims", "stopped", "older_key", "elsewhere", "unmarked", "newest", "damaged"} <= told["commit"]
    assert {"newest", "chunks"} <= told["commit of a label"]
    assert {"newest", "others", "closed"} <= told["planning"] and "others" in told["planning without a name"]
    assert "list" in told["a list of one"] & told["a list of all"] & told["replays"]


def _found_in(outcome: tuple[Any, ...]) -> set[str]:
    if "is damaged" in str(outcome[1]):
        return {"damaged"}
    if len(outcome) == 3:
        return set()
    state, told = outcome[2], outcome[4]
    found = {name for name in state.__dataclass_fields__ if getattr(state, name)} if state is not None else set()
    return found | ({"list"} if any(told) else set())


def _one_name_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The record of a stream under another name is passed over."""
    read = skim._find_only

    def changed(data: bytes) -> Any:
        found = read(data)
        is_forgotten = found is not None and found.key == OTHER_NAME.encode()
        return found._replace(key=b"of somebody else") if is_forgotten else found

    patch.setattr(skim, "_find_only", changed)


def _nameless_forgotten(patch: pytest.MonkeyPatch) -> None:
    read = skim._find_only

    def changed(data: bytes) -> Any:
        found = read(data)
        return found._replace(key=None) if found is not None and (found.key or b"").endswith(b"/") else found

    patch.setattr(skim, "_find_only", changed)


def _markers_only_of_own_sink(patch: pytest.MonkeyPatch) -> None:
    """A producer counts as one of others as long as no record of the sink itself waits for its marker."""

    def changed(self: Any, marker: RawBatch) -> bool:
        waiting = (key for listed in self._waiting.values() for key, _ in listed)
        return marker.producer_id not in self._producer_ids or self._sink_id not in waiting

    patch.setattr(LedgerRead, "_is_of_others", changed)


def _checksum_of_skipped_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RawBatch, "check", lambda _: None)


@pytest.mark.parametrize(
    "mistake",
    [
        _one_name_forgotten,
        _nameless_forgotten,
        _markers_only_of_own_sink,
        _checksum_of_skipped_not_compared,
    ],
)
def test_a_mistake_in_what_is_left_out_is_found(
    monkeypatch: pytest.MonkeyPatch, mistake: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mistake(monkeypatch)
    assert any(differing_reads(seed) for seed in range(400))
