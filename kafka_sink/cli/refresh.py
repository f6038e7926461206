"""Looks that are repeated until Ctrl-C: a screen that is drawn again, or one line each where there is no terminal.

A terminal is drawn by rich if it is installed, else by clearing it. What goes into a file or a pipe is one line per
look, or with --json one object per line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import sleep
from typing import Any

from kafka_sink.cli.report import DONE, Report
from kafka_sink.cli.streams import ReaderGone, print_text
from kafka_sink.frozen import frozen

CLEAR = "\x1b[2J\x1b[H"


@frozen
class Look:
    """`line` says the same as `lines`, shorter."""

    lines: Sequence[str]
    line: str
    content: dict[str, Any]


def repeat(look: Callable[[], Look], given: argparse.Namespace) -> Report:
    """Ctrl-C is how it ends, or that nobody reads it any more; neither is an error."""
    done = 0
    try:
        with _display(given) as show:
            while True:
                show(look())
                done += 1
                if given.count and done >= given.count:
                    break
                sleep(given.interval)
    except (KeyboardInterrupt, ReaderGone):
        pass
    return Report(DONE, {})


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
            yield lambda look: print_text(CLEAR + "\n".join(look.lines))
            return
        with Live(screen=True, auto_refresh=False) as live:
            yield lambda look: live.update(Text("\n".join(look.lines)), refresh=True)
