"""Rows that do not fit a schema: found deep inside a column, reported by row of the batch and by path.

A node has the indexes of elements in its own array. `MisfitScope` maps them to rows, through the offsets of enclosing
lists, and without elements whose parent is null, where Arrow may have any bytes.
"""

from __future__ import annotations

import numpy as np

from kafka_sink.error_table.writes import ROW_MISFIT
from kafka_sink.errors import DataError
from kafka_sink.frozen import frozen
from kafka_sink.records.varint import Array


@frozen
class Found:
    rows: Array
    path: str
    what: str


class Misfits:
    """All misfits of one batch; the first of each row counts."""

    def __init__(self) -> None:
        self._found: list[Found] = []

    def add(self, found: Found) -> None:
        self._found.append(found)

    def errors(self, column: str, first_row: int = 0) -> dict[int, DataError]:
        """By row, in order. The text names row, column and path, never a value."""
        errors: dict[int, DataError] = {}
        for found in self._found:
            for row in np.unique(found.rows).tolist():
                number = first_row + row
                if number not in errors:
                    # The path may begin with the items of the column itself: value[] or value{}.
                    where = column + ("." if found.path[:1] not in ("", "[", "{") else "") + found.path
                    text = f"{where} of row {number} {found.what}"
                    errors[number] = DataError(text, ROW_MISFIT, row=number, column=column)
        return dict(sorted(errors.items()))


class MisfitScope:
    """The position of a node in a column. `offsets` are those of the enclosing list; `present` says which elements of
    the parent are not null."""

    def __init__(
        self,
        misfits: Misfits,
        parent: MisfitScope | None = None,
        path: str = "",
        offsets: Array | None = None,
        present: Array | None = None,
    ) -> None:
        self._misfits = misfits
        self._parent = parent
        self._path = path
        self._offsets = offsets
        self._present = present

    def where(self, present: Array | None) -> MisfitScope:
        """The same elements, restricted to those present."""
        return self if present is None else MisfitScope(self._misfits, self, self._path, None, present)

    def field(self, name: str) -> MisfitScope:
        path = f"{self._path}.{name}" if self._path else name
        return MisfitScope(self._misfits, self, path)

    def items(self, offsets: Array, name: str) -> MisfitScope:
        return MisfitScope(self._misfits, self, f"{self._path}{name}", offsets)

    def refuse(self, is_bad: Array, what: str) -> None:
        bad = np.flatnonzero(is_bad)
        if len(bad):
            self._climb(bad, what, self._path)

    def _climb(self, elements: Array, what: str, path: str) -> None:
        if self._offsets is not None:
            elements = np.searchsorted(self._offsets, elements, side="right") - 1
        if self._present is not None:
            elements = elements[self._present[elements]]
        if self._parent is not None:
            self._parent._climb(elements, what, path)
        elif len(elements):
            self._misfits.add(Found(elements, path, what))
