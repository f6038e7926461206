"""The figures of `perf`: each batch counts with the number of its records."""

from __future__ import annotations

import random

import pytest

from kafka_sink.operate.cli.perf_meter import percentile


@pytest.mark.parametrize("share", [0.1, 50, 95, 99, 99.9, 100])
def test_a_percentile_of_batches_is_that_of_their_records(share: float) -> None:
    draw = random.Random(7)
    batches = [(draw.random() * 100, draw.randint(1, 50)) for _ in range(300)]
    records = sorted(latency_ms for latency_ms, count in batches for _ in range(count))
    found = percentile(batches, share)
    # At least this share of the records has the latency `found` or less, and a smaller share is faster.
    assert sum(latency_ms <= found for latency_ms in records) >= len(records) * share / 100
    assert sum(latency_ms < found for latency_ms in records) < len(records) * share / 100


def test_without_records_there_is_no_latency() -> None:
    assert percentile([], 99) == 0
