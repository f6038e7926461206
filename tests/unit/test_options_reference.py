"""docs/options.md matches the option tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.options.foreign_table import ALIASES, FOREIGN_OPTIONS
from kafka_sink.options.format_table import FORMAT_OPTIONS
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_table import PRODUCER_DEFAULTS, SINK_OPTIONS
from kafka_sink.options.table import OPTIONS
from tools.options_reference import DIFFERENT_IN_SINK, PATH, main, reference


def test_the_committed_reference_is_up_to_date() -> None:
    assert PATH.read_text(encoding="utf-8") == reference(), "run: python -m tools.options_reference"


def test_the_reference_names_every_option_and_alias() -> None:
    first_cells = re.findall(r"^\| (`.+?`) \|", reference(), re.MULTILINE)
    named = {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)}
    assert {*SINK_OPTIONS, *FORMAT_OPTIONS, *OPTIONS, *FOREIGN_OPTIONS, *ALIASES} - named == set()


def test_the_reference_names_what_the_sink_sets_by_itself_and_the_prefix() -> None:
    text = reference()
    assert [name for name, value in PRODUCER_DEFAULTS.items() if f"`kafka.{name}` is `{value}`" not in text] == []
    assert "with the prefix `kafka.`" in text


@pytest.mark.parametrize("name", [name for name, said in DIFFERENT_IN_SINK.items() if said.startswith("refused")])
def test_what_the_reference_calls_refused_in_the_sink_is(name: str) -> None:
    with pytest.raises(ConfigError, match=f"kafka.{name} is not supported".replace(".", r"\.")):
        parse_sink_options({"kafka.bootstrap.servers": "127.0.0.1:9092", f"kafka.{name}": "x"})


def test_the_command_writes_the_file_it_is_given(tmp_path: Path) -> None:
    assert main([str(tmp_path / "options.md")]) == 0
    assert (tmp_path / "options.md").read_text(encoding="utf-8") == reference()
