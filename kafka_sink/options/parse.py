"""`parse_producer_options`: the user's mapping -> `ProducerOptions`, or one `ConfigError` with all problems.

Steps: names (aliases resolved, unknown ones refused with the nearest known name), values one by one, then the rules
over several values. Later steps run only if the earlier ones found nothing, since their messages would be misleading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from kafka_sink.errors import ConfigError, common_entry
from kafka_sink.errors.table.writes import OPTION_NOT_SUPPORTED, OPTION_UNKNOWN, OPTIONS_WRONG
from kafka_sink.options.foreign_table import ALIASES, CONSUMER_OPTIONS, FOREIGN_OPTIONS, canonical_name
from kafka_sink.options.option import Option, Treatment
from kafka_sink.options.producer_options import ProducerOptions
from kafka_sink.options.rules import RULES, Draft
from kafka_sink.options.table import OPTIONS, SECURITY_PREFIXES, UNKNOWN_SECURITY
from kafka_sink.options.values import format_option_value, missing_error, two_values_error

# A shell's way to name a variable. It could also be a value, so it is no error; it may be a secret, so it is not shown.
_BARE_REFERENCE = re.compile(r"\$\{\w+\}")
_KNOWN_NAMES = (*OPTIONS, *FOREIGN_OPTIONS, *ALIASES)

T = TypeVar("T")


class OptionProblems:
    """Collects problems of options, so that one error reports all of them."""

    def __init__(self) -> None:
        self.found: list[ConfigError] = []

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


def parse_producer_options(settings: Mapping[str, object]) -> ProducerOptions:
    if not isinstance(settings, Mapping):
        raise ConfigError(f"options must be a mapping of names to values, not {type(settings).__name__}")
    draft, problems = Draft(), OptionProblems()
    for name, value in settings.items():
        problems.attempt(_read_option, draft, name, value)
    _apply_fallbacks(draft, settings)
    is_named = "bootstrap.servers" in map(canonical_name, settings)
    if not is_named and not any("did you mean bootstrap.servers" in str(each) for each in problems.found):
        missing = "bootstrap.servers is missing: name at least one broker as host:port"
        problems.found.append(missing_error(missing))
    problems.raise_any()
    for name, option in OPTIONS.items():
        if name not in draft.values and option.treatment is Treatment.HONOURED:
            draft.values[name] = option.default if option.default is None else option.rule.parse(name, option.default)
    for rule in RULES:
        problems.attempt(rule, draft)
    problems.raise_any()
    parsed = {option.field: draft.values[name] for name, option in OPTIONS.items() if option.field}
    parsed["partitioner"] = draft.values["partitioner.class"] or "default"
    return ProducerOptions(**parsed, notices=tuple(draft.notices))


def parse_for_edge(settings: Mapping[str, object], explain: Callable[[str], str]) -> ProducerOptions:
    """For callers whose users write the options with other names: `explain` adds that to the text of each problem."""
    problems = OptionProblems()
    options = problems.attempt(parse_producer_options, settings)
    problems.found = [ConfigError(explain(str(each)), each.entry) for each in problems.found]
    problems.raise_any()
    assert options is not None, "what was not made has left a problem"
    return options


def _read_option(draft: Draft, name: str, value: object) -> None:
    """Reads one entry of the user's mapping into the draft."""
    if not isinstance(name, str):
        raise ConfigError(f"an option name must be text, not {type(name).__name__}")
    alias, canonical = ALIASES.get(name), canonical_name(name)
    option = OPTIONS.get(canonical) or FOREIGN_OPTIONS.get(canonical)
    if option is None:
        raise _unknown_option_error(name)
    if value is None:
        # None means "not set" where it is the default; elsewhere it is probably an unset variable.
        if option.default is None and not option.is_required:
            return
        raise ConfigError(f"{name} is None: expected {option.rule.valid}, or leave it out")
    if option.treatment is not Treatment.HONOURED:
        _answer_unsupported(draft, option, value)
        return
    parsed = option.rule.parse(name, alias.convert(name, value) if alias and alias.convert else value)
    if canonical in draft.named and draft.values[canonical] != parsed:
        raise two_values_error(name, draft.named[canonical])
    if canonical not in draft.named or canonical == name:
        draft.named[canonical] = name
    draft.values[canonical] = parsed
    if isinstance(value, str) and _BARE_REFERENCE.fullmatch(value.strip()):
        draft.notices.append(f"{name} is taken as it is written: a variable of the environment is ${{env:NAME}}")
    if alias and "this producer" not in alias.origin:
        draft.notices.append(f"{name} is a name of {alias.origin}: use {canonical}")
    if option.deprecation:
        draft.notices.append(f"{name} is a deprecated option of {option.origin}: {option.deprecation}")


def _answer_unsupported(draft: Draft, option: Option, value: object) -> None:
    if not option.same:
        # The value is not in the text: most of these options hold secrets or callables.
        raise ConfigError(f"{option.name} is not supported: {option.instead}", OPTION_NOT_SUPPORTED)
    parsed = option.rule.parse(option.name, value)
    if parsed in option.same:
        return
    if option.treatment is Treatment.REFUSED:
        raise ConfigError(
            f"{option.name}={format_option_value(parsed)} is not supported: {option.instead}", OPTION_NOT_SUPPORTED
        )
    draft.notices.append(f"{option.name}={format_option_value(parsed)} has no effect: {option.instead}")


def _apply_fallbacks(draft: Draft, settings: Mapping[str, object]) -> None:
    for alias in ALIASES.values():
        is_wanted = alias.fallback_for and alias.name in settings and alias.fallback_for not in draft.named
        if is_wanted and alias.target in draft.values:
            draft.values[alias.fallback_for] = draft.values[alias.target]


def _unknown_option_error(name: str) -> ConfigError:
    if name.startswith(SECURITY_PREFIXES):
        hint = suggest_name(name, _KNOWN_NAMES, ", ")
        return ConfigError(f"{name} is not supported: {UNKNOWN_SECURITY}{hint}", OPTION_UNKNOWN)
    if name in CONSUMER_OPTIONS:
        return ConfigError(f"{name} is an option of consumers: leave it out", OPTION_UNKNOWN)
    # Underscores are Python's spelling, hyphens the command line's.
    dotted = name.strip().lower().replace("_", ".").replace("-", ".")
    hint = "" if dotted in CONSUMER_OPTIONS else suggest_name(dotted, _KNOWN_NAMES)
    return ConfigError(f"{name!r} is not a producer option{hint}", OPTION_UNKNOWN)


def select_fields(kind: type, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The fields with the name of an option, perhaps without its prefix."""
    named = {name.removeprefix(prefix).replace(".", "_"): value for name, value in values.items()}
    return {each.name: named[each.name] for each in fields(kind) if each.name in named}


def suggest_name(name: str, known: Iterable[str], joint: str = ": ") -> str:
    """The end of a message with the name that may have been meant, or nothing."""
    import difflib  # most processes meet no unknown name

    found = difflib.get_close_matches(name, known, 1)
    return f"{joint}did you mean {found[0]}?" if found else ""
