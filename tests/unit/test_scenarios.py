"""The tables in docs/scenarios/ say which of our tests covers which of Kafka's: every test named there must exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLES = sorted((ROOT / "docs" / "scenarios").glob("*.md"))
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
NAMED_HISTORY = re.compile(r'`(tests/[\w/]+\.py)::\w+`: "([^"]+)"')
ROW = re.compile(r"^\| *(test\w+) *\|(.*)\|$", re.MULTILINE)
REASON_CHARACTERS_MIN = 20


@cache
def names_in(path: Path) -> frozenset[str]:
    """Test functions, methods and classes of the module, including hypothesis state machines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = (node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    return frozenset(name for name in names if name.lower().startswith("test"))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_every_test_named_in_a_scenario_table_exists(table: Path) -> None:
    named = NAMED_TEST.findall(table.read_text(encoding="utf-8"))
    assert named, f"{table.name} names no test"
    missing = [f"{path}::{name}" for path, name in named
               if not (ROOT / path).is_file() or name not in names_in(ROOT / path)]  # fmt: skip
    assert not missing
    histories = NAMED_HISTORY.findall(table.read_text(encoding="utf-8"))
    assert [title for path, title in histories if f"\n{title}\n" not in (ROOT / path).read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_every_scenario_has_a_test_or_a_reason(table: Path) -> None:
    rows = ROW.findall(table.read_text(encoding="utf-8"))
    assert rows, f"{table.name} has no row"
    bare = [name for name, text in rows if not NAMED_TEST.search(text) and len(text.strip()) < REASON_CHARACTERS_MIN]
    assert not bare


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_no_scenario_is_listed_twice_under_one_heading(table: Path) -> None:
    for section in table.read_text(encoding="utf-8").split("\n## "):
        names = [name for name, _ in ROW.findall(section)]
        assert len(names) == len(set(names)), section.splitlines()[0]


def test_there_is_at_least_the_table_of_the_network() -> None:
    assert "network" in {table.stem for table in TABLES}
