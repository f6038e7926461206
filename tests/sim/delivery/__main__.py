"""`python -m tests.sim.delivery`: commits under faults. tests/sim/command.py describes the options.

`--breakers lies,twins` breaks these assumptions in each seed, not those that the seed draws; `none` breaks none.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

import pytest

from tests.mistakes.table import MISTAKES, Mistake
from tests.sim.command import Planted, Simulated
from tests.sim.delivery.breakers import BREAKERS
from tests.sim.delivery.plan import Plan, draw
from tests.sim.delivery.required import REQUIRED
from tests.sim.delivery.simulation import Result, run
from tests.sim.trace import Violation


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--breakers", type=_breakers, help=f"of {', '.join(BREAKERS)}; or none")


def _breakers(text: str) -> frozenset[str]:
    names = frozenset(text.split(",")) - {"none"}
    unknown = sorted(names - set(BREAKERS))
    if unknown:
        raise argparse.ArgumentTypeError(f"no such assumption: {', '.join(unknown)}")
    return names


def _draw(seed: int, options: argparse.Namespace) -> Plan:
    return draw(seed, options.breakers)


def _kind_of(result: Result) -> str:
    return f"of transaction version {result.plan.transaction_version}"


def _violation(mistake: Mistake, seed: int) -> Violation | None:
    assert mistake.seeds is not None
    with pytest.MonkeyPatch.context() as patch:
        mistake.plant(patch)
        return run(draw(seed, mistake.seeds.breakers)).violation


PLANTED = [Planted(one.name, one.seeds.limit, partial(_violation, one)) for one in MISTAKES if one.seeds is not None]
SIMULATED = Simulated("tests.sim.delivery", _draw, run, _kind_of, REQUIRED, PLANTED, _add_options)

if __name__ == "__main__":
    sys.exit(SIMULATED.main(sys.argv[1:]))
