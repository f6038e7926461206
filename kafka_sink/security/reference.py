"""Values by reference, as Java's config providers write them: `${env:NAME}` and `${file:/path/to/file:key}`.

They are replaced where the value is used, so that neither job code nor what Spark ships between processes holds the
secret. A value that was looked up is not searched for references again. The look-up needs a file system: it is passed
in.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kafka_sink.error_table.writes import REFERENCE_UNRESOLVED
from kafka_sink.errors import ConfigError

_REFERENCE = re.compile(r"\$\{(?P<provider>env|file):(?P<place>[^}]+)\}")


def is_reference(text: str) -> bool:
    """True: the whole value is one."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def has_reference(text: str) -> bool:
    return _REFERENCE.search(text) is not None


def replace_references(option: str, text: str, look_up: Callable[[str, str], str | None]) -> str:
    """`look_up(provider, place)` gives None for what is not there."""

    def replace(match: re.Match[str]) -> str:
        found = look_up(match["provider"], match["place"])
        if found is None:
            shown = "".join(letter if letter.isprintable() else "?" for letter in match[0])
            raise ConfigError(
                f"{option} refers to {shown}, which is not there (on this host, in this process)", REFERENCE_UNRESOLVED
            )
        return found

    return _REFERENCE.sub(replace, text)
