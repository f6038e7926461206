"""Ledger records are unchanged after encoding and decoding, and arbitrary bytes raise only one kind of error."""

from __future__ import annotations

import json
import zlib
from dataclasses import fields, replace

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from kafka_sink.commit import ledger_codec
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry, TransactionOutcome
from kafka_sink.commit.ledger_codec import FORMAT, Unrecordable, decode_record, encode_record
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import RemoteProtocolError
from tests.mistakes.deciding import record_not_read_back

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
INT64 = st.integers(0, 2**63 - 1)
ENTRIES = st.lists(
    st.builds(
        TransactionEntry,
        INT64,
        INT64,
        INT64,
        st.integers(0, 2**15 - 1),
        st.sampled_from([1, 2]),
        TEXT,
        st.integers(0, 2**31 - 1),
        INT64,
        INT64,
        # None represents the first number.
        st.none() | st.integers(0, 2**31 - 1),
    ).filter(lambda entry: entry.task_partition != entry.spark_partition),
    min_size=1,
    max_size=40,
)


# An operator's command has none.
RUN = st.one_of(st.just(""), st.from_regex(r"[0-9a-f]{16}", fullmatch=True))


@st.composite
def records(draw: st.DrawFn) -> LedgerRecord:
    kind = draw(st.sampled_from(Kind))
    entries = tuple(draw(ENTRIES)) if kind in (Kind.INTENT, Kind.STUCK) else ()
    outcomes = tuple(draw(st.sampled_from(TransactionOutcome)) for _ in entries) if kind is Kind.STUCK else ()
    return LedgerRecord(
        kind=kind,
        sink_id=draw(TEXT),
        key=BatchKey(draw(TEXT), draw(st.one_of(INT64, TEXT))),
        run=draw(RUN),
        runs=tuple(draw(st.lists(RUN, max_size=5))),
        since_ms=draw(st.integers(-1, 2**63 - 1)),
        wall_ms=draw(INT64),
        row_count=draw(INT64),
        topics=draw(st.dictionaries(TEXT, INT64, max_size=5)),
        entries=entries,
        outcomes=outcomes,
        is_accepted=draw(st.booleans()),
        cluster_id=draw(st.from_regex(r"[!-~]{0,40}", fullmatch=True)),
    )


@given(records())
def test_a_record_is_read_as_it_was_written(record: LedgerRecord) -> None:
    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize("field", ["run", "runs", "cluster_id"])
@pytest.mark.parametrize("text", ["orders", "0123456789ABCDEF", "0123456789abcdef0", "\x1b[31m", "a b", "ü" * 16])
def test_a_text_of_another_shape_is_neither_written_nor_read(field: str, text: str) -> None:
    """It gets into ids of transactions and into comparisons; a record may be forged."""
    if field == "cluster_id":
        text += " \n"
    record = LedgerRecord(Kind.DONE, "orders", BatchKey("", "a"), "0" * 16)
    wrong = replace(record, **{field: (text,) if field == "runs" else text})  # type: ignore[arg-type]
    with pytest.raises(Unrecordable, match="is not the"):
        encode_record(wrong)
    with pytest.raises(RemoteProtocolError, match="is not the"):
        decode_record(ledger_codec._encode(ledger_codec._content(wrong)))


WILD_TEXT = st.one_of(
    TEXT,
    st.text(max_size=5),  # may contain half of a surrogate pair
    st.integers(990, 1_010).map(lambda count: "x" * count),
)
WILD_NUMBER = st.one_of(
    st.sampled_from([-2, -1, 2**15, 2**31, 2**32, 10**10 - 1, 10**10, 2**63, 2**64]), st.integers(), INT64
)


@st.composite
def any_records(draw: st.DrawFn) -> LedgerRecord:
    """Records whose fields have the right types and arbitrary values."""
    entry = st.builds(TransactionEntry, *[WILD_NUMBER] * 5, WILD_TEXT, *[WILD_NUMBER] * 3)
    return LedgerRecord(
        kind=draw(st.sampled_from(Kind)),
        sink_id=draw(WILD_TEXT),
        key=BatchKey(draw(WILD_TEXT), draw(st.one_of(WILD_NUMBER, WILD_TEXT))),
        run=draw(WILD_TEXT),
        runs=tuple(draw(st.lists(WILD_TEXT, max_size=3))),
        since_ms=draw(WILD_NUMBER),
        wall_ms=draw(WILD_NUMBER),
        row_count=draw(WILD_NUMBER),
        topics=draw(st.dictionaries(WILD_TEXT, WILD_NUMBER, max_size=3)),
        entries=tuple(draw(st.lists(entry, max_size=3))),
        outcomes=tuple(draw(st.lists(st.sampled_from(TransactionOutcome), max_size=3))),
        is_accepted=draw(st.booleans()),
    )


@st.composite
def doubtful_records(draw: st.DrawFn) -> LedgerRecord:
    return draw(st.one_of(any_records(), records(), st.builds(mixed, records(), any_records())))


def is_read_as_written(record: LedgerRecord) -> bool:
    """Also true if the record is refused and not written."""
    try:
        value = ledger_codec.encode_record(record)
    except Unrecordable:
        return True
    try:
        return decode_record(value) == record
    except RemoteProtocolError:
        return False


@given(doubtful_records())
def test_whatever_may_be_written_is_read_as_it_was_written(record: LedgerRecord) -> None:
    assert is_read_as_written(record)


def test_a_record_that_is_written_without_a_look_whether_it_can_be_read_is_found() -> None:
    """A planted mistake that the simulation cannot find, because its records are small."""
    with pytest.MonkeyPatch.context() as patch:
        record_not_read_back(patch)
        found = find(doubtful_records(), lambda one: not is_read_as_written(one), settings=settings(database=None))
        assert not is_read_as_written(found)
    assert is_read_as_written(found)


def mixed(good: LedgerRecord, wild: LedgerRecord) -> LedgerRecord:
    """A record with one field that may be wrong. It may be accepted, unlike most records of `any_records`."""
    names = sorted(one.name for one in fields(LedgerRecord))
    name = names[len(wild.sink_id) % len(names)]
    return replace(good, **{name: getattr(wild, name)})


def check_harmless(value: bytes) -> None:
    try:
        decoded = decode_record(value)
    except RemoteProtocolError:
        return
    assert isinstance(decoded, LedgerRecord)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_record_or_a_protocol_error(value: bytes) -> None:
    check_harmless(value)


@given(records(), st.integers(0), st.binary(min_size=1, max_size=4))
def test_a_damaged_record_is_a_record_or_a_protocol_error(record: LedgerRecord, position: int, damage: bytes) -> None:
    value = encode_record(record)
    position %= len(value)
    check_harmless(value[:position] + damage + value[position + len(damage) :])


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=8,
)


@settings(max_examples=300)
@given(records(), st.data(), st.booleans())
def test_a_field_of_any_other_content_is_a_record_or_a_protocol_error(
    record: LedgerRecord, data: st.DataObject, is_compressed: bool
) -> None:
    value = encode_record(record)
    header, _, body = value.partition(b"\n")
    content = json.loads(zlib.decompress(body) if header.endswith(b"zlib") else body)
    owner = content
    if "receipts" in content and data.draw(st.booleans()):
        owner = content["receipts"]
    owner[data.draw(st.sampled_from(sorted(owner)))] = data.draw(JSON)
    changed = json.dumps(content).encode()
    encoding = "zlib" if is_compressed else "json"
    check_harmless(f"{FORMAT} 1 {encoding}\n".encode() + (zlib.compress(changed) if is_compressed else changed))
