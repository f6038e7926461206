"""`python -m tests.sim`: engines under faults. tests/sim/command.py describes the options."""

from __future__ import annotations

import argparse
import sys
from functools import partial

import pytest

from tests.sim.command import Planted, Simulated
from tests.sim.mutations import SEEDS, Mutation
from tests.sim.probes import REQUIRED
from tests.sim.scenario import Scenario, draw
from tests.sim.simulation import Result, run
from tests.sim.trace import Violation


def _draw(seed: int, _options: argparse.Namespace) -> Scenario:
    return draw(seed)


def _kind_of(result: Result) -> str:
    return f"with transaction.version {result.plan.transaction_version}"


def _violation(mutation: Mutation, seed: int) -> Violation | None:
    with pytest.MonkeyPatch.context() as patch:
        mutation(patch)
        return run(draw(seed)).violation


PLANTED = [Planted(mutation.__name__, limit, partial(_violation, mutation)) for mutation, limit in SEEDS.items()]
SIMULATED = Simulated("tests.sim", _draw, run, _kind_of, REQUIRED, PLANTED)

if __name__ == "__main__":
    sys.exit(SIMULATED.main(sys.argv[1:]))
