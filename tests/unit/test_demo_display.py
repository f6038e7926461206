"""The output of the demo, read by the terminal emulator that also draws its picture."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tools import demo, demo_display, kafka_watchdog
from tools.demo_display import Display, Lines, Progress, Screen, display_on
from tools.demo_picture import COLUMNS, NO_BREAK, Style, Terminal, picture

PROGRESS = Progress(
    age_s=12.5,
    rows_planned=1000,
    rows_in=500,
    rows_visible=250,
    rows_per_s=40,
    duplicates=0,
    decisions=3,
    kills=0,
    state="streaming",
)
RULE = "─" * (COLUMNS - 1)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_display, "REDRAWN_EVERY_S", 0)
    monkeypatch.setattr(demo_display, "TOLD_EVERY_S", 0)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))


def seen(play: list[tuple[str, object]], display: type[Display] = Screen) -> Terminal:  # type: ignore[type-abstract]
    output = io.StringIO()
    shown = display(output)  # type: ignore[call-arg]
    for what, argument in play:
        getattr(shown, what)(argument)
    terminal = Terminal()
    terminal.write(output.getvalue())
    return terminal


def test_the_figures_change_in_place_below_what_was_said() -> None:
    later = PROGRESS._replace(rows_visible=500, decisions=7)
    lines = seen([("show", PROGRESS), ("say", "something happened"), ("show", PROGRESS), ("show", later)]).text()
    assert lines.count("rows visible") == 1 and lines.startswith(f"something happened\n{RULE}\n")
    assert "rows in               500   ███████████████░░░░░░░░░░░░░░░\n" in lines
    assert "on their way            0   decisions in the ledger 7\n" in lines
    assert "duplicates              0   kills survived          0\n" in lines


def test_what_counts_stays() -> None:
    text = seen([("show", PROGRESS), ("keep", PROGRESS._replace(state="killed")), ("say", "a kill")]).text()
    assert text.count("rows visible") == 1 and "12.5 s  killed\n" in text and text.endswith(f"{RULE}\na kill\n")


def test_without_a_terminal_there_are_plain_lines() -> None:
    assert isinstance(display_on(io.StringIO()), Lines)
    text = seen([("show", PROGRESS), ("say", "a kill")], Lines).text()
    assert text.splitlines() == [
        " 12.5 s  rows in       500  visible       250        40 rows/s    3 decisions  streaming",
        "a kill",
    ]


def test_the_picture_is_what_the_terminal_shows() -> None:
    terminal = seen([("show", PROGRESS), ("say", "<a kill> & more"), ("show", PROGRESS)])
    drawn = ElementTree.fromstring(picture(terminal, "the demo"))
    texts = ["".join(node.itertext()).replace(NO_BREAK, " ") for node in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "<a kill> & more"
    assert "".join(texts[1:]).replace(" ", "") == "".join(terminal.text().split()).removeprefix("<akill>&more")
    assert {style.colour for line in terminal.lines for _, style in line} > {Style().colour}


def test_where_processes_cannot_be_found_the_demo_starts_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As on macOS: it would leave its broker and Spark's Python processes behind. Unit tests can start none."""
    monkeypatch.setattr(kafka_watchdog, "PROC", str(tmp_path / "proc"))
    assert demo.main([]) == 2
    assert capsys.readouterr().err.count("\n") == 1
