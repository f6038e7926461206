"""Commits of micro-batches as part of the suite: seeds that once failed, a fixed set, fresh ones, planted mistakes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.sim.delivery.mutations import TRIALS, Mutation, seeds_until_caught
from tests.sim.delivery.plan import draw
from tests.sim.delivery.simulation import run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REGRESSIONS = json.loads((HERE / "delivery" / "regressions.json").read_text())
FIXED_SEEDS = range(1, 111)
FRESH_COUNT = 20
# Mistakes that many seeds are needed for are planted by `python -m tests.sim.delivery --mutations` only.
QUICK = [mutation for mutation, trial in TRIALS.items() if trial.limit <= 20]
NEEDED = (
    "commit: delivered", "commit: already delivered", "commit: CommitAborted", "commit: CommitPending",
    "commit: fenced by another driver", "recover: recovered", "abort: aborted", "driver crashed in commit",
    "dangling transactions swept", "attempt goes on as a zombie",
)  # fmt: skip


def check(seed: int, breakers: frozenset[str] | None = None) -> Counter[str]:
    print(f"seed {seed}: replay with python -m tests.sim.delivery --seed {seed}")
    result = run(draw(seed, breakers))
    assert result.violation is None, f"seed {seed}: {result.violation}"
    return result.counts


@pytest.mark.parametrize("entry", REGRESSIONS, ids=lambda entry: str(entry["seed"]))
def test_a_seed_whose_commits_once_failed_keeps_all_promises(entry: dict[str, int]) -> None:
    """As they were found: nothing but faults."""
    check(entry["seed"], frozenset())


@pytest.mark.timeout(600)
def test_commits_of_fixed_seeds_keep_all_promises_and_end_in_every_common_way() -> None:
    counts: Counter[str] = Counter()
    for seed in FIXED_SEEDS:
        counts += check(seed)
    assert [what for what in NEEDED if not counts[what]] == []


@pytest.mark.slow  # chance has no say in whether a change is accepted; `make slow` draws new seeds
@pytest.mark.timeout(600)
def test_commits_of_fresh_seeds_keep_all_promises() -> None:
    for _ in range(FRESH_COUNT):
        check(random.SystemRandom().randrange(1 << 31))


def test_equal_seeds_give_equal_commits_in_any_process() -> None:
    digests = {run(draw(7)).digest}
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "tests.sim.delivery", "--seed", "7"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        output = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
        digests.add(output.split()[-1])
    assert len(digests) == 1


@pytest.mark.parametrize("mutation", QUICK, ids=lambda mutation: mutation.__name__)
def test_a_planted_mistake_of_the_commit_protocol_is_caught(mutation: Mutation) -> None:
    assert seeds_until_caught(mutation, range(1, TRIALS[mutation].limit + 1)) is not None
