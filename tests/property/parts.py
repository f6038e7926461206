"""Ten thousand examples in ten parts. Each part is a separate test, so that it ends within the time limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given, seed, settings
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")

in_ten_parts = pytest.mark.parametrize("part", range(10))


def check_a_thousand(part: int, config: pytest.Config, cases: SearchStrategy[T], check: Callable[[T], None]) -> None:
    """With the seed of the run alone every part would check the same thousand examples."""

    @settings(max_examples=1_000)
    @given(cases)
    def examples(case: T) -> None:
        check(case)

    of_run = config.getoption("--hypothesis-seed")
    (examples if of_run is None else seed(f"{of_run}-{part}")(examples))()
