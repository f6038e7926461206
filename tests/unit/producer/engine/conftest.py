"""Parameters of most transaction tests: both transaction versions, and both ways to end a transaction."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def transaction_version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=[True, False], ids=["commit", "abort"])
def commit(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)
