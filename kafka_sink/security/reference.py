"""Values by reference, as for Java's config providers: `${env:NAME}` and `${file:/path/to/file:key}`.

They are replaced where the value is used, so that neither job code nor data shipped by Spark contains the secret. A
resolved value is not searched for references again. The look-up needs I/O, so it is passed in.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import REFERENCE_UNRESOLVED

_REFERENCE = re.compile(r"\$\{(?P<provider>env|file):(?P<place>[^}]+)\}")
# A shell's way to name a variable, or that of another program. It could also be a value, so it is no error; it may be a
# secret, so it is not shown.
_LIKE_REFERENCE = re.compile(r"\$\{[^{}]+\}|\{\{[^{}]+\}\}")
AS_WRITTEN = "is taken as it is written: a variable of the environment is ${env:NAME}, a key of a file ${file:PATH:KEY}"
# What Python makes of bytes of the environment that are not UTF-8. It could not be sent.
NO_TEXT = re.compile(r"[\ud800-\udfff]")


def is_reference(text: str) -> bool:
    """True: the whole value is a reference."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def is_like_reference(text: str) -> bool:
    """True: the whole value may have been meant as one, and is none."""
    return _LIKE_REFERENCE.fullmatch(text.strip()) is not None and not is_reference(text)


def has_reference(text: str) -> bool:
    return _REFERENCE.search(text) is not None


def has_template(text: str) -> bool:
    """True: something in it, also a reference, has still to be filled in."""
    return _LIKE_REFERENCE.search(text) is not None


def without_references(text: str) -> str:
    return _REFERENCE.sub("", text)


def replace_references(option: str, text: str, look_up: Callable[[str, str], str | None]) -> str:
    """`look_up(provider, place)` returns None if there is no such value."""

    def replace(match: re.Match[str]) -> str:
        found = look_up(match["provider"], match["place"])
        if found is None:
            shown = "".join(letter if letter.isprintable() else "?" for letter in match[0])
            raise ConfigError(
                f"{option} refers to {shown}, which is not there (on this host, in this process)", REFERENCE_UNRESOLVED
            )
        return found

    replaced = _REFERENCE.sub(replace, text)
    if NO_TEXT.search(replaced):
        raise ConfigError(f"{option} refers to a value that is not UTF-8 (on this host, in this process)")
    return replaced
