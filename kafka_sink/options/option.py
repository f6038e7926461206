"""One row of an option table: name, values, meaning and treatment of an option.

The tables (`table.py`, `foreign_table.py`, `sink_table.py`, `format_table.py`) hold rows, the `parse_*` modules read
them, and the option reference is generated from them. An option is never silently ignored: it is applied, refused with
a text that says what to use instead, or, for the few that have no effect here, accepted with a notice that says why.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from kafka_sink.frozen import frozen
from kafka_sink.options.values import Rule, Secret


class Treatment(Enum):
    HONOURED = "honoured"
    REFUSED = "refused"
    NO_EFFECT = "no effect"


@frozen
class Option:
    """`default` is what a user would write. `field`: the field of the parsed options; empty if there is none.

    `same` lists the values of a refused or ineffective option that match what this producer does anyway: they are
    accepted silently. `instead` completes the message about all others.
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

    @property
    def is_secret(self) -> bool:
        return isinstance(self.rule, Secret)


@frozen
class Alias:
    """Another client's name for an option of the table. `convert` makes the canonical value of the user's.

    `fallback_for` is a second option that gets the value too, unless it is set itself.
    """

    name: str
    target: str
    origin: str
    meaning: str = "The same."
    convert: Callable[[str, object], object] | None = None
    fallback_for: str = ""
