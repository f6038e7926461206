"""Matches columns with the fields of a schema by name; error texts for mismatches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_sink.error_table.commits import SCHEMA_MISMATCH
from kafka_sink.errors import ConfigError


def join_path(path: str, name: str) -> str:
    """The path of a nested column in error texts: names from the outermost column inwards."""
    return f"{path}.{name}" if path else name


def column_text(path: str) -> str:
    """The start of an error text. The path of a value that is a single column is empty."""
    return f"column {path}" if path else "the column"


class Problems:
    """Collects all mismatches for one error."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, text: str) -> None:
        self.texts.append(text)

    def raise_any(self, format_name: str) -> None:
        if self.texts:
            raise ConfigError(
                f"the columns do not fit the {format_name} schema: " + "; ".join(self.texts), SCHEMA_MISMATCH
            )


def find_column(field: str, fields: Sequence[str], columns: Sequence[str], path: str, problems: Problems) -> int | None:
    """The same name; or else the only one that differs only in case, and is not the name of another field. None: there
    is no such column."""
    exact = [index for index, name in enumerate(columns) if name == field]
    similar = exact or [
        index for index, name in enumerate(columns) if name.lower() == field.lower() and name not in fields
    ]
    if len(similar) > 1:
        problems.add(f"field {path} could be each of the columns {_join_names(columns[index] for index in similar)}")
    rivals = [name for name in fields if name.lower() == field.lower() and name not in columns]
    if similar and not exact and len(rivals) > 1:
        problems.add(
            f"column {columns[similar[0]]} could be field {path} or another that differs only in case; rename it"
        )
    return similar[0] if similar else None


def add_unknown_columns(
    columns: Sequence[str], used: Iterable[int], fields: Sequence[str], path: str, problems: Problems
) -> None:
    known = set(used)
    for index, name in enumerate(columns):
        if index not in known:
            problems.add(
                f"the schema has no field for column {join_path(path, name)}; it has {_join_names(fields)}. Leave the "
                "column out (drop, or the option value.columns), or rename it"
            )


def missing_column_text(path: str, kind: str, fits: str) -> str:
    return (
        f"there is no column for field {path} of type {kind}, which has no default and cannot be null; what fits "
        f"there: {fits}"
    )


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
