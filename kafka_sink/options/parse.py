"""`parse_producer_options`: the user's mapping -> `ProducerOptions`, or one `ConfigError` with all problems.

Steps: names and values one by one, then the rules over several values. These run only if the first step found nothing,
since their messages would be misleading. `parse_security_options` does the same for what is not a broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import OPTION_UNKNOWN
from kafka_sink.options.engine import Draft, T, Table, fill, read, suggest_name
from kafka_sink.options.foreign_table import ALIASES, CONSUMER_OPTIONS, FOREIGN_OPTIONS, canonical_name
from kafka_sink.options.option import Option
from kafka_sink.options.producer_options import ProducerOptions
from kafka_sink.options.rules import RULES, check_security
from kafka_sink.options.security_options import SecurityOptions
from kafka_sink.options.security_table import SECURITY_CHAPTERS, SECURITY_PREFIXES, UNKNOWN_SECURITY
from kafka_sink.options.table import OPTIONS
from kafka_sink.options.values import missing_error

# A shell's way to name a variable. It could also be a value, so it is no error; it may be a secret, so it is not shown.
_BARE_REFERENCE = re.compile(r"\$\{\w+\}")
_KNOWN_NAMES = (*OPTIONS, *FOREIGN_OPTIONS, *ALIASES)


def parse_producer_options(settings: Mapping[str, object]) -> ProducerOptions:
    if not isinstance(settings, Mapping):
        raise ConfigError(f"options must be a mapping of names to values, not {type(settings).__name__}")
    draft = read(_PRODUCER, settings)
    is_named = "bootstrap.servers" in map(canonical_name, settings)
    if not is_named and not any("did you mean bootstrap.servers" in str(each) for each in draft.found):
        draft.found.append(missing_error("bootstrap.servers is missing: name at least one broker as host:port"))
    draft.raise_any()
    for rule in RULES:
        draft.attempt(rule, draft)
    draft.raise_any()
    return ProducerOptions(**fill(ProducerOptions, OPTIONS, draft), notices=tuple(draft.notices))


def parse_security_options(settings: Mapping[str, object]) -> tuple[SecurityOptions, tuple[str, ...]]:
    """For what is reached with the producer's options for TLS and logins: the options, and notices."""
    draft = read(_SECURITY, settings)
    draft.raise_any()
    draft.attempt(check_security, draft)
    draft.raise_any()
    return SecurityOptions(**fill(SecurityOptions, _SECURITY.options, draft)), tuple(draft.notices)


def parse_for_edge(
    parse: Callable[[Mapping[str, object]], T], settings: Mapping[str, object], explain: Callable[[str], str]
) -> T:
    """For callers whose users write the options with other names: `explain` adds that to the text of each problem."""
    draft = Draft()
    options = draft.attempt(parse, settings)
    draft.found = [ConfigError(explain(str(each)), each.entry) for each in draft.found]
    draft.raise_any()
    assert options is not None, "what was not made has left a problem"
    return options


def _remark(name: str, value: object, option: Option) -> Iterator[str]:
    alias = ALIASES.get(name)
    if isinstance(value, str) and _BARE_REFERENCE.fullmatch(value.strip()):
        yield f"{name} is taken as it is written: a variable of the environment is ${{env:NAME}}"
    if alias and "this producer" not in alias.origin:
        yield f"{name} is a name of {alias.origin}: use {option.name}"
    if option.deprecation:
        yield f"{name} is a deprecated option of {option.origin}: {option.deprecation}"


def _explain_unknown(name: str) -> ConfigError:
    if name.startswith(SECURITY_PREFIXES):
        hint = suggest_name(name, _KNOWN_NAMES, ", ")
        return ConfigError(f"{name} is not supported: {UNKNOWN_SECURITY}{hint}", OPTION_UNKNOWN)
    if name in CONSUMER_OPTIONS:
        return ConfigError(f"{name} is an option of consumers: leave it out", OPTION_UNKNOWN)
    # Underscores are Python's spelling, hyphens the command line's.
    dotted = name.strip().lower().replace("_", ".").replace("-", ".")
    hint = "" if dotted in CONSUMER_OPTIONS else suggest_name(dotted, _KNOWN_NAMES)
    return ConfigError(f"{name!r} is not a producer option{hint}", OPTION_UNKNOWN)


_PRODUCER = Table({**OPTIONS, **FOREIGN_OPTIONS}, _explain_unknown, ALIASES, _remark)
_OF_SECURITY = {row.name: OPTIONS[row.name] for rows in SECURITY_CHAPTERS.values() for row in rows}
_SECURITY = Table(
    _OF_SECURITY,
    _explain_unknown,
    {name: each for name, each in ALIASES.items() if each.target in _OF_SECURITY},
    _remark,
)
