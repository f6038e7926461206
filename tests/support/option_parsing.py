"""Parses producer options. They name a broker to which no test connects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.options import ProducerOptions
from kafka_sink.options.format_options import RegistryOptions, SideFormat
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.options.parse_formats import parse_format_options


def parse_named(settings: dict[str, object]) -> ProducerOptions:
    return parse_producer_options({"bootstrap.servers": "broker:9092"} | settings)


def parse(**settings: object) -> ProducerOptions:
    """Option names have underscores instead of dots."""
    return parse_named({name.replace("_", "."): value for name, value in settings.items()})


def refusal(settings: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_named(settings)
    return str(caught.value)


class RegistrySettings(NamedTuple):
    registry: RegistryOptions | None
    value: SideFormat
    key: SideFormat
    notices: tuple[str, ...]


def registry_settings(given: Mapping[str, str], kafka: ProducerOptions) -> RegistrySettings:
    """The registry settings from these options, with a schema for key and value."""
    options = parse_format_options({"value.format": "avro", "key.format": "avro", **given}, kafka)
    assert options.value is not None and options.key is not None
    return RegistrySettings(options.registry, options.value, options.key, options.notices)
