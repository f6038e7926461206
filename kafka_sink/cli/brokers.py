"""The cluster of a command: options from the command line and from a file, as one set of producer options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafka_sink.error_table.commits import COMMAND_WRONG
from kafka_sink.errors import ConfigError
from kafka_sink.options import ProducerOptions
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.options.properties import ENCODING, parse_properties


def producer_options(given: argparse.Namespace, own: Mapping[str, str] | None = None) -> ProducerOptions:
    """Precedence: the command's own arguments, then --option, then the file."""
    settings = read_options(given)
    if given.bootstrap_servers is not None:
        settings["bootstrap.servers"] = given.bootstrap_servers
    settings |= own or {}
    if "bootstrap.servers" not in settings:
        raise ConfigError("no brokers are named: add --bootstrap-server HOST:PORT", COMMAND_WRONG)
    return parse_producer_options(settings)


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
