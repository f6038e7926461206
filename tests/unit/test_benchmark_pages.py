"""docs/benchmarks: each page tells when, with which code and on which machine it was measured, from its figures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.report import conditions

FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks"
# The contents, and what was learnt from all of them.
WITHOUT_FIGURES = {"README.md", "limits.md"}
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name not in WITHOUT_FIGURES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_tells_when_and_with_which_code_it_was_measured(page: Path) -> None:
    figures = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    about = figures.get("about") or figures["machine"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", about["measured"]) and re.fullmatch(r"[0-9a-f]{8}\*?", about["commit"])
    assert f"\n{conditions(about)}\n" in page.read_text(encoding="utf-8")


def test_each_page_is_in_the_contents() -> None:
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (FOLDER / "README.md").read_text(encoding="utf-8")))
    assert {page.name for page in FOLDER.glob("*.md")} - listed == {"README.md"}
