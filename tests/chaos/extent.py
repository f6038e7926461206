"""How much is tried: CHAOS_RECORDS records for each outage, and from a million on also the whole matrix of harms.

The default is for every test run and takes a minute; `CHAOS_RECORDS=1000000` is for releases and takes about twenty.
"""

from __future__ import annotations

import os

import pytest

from tests.conftest import FIRST_GENERATION, NEWEST

RECORDS = int(os.environ.get("CHAOS_RECORDS", "60000"))
IS_FULL = RECORDS >= 1_000_000
# The number of times that each outage hits a transactional application.
ROUNDS = 4 if IS_FULL else 1
# A mark: with the older version only `make slow` and `make chaos`. For claims that both simulations and the model have
# for both transaction versions, and for long lists of variants.
NEWEST_MAINLY = pytest.mark.parametrize(
    "kafka", [NEWEST, pytest.param(FIRST_GENERATION, marks=pytest.mark.slow)], indirect=True
)
