"""The cluster of a command: options from the command line and from a file, as one set of producer options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from kafka_sink.commit.command_texts import PROPERTIES, BrokerArguments
from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.commits import COMMAND_WRONG
from kafka_sink.operate.cli.streams import print_error
from kafka_sink.options import ProducerOptions
from kafka_sink.options.foreign_table import canonical_name
from kafka_sink.options.host.properties_file import read_settings, reference_hints
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.options.parse_sink import add_prefix
from kafka_sink.options.presets import PREFIX, apply_preset
from kafka_sink.options.security_options import SECRET_NAME
from kafka_sink.options.sink_options import DEFAULT_LEDGER

SERVERS = "bootstrap.servers"


def producer_options(given: argparse.Namespace, own: Mapping[str, str] | None = None) -> ProducerOptions:
    """Precedence: the command's own arguments, then --option, then the file. Of a job's file, what is not about
    brokers is for the job; who types an option means it."""
    settings = apply_preset(read_options(given))
    for hint in reference_hints(settings):
        print_error(f"pykafka-sink: {hint}")
    meant = {*map(str.lower, typed_options(given))}
    named = {name.lower(): value for name, value in settings.items()}
    of_producer = {
        name.removeprefix(PREFIX): value for name, value in named.items() if name.startswith(PREFIX) or name in meant
    }
    if given.bootstrap_servers is not None:
        of_producer = {name: value for name, value in of_producer.items() if canonical_name(name) != SERVERS}
        of_producer[SERVERS] = given.bootstrap_servers
    of_producer |= own or {}
    if SERVERS not in map(canonical_name, of_producer):
        raise ConfigError("no brokers are named: add --bootstrap-server HOST:PORT", COMMAND_WRONG)
    return parse_producer_options(of_producer)


def chosen_ledger(given: argparse.Namespace) -> str:
    """Of the command line, else of a job's file, else the default."""
    named: str | None = given.ledger_topic
    return ledger_of_file(given) or DEFAULT_LEDGER if named is None else named


def ledger_of_file(given: argparse.Namespace) -> str | None:
    settings = {name.lower(): value for name, value in read_options(given).items()}
    return settings.get("ledger.topic")


def given_brokers(given: argparse.Namespace) -> BrokerArguments:
    """The same brokers and login for another command. A secret that was typed is not repeated: it belongs in a file."""
    typed = typed_options(given)
    words = [] if given.bootstrap_servers is None else ["--bootstrap-server", given.bootstrap_servers]
    words += [] if given.properties is None else ["--properties", given.properties]
    for name, value in typed.items():
        words += [] if SECRET_NAME.search(name) else ["--option", f"{name}={value}"]
    secrets = ", ".join(name for name in typed if SECRET_NAME.search(name))
    if not secrets:
        return BrokerArguments(tuple(words), "")
    if given.properties is not None:
        return BrokerArguments(tuple(words), f"Add {secrets} to {given.properties}, or again as --option")
    hint = f"{PROPERTIES} stands for a file with {secrets}"
    return BrokerArguments((*words, "--properties", PROPERTIES), hint)


def read_options(given: argparse.Namespace) -> dict[str, str]:
    """Named as in a Spark job."""
    of_file = {} if given.properties is None else read_settings("--properties", given.properties)
    return of_file | typed_options(given)


def typed_options(given: argparse.Namespace) -> dict[str, str]:
    return unique_options([(add_prefix(name), value) for name, value in given.option])


def unique_options(pairs: Sequence[tuple[str, str]], word: str = "--option") -> dict[str, str]:
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ConfigError(f"{word} names the same option twice", COMMAND_WRONG)
    return named
