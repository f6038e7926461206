"""One engine for all tables of options: a user's mapping -> parsed values by option -> a frozen dataclass.

`read` looks each name up in a table, parses its value with the row's rule, and answers what is refused, has no effect
or is unknown; then it fills in the defaults. `check_needs` is for options that have no meaning without another one.
Rules over several options that are more than that are functions of the `parse*` modules. `fill` picks the fields of a
dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from typing import Any, TypeVar

from kafka_sink.errors import ConfigError, common_entry
from kafka_sink.errors.table.writes import OPTION_NOT_SUPPORTED, OPTIONS_WRONG
from kafka_sink.frozen import frozen
from kafka_sink.options.option import NAME, Alias, Option, Treatment
from kafka_sink.options.values import format_option_value, two_values_error

T = TypeVar("T")


class Draft:
    """What a mapping says, by canonical option name: values, the names that the user wrote, notices, and all problems.

    The value of a row with a NAME is a mapping of what stood there. What is not valid has the value None.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.named: dict[str, str] = {}
        self.notices: list[str] = []
        self.found: list[ConfigError] = []

    def spelling(self, name: str) -> str:
        return self.named.get(name, name)

    def meets(self, condition: str) -> bool:
        """Whether `a=b`: the option a has the value b; or `a`: it is set."""
        name, has_value, value = condition.partition("=")
        return self.values[name] == value if has_value else bool(self.values[name])

    def attempt(self, check: Callable[..., T], *arguments: Any) -> T | None:
        """The result of `check`; on a `ConfigError` None, and the error is kept for `raise_any`."""
        try:
            return check(*arguments)
        except ConfigError as problem:
            self.found += problem.several or (problem,)
            return None

    def raise_any(self, word: str = "problems") -> None:
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            text = "\n- ".join([f"{len(self.found)} {word}:", *map(str, self.found)])
            raise ConfigError(text, common_entry(self.found, OPTIONS_WRONG), several=tuple(self.found))


@frozen
class Table:
    """The options of one kind of mapping. `explain_unknown` makes the error for any other name.

    `remark`: what the log should say about an option that was accepted. `ignores_case`: Spark's options do.
    """

    options: Mapping[str, Option]
    explain_unknown: Callable[[str], ConfigError]
    aliases: Mapping[str, Alias] = field(default_factory=dict)
    remark: Callable[[str, object, Option], Iterable[str]] | None = None
    ignores_case: bool = False


def find_option(options: Mapping[str, Option], name: str) -> Option | None:
    """The row of this name, or with a NAME that it fits."""
    option = options.get(name)
    if option is not None and NAME not in option.name:
        return option
    return next((each for each in options.values() if each.name_in(name)), None)


def read(table: Table, given: Mapping[str, object]) -> Draft:
    draft = Draft()
    for name, value in given.items():
        draft.attempt(_read_option, draft, table, name, value)
    for alias in table.aliases.values():
        is_wanted = alias.fallback_for and alias.name in given and alias.fallback_for not in draft.named
        if is_wanted and alias.target in draft.values:
            draft.values[alias.fallback_for] = draft.values[alias.target]
    for name, option in table.options.items():
        if NAME in option.name:
            draft.values.setdefault(option.name, {})
        elif name not in draft.values and option.treatment is Treatment.HONOURED:
            draft.values[name] = parsed_default(option)
    return draft


def parsed_default(option: Option) -> Any:
    return None if option.default is None else option.rule.parse(option.name, option.default)


def check_alone(table: Table, name: str, value: object) -> None:
    """Whether there is such an option, and the value fits it."""
    _read_option(Draft(), table, name, value)


def _read_option(draft: Draft, table: Table, given: str, value: object) -> None:
    """Reads one entry of the user's mapping into the draft."""
    if not isinstance(given, str):
        raise ConfigError(f"an option name must be text, not {type(given).__name__}")
    name = given.lower() if table.ignores_case else given
    alias = table.aliases.get(name)
    canonical = name if alias is None else alias.target
    option = find_option(table.options, canonical)
    if option is None:
        raise table.explain_unknown(given)
    if value is None:
        # None means "not set" where it is the default; elsewhere it is probably an unset variable.
        if option.default is None and not option.is_required:
            return
        raise ConfigError(f"{name} is None: expected {option.rule.valid}, or leave it out")
    if option.treatment is not Treatment.HONOURED:
        _answer_unsupported(draft, option, given, value)
        return
    chosen = option.name_in(name)
    values, key = (draft.values, canonical) if chosen is None else (draft.values.setdefault(option.name, {}), chosen)
    before = values.setdefault(key, None)
    parsed = option.rule.parse(name, alias.convert(name, value) if alias and alias.convert else value)
    if canonical in draft.named and before != parsed:
        raise two_values_error(name, draft.named[canonical])
    if canonical not in draft.named or canonical == name:
        draft.named[canonical] = name
    values[key] = parsed
    if table.remark is not None:
        draft.notices += table.remark(name, value, option)


def _answer_unsupported(draft: Draft, option: Option, given: str, value: object) -> None:
    is_refused = option.treatment is Treatment.REFUSED
    said = option.name if is_refused else given
    if option.same:
        parsed = option.rule.parse(option.name, value)
        if parsed in option.same:
            return
        said = f"{option.name}={format_option_value(parsed)}"
    # Without such values the value is not in the text: most of these options hold secrets or callables.
    if is_refused:
        raise ConfigError(f"{said} is not supported: {option.instead}", OPTION_NOT_SUPPORTED)
    draft.notices.append(f"{said} has no effect: {option.instead}")


def check_needs(options: Mapping[str, Option], draft: Draft) -> None:
    for name, option in options.items():
        needs = option.needs
        if needs is None or draft.values[name] == parsed_default(option) or any(map(draft.meets, needs.any_of)):
            continue
        text = needs.text.format(name=name, needed=" or ".join(needs.any_of))
        draft.found.append(ConfigError(text, needs.entry))


def out_of_scope(options: Mapping[str, Option], draft: Draft) -> list[str]:
    """The options that were set although none of the conditions holds under which they have an effect."""
    idle = {row.name for row in options.values() if row.scope and not any(map(draft.meets, row.scope))}
    order = {name: place for place, name in enumerate(options)}
    rows = [(row, name) for name in draft.named if (row := find_option(options, name)) and row.name in idle]
    return [name for _, name in sorted(rows, key=lambda one: order[one[0].name])]


def fill(kind: type, options: Mapping[str, Option], draft: Draft, prefix: str = "") -> dict[str, Any]:
    """The fields of the class that are options; it may leave a prefix out of their names. A row with a NAME becomes
    sorted pairs."""
    known, found = {each.name for each in fields(kind)}, {}
    for name, option in options.items():
        field_name = option.field.removeprefix(prefix)
        if field_name in known:
            value = draft.values[name]
            found[field_name] = tuple(sorted(value.items())) if NAME in name else value
    return found


def suggest_name(name: str, known: Iterable[str], joint: str = ": ", prefix: str = "") -> str:
    """The end of a message with the name that may have been meant, or nothing. `prefix`: of the names in `known`."""
    import difflib  # most processes meet no unknown name

    found = difflib.get_close_matches(name, known, 1)
    return f"{joint}did you mean {prefix}{found[0]}?" if found else ""
