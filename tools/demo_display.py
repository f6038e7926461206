"""The output of the demo: on a terminal a block of figures that is updated below the log, otherwise plain lines."""

from __future__ import annotations

import shutil
from typing import NamedTuple, Protocol, TextIO

TOLD_EVERY_S = 2.0
REDRAWN_EVERY_S = 0.2
BAR_COLUMNS = 30
COLUMNS_MAX = 100
BOLD, DIM, GREEN, YELLOW, RED, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"

NEXT = """\
What to try next:
  make demo BROKER=kafka               the same against Apache Kafka (Java and Maven)
  make demo BOOTSTRAP=host:port        against a broker of yours
  docs/quickstart.md                   a stream of your own
  docs/exactly-once.md                 why a kill in the middle of a commit loses nothing"""


class Progress(NamedTuple):
    age_s: float
    rows_planned: int
    rows_in: int
    rows_visible: int
    rows_per_s: float
    duplicates: int
    decisions: int
    kills: int
    state: str


class Display(Protocol):
    def say(self, text: str) -> None:
        """Shows an event permanently."""

    def show(self, progress: Progress) -> None:
        """Shows the progress; the next call may replace it."""

    def keep(self, progress: Progress) -> None:
        """Shows the progress at an important moment permanently."""


def display_on(output: TextIO) -> Display:
    return Screen(output) if output.isatty() else Lines(output)


class Lines:
    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._told_s = -TOLD_EVERY_S

    def say(self, text: str) -> None:
        self._output.write(f"{text}\n")
        self._output.flush()

    def show(self, progress: Progress) -> None:
        if progress.age_s < self._told_s + TOLD_EVERY_S:
            return
        self._told_s = progress.age_s
        self.keep(progress)

    def keep(self, progress: Progress) -> None:
        self.say(
            f"{progress.age_s:5.1f} s  rows in {progress.rows_in:>9,}  visible {progress.rows_visible:>9,}  "
            f"{progress.rows_per_s:>8,.0f} rows/s  {progress.decisions:>3} decisions  {progress.state}"
        )


class Screen:
    """The block is always last: before a line of the log it is erased, then drawn again below."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._block: list[str] = []
        self._drawn_s = -REDRAWN_EVERY_S

    def say(self, text: str) -> None:
        # The block is drawn only when there is progress to show, so that none follows the last line of the log.
        self._write(f"{self._erasing()}{text}\n")
        self._block = []
        self._drawn_s = -REDRAWN_EVERY_S

    def show(self, progress: Progress) -> None:
        if progress.age_s < self._drawn_s + REDRAWN_EVERY_S:
            return
        self._drawn_s = progress.age_s
        self._draw(progress)

    def keep(self, progress: Progress) -> None:
        self._draw(progress)
        self._block = []

    def _draw(self, progress: Progress) -> None:
        erasing, self._block = self._erasing(), block(progress, shutil.get_terminal_size().columns)
        self._write(erasing + "".join(f"{line}\n" for line in self._block))

    def _erasing(self) -> str:
        return f"\x1b[{len(self._block)}A\x1b[J" if self._block else ""

    def _write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()


def block(progress: Progress, columns: int) -> list[str]:
    width = max(64, min(columns - 1, COLUMNS_MAX))
    state = f"{progress.age_s:.1f} s  {progress.state}"
    title = "pykafka-sink: every row once"
    waiting = progress.rows_in - progress.rows_visible
    return [
        f"{DIM}{'─' * width}{PLAIN}",
        f"{BOLD}{title}{PLAIN}{state:>{width - len(title)}}",
        _bar("rows in", progress.rows_in, progress.rows_planned, YELLOW),
        _bar("rows visible", progress.rows_visible, progress.rows_planned, GREEN),
        _two("on their way", f"{waiting:,}", "decisions in the ledger", f"{progress.decisions:,}"),
        _two("duplicates", _zero(progress.duplicates), "kills survived", f"{progress.kills:,}"),
        _two("rows/s", f"{progress.rows_per_s:,.0f}", "missing", "counted at the end"),
        f"{DIM}{'─' * width}{PLAIN}",
    ]


def _bar(name: str, count: int, planned: int, colour: str) -> str:
    filled = min(BAR_COLUMNS, round(BAR_COLUMNS * count / max(1, planned)))
    return f"{name:<14}{count:>11,}   {colour}{'█' * filled}{DIM}{'░' * (BAR_COLUMNS - filled)}{PLAIN}"


def _two(name: str, value: str, other: str, other_value: str) -> str:
    # Colours have no width.
    pad = " " * max(0, 11 - len(value.replace(GREEN, "").replace(RED, "").replace(PLAIN, "")))
    return f"{name:<14}{pad}{value}   {other:<24}{other_value}"


def _zero(count: int) -> str:
    return f"{RED if count else GREEN}{count:,}{PLAIN}"
