"""The cluster of a command: options from the command line and from a file, as one set of producer options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafka_sink.commit.command_texts import PROPERTIES, BrokerArguments
from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.commits import COMMAND_WRONG
from kafka_sink.options import ProducerOptions
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.options.properties import ENCODING, parse_properties
from kafka_sink.options.security_options import SECRET_NAME


def producer_options(given: argparse.Namespace, own: Mapping[str, str] | None = None) -> ProducerOptions:
    """Precedence: the command's own arguments, then --option, then the file."""
    settings = read_options(given)
    if given.bootstrap_servers is not None:
        settings["bootstrap.servers"] = given.bootstrap_servers
    settings |= own or {}
    if "bootstrap.servers" not in settings:
        raise ConfigError("no brokers are named: add --bootstrap-server HOST:PORT", COMMAND_WRONG)
    return parse_producer_options(settings)


def given_brokers(given: argparse.Namespace) -> BrokerArguments:
    """The same brokers and login for another command. A secret that was typed is not repeated: it belongs in a file."""
    is_typed = {name: SECRET_NAME.search(name.replace(".", "_")) is None for name, _ in given.option}
    words = [] if given.bootstrap_servers is None else ["--bootstrap-server", given.bootstrap_servers]
    words += [] if given.properties is None else ["--properties", given.properties]
    for name, value in given.option:
        words += ["--option", f"kafka.{name}={value}"] if is_typed[name] else []
    secrets = [name for name, is_shown in is_typed.items() if not is_shown]
    if not secrets:
        return BrokerArguments(tuple(words), "")
    if given.properties is not None:
        return BrokerArguments(tuple(words), f"Add {', '.join(secrets)} to {given.properties}, or again as --option")
    hint = f"{PROPERTIES} stands for a file with {', '.join(secrets)}, without the prefix kafka."
    return BrokerArguments((*words, "--properties", PROPERTIES), hint)


def read_options(given: argparse.Namespace) -> dict[str, str]:
    return {**read_properties(given.properties), **unique_options(given.option)}


def unique_options(pairs: Sequence[tuple[str, str]], word: str = "--option") -> Mapping[str, str]:
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ConfigError(f"{word} names the same option twice", COMMAND_WRONG)
    return named


def read_properties(name: str | None) -> Mapping[str, str]:
    if name is None:
        return {}
    return parse_properties(read_argument_file("--properties", name).decode(ENCODING))


def read_argument_file(argument: str, name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(f"{argument} {name} cannot be read: {error.strerror}", COMMAND_WRONG) from None
