"""Standard input, output and error as whoever calls leaves them: closed, full, in an encoding without our letters, or
with nobody at the other end any more."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


class ReaderGone(Exception):
    """Nobody reads standard output any more, as behind `| head -1`."""


class OutputFailed(Exception):
    """Standard output cannot be written, for lack of space perhaps."""


def prepare_streams() -> None:
    """Python has None for a stream that was closed before it started."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (as long as the program)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error has it


def print_text(text: str) -> None:
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError as error:
        _drop_output()
        if isinstance(error, BrokenPipeError):
            raise ReaderGone from None
        raise OutputFailed(f"standard output cannot be written: {error.strerror}") from None


def print_error(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(text + "\n")


def _drop_output() -> None:
    """What was not written is still there, and Python tries again when it ends."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
