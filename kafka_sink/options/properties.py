"""Texts of properties as Java reads them, so that files for Kafka's own tools work here too.

Names and values are separated by `=`, `:` or blanks; `#` and `!` begin a comment; a backslash at the end of a line
joins it with the next one, elsewhere it escapes the next character. The one difference: a backslash alone in the last
line is nothing, where Java makes an entry without a name of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import FILE_UNREADABLE
from kafka_sink.frozen import frozen

_BLANKS = " \t\f"
_ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)([ \t\f]*[=:]?[ \t\f]*)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@frozen
class Property:
    """`line`: where its name stands, from 1. Without `has_separator` the line is a name alone."""

    name: str
    value: str
    line: int
    has_separator: bool


def parse_properties(text: str, place: str = "") -> dict[str, Property]:
    """By name: the last one of equal names wins, as in Java. `place`: what an error says before the line."""
    found: dict[str, Property] = {}
    for number, line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        assert entry is not None, "the pattern takes every text"
        name = _unescape(entry[1])
        value = _unescape(entry[3])
        if name is None or value is None:
            # No more than the name is shown: the rest may be a secret.
            about = "the name" if name is None else f"the value of {name}"
            raise ConfigError(
                f"{place}{', ' if place else ''}line {number}: {about} has a \\u that is not followed by four "
                "hexadecimal digits",
                FILE_UNREADABLE,
            )
        found[name] = Property(name, value, number, bool(entry[2]))
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """With the number of the line on which each begins. A comment is not joined, and joins nothing."""
    begun, first = "", 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = natural.lstrip(_BLANKS)
        if not begun:
            first = number
            if not line or line[0] in "#!":
                continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun += line[:-1]
            continue
        yield first, begun + line
        begun = ""
    if begun:
        yield first, begun


def _unescape(text: str) -> str | None:
    """None: an escape that is not finished."""
    if any(len(escaped) == 1 and escaped == "u" for escaped in _ESCAPE.findall(text)):
        return None

    def replace_escape(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _LETTERS.get(escaped, escaped)

    # Two escapes may be one letter: Java's letters have 16 bits.
    return _ESCAPE.sub(replace_escape, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
