"""CONTRIBUTING.md answers the questions of newcomers by two listings and one file: the paths are taken here. What to
look for is a line that defines, assigns or compares; a mention does not answer anything."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (.+\?) \| (.+) \| \[.+\]\((.+)\) \| `(.+)` \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "CONTRIBUTING.md").read_text())


def test_there_are_eleven_questions() -> None:
    assert len({question for question, *_ in ROWS}) == 11


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
    assert [line for line in deciding_lines(file.read_text()) if word in line] != []


def deciding_lines(text: str) -> Iterator[str]:
    """Without comments. A table in a text is assigned, too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            yield ast.unparse(node)
        elif isinstance(node, ast.If | ast.While) and any(isinstance(one, ast.Compare) for one in ast.walk(node.test)):
            yield ast.unparse(node.test)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield f"{'class' if isinstance(node, ast.ClassDef) else 'def'} {node.name}"


def test_a_mention_is_no_answer() -> None:
    mentioned = "# word\nraised = 1  # word\n'word'\nuse(word)\nif found:\n    drop(word)\n"
    decided = "word = 1\ndef word(): ...\nclass word: ...\nif now > word: ...\nROWS = '''\n6 word stale\n'''\n"
    assert [len([line for line in deciding_lines(text) if "word" in line]) for text in (mentioned, decided)] == [0, 5]
