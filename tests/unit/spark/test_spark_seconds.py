"""A timestamp column in seconds would make records of January 1970; the task detects it."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from kafka_sink.spark.task import looks_like_seconds

NOW_S = 1_795_400_000


def rows(timestamps: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": ["v"] * len(timestamps), "timestamp": timestamps})


def test_seconds_in_a_bigint_are_seen() -> None:
    assert looks_like_seconds(rows(pa.array([NOW_S, NOW_S + 1], pa.int64())))


@pytest.mark.parametrize("first", [None, 0, NOW_S * 1000])
def test_milliseconds_and_none_are_not(first: int | None) -> None:
    assert not looks_like_seconds(rows(pa.array([first, NOW_S * 1000], pa.int64())))


def test_a_real_timestamp_says_what_it_means_and_rows_may_have_none() -> None:
    when = datetime.datetime(1971, 1, 1, tzinfo=datetime.timezone.utc)
    assert not looks_like_seconds(rows(pa.array([when], pa.timestamp("us", "UTC"))))
    assert not looks_like_seconds(pa.RecordBatch.from_pydict({"value": ["v"]}))
