"""The names of exports in chunks: each chunk is a batch write with the label `{batch.id}/{number}-of-{chunks}-by-{by}`.

A batch.id that looks like a chunk's name is refused (spark/chunks.py), so a label has one reading only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

OF_CHUNK = re.compile(r"(?P<number>[1-9][0-9]*)-of-(?P<chunks>[1-9][0-9]*)-by-(?P<by>.+)", re.DOTALL)
_LABEL = re.compile(rf"(?P<batch_id>.+?)/{OF_CHUNK.pattern}", re.DOTALL)


class Division(NamedTuple):
    """How an export is divided."""

    batch_id: str
    chunks: int
    by: str

    def label(self, number: int) -> str:
        return f"{self.batch_id}/{number}-of-{self.chunks}-by-{self.by}"

    @property
    def labels(self) -> Iterator[str]:
        return map(self.label, range(1, self.chunks + 1))


def division_of(label: str) -> Division | None:
    """Of the export of which this is a chunk; None: it is none."""
    found = _LABEL.fullmatch(label)
    return None if found is None else Division(found["batch_id"], int(found["chunks"]), found["by"])
