"""Changes by column are what they are row by row, in every form that Arrow has for the columns."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.options.sink_options import ChangeOptions
from kafka_sink.spark.changes import OPERATIONS, ChangeRows

from .slow_changes import LEFT_OUT, LETTERS, records

WORDS = [*OPERATIONS, *(word.upper() for word in OPERATIONS), "", "no operation", "\u0130nsert", None]
INNER = pa.struct([("id", pa.int64()), ("name", pa.string())])
ROW = pa.struct([*INNER, ("more", pa.list_(INNER)), ("part", INNER)])
KINDS = {"key": pa.binary(), "value": ROW, "timestamp": pa.int64(), "operation": pa.string(), "before": ROW}
an_inner = st.builds(lambda n: {"id": n, "name": f"row {n}"}, st.integers(0, 99))
a_row = st.one_of(
    st.none(),
    st.builds(lambda inner, more: {**inner, "more": more, "part": inner}, an_inner, st.lists(an_inner, max_size=2)),
)
a_change = st.fixed_dictionaries(
    {
        "key": st.one_of(st.binary(max_size=3), st.binary(max_size=3), st.none()),
        "value": a_row,
        "timestamp": st.one_of(st.none(), st.integers(-(10**6), 10**12)),
        "operation": st.sampled_from(WORDS),
        "before": a_row,
    }
)


def without_nulls(kind: pa.DataType) -> pa.DataType:
    """As Spark says it of columns of a table that are NOT NULL."""
    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return pa.struct([pa.field(each.name, without_nulls(each.type), nullable=False) for each in fields])
    return pa.list_(without_nulls(kind.value_type)) if pa.types.is_list(kind) else kind


def batch_of(
    rows: list[dict[str, Any]], left_out: set[str], *, sliced: bool, never_null: Collection[str] = ()
) -> pa.RecordBatch:
    padded = [rows[0], *rows] if sliced and rows else rows
    arrays = {
        name: pa.array([row[name] for row in padded], without_nulls(kind) if name in never_null else kind)
        for name, kind in KINDS.items()
        if name not in left_out
    }
    batch = pa.RecordBatch.from_pydict(arrays)
    return batch.slice(1) if sliced and rows else batch


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(a_change, max_size=12),
    envelope=st.sampled_from(["upsert", "debezium"]),
    left_out=st.sets(st.sampled_from(["timestamp", "before"])),
    sliced=st.booleans(),
    never_null=st.sets(st.sampled_from(["value", "before"])),
)
def test_records_are_those_of_the_slow_twin(
    rows: list[dict[str, Any]], envelope: str, left_out: set[str], sliced: bool, never_null: set[str]
) -> None:
    changes = ChangeRows(ChangeOptions(envelope, "_change_type", "before" if "before" not in left_out else None))
    found, misfits, is_second = changes.apply(batch_of(rows, left_out, sliced=sliced, never_null=never_null))
    given_rows = [{name: row[name] for name in row if name not in left_out} for row in rows]
    wanted = list(records(envelope, given_rows))
    assert sorted(misfits) == [number for number, each in enumerate(wanted) if each["is_wrong"]]
    assert is_second.tolist() == [each["is_second"] for each in wanted]
    said = ("is_wrong", "is_second")
    assert found.to_pylist() == [{name: each[name] for name in each if name not in said} for each in wanted]


def test_the_twin_knows_the_same_operations() -> None:
    assert {*LETTERS, *LEFT_OUT} == set(OPERATIONS)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_operations_and_keys_come_in_every_form_of_text(kind: pa.DataType) -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array(["a", "b"], kind),
            "value": pa.array(["1", "2"], kind),
            "operation": pa.array(["insert", "delete"], kind),
        }
    )
    found, misfits, _ = ChangeRows(ChangeOptions("upsert", "op", None)).apply(rows)
    assert (found.to_pylist(), misfits) == ([{"key": "a", "value": "1"}, {"key": "b", "value": None}], {})


def test_what_an_outer_join_found_nothing_for_is_null_inside_a_row_that_has_no_nulls() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "key": ["k"],
            "value": pa.array([{"id": 1}], pa.struct([pa.field("id", pa.int64(), nullable=False)])),
            "before": pa.array([{"id": None}], pa.struct([("id", pa.int64())])),
            "operation": ["update"],
        }
    )
    found, misfits, _ = ChangeRows(ChangeOptions("debezium", "op", "old")).apply(rows)
    (value,) = found.column("value").to_pylist()
    assert (value, misfits) == ({"before": {"id": None}, "after": {"id": 1}, "op": "u"}, {})


@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
def test_an_operation_that_is_no_text_is_a_bad_row(envelope: str) -> None:
    words = pa.array([b"insert", b"\xff\xfe"]).view(pa.string())
    rows = pa.RecordBatch.from_pydict({"key": ["a", "b"], "value": ["1", "2"], "operation": words})
    _, misfits, _ = ChangeRows(ChangeOptions(envelope, "op", None)).apply(rows)
    assert {row: str(error) for row, error in misfits.items()} == {
        1: "row 1: '\ufffd\ufffd' in the column op names no operation"
    }


@pytest.mark.parametrize(("unit", "per_ms"), [("ms", 1), ("us", 1000)])
def test_times_are_rounded_down_as_those_of_records_are(unit: str, per_ms: int) -> None:
    times = pa.array([1500 * per_ms, -1, None, 0], pa.timestamp(unit, "Europe/Berlin"))
    rows = pa.RecordBatch.from_pydict(
        {"key": ["k"] * 4, "value": [1, 2, 3, 4], "timestamp": times, "operation": ["c"] * 4}
    )
    found, *_ = ChangeRows(ChangeOptions("debezium", "op", None)).apply(rows)
    assert [each["ts_ms"] for each in found.column("value").to_pylist()] == [1500, -1, None, 0]


def test_rows_without_a_preimage_or_a_delete_are_not_copied() -> None:
    row = {"key": b"k", "value": {"id": 1, "name": "n"}, "timestamp": 1, "operation": "c", "before": None}
    rows = batch_of([row] * 3, set(), sliced=False)
    found, *_ = ChangeRows(ChangeOptions("upsert", "op", None)).apply(rows)
    assert found.column("key").buffers()[2].address == rows.column("key").buffers()[2].address
    assert found.column("value") is not None and found.column("value").equals(rows.column("value"))
