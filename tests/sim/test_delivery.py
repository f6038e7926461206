"""Commits of micro-batches as part of the suite: seeds that once failed, fixed and new seeds, planted mistakes."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.mistakes.table import MISTAKES, Mistake
from tests.sim.command import Planted
from tests.sim.delivery.__main__ import PLANTED
from tests.sim.delivery.breakers import BREAKERS
from tests.sim.delivery.leaders import is_led_by_the_newest
from tests.sim.delivery.plan import draw
from tests.sim.delivery.required import OF_BREAKERS
from tests.sim.delivery.simulation import run
from tests.sim.digests import digest_elsewhere

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REGRESSIONS = json.loads((HERE / "delivery" / "regressions.json").read_text())
PAGE = ROOT / "docs" / "simulation.md"
# The last two end as hardly any other does: CommitPending, and fenced by another driver.
FIXED_SEEDS, MORE_SEEDS = (*range(1, 21), 31, 110), range(21, 111)
FRESH_COUNT = 20
# Mistakes that need many seeds are planted only by `python -m tests.sim.delivery --mutations`.
QUICK = [planted for planted in PLANTED if planted.limit <= 20]
# The seeds that found them. Should one find nothing any more, the test tries all up to the limit.
CAUGHT_BY = json.loads((HERE / "delivery" / "caught_by.json").read_text())
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


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=str(entry["seed"]), marks=[pytest.mark.slow] if entry.get("is_slow") else [])
        for entry in REGRESSIONS
    ],
)
def test_a_seed_whose_commits_once_failed_keeps_all_promises(entry: dict[str, Any]) -> None:
    """Each seed runs as it was found: with the assumptions broken that its entry names."""
    check(entry["seed"], frozenset(entry.get("breakers", ())))


def test_an_answer_of_a_broker_that_is_behind_is_no_news_of_a_leader() -> None:
    """What seed 9801315 found in the checker, in eight times the time of any other seed."""
    led, leaderless, led_again = (10, True, 5), (20, False, 6), (30, True, 7)
    assert is_led_by_the_newest([led]) and not is_led_by_the_newest([])
    assert not is_led_by_the_newest([led, leaderless]) and is_led_by_the_newest([led, leaderless, led_again])
    assert not is_led_by_the_newest([leaderless, led]), "the second one is behind"
    assert is_led_by_the_newest([led_again, leaderless]), "the second one is behind"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", [FIXED_SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.slow)], ids=["few", "many"])
def test_commits_of_fixed_seeds_keep_all_promises_and_end_in_every_common_way(seeds: Sequence[int]) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts += check(seed)
    assert [what for what in NEEDED if not counts[what]] == []


@pytest.mark.slow  # random seeds must not decide whether a change is accepted; `make slow` draws new ones
@pytest.mark.timeout(600)
def test_commits_of_fresh_seeds_keep_all_promises() -> None:
    for _ in range(FRESH_COUNT):
        check(random.SystemRandom().randrange(1 << 31))


def test_equal_seeds_give_equal_commits_in_any_process() -> None:
    assert digest_elsewhere("tests.sim.delivery", 7) == run(draw(7)).digest


@pytest.mark.parametrize("planted", QUICK, ids=lambda planted: planted.name)
def test_a_planted_mistake_of_the_commit_protocol_is_caught(planted: Planted) -> None:
    assert planted.first_caught(first=CAUGHT_BY[planted.name]) is not None


def test_what_each_mistake_changes_is_there() -> None:
    """Also of those that only `--mutations` searches for."""
    assert [mistake.name for mistake in MISTAKES if not _can_be_planted(mistake)] == []


def _can_be_planted(mistake: Mistake) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        try:
            mistake.plant(patch)
        except AttributeError:
            return False
    return True


def test_what_each_breaker_has_to_bring_about_is_told() -> None:
    assert set(OF_BREAKERS) == set(BREAKERS)


def test_the_page_names_each_planted_mistake_with_what_is_wrong_and_its_limit() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.read_text().splitlines()]
    told = {row[0].strip("`"): (row[1].split(" (`")[0], row[-1]) for row in rows if len(row) == 5}
    for mistake in MISTAKES:
        limit = "" if mistake.seeds is None else str(mistake.seeds.limit)
        assert told[mistake.name] == (mistake.what, limit)
