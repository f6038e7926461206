"""Which options hold secrets, and which of them hold one that is not a reference.

What an option holds is decided by its rule in the tables, so that a new secret option is known here, to the tests that
search all output for secrets, and to the warning about secrets that Spark shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kafka_sink.errors import ConfigError
from kafka_sink.options.foreign_table import ALIASES, FOREIGN_OPTIONS, canonical_name
from kafka_sink.options.format_names import REGISTRY
from kafka_sink.options.format_table import REGISTRY_ALIASES, REGISTRY_OPTIONS
from kafka_sink.options.presets import PREFIX
from kafka_sink.options.table import OPTIONS
from kafka_sink.security.jaas import parse_jaas
from kafka_sink.security.reference import has_reference, without_references

USER_INFO, JAAS = f"{REGISTRY}basic.auth.user.info", "sasl.jaas.config"
# The entries of a login module that are secret. Others name a principal, a role, a file.
JAAS_SECRETS = frozenset({"password", "clientSecret", "awsRoleSecretAccessKey", "awsRoleSessionToken"})


def secret_options() -> Iterator[str]:
    """Every name under which a job can set a secret, other clients' names included."""
    of_producer = [name for name, option in {**OPTIONS, **FOREIGN_OPTIONS}.items() if option.is_secret]
    of_producer += [name for name, alias in ALIASES.items() if OPTIONS[alias.target].is_secret]
    yield from (f"{PREFIX}{name}" for name in of_producer)
    yield from (f"{REGISTRY}{name}" for name in of_producer if name.startswith("ssl."))
    yield from (name for name, option in REGISTRY_OPTIONS.items() if option.is_secret)
    yield from (name for name, target in REGISTRY_ALIASES.items() if REGISTRY_OPTIONS[target].is_secret)


def literal_secrets(settings: Mapping[str, str]) -> list[str]:
    """The names of options that hold a secret itself. `settings` are those of a sink, and have been parsed."""
    secret = frozenset(secret_options())
    return [name for name, value in settings.items() if name.lower() in secret and _is_literal(name.lower(), value)]


def _is_literal(name: str, value: str) -> bool:
    if REGISTRY_ALIASES.get(name, name) == USER_INFO:
        # The user is no secret, but one reference may stand for both.
        user, colon, password = without_references(value).partition(":")
        return bool(password if colon else user)
    if canonical_name(name.removeprefix(PREFIX)) != JAAS:
        return not has_reference(value)
    try:
        entries = parse_jaas(value).options
    except ConfigError:  # it is a reference as a whole
        return not has_reference(value)
    return any(entry in JAAS_SECRETS and not has_reference(text) for entry, text in entries.items())
