"""Every test of the driver runs with both transaction versions."""

import pytest

from tests.unit.commit.driver_bench import Bench


@pytest.fixture(params=[1, 2], ids=["transaction version 1", "transaction version 2"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(transaction_version=request.param)
