"""Every test of the driver runs by the rules of both generations."""

import pytest

from tests.unit.exactly_once.driver_bench import Bench


@pytest.fixture(params=[1, 2], ids=["generation 1", "generation 2"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(generation=request.param)
