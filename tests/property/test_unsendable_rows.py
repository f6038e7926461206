"""Exactly the rows that cannot be sent are found, each with its own error, compared with two twins.

One implements the rules independently, row by row. The other halves the rows with the checks of `send_arrow` until each
row that they refuse is alone. No size is close to the limit; other tests cover its last byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.commit.ledger_codec import VALUE_BEGINS
from kafka_sink.errors import ConfigError, DataError
from kafka_sink.errors.table.writes import ROW_PARTITION
from kafka_sink.formats.records.columns import columns_by_topic
from kafka_sink.formats.records.dead_letter import parse_dead_letter, unreplayable_reason
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.options.values import TOPIC_NAME
from kafka_sink.spark import unsendable as module
from kafka_sink.spark.ledger_rows import check_values, ledger_row_error
from kafka_sink.spark.unsendable import Unsendable, reason_of, split_unsendable

MAX_BYTES = 1000
OPTIONS = parse_producer_options({"bootstrap.servers": "127.0.0.1:9092", "max.request.size": MAX_BYTES})
PARTITIONS = {"one": 1, "four": 4, "ledger": 2}
LEDGERS = ("ledger",)
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Topics:
    """The only thing that is asked of a producer here: the partitions of a topic."""

    def partitions_for(self, topic: str, *, anew: bool = False) -> list[int]:
        return list(range(PARTITIONS[topic]))


payloads = st.one_of(st.none(), st.binary(max_size=9), st.sampled_from([b"x" * 2 * MAX_BYTES, VALUE_BEGINS + b"x"]))
headers = st.one_of(
    st.none(),
    st.lists(
        st.fixed_dictionaries(
            {"key": st.one_of(st.text(max_size=3), st.none()), "value": st.one_of(st.none(), st.binary(max_size=3))}
        ),
        max_size=3,
    ),
)
topics = st.sampled_from([*PARTITIONS, *PARTITIONS, *PARTITIONS, None, "not a topic", "", ".", "x" * 250])
row = st.fixed_dictionaries(
    {
        "topic": topics,
        "key": payloads,
        "value": payloads,
        "partition": st.one_of(st.none(), st.none(), st.integers(-2, 5)),
        "headers": headers,
        "timestamp": st.one_of(st.none(), st.integers(0, 2**40), st.integers(0, 2**40), st.just(-5)),
    }
)


def as_arrow(rows: list[dict[str, Any]], with_topic: bool) -> pa.RecordBatch:
    kinds = {"topic": pa.string(), "key": pa.binary(), "value": pa.binary(), "partition": pa.int32(), "headers": PAIRS}
    kinds["timestamp"] = pa.int64()
    names = [name for name in kinds if with_topic or name != "topic"]
    return pa.RecordBatch.from_arrays([pa.array([row[name] for row in rows], kinds[name]) for name in names], names)


def faults(row: dict[str, Any], topic: str | None) -> set[str]:
    """Everything that is wrong with one row."""
    found = set()
    name = topic or row["topic"]
    if name is None or not re.fullmatch("[a-zA-Z0-9._-]{1,249}", name) or name in (".", ".."):
        found.add("no topic")
    if name in LEDGERS:
        found.add("no topic")
    if topic is None and (row["value"] or b"").startswith(VALUE_BEGINS):
        found.add("bad value")
    if row["partition"] is not None and not 0 <= row["partition"] < PARTITIONS.get(name, 10):
        found.add("no such partition")
    if any(pair["key"] is None for pair in row["headers"] or ()):
        found.add("bad headers")
    if (row["timestamp"] or 0) < 0:
        found.add("bad timestamp")
    if len(row["key"] or b"") + len(row["value"] or b"") > MAX_BYTES:
        found.add("too large")
    return found


@settings(max_examples=150)
@given(st.lists(row, min_size=1, max_size=40), st.sampled_from([None, None, "one", "four"]))
def test_the_rows_are_those_that_a_look_at_each_row_finds(rows: list[dict[str, Any]], topic: str | None) -> None:
    batch = as_arrow(rows, with_topic=topic is None)
    expected = [number for number, each in enumerate(rows) if faults(each, topic)]
    sendable, unsendable = split_unsendable(batch, topic, Topics(), OPTIONS, LEDGERS)  # type: ignore[arg-type]
    assert sendable.to_pylist() == [each for n, each in enumerate(batch.to_pylist()) if n not in expected]
    if not expected:
        assert unsendable is None
        return
    assert unsendable is not None
    assert unsendable.positions == expected
    for position, error in zip(unsendable.positions, unsendable.errors, strict=True):
        assert reason_of(error) in faults(rows[position], topic)
    assert sum(unsendable.counts().values()) == len(expected)
    check_letters(unsendable, rows, topic)


def check_letters(unsendable: Unsendable, rows: list[dict[str, Any]], topic: str | None) -> None:
    """A dead letter can itself be sent, says where its row was, and keeps the parts that were valid."""
    letters = unsendable.make_letters(place={"batch.id": "7"}, topic=topic, first_row=100, bytes_max=10_000)
    assert letters.num_rows == len(unsendable.positions)
    good, bad = split_unsendable(letters, "one", Topics(), OPTIONS_OF_LETTERS)  # type: ignore[arg-type]
    assert bad is None and good.num_rows == letters.num_rows
    for position, letter in zip(unsendable.positions, letters.to_pylist(), strict=True):
        said = {pair["key"]: pair["value"] for pair in letter["headers"]}
        assert said["pykafka-sink.row"] == str(100 + position).encode()
        assert said["pykafka-sink.batch.id"] == b"7"
        row = rows[position]
        assert (letter["key"], letter["value"]) == (row["key"], row["value"])
        # The row's own headers come first, without those that have no name and cannot be sent.
        own = [pair for pair in row["headers"] or () if pair["key"] is not None]
        assert letter["headers"][: len(own)] == own
        assert letter["headers"][len(own)]["key"] == "pykafka-sink.error"
        pairs = tuple((pair["key"], pair["value"]) for pair in letter["headers"])
        headers, about = parse_dead_letter(pairs) or ((), {})
        assert headers == tuple((pair["key"], pair["value"]) for pair in own) and unreplayable_reason(about) is None
        is_bad = (row["timestamp"] or 0) < 0
        assert letter["timestamp"] == (None if is_bad else row["timestamp"])
        assert about.get("timestamp") == ("-5" if is_bad else None)


OPTIONS_OF_LETTERS = parse_producer_options({"bootstrap.servers": "127.0.0.1:9092", "max.request.size": 10_000})


def halve(rows: pa.RecordBatch, first: int, check: Callable[[pa.RecordBatch], None]) -> Iterator[tuple[int, DataError]]:
    """The slow twin: every row that the check refuses when it is alone."""
    try:
        check(rows)
    except DataError as error:
        if rows.num_rows == 1:
            yield first, error
            return
        half = rows.num_rows // 2
        yield from halve(rows.slice(0, half), first, check)
        yield from halve(rows.slice(half), first + half, check)


def check_by_halves(topic: str | None, counts: dict[str, int]) -> Callable[[pa.RecordBatch], None]:
    """Raises for one row, whichever. `counts`: the partitions of each topic."""

    def check(rows: pa.RecordBatch) -> None:
        if topic is None:
            check_values(rows)
        for name, columns in columns_by_topic(rows, topic=topic):
            columns.check_record_sizes(OPTIONS.max_request_size, OPTIONS.buffer_memory)
            if name in LEDGERS:
                raise ledger_row_error(name)
            try:
                TOPIC_NAME.parse("topic", name)
            except ConfigError as error:
                raise DataError(str(error), error.entry, column="topic") from None
            highest = -1 if columns.partitions is None else int(columns.partitions.max())
            if highest >= counts[name]:
                row = int(columns.row_ids[int(columns.partitions.argmax())])
                text = f"row {row} names partition {highest}; topic {name} has {counts[name]}"
                raise DataError(text, ROW_PARTITION, row=row, column="partition")

    return check


def by_row(errors: Iterator[tuple[int, DataError]]) -> list[tuple[int, str, str, str | None]]:
    """Place, name, text and column of each error; the text names the place."""
    return [
        (place, error.name, str(error).replace(f"row {error.row}", f"row {place}", 1), error.column)
        for place, error in errors
    ]


def text_of_bytes(contents: list[bytes | None]) -> pa.Array:
    """As Spark's, which need not be UTF-8."""
    raw = pa.array(contents, pa.binary())
    return pa.StringArray.from_buffers(len(raw), raw.buffers()[1], raw.buffers()[2], raw.buffers()[0], raw.null_count)


