"""docs/options.md is what the option tables say."""

from __future__ import annotations

from pathlib import Path

from kafka_sink.options.foreign_table import ALIASES, FOREIGN_OPTIONS
from kafka_sink.options.table import OPTIONS
from tools.options_reference import PATH, main, reference


def test_the_committed_reference_is_up_to_date() -> None:
    assert PATH.read_text(encoding="utf-8") == reference(), "run: python -m tools.options_reference"


def test_the_reference_names_every_option_and_alias() -> None:
    text = reference()
    assert [name for name in (*OPTIONS, *FOREIGN_OPTIONS, *ALIASES) if f"| `{name}` |" not in text] == []


def test_the_command_writes_the_file_it_is_given(tmp_path: Path) -> None:
    assert main([str(tmp_path / "options.md")]) == 0
    assert (tmp_path / "options.md").read_text(encoding="utf-8") == reference()
