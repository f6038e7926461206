"""One row of the option table: what an option is called, takes, means, and what this producer does about it.

The tables (`table.py`, `security_table.py`, `foreign_table.py`) hold rows, `parse.py` reads them, and the option
reference is printed from them. An option is never silently ignored: it is honoured, refused with the text of what to
use instead, or, for the few that can have no effect here, answered with a notice that says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kafka_sink.options.values import Rule


class Treatment(Enum):
    HONOURED = "honoured"
    REFUSED = "refused"
    NO_EFFECT = "no effect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """`kind` is Java's type name. `same` lists the values of a refused or ineffective option that say just what this
    producer does anyway: they are accepted without a word. `instead` completes the sentence about all the others.
    """

    name: str
    kind: str
    default: object
    rule: Rule
    meaning: str
    origin: str = "Java"
    treatment: Treatment = Treatment.HONOURED
    field: str = ""
    same: tuple[object, ...] = ()
    instead: str = ""
    is_required: bool = False
    deprecation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """Another client's name for an option of the table. `convert` makes the canonical value of what the user wrote.

    `fallback_for` is a second option that takes the value too, unless that one is named itself.
    """

    name: str
    target: str
    origin: str
    meaning: str
    convert: Callable[[str, object], object] | None = None
    fallback_for: str = ""


def own_option(name: str, default: object, rule: Rule, meaning: str) -> Option:
    """An option that no other client has. In Spark options are texts; the field is called after the option."""
    return Option(
        name=name, kind="STRING", default=default, rule=rule, meaning=meaning, origin="this sink",
        field=name.replace(".", "_"),
    )  # fmt: skip


def unset_option(name: str, rule: Rule, meaning: str) -> Option:
    """One of our own that has no default and no field: a group of them is read by a parser of its own."""
    return Option(name=name, kind="STRING", default=None, rule=rule, meaning=meaning, origin="this sink", field="-")
