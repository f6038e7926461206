"""Pages stay as long as somebody reads: words of all pages for users, the longest sentence and cell, DESIGN.md in a
quarter of an hour, and a release of the changelog at a glance. A page that grows makes another one shorter, or these
numbers are changed on purpose."""

from __future__ import annotations

import fnmatch
import re

from tests.support.page_blocks import ROOT
from tools.site_pages import FENCE, PAGES

WORDS_MAX = 45_100
SENTENCE_MAX, CELL_MAX = 60, 80
DESIGN_MAX, RELEASE_MAX = 3_000, 1_000
NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
BUILDERS = re.findall(r"^ +- (.+)$", NAVIGATION.partition("  - Build it:\n")[2], re.MULTILINE)
OF_SITE = {site: path for path, site in PAGES.items()} | {
    path.relative_to(ROOT / "docs").as_posix(): path.relative_to(ROOT).as_posix()
    for path in (ROOT / "docs").rglob("*.md")
}
FOR_USERS = sorted(
    path for site, path in OF_SITE.items() if not any(fnmatch.fnmatch(site, pattern) for pattern in BUILDERS)
)


def as_read(path: str) -> str:
    """Without code and comments, and without the addresses of links."""
    text = FENCE.sub("", (ROOT / path).read_text(encoding="utf-8"))
    return re.sub(r"\]\([^)\s]*\)", "]", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))


def words(text: str) -> int:
    return len([word for word in text.split() if re.search(r"\w", word)])


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.lstrip().startswith("|")]


def cells(text: str) -> list[str]:
    return [cell for row in rows(text) for cell in re.split(r"(?<!\\)\|", row)]


def sentences(text: str) -> list[str]:
    prose = "\n".join("" if line.lstrip().startswith(("|", "#")) else line for line in text.splitlines())
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", prose)
    return [one for part in paragraphs for one in re.split(r"(?<=[.!?:])[\"*)]*\s+(?=[A-Z`\[*(\d])", part)]


def test_pages_for_users_have_no_more_words_than_somebody_reads() -> None:
    found = {path: words(as_read(path)) for path in FOR_USERS}
    assert "docs/options.md" in found and "DESIGN.md" not in found and "docs/proof.md" not in found
    assert sum(found.values()) <= WORDS_MAX, sorted(found.items(), key=lambda page: -page[1])[:10]


def test_no_sentence_and_no_cell_is_too_long() -> None:
    for path in FOR_USERS:
        text = as_read(path)
        assert [one for one in sentences(text) if words(one) > SENTENCE_MAX] == [], path
        assert [cell for cell in cells(text) if words(cell) > CELL_MAX] == [], path


def test_the_design_is_read_in_a_quarter_of_an_hour() -> None:
    assert words(as_read("DESIGN.md")) <= DESIGN_MAX


def test_a_release_of_the_changelog_says_what_a_user_notices_and_no_more() -> None:
    for release in as_read("CHANGELOG.md").split("\n## ")[1:]:
        assert words(release) <= RELEASE_MAX, release.partition("\n")[0]
