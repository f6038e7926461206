"""`pykafka-sink check`: options from the command line and from a file, as a Spark job would have them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from kafka_sink.checks.explain import explained, explanation
from kafka_sink.checks.finding import FAIL, CheckReport, ProbeResult
from kafka_sink.checks.run import check
from kafka_sink.cli.brokers import properties_of, without_repetition
from kafka_sink.cli.report import Report
from kafka_sink.cli.schema import columns_named
from kafka_sink.errors import ConfigError
from kafka_sink.options.foreign_table import ALIASES
from kafka_sink.options.presets import PREFIX, PRESET
from kafka_sink.options.table import OPTIONS


def run(given: argparse.Namespace) -> Report:
    found = _checked(given)
    lines = explanation(found) if given.explain and found.is_ok else found.lines(sys.stdout.encoding)
    return Report(found.exit_code, {}, lines, found.objects())


def _checked(given: argparse.Namespace) -> CheckReport:
    """What is wrong with the options themselves is a line of the report, as everything else."""
    try:
        settings = settings_of(given)
        if given.explain:
            if PRESET not in settings:
                raise ConfigError("--explain is about a preset: name one with --preset")
            return CheckReport(explained(settings[PRESET], settings))
        schema = None if given.columns is None else _spark_schema(given.columns)
    except ConfigError as error:
        return CheckReport([ProbeResult("options", FAIL, str(error), "pykafka-sink check --help")])
    return check(settings, schema, timeout_s=given.timeout, probe_write=given.probe_write)


def settings_of(given: argparse.Namespace) -> dict[str, str]:
    """What is nearer to the command wins: its own arguments, then --option, then the file."""
    settings = {_prefixed(name): value for name, value in properties_of(given.properties).items()}
    settings |= without_repetition(given.option)
    named: Mapping[str, str | None] = {
        f"{PREFIX}bootstrap.servers": given.bootstrap_servers,
        "topic": given.topic,
        "sink.id": given.sink_id,
        "checkpointLocation": given.checkpoint,
        PRESET: given.preset,
    }
    return settings | {name: value for name, value in named.items() if value is not None}


def _prefixed(name: str) -> str:
    """Files of Kafka's own tools have no prefix."""
    return f"{PREFIX}{name}" if name in OPTIONS or name in ALIASES else name


def _spark_schema(columns: str) -> Any:
    try:
        from pyspark.sql.pandas.types import from_arrow_type
    except ImportError:
        raise ConfigError("--columns needs PySpark: pip install 'pykafka-sink[spark]'") from None
    return from_arrow_type(columns_named(columns))
