"""The screen of `pykafka-sink watch` drawn with rich. Imported only where rich is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from kafka_sink.operate.cli.cluster_screen import TITLES, Pace, Screen, SinkLine
from kafka_sink.operate.cli.status import TOPIC_TITLES, WORDS
from kafka_sink.operate.cli.streams import printable
from kafka_sink.operate.status.findings import Severity

COLOURS = {Severity.FINE: "green", Severity.LOOK: "yellow", Severity.ACT: "bold red"}
VERDICTS = {"delivered": "green", "accepted": "green", "open": "cyan", "overdue": "bold red", "lost": "bold red"}
BARS = "▁▂▃▄▅▆▇█"
# Of a terminal whose letters are not those of UTF-8.
PLAIN_BARS = "._-=+*#%"
DOT, PLAIN_DOT = "●", "*"
WIDE, BARS_SHOWN, BARS_SHOWN_WIDE = 110, 8, 24
# Lines that titles and rows above and below the table of sinks take.
AROUND = 3


class ScreenDrawing:
    """As many sinks as the terminal has lines for."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        has_letters = options.encoding.startswith("utf")
        above, below = list(self._above(console.height, has_letters=has_letters)), list(self._below())
        free = options.update(height=None)
        taken = sum(len(console.render_lines(each, free, pad=False)) for each in (*above, *below))
        shown, left_out = self._screen.fit(console.height - taken - AROUND)
        bar_count = BARS_SHOWN_WIDE if options.max_width >= WIDE else BARS_SHOWN
        yield from above
        yield sink_table(shown, bar_count, has_letters=has_letters)
        if left_out:
            yield Text(f"  and {left_out} more", "dim")
        yield from below

    def _above(self, height: int, *, has_letters: bool) -> Iterator[RenderableType]:
        screen, colour = self._screen, COLOURS[self._screen.severity]
        word = f" {DOT if has_letters else PLAIN_DOT} {WORDS[screen.severity]}  "
        clock = time.strftime("%H:%M:%S")
        yield Text.assemble(("pykafka-sink", "bold"), (word, colour), screen.headline, (f"  {clock}", "dim"))
        if screen.problem:
            yield Text(f" not seen now: {printable(screen.problem)} ", "bold white on red")
        for line in screen.wrong_lines(height):
            is_command = line.startswith("    ")
            yield Text(printable(line), "bold" if is_command else _colour_of(line), overflow="fold")
        yield Text("")

    def _below(self) -> Iterator[RenderableType]:
        if self._screen.topics:
            yield Text("")
            yield cells_table(
                TOPIC_TITLES, [[Text(printable(str(cell))) for cell in row] for row in self._screen.topics]
            )
        if self._screen.notes:
            yield Text("")
        for note in self._screen.notes:
            yield Text(printable(note), "yellow")


def draw(screen: Screen) -> RenderableType:
    return ScreenDrawing(screen)


def sink_table(lines: Sequence[SinkLine], bar_count: int, *, has_letters: bool) -> Table:
    pace_at = TITLES.index("ROWS/S") + 1
    titles = [*TITLES[:pace_at], "", *TITLES[pace_at:]]
    rows = []
    for each in lines:
        mark, sink, name, batch, verdict, pace, count, age, open_count = (printable(str(cell)) for cell in each.cells())
        mark = DOT if has_letters else mark or PLAIN_DOT
        rows.append([
            Text(mark, COLOURS[each.severity]), Text(sink, "bold"), Text(name), Text(batch, "dim"),
            Text(verdict, VERDICTS.get(each.verdict, "yellow")), Text(pace, justify="right"),
            Text(bars(each.pace, bar_count, has_letters=has_letters), "cyan"), Text(f"{int(count):,}", justify="right"),
            Text(age, justify="right"), Text(open_count if each.open_count else "-", justify="right"),
        ])  # fmt: skip
    return cells_table(titles, rows)


def cells_table(titles: Sequence[str], rows: Sequence[Sequence[Text]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*row)
    return table


def bars(pace: Pace | None, count: int, *, has_letters: bool) -> str:
    """The paces of the last looks, the highest as the largest bar; nothing was written: a blank."""
    history = () if pace is None else pace.history[-count:]
    letters, highest = BARS if has_letters else PLAIN_BARS, max(history, default=0.0)
    return "".join(letters[round(each / highest * (len(letters) - 1))] if each else " " for each in history).rjust(
        count
    )


def _colour_of(line: str) -> str:
    return next((COLOURS[severity] for severity, word in WORDS.items() if line.startswith(word.upper())), "")
