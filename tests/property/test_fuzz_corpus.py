"""Inputs found by the coverage-guided search are read or refused, and so are the cut seeds of each of its targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.guided_targets import Guided, by_name

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
TARGETS = by_name()
FOUND = sorted(CORPUS.glob("*/*"))


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_a_target_takes_its_seeds_cut_anywhere(target: Guided) -> None:
    assert target.seeds
    for seed in target.seeds[:50]:
        for end in {0, 1, len(seed) // 2, len(seed)}:
            target.run(seed[:end])


@pytest.mark.parametrize("path", FOUND, ids=[f"{path.parent.name}-{path.name}" for path in FOUND])
def test_what_was_found_once_is_read_or_refused(path: Path) -> None:
    assert path.parent.name in TARGETS
    TARGETS[path.parent.name].run(path.read_bytes())
