"""CONTRIBUTING.md answers the questions of newcomers by two listings and one file: the paths are taken here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (.+\?) \| (.+) \| \[.+\]\((.+)\) \| `(.+)` \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "CONTRIBUTING.md").read_text())


def test_there_are_ten_questions() -> None:
    assert len({question for question, *_ in ROWS}) == 10


@pytest.mark.parametrize(("listings", "opened", "word"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_question_is_answered_by_two_listings_and_one_file(listings: str, opened: str, word: str) -> None:
    folders = re.findall(r"`ls ([^`]+)`", listings)
    assert 1 <= len(folders) <= 2
    seen = {ROOT}
    for folder in folders:
        base = ROOT / folder.removesuffix("/*")
        # A name that was listed before, or that a repository's first page shows.
        assert base in seen or base.parent in seen, f"nothing has shown {folder}"
        seen |= {base, *base.iterdir()}
        if folder.endswith("/*"):
            seen |= {inner for each in base.iterdir() if each.is_dir() for inner in each.iterdir()}
    file = ROOT / opened
    assert file.is_file() and {file, file.parent} & seen
    assert word in file.read_text()
