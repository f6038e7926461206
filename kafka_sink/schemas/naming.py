"""Columns and the fields of a schema find each other by name; and what is said where they do not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_sink.error_table.commits import SCHEMA_MISMATCH
from kafka_sink.errors import ConfigError


def inside(path: str, name: str) -> str:
    """What a column is called in texts: from the outermost one down."""
    return f"{path}.{name}" if path else name


class Problems:
    """Everything that is wrong, to be told at once."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, text: str) -> None:
        self.texts.append(text)

    def tell(self, format_name: str) -> None:
        if self.texts:
            raise ConfigError(
                f"the columns do not fit the {format_name} schema: " + "; ".join(self.texts), SCHEMA_MISMATCH
            )


def column_of(field: str, columns: Sequence[str], path: str, problems: Problems) -> int | None:
    """The same name; or else the only one that differs in capitals alone. None: there is no such column."""
    exact = [index for index, name in enumerate(columns) if name == field]
    similar = exact or [index for index, name in enumerate(columns) if name.lower() == field.lower()]
    if len(similar) > 1:
        problems.add(f"field {path} could be each of the columns {_listed(columns[index] for index in similar)}")
    return similar[0] if similar else None


def unknown_columns(
    columns: Sequence[str], used: Iterable[int], fields: Sequence[str], path: str, problems: Problems
) -> None:
    known = set(used)
    for index, name in enumerate(columns):
        if index not in known:
            problems.add(
                f"the schema has no field for column {inside(path, name)}; it has {_listed(fields)}. Leave the column "
                "out (drop, or the option value.columns), or rename it"
            )


def unfilled(path: str, kind: str, fits: str) -> str:
    return (
        f"there is no column for field {path} of type {kind}, which has no default and cannot be null; what fits "
        f"there: {fits}"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
