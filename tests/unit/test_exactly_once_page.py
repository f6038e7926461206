"""docs/exactly-once.md names tests and table rows as evidence: each of them exists in a file that the page links to."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "exactly-once.md"


def test_every_test_that_is_named_is_in_a_file_that_is_linked() -> None:
    page = PAGE.read_text()
    links = {(PAGE.parent / target).resolve() for target in re.findall(r"\]\(([^)#]+)\)", page)}
    assert [link for link in links if not link.is_file()] == []
    defined = {
        name for link in links for name in re.findall(r"^def (test_\w+)\(|^(\w.+)$", link.read_text(), re.MULTILINE)
    }
    named = set(re.findall(r"`(test_\w+)`", page))
    rows = set(re.findall(r'`"([^`]+)"`', page))
    assert len(named) > 30 and len(rows) > 10
    assert (named | rows) - {name for either in defined for name in either} == set()


def test_every_link_within_the_page_has_its_heading() -> None:
    page = PAGE.read_text()
    headings = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) - headings == set()
