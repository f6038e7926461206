"""Where a checkpoint is, from the text that an option or a command has for it.

The text is read as Hadoop's `Path` reads it, with which Spark opens checkpoints: nothing in it is decoded, `#` and `?`
are letters of a name, repeated slashes are one, and `.` and `..` are resolved by the text alone.
"""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple

_PARTS = re.compile(r"(?:(?P<scheme>[^/:]+):)?(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)
_SLASHES = re.compile(r"/{2,}")


class Location(NamedTuple):
    """Scheme and authority are in lower case, and empty for files of this host. The path may be relative, or empty."""

    scheme: str
    authority: str
    path: str


def read_location(text: str) -> Location:
    parts = _PARTS.fullmatch(text.strip())
    assert parts is not None, "every text has this form"
    scheme, path = (parts["scheme"] or "").lower(), _SLASHES.sub("/", parts["path"])
    path = posixpath.normpath(path) if path else ""
    return Location("" if scheme == "file" else scheme, (parts["authority"] or "").lower(), path)
