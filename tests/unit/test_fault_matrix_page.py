"""docs/fault-matrix.md: each row names existing tests or says why there is none, and it lists every test of a fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "fault-matrix.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = {row[1]: row[0] for row in re.finditer(r"^\| ([SDBY]\d+) \|.*$", TEXT, re.MULTILINE)}
LINKS = sorted(set(re.findall(r"\[(test_\w+)\]\((\.\./tests/[\w/]+\.py)\)", TEXT)))
# Files that contain only tests of these faults.
CHAOS = ROOT / "tests" / "chaos"
WHOLE = [
    *(CHAOS / f"test_{name}.py" for name in ("driver_crashes", "commit_errors", "lost_answers_in_commit")),
    *(CHAOS / f"test_{name}.py" for name in ("ledger_faults", "task_faults", "transaction_time_outs")),
    *(CHAOS / f"test_{name}.py" for name in ("broker_faults", "cluster_changes")),
    *(
        ROOT / "tests" / "spark" / f"test_{name}.py"
        for name in ("stream_faults", "killed_drivers", "second_door_faults")
    ),
    ROOT / "tests" / "integration" / "test_second_door_faults.py",
    ROOT / "tests" / "yarn" / "test_application_master.py",
]


def names_in(path: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_fault_has_its_row() -> None:
    spark = [f"S{number}" for number in range(1, 34)]
    second_door = [f"D{number}" for number in range(1, 17)]
    brokers = [f"B{number}" for number in (*range(1, 13), *range(18, 57))]
    assert list(ROWS) == [*spark, *second_door, *brokers, "Y1", "Y2"]


@pytest.mark.parametrize("number", ROWS)
def test_a_row_names_a_test_or_says_why_there_is_none(number: str) -> None:
    _, _, expected, shown, versions, seconds = (cell.strip() for cell in ROWS[number].strip("|").split("|"))
    assert expected
    if "](../tests/" in shown:
        assert versions and seconds
    else:
        assert shown.startswith("not run here: ")


@pytest.mark.parametrize(("name", "path"), LINKS)
def test_what_a_row_links_is_there(name: str, path: str) -> None:
    assert name in names_in(PAGE.parent / path)


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.stem)
def test_every_test_of_a_fault_is_in_the_matrix(path: Path) -> None:
    assert names_in(path) - {name for name, _ in LINKS} == set()
