"""docs/simulation.md lists all planted bugs, with the seeds and limits of the code."""

from __future__ import annotations

import re
from pathlib import Path

from tests.sim.mutations import SEEDS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "simulation.md"


def section(title: str) -> str:
    return PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_planted_bugs_are_those_of_the_code_and_each_was_caught_within_its_limit() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (\d+) \| I\d+ \| (\d+) \|$", section("Planted bugs"), re.MULTILINE)
    assert {name: int(limit) for name, _, limit in rows} == {bug.__name__: limit for bug, limit in SEEDS.items()}
    assert len(rows) >= 12
    assert [name for name, caught_at, limit in rows if int(caught_at) > int(limit)] == []


def test_every_promise_that_the_code_checks_is_explained() -> None:
    sources = [path.read_text() for path in (ROOT / "tests" / "sim").glob("*.py") if not path.name.startswith("test_")]
    checked = {found for source in sources for found in re.findall(r'Violation\(\s*"(I\d+)"', source)}
    explained = set(re.findall(r"^\| (I\d+) \|", section("What must hold"), re.MULTILINE))
    # I14 is a test: equal seeds, equal runs.
    assert explained == checked | {"I14"}


def test_every_link_leads_to_a_file() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", PAGE.read_text())
    assert targets and [target for target in targets if not (PAGE.parent / target).exists()] == []
