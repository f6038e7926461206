"""Limits on the number of Python calls per batch; docs/benchmarks/calls.md has the figures."""

from __future__ import annotations

import pytest

from bench.calls import steps, stream


@pytest.mark.parametrize(("partitions", "calls_max"), [(1, 110), (4, 60)])
def test_a_full_batch_costs_few_calls(partitions: int, calls_max: int) -> None:
    cost = stream(partitions)
    # With fewer batches the figure would mean something else.
    assert cost.batches >= 200
    assert cost.calls <= calls_max


def test_small_batches_of_a_thousand_partitions_share_what_a_request_costs() -> None:
    cost = stream(1000, value_bytes=100, linger_ms=0)
    assert cost.batches == 3000
    assert cost.calls <= 35


def test_a_turn_without_anything_to_do_costs_next_to_nothing() -> None:
    cost = steps()
    assert cost.idle <= 40
    assert (cost.request <= 90, cost.answer <= 90) == (True, True)


def test_a_count_does_not_flicker() -> None:
    assert steps() == steps()
