"""Changes by column are what they are row by row, in every form that Arrow has for the columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.options.sink_options import ChangeOptions
from kafka_sink.spark.changes import OPERATIONS, ChangeRows

from .slow_changes import LEFT_OUT, LETTERS, records

WORDS = [*OPERATIONS, *(word.upper() for word in OPERATIONS), "", "no operation", "\u0130nsert", None]
ROW = pa.struct([("id", pa.int64()), ("name", pa.string())])
KINDS = {"key": pa.binary(), "value": ROW, "timestamp": pa.int64(), "operation": pa.string(), "before": ROW}
a_row = st.one_of(st.none(), st.builds(lambda n: {"id": n, "name": None if n % 3 else f"row {n}"}, st.integers(0, 99)))
a_change = st.fixed_dictionaries(
    {
        "key": st.one_of(st.binary(max_size=3), st.binary(max_size=3), st.none()),
        "value": a_row,
        "timestamp": st.one_of(st.none(), st.integers(-(10**6), 10**12)),
        "operation": st.sampled_from(WORDS),
        "before": a_row,
    }
)


def batch_of(rows: list[dict[str, Any]], left_out: set[str], *, sliced: bool) -> pa.RecordBatch:
    padded = [rows[0], *rows] if sliced and rows else rows
    arrays = {
        name: pa.array([row[name] for row in padded], kind) for name, kind in KINDS.items() if name not in left_out
    }
    batch = pa.RecordBatch.from_pydict(arrays)
    return batch.slice(1) if sliced and rows else batch


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(a_change, max_size=12),
    envelope=st.sampled_from(["upsert", "debezium"]),
    left_out=st.sets(st.sampled_from(["timestamp", "before"])),
    sliced=st.booleans(),
)
def test_records_are_those_of_the_slow_twin(
    rows: list[dict[str, Any]], envelope: str, left_out: set[str], sliced: bool
) -> None:
    changes = ChangeRows(ChangeOptions(envelope, "_change_type", "before" if "before" not in left_out else None))
    found, misfits, is_second = changes.apply(batch_of(rows, left_out, sliced=sliced))
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
