"""Options of a producer for a broker that nobody asks."""

from __future__ import annotations

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.options import ProducerOptions
from kafka_sink.options.parse import parse_producer_options


def parse_named(settings: dict[str, object]) -> ProducerOptions:
    return parse_producer_options({"bootstrap.servers": "broker:9092"} | settings)


def parse(**settings: object) -> ProducerOptions:
    """With underscores for dots."""
    return parse_named({name.replace("_", "."): value for name, value in settings.items()})


def refusal(settings: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_named(settings)
    return str(caught.value)
