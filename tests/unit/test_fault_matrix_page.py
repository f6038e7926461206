"""docs/fault-matrix.md: each row names existing tests or says why there is none, and it lists every test of a fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "fault-matrix.md"
TEXT = PAGE.read_text(encoding="utf-8")
# By letter, number, and letter of a row that was put in later.
ROWS = [
    (row[1], int(row[2]), row[3], row[0]) for row in re.finditer(r"^\| ([A-Z])(\d+)([a-z]*) \|.*$", TEXT, re.MULTILINE)
]
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
    found = [f"{letter}{number}" for letter, number, more, _ in ROWS if not more]
    assert found == [*spark, *second_door, *brokers, "Y1", "Y2"]


def test_no_two_rows_have_one_id_and_all_stand_in_their_order() -> None:
    for wanted in "SDBY":
        numbers = [(number, more) for letter, number, more, _ in ROWS if letter == wanted]
        assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("row", [row for *_, row in ROWS], ids=["".join(map(str, row[:3])) for row in ROWS])
def test_a_row_names_a_test_or_says_why_there_is_none(row: str) -> None:
    _, _, expected, shown, versions, seconds = (cell.strip() for cell in row.strip("|").split("|"))
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
