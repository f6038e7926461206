"""A short fuzz run; `python -m tests.fuzz.fuzz_wire` is the long one."""

from __future__ import annotations

import pytest

from tests.fuzz.fuzz_wire import fuzz


@pytest.mark.parametrize("seed", [1, 2])
def test_broken_input_is_read_or_refused_by_every_decoder(seed: int) -> None:
    report = fuzz(25_000, seed)
    assert sum(outcome.total() for outcome in report.values()) == 25_000
    # If nothing were read or nothing refused, the mutations would not reach the code after the first check.
    assert all(outcome["refused"] for outcome in report.values())
    assert sum(outcome["read"] for outcome in report.values()) > 2_500


def test_the_same_seed_gives_the_same_run() -> None:
    assert fuzz(2000, 7) == fuzz(2000, 7)
