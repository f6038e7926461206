"""Finds files named in options, and resolves `${env:NAME}` and `${file:/path:key}`.

A relative name is looked up in the working directory, where YARN and Kubernetes put `--files`, and then in the folders
of `add_search_folder`, which the Spark side calls with Spark's own one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from kafka_sink.errors import ConfigError, no_descriptor_error
from kafka_sink.errors.table.writes import FILE_UNREADABLE
from kafka_sink.options.host.operator_rules import check_variable_is_allowed, file_error, is_allowed_file
from kafka_sink.options.properties import parse_properties
from kafka_sink.security.reference import replace_references

# A key, a certificate with its chain, a list of authorities: the largest known is below 1 MiB.
FILE_BYTES_MAX = 16 * 1024 * 1024
# The sink's own folder below those of an application.
OWN_FOLDER = "pykafka-sink"

_more_folders: list[Callable[[], str | None]] = []


def add_search_folder(folder: Callable[[], str | None]) -> None:
    """`folder` may return None, and must not raise. Adding it twice has no effect."""
    if folder not in _more_folders:
        _more_folders.append(folder)


def _working_folder() -> str | None:
    """None: it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return None


def locate_file(option: str, name: str) -> Path:
    allowed: list[Path] = []
    has_places = False
    for place in _places_of(Path(name)):
        has_places = True
        if is_allowed_file(place):
            if os.path.exists(place):  # unlike the method of a path it never raises
                return place
            allowed.append(place)
    if has_places and not allowed:
        raise file_error(option)
    looked = ", ".join(str(place.parent) for place in allowed) or "the working directory, which was deleted"
    raise ConfigError(
        f"{option}={name}: there is no such file in {looked}. The file has to be on every host that connects; with "
        "spark-submit --files FILE name it here without its folder",
        FILE_UNREADABLE,
    )


def _places_of(path: Path) -> Iterator[Path]:
    """One by one: Spark is asked for its folder only if the file is not where the process works."""
    if path.is_absolute():
        yield path
        return
    if (here := _working_folder()) is not None:
        yield Path(here) / path
    for find in _more_folders:
        if (folder := find()) is not None:
            yield Path(folder) / path.name


def read_file(option: str, name: str) -> bytes:
    path = locate_file(option, name)
    try:
        with path.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        if (exhausted := no_descriptor_error(f"{option}={name}", error)) is not None:
            raise exhausted from None
        raise ConfigError(f"{option}={name} cannot be read: {error.strerror}", FILE_UNREADABLE) from None
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(
            f"{option}={name} has more than {FILE_BYTES_MAX} bytes, which is too large for this option", FILE_UNREADABLE
        )
    return content


def resolve_references(option: str, text: str) -> str:
    """The text with all references replaced by values of this process's environment and of files, which are in UTF-8
    as for Kafka's FileConfigProvider."""

    def look_up(provider: str, place: str) -> str | None:
        if provider == "env":
            check_variable_is_allowed(option, place)
            return os.environ.get(place)
        name, _, key = place.rpartition(":")
        if not name:
            raise ConfigError(
                f"{option}: a file is referred to as ${{file:/path/to/file:key}}, with a key", FILE_UNREADABLE
            )
        try:
            found = parse_properties(read_file(option, name).decode(), f"{option}={name}").get(key)
            return None if found is None else found.value
        except UnicodeDecodeError:
            raise ConfigError(f"{option}={name} is no text in UTF-8", FILE_UNREADABLE) from None

    return replace_references(option, text, look_up)
