"""Properties files as Java reads them, so that files for Kafka's own tools work here too.

Names and values are separated by `=`, `:` or blanks; `#` and `!` begin a comment; a backslash at the end of a line
joins it with the next one, elsewhere it escapes the next character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import FILE_UNREADABLE

# The encoding that Kafka's tools assume for their file of options. Files of references are in UTF-8.
ENCODING = "iso-8859-1"
_BLANKS = " \t\f"
_ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The last one of equal names wins, as in Java."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        assert entry is not None, "the pattern takes every text"
        found[_unescape(entry[1])] = _unescape(entry[2])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    begun = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_BLANKS)
        if not begun and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            begun += line[:-1]
            continue
        yield begun + line
        begun = ""
    if begun:
        yield begun


def _unescape(text: str) -> str:
    def replace_escape(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise ConfigError(
                "a \\u in a file of properties has to be followed by four hexadecimal digits", FILE_UNREADABLE
            )
        return _LETTERS.get(escaped, escaped)

    # Two escapes may be one letter: Java's letters have 16 bits.
    return _ESCAPE.sub(replace_escape, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
