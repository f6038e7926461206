"""The schema registry: does it answer, accept the login, and do the columns fit its schema? Nothing is registered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from kafka_sink.errors import ConfigError, KafkaSinkError
from kafka_sink.errors.table.commits import SCHEMA_RULES
from kafka_sink.formats.registry.rules import SchemaRule
from kafka_sink.operate.checks.finding import OK, ProbeResult, fail, ok, warn
from kafka_sink.operate.checks.job import CheckedJob
from kafka_sink.options.format_options import FormatOptions, RegistryOptions

# Texts of formats/registry/resolution.py.
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
    if job.schema is not None:
        yield from _schemas(job, job.schema, formats)


def _reach(options: RegistryOptions) -> ProbeResult:
    from kafka_sink.formats.registry.request import RegistryRequest
    from kafka_sink.spark.formats.schema_registry import RegistryClient

    urls = ", ".join(options.url)
    try:
        answer = RegistryClient(options).ask(RegistryRequest("/subjects"), retries_max=0)
    except KafkaSinkError as error:
        return fail("registry", f"{urls}: {error}", _REACH_ADVICE)
    if answer.status in (401, 403):
        text = f"{urls} refuses this login (HTTP {answer.status})"
        advice = "set schema.registry.basic.auth.user.info or the bearer options of docs/schemas.md"
        return fail("registry", text, advice)
    if answer.status >= 300:
        text = f"{urls} answers HTTP {answer.status} when asked for its subjects"
        return warn("registry", text, _REACH_ADVICE)
    return ok("registry", f"{urls} answers")


def _schemas(job: CheckedJob, schema: Any, formats: FormatOptions) -> Iterator[ProbeResult]:
    from kafka_sink.formats.schemas.spark_types import arrow_type_from_json
    from kafka_sink.spark.columns import choose_columns, encoded_sides
    from kafka_sink.spark.formats.side_planning import plan_side

    changes = job.options.changes
    try:
        columns = choose_columns(schema, job.options.topic, formats, changes=changes)
        sides = list(encoded_sides(schema, columns, formats, changes))
    except ConfigError:
        return  # reported by another probe
    # Not from the cache: a schema may have been registered since the last check in this process.
    asked = None if formats.registry is None else replace(formats.registry, latest_cache_ttl_sec=0)
    for side, chosen, kind, name in sides:
        looked_up = replace(chosen, query=replace(chosen.query, registers=False))
        try:
            arrow_kind = arrow_type_from_json(kind.jsonValue(), name)
            _, resolved = plan_side(side, looked_up, asked, arrow_kind, job.options.topic)
        except KafkaSinkError as error:
            if chosen.query.registers and _TO_REGISTER in str(error) and _MISFIT not in str(error):
                yield ok("schema", f"{side}: not registered yet; the job does it")
            elif error.entry is SCHEMA_RULES:
                yield fail("schema", str(error), error.entry.cure)
            else:
                yield fail("schema", str(error), f"pykafka-sink schema check --side {side} --help")
        else:
            yield ok("schema", f"{side}: the columns can be written as {chosen.format}")
            yield from _rules(side, () if resolved is None else resolved.rules or ())


def _rules(side: str, rules: Sequence[SchemaRule]) -> Iterator[ProbeResult]:
    ignored = [str(rule) for rule in rules if rule.is_for_writers]
    others = [str(rule) for rule in rules if not rule.is_for_writers]
    if ignored:
        advice = "without schema.rules=ignore the job is refused"
        yield warn("schema", f"{side}: the schema has rules that a writer must apply: {'; '.join(ignored)}", advice)
    if others:
        yield ok("schema", f"{side}: rules of the schema that are not for writers: {'; '.join(others)}")
