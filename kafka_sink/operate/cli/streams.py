"""Handles standard input, output and error that are closed, full, in a limited encoding, or without a reader."""

from __future__ import annotations

import io
import math
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

# Names in a ledger and answers of servers may hold control characters, which a terminal would carry out.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in b"\t\n"}


class ReaderGone(Exception):
    """Standard output has no reader any more, as with `| head -1`."""


class OutputFailed(Exception):
    """Standard output cannot be written, perhaps for lack of space."""


def prepare_streams() -> None:
    """A stream that was closed before Python started is None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (as long as the program)
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # as for standard error


def printable(text: str) -> str:
    """Bytes that are not UTF-8, kept as surrogates, are escaped as well."""
    return text.translate(_CONTROLS).encode(errors="backslashreplace").decode()


def print_text(text: str, *, before: str = "") -> None:
    """`before`: what the terminal is to carry out."""
    try:
        sys.stdout.write(f"{before}{printable(text)}\n")
        sys.stdout.flush()
    except OSError as error:
        _drop_output()
        if isinstance(error, BrokenPipeError):
            raise ReaderGone from None
        raise OutputFailed(f"standard output cannot be written: {error.strerror}") from None


def print_error(text: str) -> None:
    write_error(printable(text) + "\n")


def write_error(text: str) -> None:
    """No command ends because nobody reads its standard error, or because that is full."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


class StatusLine:
    """One line about progress on standard error: written over and over on a terminal, and cleared at the end;
    elsewhere a line every `lines_every_s`, or none."""

    def __init__(self, *, is_silent: bool = False, lines_every_s: float = math.inf) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._is_silent = is_silent
        self._lines_every_s = lines_every_s
        self._shown = ""
        self._shown_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def show(self, line: str) -> None:
        now_s = time.monotonic()
        is_due = self._is_terminal or now_s - self._shown_s >= self._lines_every_s
        if line != self._shown and is_due and not self._is_silent:
            self._shown, self._shown_s = line, now_s
            write_error(f"\r\x1b[K{line}" if self._is_terminal else f"{line}\n")

    def __exit__(self, *_: object) -> None:
        if self._is_terminal:
            self.show("")


def _drop_output() -> None:
    """Python would try to write the remaining output again at exit."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
