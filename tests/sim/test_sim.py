"""The simulation as part of the suite: seeds that once failed, fixed seeds, a few new ones, and planted bugs."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.sim.__main__ import PLANTED
from tests.sim.command import Planted
from tests.sim.digests import digest_elsewhere
from tests.sim.scenario import draw
from tests.sim.shrink import shrink
from tests.sim.simulation import Simulation, run
from tests.sim.trace import Violation

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REGRESSIONS = json.loads((HERE / "regressions.json").read_text())
FIXED_SEEDS, MORE_SEEDS = range(1, 21), range(21, 111)
FRESH_COUNT = 20
# Bugs that need many seeds are planted only by `python -m tests.sim --mutations`.
QUICK = [planted for planted in PLANTED if planted.limit <= 5]


def check(seed: int) -> Counter[str]:
    print(f"seed {seed}: replay with python -m tests.sim --seed {seed}")
    result = run(draw(seed))
    assert result.violation is None, f"seed {seed}: {result.violation}"
    return result.counts


@pytest.mark.parametrize("entry", REGRESSIONS, ids=lambda entry: str(entry["seed"]))
def test_a_seed_that_once_failed_keeps_all_promises(entry: dict[str, int]) -> None:
    check(entry["seed"])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", [FIXED_SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.slow)], ids=["few", "many"])
def test_fixed_seeds_keep_all_promises_and_reach_what_matters(seeds: range) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts += check(seed)
    needed = ("batch retried", "transaction committed", "transaction aborted", "fault crash", "produce OUT_OF_ORDER")
    assert [what for what in needed if not counts[what]] == []


@pytest.mark.slow  # random seeds must not decide whether a change is accepted; `make sim` and `make slow` draw new ones
@pytest.mark.timeout(600)
def test_fresh_seeds_keep_all_promises() -> None:
    for _ in range(FRESH_COUNT):
        check(random.SystemRandom().randrange(1 << 31))


def test_equal_seeds_give_equal_runs_in_any_process() -> None:
    assert digest_elsewhere("tests.sim", 7) == run(draw(7)).digest


def test_a_cluster_that_was_made_quick_waits_for_nothing() -> None:
    simulation = Simulation(draw(12898))
    delays = [simulation.core.settings.delay_ms("transaction_log") for _ in range(100)]
    assert sum(delays) > 1_000
    simulation.stage.make_quick()
    assert {simulation.core.settings.delay_ms("transaction_log") for _ in range(100)} == {0}
    assert sum(simulation.network.latency() for _ in range(100)) < 100


@pytest.mark.parametrize("planted", QUICK, ids=lambda planted: planted.name)
def test_a_planted_bug_is_caught(planted: Planted) -> None:
    assert planted.first_caught() is not None


def test_shrinking_leaves_the_faults_that_matter() -> None:
    scenario = draw(1)
    culprits = set(scenario.faults[10:12])

    result = run(draw(7))

    def fails_with_both(tried):  # type: ignore[no-untyped-def]
        result.violation = Violation("I0", "both") if culprits <= set(tried.faults) else None
        return result

    assert shrink(scenario, "I0", run=fails_with_both) == [10, 11]
