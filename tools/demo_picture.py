"""Runs the demo in a separate terminal and saves its output: `python -m tools.demo_picture`.

docs/demo.txt is the text, docs/demo.svg a picture of the same screen. Both come from one real run; the
picture is drawn from the characters and colours of the output, with the few control sequences that the demo uses.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
COLUMNS, ROWS = 100, 60
CELL_WIDTH, LINE_HEIGHT, MARGIN = 8.4, 18, 16
COLOURS = {"31": "#f47067", "32": "#6bc46d", "33": "#daaa3f"}
NO_BREAK = "\u00a0"
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
PAPER, INK, FAINT = "#1c2128", "#cdd9e5", "#768390"
SEQUENCE = re.compile(r"\x1b\[(\d*)([A-Za-z])")
LONGEST_S = 600


class Style(NamedTuple):
    colour: str = INK
    is_bold: bool = False


class Terminal:
    """Lines of characters, each with a style. It supports the control sequences of tools/demo_display.py."""

    def __init__(self) -> None:
        self.lines: list[list[tuple[str, Style]]] = [[]]
        self._style = Style()

    def write(self, text: str) -> None:
        position = 0
        for found in SEQUENCE.finditer(text):
            self._print(text[position : found.start()])
            self._control(found[1], found[2])
            position = found.end()
        self._print(text[position:])

    def _print(self, text: str) -> None:
        for letter in text.replace("\r", ""):
            if letter == "\n":
                self.lines.append([])
            else:
                self.lines[-1].append((letter, self._style))

    def _control(self, number: str, what: str) -> None:
        if what == "A":
            # Moves up. The demo always erases everything below afterwards.
            del self.lines[len(self.lines) - 1 - int(number) :]
            self.lines.append([])
        elif what == "m":
            self._style = self._apply_style(number)
        elif what != "J":
            raise ValueError(f"the demo used a control sequence that is not known here: {number}{what}")

    def _apply_style(self, number: str) -> Style:
        if number == "1":
            return self._style._replace(is_bold=True)
        if number == "2":
            return self._style._replace(colour=FAINT)
        return Style(COLOURS[number]) if number in COLOURS else Style()

    def text(self) -> str:
        return "\n".join("".join(letter for letter, _ in line).rstrip() for line in self.lines).rstrip() + "\n"


def picture(terminal: Terminal, title: str) -> str:
    lines = terminal.lines
    while lines and not lines[-1]:
        lines = lines[:-1]
    columns = max([COLUMNS, *map(len, lines)])
    width, height = columns * CELL_WIDTH + 2 * MARGIN, len(lines) * LINE_HEIGHT + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>',
        f'<g font-family="{FONTS}" font-size="14">',
    ]
    for row, line in enumerate(lines):
        bottom = MARGIN + (row + 1) * LINE_HEIGHT - 5
        for column, text, style in _runs(line):
            bold = ' font-weight="bold"' if style.is_bold else ""
            place = f'x="{MARGIN + column * CELL_WIDTH:.1f}" y="{bottom}" textLength="{len(text) * CELL_WIDTH:.1f}"'
            # A browser would merge several blanks into one.
            shown = escape(text.replace(" ", NO_BREAK))
            parts.append(f'<text {place} fill="{style.colour}"{bold}>{shown}</text>')
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _runs(line: list[tuple[str, Style]]) -> list[tuple[int, str, Style]]:
    """Joins neighbouring characters of the same style; blanks are not drawn."""
    runs: list[tuple[int, str, Style]] = []
    for column, (letter, style) in enumerate(line):
        if runs and runs[-1][2] == style and runs[-1][0] + len(runs[-1][1]) == column:
            runs[-1] = (runs[-1][0], runs[-1][1] + letter, style)
        else:
            runs.append((column, letter, style))
    return [run for run in runs if run[1].strip()]


def shown_by(command: list[str]) -> tuple[Terminal, int]:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    terminal, received = Terminal(), bytearray()
    with subprocess.Popen(
        command, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as demo:
        os.close(theirs)
        with contextlib.suppress(OSError):  # all writers have closed the other end
            while content := os.read(ours, 65536):
                received += content
        code = demo.wait(LONGEST_S)
    os.close(ours)
    terminal.write(received.decode())
    return terminal, code


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=DOCS, metavar="DIR", help="default: docs/")
    wanted = parser.parse_args(given)
    terminal, code = shown_by([sys.executable, "-m", "tools.demo"])
    if code:
        print(terminal.text(), file=sys.stderr)
        return code
    (wanted.to / "demo.txt").write_text(f"$ make demo\n{terminal.text()}", encoding="utf-8")
    title = "make demo: a stream whose driver is killed in the middle of a commit; every row arrives once"
    (wanted.to / "demo.svg").write_text(picture(terminal, title), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
