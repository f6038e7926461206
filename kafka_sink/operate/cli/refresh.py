"""Views refreshed until Ctrl-C: a screen that is redrawn, or one line per refresh without a terminal.

A terminal is drawn with rich if it is installed, else by clearing it. A file or pipe gets one line per refresh, or with
--json one object per line.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import sleep
from typing import Any

from kafka_sink.frozen import frozen
from kafka_sink.operate.cli.report import DONE, Report
from kafka_sink.operate.cli.streams import ReaderGone, print_text, printable

WITHOUT_RICH = "In colours, with the paces as pictures: pip install 'pykafka-sink[watch]'"
CLEAR = "\x1b[2J\x1b[H"


@frozen
class Look:
    """`line` is a short form of `lines`. `draw` makes what rich shows, if that is more than the lines."""

    lines: Sequence[str]
    line: str
    content: dict[str, Any]
    draw: Callable[[], Any] | None = None


def repeat(look: Callable[[], Look], given: argparse.Namespace) -> Report:
    """Ends when it is stopped, which is no error, or after --count."""
    done = 0
    with until_stopped(), _display(given) as show:
        while True:
            show(look())
            done += 1
            if given.count and done >= given.count:
                break
            sleep(given.interval)
    return Report(DONE, {})


@contextmanager
def until_stopped() -> Iterator[None]:
    """Ends the block without an error: by Ctrl-C, by SIGTERM, or if the output is not read any more. The first process
    of a container ignores SIGTERM unless it handles it, and is killed after the time that it is given to end."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _interrupt) if is_main else None
    try:
        with suppress(KeyboardInterrupt, ReaderGone):
            yield
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def _display(given: argparse.Namespace) -> Iterator[Callable[[Look], None]]:
    if given.json:
        yield lambda look: print_text(json.dumps(look.content))
    elif not sys.stdout.isatty():
        yield lambda look: print_text(look.line)
    else:
        try:
            from rich.live import Live
            from rich.text import Text
        except ImportError:
            yield lambda look: print_text("\n".join([*look.lines, "", WITHOUT_RICH]), before=CLEAR)
            return

        def make_drawing(look: Look) -> Any:
            return Text(printable("\n".join(look.lines))) if look.draw is None else look.draw()

        with Live(screen=True, auto_refresh=False) as live:
            yield lambda look: live.update(make_drawing(look), refresh=True)
