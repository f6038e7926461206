"""`sasl.jaas.config` as in the Java client: one login module, a control flag, names and values.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="a \\"quoted\\" one";

Only the last part of the class name counts: platforms ship the same modules under other package names. Quoted text has
the escapes of Java's StreamTokenizer. An unquoted value that begins with a digit, which Java refuses, is accepted.
Error texts contain only class and option names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.brokers import LOGIN_OPTIONS
from kafka_sink.frozen import frozen

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/                                # blanks and comments
    |(?P<word>[\w$.\-]+)|(?P<sign>[=;])
    |"(?P<double>(?:[^"\\\r\n]|\\[^\r\n])*)"|'(?P<single>(?:[^'\\\r\n]|\\[^\r\n])*)'""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@frozen
class LoginModule:
    """`name` is the class without its package."""

    name: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    words = _tokenize(text)
    # A quoted text is not a class name, and may be a secret.
    if len(words) < 2 or words[0][0] != "word":
        raise _invalid_error("it begins with a login module and a control flag such as required")
    name = words[0][1].rpartition(".")[2]
    if words[1][1].lower() not in _FLAGS:
        raise _invalid_error(f"behind {name} the control flag is missing: one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    rest = words[2:]
    while rest and rest[0] != ("sign", ";"):
        if len(rest) < 3 or rest[0][0] != "word" or rest[1] != ("sign", "=") or rest[2][0] == "sign":
            # Nothing of it is shown: it may be part of an unquoted password.
            raise _invalid_error(f'{name} is followed by something other than name="value" pairs and a semicolon')
        options[rest[0][1]] = rest[2][1]
        rest = rest[3:]
    if not rest:
        raise _invalid_error(f"the entry for {name} does not end with a semicolon")
    if len(rest) > 1:
        raise _invalid_error("there is more than one login module: name one")
    return LoginModule(name, options)


def _tokenize(text: str) -> list[tuple[str, str]]:
    """Pairs of kind (word, text, sign) and content."""
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _invalid_error(
                f"character {position + 1} fits nowhere; is a value without quotes, or a quote not closed?"
            )
        position = match.end()
        kind = match.lastgroup
        if kind in ("double", "single"):
            found.append(("text", _ESCAPE.sub(_unescape, match[kind])))
        elif kind is not None:
            found.append((kind, match[kind]))
    return found


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _LETTERS.get(escaped, escaped)


def _invalid_error(text: str) -> ConfigError:
    return ConfigError(f"sasl.jaas.config is not valid: {text}", LOGIN_OPTIONS)