def with_raw_topics(rows: list[dict[str, Any]], raw: set[int]) -> pa.RecordBatch:
    """The rows whose index is in `raw` have a topic that is not UTF-8."""
    batch = as_arrow(rows, with_topic=True)
    names = [b"\xff" if n in raw else each["topic"] and each["topic"].encode() for n, each in enumerate(rows)]
    return batch.set_column(0, "topic", text_of_bytes(names))


@settings(max_examples=200)
@given(
    st.lists(row, min_size=1, max_size=40), st.sampled_from([None, None, "one", "four"]), st.sets(st.integers(0, 39))
)
def test_each_row_has_the_error_that_halving_finds(
    rows: list[dict[str, Any]], topic: str | None, raw: set[int]
) -> None:
    batch = as_arrow(rows, with_topic=False) if topic else with_raw_topics(rows, raw)
    expected = by_row(halve(batch, 0, check_by_halves(topic, PARTITIONS)))
    _, unsendable = split_unsendable(batch, topic, Topics(), OPTIONS, LEDGERS)  # type: ignore[arg-type]
    found = [] if unsendable is None else zip(unsendable.positions, unsendable.errors, strict=True)
    assert by_row(iter(found)) == expected


GOOD = {"topic": "four", "key": b"k", "value": b"v", "partition": None, "headers": None, "timestamp": None}
BAD = [
    {"value": VALUE_BEGINS},
    {"headers": [{"key": None, "value": b""}]},
    {"timestamp": -5},
    {"partition": -1},
    {"topic": None},
    {"value": b"x" * 2 * MAX_BYTES},
    {"topic": "ledger"},
    {"partition": 4},
]


