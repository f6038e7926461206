"""docs/proof.md names a test for each behaviour of Spark's own sink; the partitioner in docs/migration.md works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.formats.records.columns import RecordColumns
from kafka_sink.formats.records.routing import PartitionView

ROOT = Path(__file__).parents[2]
PROOF = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")
TEXT = PROOF.partition("\n## Parity\n")[2].partition("\n## ")[0]
ROWS = {int(row[1]): row[0] for row in re.finditer(r"^\| (\d+) \|.*$", TEXT, re.MULTILINE)}
LINKS = re.findall(r"\[(\w+(?:\.py)?)\]\(\.\./(tests/[\w/]+\.py)\)", TEXT)


def test_every_behaviour_has_its_row() -> None:
    assert sorted(ROWS) == list(range(1, 35))


@pytest.mark.parametrize("number", ROWS)
def test_a_row_names_a_test_or_says_what_differs(number: int) -> None:
    _, _, here, shown = (cell.strip() for cell in ROWS[number].strip("|").split("|"))
    as_another = re.fullmatch(r"as (\d+)", shown)
    if as_another is not None:
        assert "](../tests/" in ROWS[int(as_another[1])]
    else:
        assert "](../tests/" in shown or here.startswith("differs")


@pytest.mark.parametrize(("name", "path"), sorted(set(LINKS)))
def test_what_a_row_links_is_there(name: str, path: str) -> None:
    assert (ROOT / path).is_file()
    assert name.endswith(".py") or f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8")


def test_the_partitioner_of_the_migration_page_places_rows() -> None:
    page = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
    (program,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def by_first_byte" in code]
    names: dict[str, Any] = {}
    exec(program, names)

    def place(*keys: bytes | None) -> list[int]:
        columns = RecordColumns.from_rows(keys, [b""] * len(keys))
        return list(names["by_first_byte"]("t", columns, PartitionView(4, (0, 1, 2, 3))))

    assert place(b"abc", None, b"", b"\x06") == [ord("a") % 4, 0, 0, 2]
    assert place(None, None) == place(b"", b"") == place(None, b"") == [0, 0]
