"""Small Arrow batches are merged: the same rows, in the same order, in fewer pieces."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.formats.records.arrays import distinct_elements
from kafka_sink.spark import read_ahead
from kafka_sink.spark.read_ahead import gather_batches

SCHEMA = pa.schema(
    [("key", pa.string()), ("value", pa.binary()), ("headers", pa.list_(pa.struct([("k", pa.string())])))]
)
ROWS = st.fixed_dictionaries(
    {
        "key": st.none() | st.text(max_size=5),
        "value": st.none() | st.binary(max_size=40),
        "headers": st.none() | st.lists(st.fixed_dictionaries({"k": st.text(max_size=3)}), max_size=2),
    }
)


def batch_of(rows: list[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@given(st.lists(st.lists(ROWS, max_size=6), max_size=8), st.integers(1, 400))
def test_the_rows_and_their_order_are_those_of_all_batches(
    parts: list[list[dict[str, object]]], bytes_min: int
) -> None:
    batches = [batch_of(rows) for rows in parts]
    found = list(gather_batches(batches, bytes_min))
    assert [row for batch in found for row in batch.to_pylist()] == [row for rows in parts for row in rows]
    assert [batch.num_rows for batch in found] == rows_by_piece(batches, bytes_min)


def rows_by_piece(batches: list[pa.RecordBatch], bytes_min: int) -> list[int]:
    """The expected row count of each piece, computed simply: a piece ends with the batch that makes it large enough.

    The bytes of the parts are counted. The joined piece has fewer (one array of offsets instead of several).
    """
    pieces: list[list[pa.RecordBatch]] = [[]]
    for batch in batches:
        if sum(part.nbytes for part in pieces[-1]) >= bytes_min:
            pieces.append([])
        if batch.num_rows:
            pieces[-1].append(batch)
    return [sum(part.num_rows for part in piece) for piece in pieces if piece]


def test_slices_and_nothing_but_slices_are_counted() -> None:
    whole = batch_of([{"key": "k", "value": b"x" * 1000, "headers": None}] * 100)
    slices = [whole.slice(start, 10) for start in range(0, 100, 10)]
    found = list(gather_batches(slices, bytes_min=20_000))
    assert [batch.num_rows for batch in found] == [20] * 5
    assert pa.Table.from_batches(found) == pa.Table.from_batches([whole])


def test_a_batch_that_is_large_enough_is_passed_on_as_it_is() -> None:
    large = batch_of([{"key": "k", "value": b"x" * 1000, "headers": None}])
    (found,) = gather_batches([large], bytes_min=1000)
    assert found is large


def test_batches_are_passed_on_before_the_next_is_asked_for() -> None:
    """A task needs memory for one piece, not for all its rows."""
    large = batch_of([{"key": "k", "value": b"x" * 1000, "headers": None}])
    asked = []

    def source() -> object:
        for number in range(3):
            asked.append(number)
            yield large

    pieces = gather_batches(source(), bytes_min=1000)  # type: ignore[arg-type]
    next(pieces)
    assert asked == [0]


def test_what_would_be_too_large_for_the_offsets_of_a_column_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "JOINED_MAX_BYTES", 5_000)
    small, large = (pa.record_batch([pa.array([bytes(size)])], ["value"]) for size in (500, 4_900))
    found = list(gather_batches([small, small, large, small], bytes_min=2_000))
    assert [batch.num_rows for batch in found] == [2, 1, 1]


def rows_of_topics(topic_count: int) -> pa.RecordBatch:
    """A thousand bytes and some."""
    names = [f"t{n % topic_count}" for n in range(100)]
    return pa.record_batch([pa.array(names), pa.array([b"ten bytes."] * 100)], ["topic", "value"])


@pytest.mark.parametrize(("topic_count", "joined_count"), [(1, 1), (31, 1), (32, 2), (80, 5)])
def test_more_rows_are_joined_where_the_call_before_had_many_topics(topic_count: int, joined_count: int) -> None:
    batch = rows_of_topics(topic_count)
    found = [each.num_rows for each in gather_batches([batch] * 11, bytes_min=batch.nbytes)]
    assert found == [100] + [100 * joined_count] * (10 // joined_count)


def test_the_rows_of_very_many_topics_are_joined_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "TOPICS_PER_CHUNK", 1)
    batch = rows_of_topics(50)
    assert [each.num_rows for each in gather_batches([batch] * 9, bytes_min=batch.nbytes)] == [100, 800]


def test_rows_without_topics_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics are counted once for each call, in its first rows; that costs nothing where there is no such column."""
    looks = []

    def count(array: pa.Array) -> object:
        looks.append(len(array))
        return distinct_elements(array)

    monkeypatch.setattr(read_ahead, "distinct_elements", count)
    batch = rows_of_topics(100)
    assert len(list(gather_batches([batch.select(["value"])] * 5, bytes_min=1))) == 5 and not looks
    list(gather_batches([batch] * 7, bytes_min=batch.nbytes))
    assert looks == [100, 600]
    monkeypatch.setattr(read_ahead, "ROWS_LOOKED_AT", 10)
    list(gather_batches([batch], bytes_min=1))
    assert looks == [100, 600, 10]


def wide(row_count: int, field_count: int) -> pa.RecordBatch:
    fields = [pa.array(range(row_count), pa.int64())] * field_count
    value = pa.StructArray.from_arrays(fields, [f"f{n}" for n in range(field_count)])
    return pa.record_batch([pa.array(["k"] * row_count), value], ["key", "value"])


@pytest.mark.parametrize(("field_count", "joined_count"), [(200, 1), (256, 2), (2000, 8)])
def test_more_rows_are_joined_where_there_are_many_fields(field_count: int, joined_count: int) -> None:
    batch = wide(4, field_count)
    found = [each.num_rows for each in gather_batches([batch] * 8, bytes_min=batch.nbytes)]
    assert found == [4 * joined_count] * (8 // joined_count)


def test_a_batch_of_very_many_fields_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "VALUES_MAX", 1000)
    batch = wide(100, 30)
    found = list(gather_batches([batch.slice(1, 98)], bytes_min=1))
    assert [each.num_rows for each in found] == [33, 33, 32]
    assert pa.Table.from_batches(found) == pa.Table.from_batches([batch.slice(1, 98)])
    (passed,) = gather_batches([wide(33, 30)], bytes_min=1)
    assert passed.num_rows == 33


def test_items_of_lists_and_maps_count_and_a_row_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "VALUES_MAX", 10)
    lists = pa.array([[{"a": 1, "b": 2}] * 5] * 4)
    maps = pa.array([[("k", 1)] * 5] * 4, pa.map_(pa.string(), pa.int64()))
    for column in (lists, maps):
        rows = pa.record_batch([column], ["value"])
        assert [each.num_rows for each in gather_batches([rows.slice(1, 2)], bytes_min=1)] == [1, 1]
    (plain,) = gather_batches([pa.record_batch([pa.array([b"v"] * 50)], ["value"])], bytes_min=1)
    assert plain.num_rows == 50
    huge = pa.record_batch([pa.array([[1] * 50])], ["value"])
    assert [each.num_rows for each in gather_batches([huge], bytes_min=1)] == [1]