@pytest.mark.parametrize("bad_count", [len(BAD), 100 * len(BAD)])
def test_the_checks_are_counted_by_kinds_of_errors_and_not_by_rows(
    bad_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def count(rows: pa.RecordBatch, *, topic: str | None) -> Any:
        looks.append(rows.num_rows)
        return columns_by_topic(rows, topic=topic)

    monkeypatch.setattr(module, "columns_by_topic", count)
    rows = [each for n in range(bad_count) for each in (GOOD, GOOD | BAD[n % len(BAD)])]
    # Each has a topic of its own that cannot be.
    rows += [GOOD | {"topic": f"no topic {n}"} for n in range(bad_count)]
    good, unsendable = split_unsendable(as_arrow(rows, True), None, Topics(), OPTIONS, LEDGERS)  # type: ignore[arg-type]
    assert unsendable is not None
    assert (good.num_rows, len(unsendable.errors)) == (bad_count, 2 * bad_count)
    assert len(looks) <= len(BAD)


def test_rows_that_no_check_names_are_halved() -> None:
    """Such an error is about all rows, here about their type."""
    rows = pa.record_batch([pa.array([1, 2, 3])], ["value"])
    good, unsendable = split_unsendable(rows, "one", Topics(), OPTIONS)  # type: ignore[arg-type]
    assert unsendable is not None and (good.num_rows, unsendable.positions) == (0, [0, 1, 2])
    assert {reason_of(error) for error in unsendable.errors} == {"bad value"}


def test_text_that_is_no_utf_8_does_not_stop_the_sorting() -> None:
    raw = pa.array([b"\xff", b"good", b"\xfe" * 2000], pa.binary())
    text = pa.StringArray.from_buffers(3, *raw.buffers()[1:])
    names = pa.array(["h", None, "i"], pa.string())
    pairs = pa.ListArray.from_arrays([0, 1, 2, 3], pa.StructArray.from_arrays([names, text], ["key", "value"]))
    batch = pa.RecordBatch.from_arrays([text, text, pairs, text], ["key", "value", "headers", "topic"])
    good, bad = split_unsendable(batch.slice(0, 1).select(["key", "value", "headers"]), "one", Topics(), OPTIONS)  # type: ignore[arg-type]
    assert (good.num_rows, bad) == (1, None)
    _, unsendable = split_unsendable(batch, None, Topics(), OPTIONS)  # type: ignore[arg-type]
    assert unsendable is not None
    assert [reason_of(error) for error in unsendable.errors] == ["no topic", "bad headers", "no topic"]
    letters = unsendable.make_letters(place={}, topic=None, first_row=0, bytes_max=10_000).to_pylist()
    assert [letter["value"] for letter in letters] == raw.to_pylist()
    assert "the topic of row 0 is not UTF-8" in str(unsendable.errors[0])


def test_a_letter_keeps_headers_that_came_as_a_map() -> None:
    pairs = pa.array([[("h", b"\xff")]], pa.map_(pa.string(), pa.binary()))
    rows = pa.RecordBatch.from_arrays([pa.array([b"x"]), pairs], ["value", "headers"])
    unsendable = Unsendable(rows, [0], [DataError("row 0 is bad", row=0, column="partition")])
    (letter,) = unsendable.make_letters(place={}, topic="t", first_row=0, bytes_max=10_000).to_pylist()
    assert letter["headers"][0] == {"key": "h", "value": b"\xff"}
