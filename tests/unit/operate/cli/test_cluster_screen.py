"""The screen of `pykafka-sink watch` for many sinks, as plain text and drawn with rich."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from kafka_sink.operate.cli.cluster_screen import HISTORY, Pace, Screen, SinkLine, one_line, plain_lines
from kafka_sink.operate.cli.rich_screen import bars, draw
from kafka_sink.operate.status.findings import Finding, Severity, Trouble

HEIGHT, WIDTH = 24, 100
COMMAND = "pykafka-sink recover --bootstrap-server b:9092 --sink-id sink-30"


def line(number: int, severity: Severity = Severity.FINE, verdict: str = "delivered") -> SinkLine:
    pace = Pace(1234.5, False, (0.0, 617.0, 1234.5))
    return SinkLine(severity, f"sink-{number}", "", f"{number} of q", verdict, pace, 20_000, 1_000, number % 2, number)


def screen(count: int) -> Screen:
    sinks = [line(30, Severity.ACT, "overdue"), *(line(number) for number in range(count) if number != 30)]
    finding = Finding(Trouble.OVERDUE, Severity.ACT, "rows may be missing", (COMMAND,), (1,), sink_id="sink-30")
    commands = ["", "ACT NOW: rows may be missing:", f"    {COMMAND}"]
    topics = [("orders", 12, "3 min", "sink-30-0-0")]
    return Screen("60 sinks, 74,070 rows/s, 1 act now", Severity.ACT, "", [finding], commands, sinks, topics, [])


def drawn(shown: Screen, width: int = WIDTH, encoding: str = "utf-8") -> list[str]:
    written = io.BytesIO()
    file = io.TextIOWrapper(written, encoding=encoding, write_through=True)
    console = Console(file=file, width=width, height=HEIGHT, force_terminal=True, color_system=None)
    console.print(draw(shown), end="")
    return written.getvalue().decode(encoding).splitlines()


def test_what_does_not_fit_is_counted_and_what_is_wrong_and_what_wrote_last_stays() -> None:
    for lines in (drawn(screen(60)), plain_lines(screen(60), HEIGHT)):
        assert len(lines) <= HEIGHT
        text = "\n".join(lines)
        assert "act now" in lines[0] and "60 sinks, 74,070 rows/s" in lines[0]
        assert COMMAND in text and "sink-30 " in text and "overdue" in text
        assert "sink-59 " in text and "sink-1 " not in text and "HELD BACK BY" in text
        shown = sum(" of q " in each for each in lines)
        assert f"and {60 - shown} more" in text and shown >= 5
    assert "more" not in "\n".join(drawn(screen(5)))


def test_many_findings_leave_room_for_the_sinks() -> None:
    many = replace(screen(60), command_lines=screen(60).command_lines * 10)
    for lines in (drawn(many), plain_lines(many, HEIGHT)):
        text = "\n".join(lines)
        assert len(lines) <= HEIGHT and "`status` tells all 1 findings" in text and text.count(" of q ") >= 2


def test_without_a_terminal_there_is_one_line_without_commands() -> None:
    assert one_line(replace(screen(60), problem="no broker")) == (
        "act now: 60 sinks, 74,070 rows/s, 1 act now; not seen now: no broker; act now: rows may be missing"
    )


def test_a_look_that_failed_is_told_over_what_was_seen_before() -> None:
    shown = replace(screen(5), problem="no broker has answered")
    assert "not seen now: no broker has answered" in drawn(shown)[1]
    assert "NOT SEEN NOW: no broker has answered" in plain_lines(shown)[1]


def test_a_terminal_without_the_letters_and_a_narrow_one_are_drawn_too() -> None:
    lines = drawn(screen(5), encoding="ascii")
    assert "*" in lines[0] and any("+#" in each or "=%" in each or "-%" in each for each in lines)
    assert all(len(each) <= 40 for each in drawn(screen(5), width=40))


def test_what_a_name_has_is_not_carried_out_by_the_terminal() -> None:
    evil = replace(line(1), sink_id="a\x1b[2Jb", name="[bold]x[/bold]")
    text = "\n".join(drawn(replace(screen(2), sinks=[evil]), width=160))
    assert r"a\x1b[2Jb" in text and "[bold]x[/bold]" in text and "\x1b[2J" not in text


@pytest.mark.parametrize(
    ("history", "expected"),
    [((), "        "), ((0.0,), "        "), ((5.0,), "       █"), ((0.0, 1.0, 8.0), "      ▂█"[-8:])],
)
def test_paces_are_drawn_by_the_highest(history: tuple[float, ...], expected: str) -> None:
    assert bars(Pace(0, False, history), 8, has_letters=True) == expected
    assert bars(None, 8, has_letters=True) == "        "
    assert len(bars(Pace(0, False, (1.0,) * HISTORY), 8, has_letters=False)) == 8
