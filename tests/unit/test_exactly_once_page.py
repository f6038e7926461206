"""docs/exactly-once.md is for users, docs/commit-protocol.md has the argument, docs/proof.md its tests, which exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
USERS_PAGE, ARGUMENT, PROOF = (
    (DOCS / name).read_text(encoding="utf-8") for name in ("exactly-once.md", "commit-protocol.md", "proof.md")
)
EVIDENCE = PROOF.partition("\n## The commit protocol\n")[2].partition("\n## ")[0]
HISTORIES = (DOCS.parent / "tests" / "unit" / "commit" / "test_commit_histories.py").read_text(encoding="utf-8")
LINKS = sorted(set(re.findall(r"\[(test_\w+)\]\((\.\./tests/[\w/]+\.py)\)", EVIDENCE)))


def headings(page: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_users_page_names_no_test_and_stays_short() -> None:
    assert re.findall(r"test_\w+|\.\./tests/", USERS_PAGE) == []
    assert len(USERS_PAGE.split()) <= 2100


@pytest.mark.parametrize(("name", "path"), LINKS)
def test_a_test_that_is_named_is_there(name: str, path: str) -> None:
    assert f"\ndef {name}(" in (DOCS / path).read_text(encoding="utf-8")


def test_every_history_that_is_named_is_there() -> None:
    rows = set(re.findall(r'`"([^`]+)"`', EVIDENCE))
    assert len(LINKS) > 90 and len(rows) > 20
    assert rows - set(HISTORIES.splitlines()) == set()


def test_every_statement_of_the_protocol_has_evidence() -> None:
    statements = [row.strip("|").split("|") for row in EVIDENCE.splitlines() if row.startswith("| ")][2:]
    assert len(statements) > 40
    assert [claim for _, claim, shown in statements if "test_" not in shown and '`"' not in shown] == []


@pytest.mark.parametrize("page", [USERS_PAGE, ARGUMENT], ids=["exactly-once", "commit-protocol"])
def test_every_link_within_a_page_has_its_heading(page: str) -> None:
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) - headings(page) == set()
