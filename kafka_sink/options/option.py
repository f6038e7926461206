"""One row of an option table: what an option is called, takes, means, and what becomes of it.

The tables (`table.py`, `foreign_table.py`, `sink_table.py`, `format_table.py`) hold rows, the `parse_*` modules read
them, and the option reference is printed from them. An option is never silently ignored: it is honoured, refused with
the text of what to use instead, or, for the few that can have no effect here, answered with a notice that says why.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from kafka_sink.frozen import frozen
from kafka_sink.options.values import Rule


class Treatment(Enum):
    HONOURED = "honoured"
    REFUSED = "refused"
    NO_EFFECT = "no effect"


@frozen
class Option:
    """`default` is what a user would write. `field`: that of the options after parsing; empty where it has none of its
    own.

    `same` lists the values of a refused or ineffective option that say just what this producer does anyway: they are
    accepted without a word. `instead` completes the sentence about all the others.
    """

    name: str
    rule: Rule
    meaning: str
    default: object = None
    origin: str = "Java"
    treatment: Treatment = Treatment.HONOURED
    field: str = ""
    same: tuple[object, ...] = ()
    instead: str = ""
    is_required: bool = False
    deprecation: str = ""


@frozen
class Alias:
    """Another client's name for an option of the table. `convert` makes the canonical value of what the user wrote.

    `fallback_for` is a second option that takes the value too, unless that one is named itself.
    """

    name: str
    target: str
    origin: str
    meaning: str = "The same."
    convert: Callable[[str, object], object] | None = None
    fallback_for: str = ""
