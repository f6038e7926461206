"""A timestamp column in seconds or microseconds would make records of January 1970, or of a distant future; the task
detects it."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from kafka_sink.spark.task import MICROSECONDS, SECONDS, unit_warning

NOW_S = 1_795_400_000


def rows(timestamps: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": ["v"] * len(timestamps), "timestamp": timestamps})


@pytest.mark.parametrize(("per_second", "warning"), [(1, SECONDS), (10**6, MICROSECONDS), (10**9, MICROSECONDS)])
def test_another_unit_than_milliseconds_in_a_bigint_is_seen(per_second: int, warning: str) -> None:
    assert unit_warning(rows(pa.array([NOW_S * per_second, NOW_S * per_second + 1], pa.int64()))) == warning


@pytest.mark.parametrize("first", [None, 0, NOW_S * 1000])
def test_milliseconds_and_none_are_not(first: int | None) -> None:
    assert not unit_warning(rows(pa.array([first, NOW_S * 1000], pa.int64())))


def test_a_real_timestamp_says_what_it_means_and_rows_may_have_none() -> None:
    when = datetime.datetime(1971, 1, 1, tzinfo=datetime.timezone.utc)
    assert not unit_warning(rows(pa.array([when], pa.timestamp("us", "UTC"))))
    assert not unit_warning(pa.RecordBatch.from_pydict({"value": ["v"]}))
