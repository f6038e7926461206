"""Rows that do not fit a schema: found deep inside a column, reported by row of the batch and by path.

A node has the indexes of elements in its own array. `MisfitScope` maps them to rows, through the offsets of enclosing
lists, and without elements whose parent is null, where Arrow may have any bytes.
"""

from __future__ import annotations

import numpy as np

from kafka_sink.errors import DataError
from kafka_sink.errors.table.writes import ROW_MISFIT
from kafka_sink.formats.records.varint import Array
from kafka_sink.frozen import frozen

# The rows, the path of the element, and what is wrong with it.
Misfit = tuple[Array, str, str]


def make_errors(misfits: list[Misfit], column: str, first_row: int) -> dict[int, DataError]:
    """By row, in order; the first misfit of each row counts. The text names row, column and path, never a value."""
    errors: dict[int, DataError] = {}
    for rows, path, what in misfits:
        for row in np.unique(rows).tolist():
            number = first_row + row
            if number not in errors:
                # The path may begin with the items of the column itself: value[] or value{}.
                where = column + ("." if path[:1] not in ("", "[", "{") else "") + path
                text = f"{where} of row {number} {what}"
                errors[number] = DataError(text, ROW_MISFIT, row=number, column=column)
    return dict(sorted(errors.items()))


@frozen
class MisfitScope:
    """The position of a node in a column. `found` are the misfits of the batch. `offsets` are those of the enclosing
    list; `present` says which elements of the parent are not null."""

    found: list[Misfit]
    parent: MisfitScope | None = None
    path: str = ""
    offsets: Array | None = None
    present: Array | None = None

    def where(self, present: Array | None) -> MisfitScope:
        """The same elements, restricted to those present."""
        return self if present is None else MisfitScope(self.found, self, self.path, None, present)

    def field(self, name: str) -> MisfitScope:
        return MisfitScope(self.found, self, f"{self.path}.{name}" if self.path else name)

    def items(self, offsets: Array, name: str) -> MisfitScope:
        return MisfitScope(self.found, self, f"{self.path}{name}", offsets)

    def refuse(self, is_bad: Array, what: str) -> None:
        bad = np.flatnonzero(is_bad)
        if len(bad):
            self._climb(bad, what, self.path)

    def _climb(self, elements: Array, what: str, path: str) -> None:
        if self.offsets is not None:
            elements = np.searchsorted(self.offsets, elements, side="right") - 1
        if self.present is not None:
            elements = elements[self.present[elements]]
        if self.parent is not None:
            self.parent._climb(elements, what, path)
        elif len(elements):
            self.found.append((elements, path, what))
