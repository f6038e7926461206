"""Options whose value gets lost on its way: for each field of the parsed options, the test that notices.

`python -m tests.mistakes.wiring [PART OF A NAME]` plants the mistake for each field, that whoever reads it finds the
default, and runs its test, which must fail. The test must show the effect of the option where it happens; one that only
reads the field back would pass with any mistake behind it. A unit test checks that the table has every field.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.options.format_options import FormatOptions, RegistryOptions, SideFormat
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.producer_options import ProducerOptions
from kafka_sink.options.sink_options import EnvelopeOptions, SinkOptions, TelemetryOptions, TopicPlan

ROOT = Path(__file__).parents[2]
PLANTED = "PYKAFKA_SINK_PLANTED"
KINDS = (SinkOptions, TopicPlan, EnvelopeOptions, TelemetryOptions, FormatOptions, SideFormat, RegistryOptions,
         ProducerOptions)  # fmt: skip


def names() -> Iterator[str]:
    for kind in KINDS:
        for field in fields(kind):
            yield f"{kind.__name__}.{field.name}"


@cache
def _defaults() -> Mapping[type, Any]:
    """Of options that are set only as far as a part must exist."""
    told = parse_sink_options(
        {
            "kafka.bootstrap.servers": "127.0.0.1:9",
            "topic": "t",
            "topic.create": "true",
            "metrics.enabled": "true",
            "value.format": "avro",
            "schema.registry.url": "http://127.0.0.1:9",
            "header.a": "b",
        }
    )
    assert told.formats is not None and told.formats.value is not None and told.formats.registry is not None
    plain = parse_sink_options({"kafka.bootstrap.servers": "127.0.0.1:9"})
    found = (plain, told.topic_plan, told.envelope, told.telemetry, told.formats, told.formats.value,
             told.formats.registry, plain.producer)  # fmt: skip
    return dict(zip(KINDS, found, strict=True))


def default_of(name: str) -> Any:
    kind_name, _, field_name = name.partition(".")
    kind = next(each for each in KINDS if each.__name__ == kind_name)
    (field,) = [each for each in fields(kind) if each.name == field_name]
    default = field.default
    return getattr(_defaults()[kind], field_name) if default is MISSING else default


def plant(name: str) -> None:
    """For the rest of this process. Pickled options have the default, too."""
    default = default_of(name)
    kind_name, _, field_name = name.partition(".")
    kind = next(each for each in KINDS if each.__name__ == kind_name)
    setattr(kind, field_name, property(lambda _: default, lambda _, __: None))


def pytest_configure(config: pytest.Config) -> None:
    """This module is a plugin of the run that must fail."""
    name = os.environ.get(PLANTED)
    if name:
        plant(name)
