"""The schema registry: does it answer, accept the login, and do the columns fit its schema? Nothing is registered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kafka_sink.checks.finding import FAIL, OK, WARN, ProbeResult
from kafka_sink.checks.job import CheckedJob
from kafka_sink.errors import ConfigError, KafkaSinkError
from kafka_sink.options.format_names import ENCODED
from kafka_sink.options.format_options import FormatOptions, RegistryOptions, SideFormat

# Texts of registry/resolution.py.
_TO_REGISTER, _MISFIT = "set auto.register.schemas=true", "is not compatible with"
_REACH_ADVICE = "compare schema.registry.url, its TLS options and credentials with the registry"


def registry(job: CheckedJob) -> Iterator[ProbeResult]:
    formats = job.options.formats
    if formats is None:
        return
    if formats.registry is not None:
        answered = _reach(formats.registry)
        yield answered
        if answered.verdict != OK:
            return
    for side, chosen in (("value", formats.value), ("key", formats.key)):
        if chosen is not None and chosen.format in ENCODED and job.schema is not None:
            yield from _schema(job, job.schema, formats, side, chosen)


def _reach(options: RegistryOptions) -> ProbeResult:
    from kafka_sink.admin.schema_registry import RegistryClient
    from kafka_sink.registry.request import RegistryRequest

    urls = ", ".join(options.url)
    try:
        answer = RegistryClient(options).ask(RegistryRequest("/subjects"), retries_max=0)
    except KafkaSinkError as error:
        return ProbeResult("registry", FAIL, f"{urls}: {error}", _REACH_ADVICE)
    if answer.status in (401, 403):
        text = f"{urls} refuses this login (HTTP {answer.status})"
        advice = "set schema.registry.basic.auth.user.info or the bearer options of docs/schemas.md"
        return ProbeResult("registry", FAIL, text, advice)
    if answer.status >= 300:
        text = f"{urls} answers HTTP {answer.status} when asked for its subjects"
        return ProbeResult("registry", WARN, text, _REACH_ADVICE)
    return ProbeResult("registry", OK, f"{urls} answers")


def _schema(
    job: CheckedJob, schema: Any, formats: FormatOptions, side: str, chosen: SideFormat
) -> Iterator[ProbeResult]:
    from kafka_sink.admin.side_planning import plan_side
    from kafka_sink.schemas.spark_types import arrow_type_from_json
    from kafka_sink.spark.columns import choose_columns

    try:
        columns = choose_columns(schema, job.options.topic, formats)
    except ConfigError:
        return  # reported by another probe
    if side == "value" and columns.record:
        name, found = "", type(schema)([schema.fields[index] for _, index in columns.record])
    else:
        name, found = side, schema.fields[columns.indices[columns.names.index(side)]].dataType
    looked_up = replace(chosen, schema=replace(chosen.schema, registers=False))
    # Not from the cache: a schema may have been registered since the last check in this process.
    asked = None if formats.registry is None else replace(formats.registry, latest_cache_ttl_sec=0)
    try:
        plan_side(side, looked_up, asked, arrow_type_from_json(found.jsonValue(), name), job.options.topic)
    except KafkaSinkError as error:
        if chosen.schema.registers and _TO_REGISTER in str(error) and _MISFIT not in str(error):
            yield ProbeResult("schema", OK, f"{side}: not registered yet; the job does it")
        else:
            yield ProbeResult("schema", FAIL, str(error), f"pykafka-sink schema check --side {side} --help")
        return
    yield ProbeResult("schema", OK, f"{side}: the columns can be written as {chosen.format}")
