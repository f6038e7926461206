"""One row of an option table: name, values, meaning and treatment of an option.

The tables (`table.py`, `security_table.py`, `foreign_table.py`, `sink_table.py`, `format_table.py`,
`envelope_table.py`) hold rows, the engine (`engine.py`) reads a user's options by them, and the option reference is
generated from them. An option is never silently ignored: it is applied, refused with a text that says what to use
instead, or, for the few that have no effect here, accepted with a notice that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, replace
from enum import Enum
from typing import Any

from kafka_sink.errors.table.entry import ErrorEntry
from kafka_sink.errors.table.writes import OPTION_MISSING
from kafka_sink.frozen import frozen
from kafka_sink.options.values import ANY_TEXT, Rule, Secret

# In the name of a row, the part that users choose.
NAME = "NAME"


class Chapter(Enum):
    """What users want to do when they look an option up: the chapters of the reference, in its order."""

    CONNECT = "Connect"
    ENCRYPT = "Encrypt"
    LOG_IN = "Log in"
    TOPICS = "Topics, keys and partitions"
    HEADERS = "Headers and CloudEvents"
    FORMATS = "Formats"
    REGISTRY = "Schema registry"
    DELIVERY = "Exactly once"
    ERRORS = "Errors and dead letters"
    SPEED = "Speed and memory"
    TIME = "Time limits and retries"
    METRICS = "Metrics, traces and lineage"
    CODE = "Serializers and interceptors"


class Treatment(Enum):
    HONOURED = "honoured"
    REFUSED = "refused"
    NO_EFFECT = "no effect"


@frozen
class Needs:
    """Without one of these, an option with another value than its default is an error. `a=b`: with that value.

    `text` may be for several options: then {name} is the one that was set, and {needed} what it needs.
    """

    any_of: tuple[str, ...]
    text: str
    entry: ErrorEntry = OPTION_MISSING


@frozen
class Option:
    """`default` is what a user would write. `into`: the field of the parsed options, if it has another name than the
    option; empty if there is none.

    `scope`: conditions (`a=b`), and without one of them the option has no effect, which a notice says. `in_sink`: why a
    sink refuses this option of a producer.

    `same` lists the values of a refused or ineffective option that match what this producer does anyway: they are
    accepted silently. `instead` completes the message about all others, and is what the reference says; the meaning of
    such an option is only for those who read the table.
    """

    name: str
    rule: Rule
    meaning: str
    default: object = None
    into: str | None = None
    needs: Needs | None = None
    scope: tuple[str, ...] = ()
    origin: str = "Java"
    treatment: Treatment = Treatment.HONOURED
    same: tuple[object, ...] = ()
    instead: str = ""
    in_sink: str = ""
    is_required: bool = False
    deprecation: str = ""
    example: str = ""

    @property
    def field(self) -> str:
        if self.treatment is not Treatment.HONOURED:
            return ""
        return self.name.replace(".", "_") if self.into is None else self.into

    @property
    def is_secret(self) -> bool:
        return isinstance(self.rule, Secret)

    def name_in(self, given: str) -> str | None:
        """The part of a given name that the user chose; None if this row has no such part, or is another option's."""
        prefix, chosen, suffix = self.name.partition(NAME)
        fits = chosen and len(given) > len(prefix) + len(suffix) and given.startswith(prefix) and given.endswith(suffix)
        return given[len(prefix) : len(given) - len(suffix)] if fits else None


def refuse(name: str, meaning: str, instead: str, rule: Rule = ANY_TEXT, **more: Any) -> Option:
    return Option(name, rule, meaning, treatment=Treatment.REFUSED, instead=instead, **more)


def without_effect(name: str, meaning: str, instead: str, rule: Rule, **more: Any) -> Option:
    return Option(name, rule, meaning, treatment=Treatment.NO_EFFECT, instead=instead, **more)


def by_name(chapters: Mapping[Chapter, Iterable[Option]], kind: type | None = None) -> dict[str, Option]:
    """The rows of all chapters. `kind`: the class of the fields, which have the defaults of rows without one."""
    defaults = {} if kind is None else {each.name: each.default for each in fields(kind)}
    found = {}
    for row in (row for rows in chapters.values() for row in rows):
        takes_it = row.default is None and row.into is None
        default = defaults.get(row.field, MISSING) if takes_it else MISSING
        found[row.name] = row if default in (MISSING, None) else replace(row, default=default)
    return found


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
