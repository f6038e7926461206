"""`pykafka-sink check`: options from the command line and from a file, as a Spark job would have them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from kafka_sink.errors import ConfigError
from kafka_sink.operate.checks.finding import CheckReport, fail, ok
from kafka_sink.operate.checks.run import check
from kafka_sink.operate.cli.brokers import read_options
from kafka_sink.operate.cli.report import Report
from kafka_sink.operate.cli.schema import parse_columns
from kafka_sink.options.presets import PREFIX, PRESET, PRESETS, unset_preset_settings

NOT_RUN = "from the service's documentation; run here only against the embedded broker with the same quirk"


def run(given: argparse.Namespace) -> Report:
    found = _run_checks(given)
    if given.explain and found.is_ok:
        # Without marks: nothing was checked.
        lines = [f"{each.name:8} {each.text}" + (f" ({each.advice})" if each.advice else "") for each in found]
    else:
        lines = found.lines(sys.stdout.encoding)
    return Report(found.exit_code, {}, lines, found.objects())


def _run_checks(given: argparse.Namespace) -> CheckReport:
    """An error in the options is a line of the report, too."""
    try:
        settings = read_settings(given)
        if given.explain:
            if PRESET not in settings:
                raise ConfigError("--explain is about a preset: name one with --preset")
            return explain_preset(settings[PRESET], settings)
        schema = None if given.columns is None else _spark_schema(given.columns)
    except ConfigError as error:
        return CheckReport([fail("options", str(error), "pykafka-sink check --help")])
    return check(
        settings, schema, timeout_s=given.timeout, probe_write=given.probe_write, batch_minutes=given.batch_minutes
    )


def explain_preset(name: str, settings: Mapping[str, str]) -> CheckReport:
    """What it sets, what else the service needs, and its limits. `settings` of the job override the preset."""
    preset = PRESETS[name]
    left = unset_preset_settings(preset, {given.lower(): value for given, value in settings.items()})
    found = [ok("service", f"{preset.title}: {NOT_RUN}", " ".join(preset.sources))]
    for option, value in preset.settings.items():
        won = "" if option in left else "the option that you set wins"
        found.append(ok("sets", f"{option}={value}", won))
    if not preset.settings:
        found.append(ok("sets", "nothing: the sink learns the differences from the brokers"))
    found += [ok("needs", text) for text in preset.needs]
    found += [ok("cannot", text) for text in preset.cannot]
    return CheckReport(found)


def read_settings(given: argparse.Namespace) -> dict[str, str]:
    """Precedence: the command's own arguments, then --option, then the file."""
    settings = read_options(given)
    named: Mapping[str, str | None] = {
        f"{PREFIX}bootstrap.servers": given.bootstrap_servers,
        "topic": given.topic,
        "sink.id": given.sink_id,
        "checkpointLocation": given.checkpoint,
        PRESET: given.preset,
    }
    return settings | {name: value for name, value in named.items() if value is not None}


def _spark_schema(columns: str) -> Any:
    try:
        from pyspark.sql.pandas.types import from_arrow_type
    except ImportError:
        raise ConfigError("--columns needs PySpark: pip install 'pykafka-sink[spark]'") from None
    return from_arrow_type(parse_columns(columns))
