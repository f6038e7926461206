"""Handles standard input, output and error that are closed, full, in a limited encoding, or without a reader."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


class ReaderGone(Exception):
    """Standard output has no reader any more, as with `| head -1`."""


class OutputFailed(Exception):
    """Standard output cannot be written, perhaps for lack of space."""


def prepare_streams() -> None:
    """A stream that was closed before Python started is None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (as long as the program)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as for standard error


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
    write_error(text + "\n")


def write_error(text: str) -> None:
    """No command ends because nobody reads its standard error, or because that is full."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _drop_output() -> None:
    """Python would try to write the remaining output again at exit."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
