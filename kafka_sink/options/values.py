"""Rules that turn one option value, as users write it, into a Python value or a `ConfigError`.

The rules are Java's (`ConfigDef`): text is trimmed, numbers are whole and decimal, booleans are true or false in any
case, lists are separated by commas. Python values of the fitting type are taken as they are. A rule knows one value;
what several options mean together is in `rules.py`.

`valid` is the sentence that error texts and the option reference show, so that both can only say what is checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from kafka_sink.errors import ConfigError
from kafka_sink.frozen import frozen
from kafka_sink.options.producer_options import INT_MAX, LONG_MAX, SECRET_NAME

LONG_MIN = -LONG_MAX - 1
INT_MIN = -INT_MAX - 1

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_SHOWN_CHARACTERS_MAX = 80


class Rule(Protocol):
    @property
    def valid(self) -> str: ...

    def parse(self, name: str, value: object) -> object: ...


def shown(name: str, value: object) -> str:
    """The value for an error text: short, and hidden where the option's name sounds like a secret."""
    if SECRET_NAME.search(name):
        return "[hidden]"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "..."


def written(value: object) -> str:
    """A parsed value as a user would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def refuse(name: str, value: object, valid: str) -> ConfigError:
    return ConfigError(f"{name}={shown(name, value)} is not valid: expected {valid}")


@frozen
class Whole:
    """A whole number. `besides` is a single extra value outside the range, as Java's -1 for a codec's own level."""

    minimum: int
    maximum: int = INT_MAX
    besides: int | None = None

    @property
    def valid(self) -> str:
        extra = "" if self.besides is None else f", or {self.besides}"
        if self.minimum in (INT_MIN, LONG_MIN):
            return f"any whole number up to {self.maximum}{extra}"
        return f"a whole number from {self.minimum} to {self.maximum}{extra}"

    def parse(self, name: str, value: object) -> int:
        if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value.strip()) and len(value.strip()) <= 20:
            number = int(value)
        elif isinstance(value, bool) or not hasattr(value, "__index__"):
            raise refuse(name, value, self.valid)
        else:
            number = value.__index__()
        if number != self.besides and not self.minimum <= number <= self.maximum:
            raise refuse(name, value, self.valid)
        return number


@frozen
class Flag:
    valid: str = "true or false"

    def parse(self, name: str, value: object) -> bool:
        if isinstance(value, bool):
            return value
        text = value.strip().lower() if isinstance(value, str) else ""
        if text not in ("true", "false"):
            raise refuse(name, value, self.valid)
        return text == "true"


@frozen
class Text:
    empty_allowed: bool = True

    @property
    def valid(self) -> str:
        return "any text" if self.empty_allowed else "text that is not empty"

    def parse(self, name: str, value: object) -> str:
        if not isinstance(value, str) or not (self.empty_allowed or value.strip()):
            raise refuse(name, value, self.valid)
        return value.strip()


@frozen
class Choice:
    """One of some words. Java compares most of them exactly, a few in any case: then the word as listed results."""

    words: tuple[str, ...]
    any_case: bool = False

    @property
    def valid(self) -> str:
        return "one of " + ", ".join(self.words) + (" (in any case)" if self.any_case else "")

    def parse(self, name: str, value: object) -> str:
        text = value.strip() if isinstance(value, str) else value
        for word in self.words:
            if text == word or (self.any_case and isinstance(text, str) and text.lower() == word.lower()):
                return word
        raise refuse(name, value, self.valid)


@frozen
class Acks:
    valid: str = "all, -1, 0 or 1"

    def parse(self, name: str, value: object) -> int:
        text = str(value).strip() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
        if text not in ("all", "-1", "0", "1"):
            raise refuse(name, value, self.valid)
        return -1 if text == "all" else int(text)


@frozen
class Names:
    """A list of words: separated by commas, or any Python iterable of text."""

    valid: str = "a list separated by commas"

    def parse(self, name: str, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            return tuple(item.strip() for item in value.split(",")) if value.strip() else ()
        items = tuple(value) if isinstance(value, Iterable) and not isinstance(value, bytes) else (None,)
        if not all(isinstance(item, str) for item in items):
            raise refuse(name, value, self.valid)
        return tuple(str(item).strip() for item in items)


_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
# The scheme is a listener's name, which clusters choose freely; Java takes any and ignores it.
_SERVER = re.compile(r"(?:(?P<scheme>[0-9a-zA-Z\-%._]*)://)?(?:\[(?P<v6>[0-9a-fA-F:.%\w]+)\]|(?P<host>[^\[\]:/@\s]+))"
                     r":(?P<port>[0-9]{1,5})")  # fmt: skip


@frozen
class Servers:
    """The bootstrap list. Stricter than Java where Java only guesses: IPv6 needs brackets, a host is never empty."""

    valid: str = "host:port entries separated by commas, IPv6 addresses in brackets, ports from 1 to 65535"

    def parse(self, name: str, value: object) -> tuple[tuple[str, int], ...]:
        entries = Names(self.valid).parse(name, value)
        if not entries:
            raise ConfigError(f"{name} is empty: expected {self.valid}")
        return tuple(self._server(name, entry) for entry in entries)

    def _server(self, name: str, entry: str) -> tuple[str, int]:
        match = _SERVER.fullmatch(entry)
        # An entry may carry a user and password by mistake; what stands before an @ is not repeated.
        said = repr("***@" + entry.rpartition("@")[2] if "@" in entry else entry)
        if match is None:
            raise ConfigError(f"{name}: the entry {said} is not valid: expected {self.valid}")
        port = int(match["port"])
        if not 1 <= port <= 65535:
            raise ConfigError(f"{name}: the entry {said} has port {port}: expected a port from 1 to 65535")
        return match["v6"] or match["host"], port


@frozen
class FunctionName:
    valid: str = "module:function, importable where it runs"

    def parse(self, name: str, value: object) -> str:
        text = value.strip() if isinstance(value, str) else ""
        if not _FUNCTION.fullmatch(text):
            raise refuse(name, value, self.valid)
        return text


def schemes(value: object) -> set[str]:
    """What stands before the :// of bootstrap servers, in capitals."""
    entries = value.split(",") if isinstance(value, str) else value if isinstance(value, Iterable) else ()
    return {str(entry).partition("://")[0].strip().upper() for entry in entries if "://" in str(entry)}
