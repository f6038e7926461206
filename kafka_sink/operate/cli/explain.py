"""`pykafka-sink explain PKS-1001`: the page of an error, without a network."""

from __future__ import annotations

import argparse

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table import ENTRIES
from kafka_sink.errors.table.commits import COMMAND_WRONG
from kafka_sink.operate.cli.report import DONE, Report


def explain(given: argparse.Namespace) -> Report:
    if given.name is None:
        listed = {entry.name: entry.title for entry in ENTRIES.values()}
        return Report(DONE, {"errors": listed}, [f"{name}  {title}" for name, title in listed.items()])
    # Also 1001 and pks1001.
    entry = ENTRIES.get("PKS-" + "".join(letter for letter in given.name if letter.isdigit()))
    if entry is None:
        raise ConfigError(f"there is no error {given.name}: `pykafka-sink explain` lists all of them", COMMAND_WRONG)
    # The page of the documentation of this release.
    page = f"docs/errors.md#{entry.name.lower()}"
    content = {
        "name": entry.name,
        "title": entry.title,
        "happened": entry.happened,
        "data": entry.data,
        "next": entry.cure,
        "page": page,
    }
    lines = [f"{entry.name}  {entry.title}", "", entry.happened, "", f"Data: {entry.data}", f"Next: {entry.cure}"]
    return Report(DONE, content, [*lines, "", f"More: {page}"])
